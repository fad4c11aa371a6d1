"""What users ask once, with a record of it: `DataFlowAction`. Only a cluster has it; elsewhere the verbs of `dataflow`
do the same."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from opendataflow.model.fields.field_types import (
    NEVER_NULL,
    DataIds,
    Duration,
    Flag,
    Id,
    Metadata,
    Text,
    Written,
    duration_seconds,
)
from opendataflow.model.fields.rules import Rule, exactly_one
from opendataflow.names import ChunkStatus, TaskState

Verb = Literal["resubmit", "hold", "release", "skip", "force", "cancel", "publish", "accept", "reject"]
AnyState = Literal[
    "DECLARED",
    "WAITING",
    "QUEUED",
    "READY",
    "RUNNING",
    "RETRYING",
    "DONE",
    "FAILED",
    "RESUBMIT",
    "HOLD",
    "HELD",
    "PENDING",
    "SKIPPED",
]

_OF_TASKS = ("skip", "force", "cancel")
_OF_CHUNKS = ("publish", "accept", "reject")


def _words(words: Any) -> str:
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"


class DataIdRange(Written):
    """Data ids in natural order, both ends inside; an end that is not written is open."""

    rules: ClassVar = (
        Rule(
            "from, to or both are wanted",
            lambda it: it.start is not None or it.end is not None,
            "has(self.from) || has(self.to)",
        ),
    )

    start: Id | None = Field(default=None, alias="from", description="The first data id.")
    end: Id | None = Field(default=None, alias="to", description="The last data id; it is included.")


class DataFlowActionSpec(Written):
    """What is asked, and of which chunks. It can't be changed: another request is another resource."""

    rules: ClassVar = (
        exactly_one("job", "dataset"),
        exactly_one("chunks", "range", "status"),
        Rule(
            "skip, force and cancel are asked of a job",
            lambda it: it.action not in _OF_TASKS or it.job is not None,
            f"!(self.action in {_words(_OF_TASKS)}) || has(self.job)",
            at="action",
        ),
        Rule(
            "publish, accept and reject are asked of a data set",
            lambda it: it.action not in _OF_CHUNKS or it.dataset is not None,
            f"!(self.action in {_words(_OF_CHUNKS)}) || has(self.dataset)",
            at="action",
        ),
        Rule(
            "READY is a status of chunks: for the tasks of a job, write QUEUED",
            lambda it: it.job is None or it.status != "READY",
            "!has(self.job) || !has(self.status) || self.status != 'READY'",
            at="status",
        ),
        Rule(
            f"tasks of a job are never in this state, but {', '.join(TaskState)}",
            lambda it: it.job is None or it.status is None or it.status in (*TaskState, "READY"),
            f"!has(self.job) || !has(self.status) || self.status in {_words((*TaskState, 'READY'))}",
            at="status",
        ),
        Rule(
            f"chunks of a data set are never in this state, but {', '.join(ChunkStatus)}",
            lambda it: it.dataset is None or it.status is None or it.status in tuple(ChunkStatus),
            f"!has(self.dataset) || !has(self.status) || self.status in {_words(ChunkStatus)}",
            at="status",
        ),
        Rule(
            "only resubmit has a cascade",
            lambda it: not it.cascade or it.action == "resubmit",
            "!self.cascade || self.action == 'resubmit'",
            at="cascade",
        ),
        Rule("an action can't be changed; make another DataFlowAction", cel="self == oldSelf"),
    )

    job: Id | None = Field(default=None, description="The id of the job whose tasks it is about.")
    dataset: Id | None = Field(default=None, description="The id of the data set whose chunks it is about.")
    action: Verb = Field(
        description="resubmit asks again; hold keeps from running, or chunks from being used; release undoes hold and "
        "skip; skip says it will not be done; force runs next whatever the inputs are; cancel ends runs; publish says "
        "that chunks are there; accept and reject judge chunks that are PENDING."
    )
    chunks: DataIds | None = Field(default=None, description="These data ids.")
    range: DataIdRange | None = Field(default=None, description="All data ids of a range.")
    status: Annotated[AnyState | None, NEVER_NULL] = Field(default=None, description="All that are in this state.")
    cascade: Flag = Field(default=False, description="Also all that was made of it, downwards; only of resubmit.")
    reason: Annotated[Text, Field(max_length=1000)] | None = Field(
        default=None, description="Why; goes into the history."
    )
    ttl: Duration = Field(
        default="168h", description="How long the resource is kept after it is finished; the history stays."
    )

    @property
    def ttl_seconds(self) -> float:
        """How long the resource is kept after it is finished, in seconds."""
        return duration_seconds(self.ttl)


class DataFlowAction(Written):
    """One request to a job or data set, done once, all or nothing, with a record of who asked and what became of it."""

    api_version: Literal["opendataflow.io/v1alpha1"] = Field(description="The version of this format.")
    kind: Literal["DataFlowAction"] = Field(description="The kind of the resource.")
    metadata: Metadata = Field(description="The name of the request.")
    spec: DataFlowActionSpec = Field(description="What is asked, and of which chunks.")
