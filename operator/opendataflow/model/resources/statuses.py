"""The models of the statuses that the operator writes. Statuses are output: no decision uses them.

The exceptions are the phase of an action, and the accepted spec of a job, which has to match its digest in Postgres.

The lengths of all lists and texts are bounded, so that a status is always smaller than 32 KiB, without the accepted
spec. A text that is too long is truncated, not refused. An accepted spec that is too long is left out.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from opendataflow.model.fields.rules import Rule

MOST_FAILURES = 10
MOST_GAPS = 10
MOST_LINES = 20
MOST_SHARED_INPUTS = 5
LONGEST_SPEC = 64 * 1024
"""The most characters of an accepted spec. An API server stores at most 1.5 MiB of a resource, with all its copies."""

Number = Annotated[int, Field(ge=0, le=2**53)]
Replicas = Annotated[int, Field(ge=0, le=2**31 - 1), BeforeValidator(lambda count: min(count, 2**31 - 1))]


def _truncate(length: int) -> BeforeValidator:
    return BeforeValidator(lambda text: text[:length] if isinstance(text, str) else text)


Word = Annotated[str, _truncate(64), Field(max_length=64)]
Name = Annotated[str, _truncate(253), Field(max_length=253)]
Line = Annotated[str, _truncate(512), Field(max_length=512)]
Message = Annotated[str, _truncate(1024), Field(max_length=1024)]

_BY_TYPE = Rule(
    "a type of condition occurs once",
    schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
)


class StatusModel(BaseModel):
    """The base class of all models in a status: frozen, camel case in YAML."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    def body(self) -> dict[str, Any]:
        """Return the JSON for an API server, without unknown fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Condition(StatusModel):
    """A condition, after the conventions of Kubernetes."""

    type: Annotated[str, Field(max_length=64)] = Field(
        description="Ready, Progressing, Stalled, Suspended, Succeeded, DatabaseReachable, BreakerOpen or TestsPassed."
    )
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    observed_generation: Number | None = Field(
        default=None, description="The metadata.generation of the spec for which the condition was computed."
    )
    last_transition_time: datetime = Field(description="The time of the last change of the condition's status.")
    reason: Word = Field(description="The reason, in one word for programs.")
    message: Message = Field(default="", description="The reason, in a sentence for people.")


class PlanStatus(StatusModel):
    """The plan of a change that was refused, because it affects finished tasks."""

    hash: Word = Field(description="The hash of the plan. spec.allow.change with this hash allows it.")
    needs: Annotated[tuple[Word, ...], Field(max_length=3)] = Field(
        default=(), description="The needed consents: retire, overlap, backfill."
    )
    lines: Annotated[tuple[Line, ...], Field(max_length=MOST_LINES)] = Field(
        default=(), description="What the change would do, at most 20 lines with some data ids."
    )


class Status(StatusModel):
    """The status fields that DataSets and DataFlowJobs share."""

    observed_generation: Number | None = Field(
        default=None, description="The metadata.generation of the spec that the operator has taken over."
    )
    conditions: Annotated[tuple[Condition, ...], Field(max_length=10), _BY_TYPE] = Field(
        default=(), description="The conditions, after the conventions of Kubernetes."
    )
    plan: PlanStatus | None = Field(
        default=None, description="The plan of the present spec, if it was refused (reason PlanRefused)."
    )


class ChunkCounts(StatusModel):
    """The number of chunks by status."""

    total: Number = Field(default=0, description="All chunks.")
    declared: Number = Field(default=0, description="Chunks that are not written yet.")
    ready: Number = Field(default=0, description="Chunks that may be read.")
    running: Number = Field(default=0, description="Chunks that a run is writing.")
    failed: Number = Field(default=0, description="Chunks whose last attempt failed.")
    resubmit: Number = Field(default=0, description="Chunks that will be written again.")
    hold: Number = Field(default=0, description="Chunks that may be neither read nor written.")
    pending: Number = Field(default=0, description="Chunks that a person has to accept or reject.")


class Gap(StatusModel):
    """A sequence of chunks that are not READY."""

    start: Name = Field(alias="from", description="The first data id that is not READY.")
    end: Name = Field(alias="to", description="The last data id that is not READY.")
    chunks: Number = Field(description="The number of these chunks.")


class DataSetStatus(Status):
    """The status of a data set."""

    counts: ChunkCounts | None = Field(default=None, description="The number of chunks by status.")
    progress: Word | None = Field(
        default=None,
        description="READY chunks and all known chunks, such as 11/12, and 11/12, declaring while more follow.",
    )
    watermark: Name | None = Field(
        default=None, description="The highest data id up to which every chunk is READY, in natural order."
    )
    gaps: Annotated[tuple[Gap, ...], Field(max_length=MOST_GAPS)] = Field(
        default=(), description="The first sequences of chunks that are not READY, at most 10."
    )


class TaskCounts(StatusModel):
    """The number of tasks by state."""

    total: Number = Field(default=0, description="All tasks of the job.")
    done: Number = Field(default=0, description="Tasks whose outputs are published.")
    running: Number = Field(default=0, description="Tasks with an active run.")
    failed: Number = Field(default=0, description="Tasks without any retries left.")
    waiting: Number = Field(default=0, description="Tasks that have a blocker.")
    queued: Number = Field(default=0, description="Tasks that may start.")
    retrying: Number = Field(default=0, description="Tasks that failed and will be retried.")
    held: Number = Field(default=0, description="Tasks that a person holds.")
    skipped: Number = Field(default=0, description="Tasks that a person has excluded.")
    stale: Number = Field(
        default=0, description="DONE tasks that were made from an older version of an input or of the job."
    )


class Failure(StatusModel):
    """A failed run."""

    data_id: Name = Field(description="The data id of its chunk.")
    run: Number = Field(description="The number of the run, for `dataflow describe run`.")
    reason: Word = Field(
        default="", description="The class of the failure, in one word, such as ExpectationFailed or OOMKilled."
    )
    message: Message = Field(description="The cause of the failure, in one line.")
    at: datetime = Field(description="The time of its end.")
    forced: bool | None = Field(
        default=None, description="True if the run was forced. Inputs may have been missing. Otherwise left out."
    )


class SharedInput(StatusModel):
    """An input that another namespace shares."""

    dataset: Name = Field(description="The data set, such as team-a/raw.")
    location: Line = Field(description="Where it is, and its options. The owner can change that.")
    hash: Word = Field(
        description="The hash of where runs send a password. spec.credentials accepts it by acceptLocation."
    )


class Resubmitted(StatusModel):
    """The last request of spec.resubmit that the operator has taken over."""

    id: Name = Field(description="The id of the request.")
    chunks: Number = Field(default=0, description="The number of resubmitted chunks.")
    message: Message = Field(default="", description="Why the request was refused, if it was.")


class DataFlowJobStatus(Status):
    """The status of a job."""

    state: Word | None = Field(default=None, description="The state of the job, in one word.")
    counts: TaskCounts | None = Field(default=None, description="The number of tasks by state.")
    progress: Word | None = Field(
        default=None,
        description="DONE tasks and all known tasks, such as 11/12, and stale ones, such as 12/12, 1 stale. While more "
        "tasks follow, it ends with declaring.",
    )
    rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Processed chunks per hour, measured recently."
    )
    eta: Word | None = Field(default=None, description="The remaining time at this rate, such as 3h20m.")
    watermark: Name | None = Field(
        default=None, description="The highest data id up to which all tasks are DONE, in natural order."
    )
    last_failures: Annotated[tuple[Failure, ...], Field(max_length=MOST_FAILURES)] = Field(
        default=(), description="The last failed runs, at most 10, the newest first."
    )
    shared_inputs: Annotated[tuple[SharedInput, ...], Field(max_length=MOST_SHARED_INPUTS)] = Field(
        default=(), description=f"The inputs that other namespaces share, at most {MOST_SHARED_INPUTS}."
    )
    resubmit: Resubmitted | None = Field(
        default=None, description="The last request of spec.resubmit that the operator has taken over."
    )
    replicas: Replicas = Field(
        default=0, description="The number of active runs, which `kubectl scale` compares with spec.parallelism."
    )
    selector: Name | None = Field(default=None, description="The label selector of the job's run pods.")
    accepted_spec: Annotated[str, Field(max_length=LONGEST_SPEC)] | None = Field(
        default=None,
        description="The spec that is in force, as JSON with all defaults. Runs of it start while the present spec is "
        f"refused (reason PlanRefused). Left out if it is longer than {LONGEST_SPEC} characters.",
    )


class ActionCounts(StatusModel):
    """The number of tasks or chunks of a request, by result."""

    done: Number = Field(default=0, description="Tasks or chunks that were changed.")
    unchanged: Number = Field(default=0, description="Tasks or chunks that already had the requested state.")
    refused: Number = Field(
        default=0, description="Tasks or chunks that can't be changed. If there are any, nothing is changed."
    )


class DataFlowActionStatus(StatusModel):
    """The result of a request."""

    phase: Literal["Pending", "Done", "Refused"] = Field(default="Pending", description="The phase of the request.")
    counts: ActionCounts | None = Field(default=None, description="The number of tasks or chunks by result.")
    message: Message | None = Field(default=None, description="The result, or the cause of a refusal, in a sentence.")
    reason: Word | None = Field(
        default=None,
        description="The cause of a refusal, in one word: Unknown, InvalidSpec or Refused.",
    )
    lines: Annotated[tuple[Line, ...], Field(max_length=MOST_LINES)] = Field(
        default=(), description="The results for the first tasks or chunks, one line each, at most 20."
    )
    finished_at: datetime | None = Field(default=None, description="The time of the result.")
