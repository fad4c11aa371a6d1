"""The resources that users write: the door to their models, each of which is in a module of its own.

The one source of the field names, defaults and limits; the custom resource definitions (model/crd.py) and the
reference are made from it.
"""

from opendataflow.model.actions import DataFlowAction
from opendataflow.model.chunk_source import MAX_CHUNKS, Bounds, ChunkSource, DateRange, HashBuckets, IntegerRange
from opendataflow.model.datasets import Credentials, DataSet, Location
from opendataflow.model.jobs import DataFlowJob, PodTemplate, Retry, Script
from opendataflow.model.spark import Spark
from opendataflow.model.written import Id, duration_seconds, holds_password

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
