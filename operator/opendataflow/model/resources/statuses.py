"""What the operator tells in the statuses of resources. Output, never input: nothing reads them to decide.

Every list and text is bounded, so that a status stays below 32 KiB at any number of chunks; a text that is too long is
cut rather than refused.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from opendataflow.model.fields.rules import Rule

MOST_FAILURES = 10
MOST_GAPS = 10
MOST_LINES = 20

Number = Annotated[int, Field(ge=0, le=2**53)]
Replicas = Annotated[int, Field(ge=0, le=2**31 - 1), BeforeValidator(lambda count: min(count, 2**31 - 1))]


def _cut(length: int) -> BeforeValidator:
    return BeforeValidator(lambda text: text[:length] if isinstance(text, str) else text)


Word = Annotated[str, _cut(64), Field(max_length=64)]
Name = Annotated[str, _cut(253), Field(max_length=253)]
Line = Annotated[str, _cut(512), Field(max_length=512)]
Message = Annotated[str, _cut(1024), Field(max_length=1024)]

_BY_TYPE = Rule(
    "a condition is told once",
    schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
)


class Told(BaseModel):
    """The base of everything in a status: frozen, camel case in YAML."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)

    def body(self) -> dict[str, Any]:
        """Return what an API server gets: JSON, without what is not known."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class Condition(Told):
    """One thing that is so or not, as everywhere in Kubernetes."""

    type: Annotated[str, Field(max_length=64)] = Field(
        description="Ready, Progressing, Stalled, Suspended, Succeeded, DatabaseReachable, BreakerOpen or TestsPassed."
    )
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it is so.")
    observed_generation: Number | None = Field(
        default=None, description="The metadata.generation of the spec that it is about."
    )
    last_transition_time: datetime = Field(description="Since when it is so.")
    reason: Word = Field(description="Why, in one word for programs.")
    message: Message = Field(default="", description="Why, in a sentence for people.")


class Status(Told):
    """What every resource with a state of its own tells."""

    observed_generation: Number | None = Field(
        default=None, description="The metadata.generation of the spec that the operator has taken over."
    )
    conditions: Annotated[tuple[Condition, ...], Field(max_length=10), _BY_TYPE] = Field(
        default=(), description="What is so and what is not."
    )


class ChunkCounts(Told):
    """How many chunks are in which status."""

    total: Number = Field(default=0, description="All chunks.")
    declared: Number = Field(default=0, description="Known, not there yet.")
    ready: Number = Field(default=0, description="There.")
    running: Number = Field(default=0, description="Being written.")
    failed: Number = Field(default=0, description="The last attempt failed.")
    resubmit: Number = Field(default=0, description="Asked for again.")
    hold: Number = Field(default=0, description="Kept from being read and written.")
    pending: Number = Field(default=0, description="Waiting to be accepted by a person.")


class Gap(Told):
    """Chunks in a row that are not there."""

    start: Name = Field(alias="from", description="The first data id that is not READY.")
    end: Name = Field(alias="to", description="The last data id that is not READY.")
    chunks: Number = Field(description="How many chunks they are.")


class DataSetStatus(Status):
    """What is there of the data set."""

    counts: ChunkCounts | None = Field(default=None, description="How many chunks are in which status.")
    progress: Word | None = Field(default=None, description="Chunks that are ready and all, such as 11/12.")
    watermark: Name | None = Field(
        default=None, description="The highest data id up to which every chunk is ready, in natural order."
    )
    gaps: Annotated[tuple[Gap, ...], Field(max_length=MOST_GAPS)] = Field(
        default=(), description="The first chunks that are not there, at most 10."
    )


class TaskCounts(Told):
    """How many tasks are in which state."""

    total: Number = Field(default=0, description="All tasks of the job.")
    done: Number = Field(default=0, description="Its outputs are there.")
    running: Number = Field(default=0, description="A run is at it.")
    failed: Number = Field(default=0, description="Its retries are used up.")
    waiting: Number = Field(default=0, description="Something blocks it.")
    queued: Number = Field(default=0, description="May start.")
    retrying: Number = Field(default=0, description="Failed, tried again after a pause.")
    held: Number = Field(default=0, description="Kept from running by a person.")
    skipped: Number = Field(default=0, description="Will not be done.")
    stale: Number = Field(default=0, description="Done with inputs that have a newer version now.")


class Failure(Told):
    """One run that failed."""

    data_id: Name = Field(description="The chunk.")
    run: Number = Field(description="The run's number, as for `dataflow describe`.")
    reason: Word = Field(default="", description="Its class in one word, such as ExpectationFailed or OOMKilled.")
    message: Message = Field(description="What it died of, in one line.")
    at: datetime = Field(description="When it ended.")


class Resubmitted(Told):
    """The request of spec.resubmit that was taken over last."""

    id: Name = Field(description="The id of the request.")
    chunks: Number = Field(default=0, description="How many chunks were asked for again.")
    message: Message = Field(default="", description="What became of it, where it could not be done.")


class DataFlowJobStatus(Status):
    """How far the job is."""

    state: Word | None = Field(default=None, description="How the job is, in one word.")
    counts: TaskCounts | None = Field(default=None, description="How many tasks are in which state.")
    progress: Word | None = Field(default=None, description="Tasks that are done and all, such as 11/12.")
    rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Chunks an hour, of late."
    )
    eta: Word | None = Field(default=None, description="How long the rest takes at this rate, such as 3h20m.")
    watermark: Name | None = Field(
        default=None, description="The highest data id up to which all tasks are done, in natural order."
    )
    last_failures: Annotated[tuple[Failure, ...], Field(max_length=MOST_FAILURES)] = Field(
        default=(), description="The last runs that failed, at most 10; the newest first."
    )
    resubmit: Resubmitted | None = Field(default=None, description="The last request that was taken over.")
    replicas: Replicas = Field(default=0, description="Runs now; what `kubectl scale` compares with spec.parallelism.")
    selector: Name | None = Field(default=None, description="The label selector of the job's run pods.")


class ActionCounts(Told):
    """What became of the chunks of a request."""

    done: Number = Field(default=0, description="Changed.")
    unchanged: Number = Field(default=0, description="Were already so.")
    refused: Number = Field(default=0, description="Could not be changed; then none was.")


class DataFlowActionStatus(Told):
    """What became of the request."""

    phase: Literal["Pending", "Done", "Refused"] = Field(default="Pending", description="How far it is.")
    counts: ActionCounts | None = Field(default=None, description="What became of the chunks.")
    message: Message | None = Field(default=None, description="What was done, or why not, in a sentence.")
    reason: Word | None = Field(
        default=None, description="Why not, in one word: Unknown, NotShared, InvalidSpec or Refused."
    )
    lines: Annotated[tuple[Line, ...], Field(max_length=MOST_LINES)] = Field(
        default=(), description="What became of the first chunks, one by one, at most 20."
    )
    finished_at: datetime | None = Field(default=None, description="When it was finished.")
