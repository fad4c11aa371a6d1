"""What users write about a job: `DataFlowJob`, for one machine and for a cluster in one format.

What only one of the two honours says so in its description and is accepted by both.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, Strict

from opendataflow.model.fields.field_types import (
    NEVER_NULL,
    Arguments,
    Count,
    DataIds,
    Duration,
    Env,
    Flag,
    Id,
    Ids,
    Integer,
    Key,
    Metadata,
    NonEmpty,
    Quantity,
    Text,
    TextMap,
    Written,
    duration_seconds,
)
from opendataflow.model.fields.rules import Place, Rule, exactly_one, unchangeable
from opendataflow.model.resources.pipeline_runtime import PipelineRuntime
from opendataflow.model.resources.spark import Spark

_NOT_LOCAL = "Not used on one machine."


class Resources(Written):
    """What a container asks for and how much it may use, as in a pod."""

    requests: Annotated[dict[Key, Quantity], Field(max_length=20)] = Field(
        default_factory=dict, description="What it is sure to get, such as cpu 500m and memory 1Gi."
    )
    limits: Annotated[dict[Key, Quantity], Field(max_length=20)] = Field(
        default_factory=dict, description="The most that it may use."
    )


class Script(Written):
    """Any program, started as it is and never through a shell."""

    rules: ClassVar = (
        Rule("this field is needed", lambda it: it.command != (), at="command", place=Place.MACHINE),
        Rule(
            "a cluster runs containers; write the image",
            lambda it: it.image is not None,
            "has(self.image)",
            at="image",
            place=Place.CLUSTER,
        ),
        Rule(
            "the program is empty",
            lambda it: it.command == () or it.command[0].strip() != "",
            "!has(self.command) || self.command.size() == 0 || self.command[0].trim() != ''",
            at="command[0]",
        ),
        Rule(
            "in a container the working directory is an absolute path",
            lambda it: it.working_directory is None or it.working_directory.startswith("/"),
            "!has(self.workingDirectory) || self.workingDirectory.startsWith('/')",
            at="workingDirectory",
            place=Place.CLUSTER,
        ),
    )

    image: NonEmpty | None = Field(default=None, description=f"The container image. Needed on a cluster. {_NOT_LOCAL}")
    command: Annotated[Arguments, Field(min_length=1)] = Field(
        default=(),
        description="The program and its arguments. Needed on one machine; on a cluster the default is the image's "
        "own entry point.",
    )
    args: Arguments = Field(default=(), description="Arguments that follow those of the command or entry point.")
    working_directory: Text | None = Field(
        default=None,
        description="Where it starts. On one machine it is relative to the folder of the file, which is the default; "
        "on a cluster it is absolute and the default is the image's.",
    )
    image_pull_policy: Annotated[Literal["Always", "IfNotPresent", "Never"] | None, NEVER_NULL] = Field(
        default=None, description=f"When the image is fetched; the default is Kubernetes'. {_NOT_LOCAL}"
    )
    resources: Resources | None = Field(
        default=None, description=f"What the container asks for and may use. {_NOT_LOCAL}"
    )


class PodMetadata(Written):
    """Labels and annotations for what is made of each run."""

    labels: TextMap | None = Field(default=None, description="Labels, beside those of the framework.")
    annotations: TextMap | None = Field(default=None, description="Annotations, beside those of the framework.")


class SparkApplicationTemplate(Written):
    """What the SparkApplications of the runs have beside what the framework writes."""

    metadata: PodMetadata | None = Field(default=None, description="Labels and annotations of SparkApplications.")
    spec: dict[str, Any] = Field(
        description="As in a SparkApplication, sparkoperator.k8s.io/v1beta2, of the Kubeflow Spark operator."
    )


class SparkApplication(Written):
    """A SparkApplication of the Kubeflow Spark operator for each run."""

    template: SparkApplicationTemplate = Field(description="The SparkApplication of a run.")

    @property
    def program(self) -> str:
        """The file that a run executes; empty where none is written."""
        written = self.template.spec.get("mainApplicationFile")
        return written if isinstance(written, str) else ""


class Runtime(Written):
    """What a run executes: exactly one of the four."""

    rules: ClassVar = (exactly_one("script", "spark", "pipeline", "sparkApplication"),)

    script: Script | None = Field(default=None, description="Any program.")
    spark: Spark | None = Field(default=None, description="A PySpark program.")
    pipeline: PipelineRuntime | None = Field(default=None, description="A pipeline of a project of transformations.")
    spark_application: SparkApplication | None = Field(
        default=None, description=f"A program that the Kubeflow Spark operator runs. {_NOT_LOCAL}"
    )


class Chunks(Written):
    """A part of the data ids, in the natural order of data ids. Both ends are inside."""

    start: Id | None = Field(default=None, alias="from", description="The first data id to work on.")
    end: Id | None = Field(default=None, alias="to", description="The last data id to work on.")


class Backoff(Written):
    """How long the wait before a retry is: initial, then each time `factor` as long, at most `max`."""

    rules: ClassVar = (
        Rule(
            "initial is longer than max; write a longer max",
            lambda it: it.initial_seconds <= it.maximum_seconds,
            "duration(self.initial) <= duration(self.max)",
            told=lambda it: f"initial ({it.initial}) is longer than max ({it.maximum}); write a longer max",
        ),
    )

    initial: Duration = Field(default="10s", description="The wait after the first failure.")
    factor: Annotated[float, Strict(), Field(ge=1, allow_inf_nan=False)] = Field(
        default=2.0, description="How many times longer each wait is than the one before."
    )
    maximum: Duration = Field(default="10m", alias="max", description="The longest wait.")

    @property
    def initial_seconds(self) -> float:
        """The wait after the first failure, in seconds."""
        return duration_seconds(self.initial)

    @property
    def maximum_seconds(self) -> float:
        """The longest wait, in seconds."""
        return duration_seconds(self.maximum)


class Retry(Written):
    """How often a chunk is tried again by itself."""

    limit: Count = Field(default=2, description="Retries after the first attempt failed.")
    infrastructure_limit: Count = Field(
        default=5, description="Retries after failures that were not the program's: a lost node or process."
    )
    backoff: Backoff = Field(default_factory=Backoff, description="The waits between them.")


class OnNodeUnreachable(Written):
    """What happens to a run whose node does not answer, so that nobody knows whether it still writes."""

    retry_after: Duration = Field(
        description="Try again after this long without a proof that the run is dead. Only for runs whose writes are "
        "fenced: two may write at a time."
    )


class PodTemplate(Written):
    """What run pods have beside what the framework writes: volumes, node selectors, sidecars, service account ..."""

    metadata: PodMetadata | None = Field(default=None, description="Labels and annotations of run pods.")
    spec: dict[str, Any] = Field(
        default_factory=dict, description="As in a pod of Kubernetes; the container `main` is the run."
    )


class Resubmit(Written):
    """Chunks that are asked for again, once for each id: `kubectl patch` may be repeated."""

    rules: ClassVar = (
        Rule(
            "exactly one of chunks, failed, from and to is wanted",
            lambda it: [it.ids is not None, it.failed, not (it.start is None and it.end is None)].count(True) == 1,
            "[has(self.chunks), self.failed, has(self.from) || has(self.to)].filter(given, given).size() == 1",
        ),
        Rule(
            "an id asks once; write another id for another request",
            cel="self.id != oldSelf.id || self == oldSelf",
            at="id",
        ),
    )

    id: Id = Field(description="A name of your choice for this request; the same id again asks for nothing.")
    ids: DataIds | None = Field(default=None, alias="chunks", description="These data ids.")
    failed: Flag = Field(default=False, description="All that failed.")
    start: Id | None = Field(default=None, alias="from", description="From this data id on, in natural order.")
    end: Id | None = Field(default=None, alias="to", description="Up to this data id, which is included.")
    cascade: Flag = Field(default=False, description="Also all that was made of it, downwards.")


class DataFlowJobSpec(Written):
    """What the job reads, makes and executes."""

    rules: ClassVar = (
        Rule(
            "a job needs at least one data set in inputs or outputs",
            lambda it: bool(it.inputs or it.outputs),
            "(has(self.inputs) && self.inputs.size() > 0) || (has(self.outputs) && self.outputs.size() > 0)",
        ),
        Rule(
            "a data set is in inputs and in outputs; a job can't make what it reads",
            lambda it: not set(it.inputs) & set(it.outputs),
            "!has(self.inputs) || !has(self.outputs) || !self.outputs.exists(name, name in self.inputs)",
            told=lambda it: (
                f"{next(name for name in it.outputs if name in it.inputs)} is in inputs and in outputs; "
                "a job can't make what it reads"
            ),
            at="outputs",
        ),
        Rule(
            "the pods of a SparkApplication are described in runtime.sparkApplication.template.spec, by driver and "
            "executor; write it there",
            lambda it: it.pod_template is None or it.runtime.spark_application is None,
            "!has(self.podTemplate) || !has(self.runtime.sparkApplication)",
            at="podTemplate",
        ),
        unchangeable("id", "the id of a job can't be changed; make another DataFlowJob"),
    )

    id: Id | None = Field(default=None, description="The id in the database; the default is the name.")
    inputs: Ids = Field(default=(), description="The data sets whose chunks must be ready; `today` is built in.")
    outputs: Ids = Field(default=(), description="The data sets that the job makes.")
    runtime: Runtime = Field(description="What a run executes.")
    parallelism: Count = Field(default=1, description="The most runs at a time; 0 starts none.")
    suspend: Flag = Field(default=False, description="True: no new runs start; those that run go on.")
    order: Literal["ascending", "descending"] = Field(default="ascending", description="Which data ids come first.")
    priority: Integer = Field(default=0, description="The job with the higher number gets free slots first.")
    chunks: Chunks | None = Field(default=None, description="Work only on a part of the data ids.")
    retry: Retry = Field(default_factory=Retry, description="How often a chunk is tried again.")
    start_deadline: Annotated[
        Duration,
        Rule(
            "a run needs more than no time to start; leave it out for the default",
            lambda text: duration_seconds(text) > 0,
            "self.matches('[1-9]')",
        ),
    ] = Field(
        default="10m",
        description="How long a run may take to start: image pull, a free node. Longer is a failure of the "
        f"infrastructure. {_NOT_LOCAL}",
    )
    run_deadline: (
        Annotated[
            Duration,
            Rule(
                "a run needs more than no time; leave it out for no deadline",
                lambda text: duration_seconds(text) > 0,
                "self.matches('[1-9]')",
            ),
        ]
        | None
    ) = Field(default=None, description="How long a run may take, such as 2h.")
    on_node_unreachable: OnNodeUnreachable | None = Field(
        default=None,
        description="What happens to a run whose node does not answer; without it the chunk waits for a proof that "
        f"the run is dead. {_NOT_LOCAL}",
    )
    on_delete: Literal["Drain", "Cancel"] = Field(
        default="Drain",
        description="What happens to runs when the resource is deleted: Drain lets them go on, Cancel ends them. "
        f"{_NOT_LOCAL}",
    )
    resubmit: Resubmit | None = Field(
        default=None, description=f"Ask for chunks again. {_NOT_LOCAL} `dataflow resubmit` is the same there."
    )
    keep_log: Flag = Field(
        default=True,
        description="Whether the end of what a failed run has printed is kept in the database, and its last line told "
        "in messages. False for programs that may print a secret, which nobody can take out of a pod's log. "
        f"{_NOT_LOCAL}",
    )
    env: Env = Field(default_factory=dict, description="Variables for the runs, beside the standard ones.")
    pod_template: PodTemplate | None = Field(
        default=None, description=f"What run pods have beside what the framework writes. {_NOT_LOCAL}"
    )

    @property
    def run_deadline_seconds(self) -> float | None:
        """How long a run may take, in seconds; None for no limit."""
        return None if self.run_deadline is None else duration_seconds(self.run_deadline)

    @property
    def start_deadline_seconds(self) -> float:
        """How long a run may take to start, in seconds."""
        return duration_seconds(self.start_deadline)


class DataFlowJob(Written):
    """A job: for each chunk that is ready in its inputs it makes the chunk of its outputs."""

    rules: ClassVar = (
        Rule(
            "the resubmit before this one is not taken over yet; wait until status.resubmit.id is its id",
            cel="!has(oldSelf.spec.resubmit) || !has(self.spec.resubmit)"
            " || self.spec.resubmit.id == oldSelf.spec.resubmit.id"
            " || (has(oldSelf.status) && has(oldSelf.status.resubmit)"
            " && oldSelf.status.resubmit.id == oldSelf.spec.resubmit.id)",
            at="spec.resubmit.id",
        ),
    )

    api_version: Literal["opendataflow.io/v1alpha1"] = Field(description="The version of this format.")
    kind: Literal["DataFlowJob"] = Field(description="The kind of the resource.")
    metadata: Metadata = Field(description="The name of the job.")
    spec: DataFlowJobSpec = Field(description="What it reads, makes and executes.")

    @property
    def id(self) -> str:
        """The id in the database."""
        return self.spec.id or self.metadata.name
