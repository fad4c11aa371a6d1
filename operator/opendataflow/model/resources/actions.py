"""The model of a DataFlowAction: one request, with a record of its result.

It exists on clusters only. On one machine, the verbs of `dataflow` do the same.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from opendataflow.model.fields.field_types import (
    NEVER_NULL,
    DataIds,
    Duration,
    Flag,
    Id,
    InputModel,
    Line,
    Metadata,
    ObjectId,
    duration_seconds,
)
from opendataflow.model.fields.rules import Rule, exactly_one
from opendataflow.names import COUNTED_CHUNKS, COUNTED_TASKS

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


class DataIdRange(InputModel):
    """A range of data ids in natural order. Both ends are inclusive. An end that is not written is open."""

    rules: ClassVar = (
        Rule(
            "from, to or both are wanted",
            lambda it: it.start is not None or it.end is not None,
            "has(self.from) || has(self.to)",
        ),
    )

    start: Id | None = Field(default=None, alias="from", description="The first data id.")
    end: Id | None = Field(default=None, alias="to", description="The last data id (inclusive).")


class DataFlowActionSpec(InputModel):
    """The request. It can't be changed: create another resource for another request."""

    rules: ClassVar = (
        exactly_one("job", "dataset"),
        Rule(
            "exactly one of chunks, range, status and stale is wanted",
            lambda it: [it.chunks is not None, it.range is not None, it.status is not None, it.stale].count(True) == 1,
            "[has(self.chunks), has(self.range), has(self.status), self.stale].filter(given, given).size() == 1",
        ),
        Rule(
            "only resubmit makes stale chunks again",
            lambda it: not it.stale or it.action == "resubmit",
            "!self.stale || self.action == 'resubmit'",
            at="stale",
        ),
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
            f"tasks of a job are never in this state, but {', '.join(COUNTED_TASKS)}",
            lambda it: it.job is None or it.status is None or it.status in (*COUNTED_TASKS, "READY"),
            f"!has(self.job) || !has(self.status) || self.status in {_words((*COUNTED_TASKS, 'READY'))}",
            at="status",
        ),
        Rule(
            f"chunks of a data set are never in this state, but {', '.join(COUNTED_CHUNKS)}",
            lambda it: it.dataset is None or it.status is None or it.status in COUNTED_CHUNKS,
            f"!has(self.dataset) || !has(self.status) || self.status in {_words(COUNTED_CHUNKS)}",
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

    job: ObjectId | None = Field(
        default=None, description="The job whose tasks are selected, by its id in this namespace."
    )
    dataset: ObjectId | None = Field(
        default=None, description="The data set whose chunks are selected, by its id in this namespace."
    )
    action: Verb = Field(
        description="The verb. `resubmit` runs tasks again. `hold` keeps tasks from running, or chunks from being read "
        "and written. `release` undoes `hold` and `skip`. `skip` excludes tasks. `force` runs tasks next, whatever the "
        "states of their inputs are. `cancel` ends runs. `publish` makes chunks READY. `accept` and `reject` decide on "
        "chunks that are PENDING."
    )
    chunks: DataIds | None = Field(default=None, description="Select these data ids.")
    range: DataIdRange | None = Field(default=None, description="Select all data ids of a range.")
    status: Annotated[AnyState | None, NEVER_NULL] = Field(
        default=None, description="Select all tasks or chunks in this state."
    )
    stale: Flag = Field(
        default=False,
        description="Select all that was made from an older version of an input or of the job. Only for `resubmit`.",
    )
    cascade: Flag = Field(
        default=False, description="Also select all downstream chunks that were built from these. Only for `resubmit`."
    )
    reason: Annotated[Line, Field(max_length=1000)] | None = Field(
        default=None, description="The reason, for the history."
    )
    ttl: Duration = Field(
        default="168h", description="How long the resource is kept after it is finished. The history is kept longer."
    )

    @property
    def ttl_seconds(self) -> float:
        """How long the resource is kept after it is finished, in seconds."""
        return duration_seconds(self.ttl)


class DataFlowAction(InputModel):
    """One request about the tasks of a job or the chunks of a data set. It is executed once, all or nothing."""

    api_version: Literal["opendataflow.io/v1alpha1"] = Field(description="The API version.")
    kind: Literal["DataFlowAction"] = Field(description="The kind of the resource.")
    metadata: Metadata = Field(description="The name of the request.")
    spec: DataFlowActionSpec = Field(description="The request.")
