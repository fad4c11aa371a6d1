"""The resources that users write: the door to their models, each of which is in a module of its own.

The one source of the field names, defaults and limits; the custom resource definitions (model/resources/crd.py) and the
reference are made from it.
"""

from opendataflow.model.fields.field_types import Id, duration_seconds, holds_password
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
    "duration_seconds",
    "holds_password",
]
