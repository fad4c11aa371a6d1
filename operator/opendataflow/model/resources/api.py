"""The public names of the resource models.

The models are the only source of field names, defaults and limits. The custom resource definitions
(model/resources/crd.py) and the reference pages are generated from them.
"""

from opendataflow.model.fields.field_types import Id, contains_password, duration_seconds
from opendataflow.model.resources.actions import DataFlowAction
from opendataflow.model.resources.chunk_source import (
    MAX_CHUNKS,
    Bounds,
    ChunkSource,
    DateRange,
    HashBuckets,
    IntegerRange,
)
from opendataflow.model.resources.datasets import Credentials, DataSet, Location
from opendataflow.model.resources.jobs import DataFlowJob, PodTemplate, Retry, Script
from opendataflow.model.resources.spark import Spark

__all__ = [
    "MAX_CHUNKS",
    "Bounds",
    "ChunkSource",
    "Credentials",
    "DataFlowAction",
    "DataFlowJob",
    "DataSet",
    "DateRange",
    "HashBuckets",
    "Id",
    "IntegerRange",
    "Location",
    "PodTemplate",
    "Retry",
    "Script",
    "Spark",
    "contains_password",
    "duration_seconds",
]
