"""The model of a DataFlowJob, in one format for one machine and for clusters.

Both accept all fields. The description of a field says if only one of them uses it.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, Strict

from opendataflow.keys import bare
from opendataflow.model.fields.field_types import (
    NEVER_NULL,
    Aliases,
    Arguments,
    Count,
    DataIds,
    Duration,
    Env,
    Flag,
    Id,
    InputIds,
    InputModel,
    Key,
    Metadata,
    NonEmpty,
    ObjectId,
    OutputIds,
    Priority,
    Quantity,
    SecretKey,
    Text,
    TextMap,
    duration_seconds,
)
from opendataflow.model.fields.rules import Place, Rule, exactly_one, immutable
from opendataflow.model.resources.allow import Allow
from opendataflow.model.resources.pipeline_runtime import PipelineRuntime
from opendataflow.model.resources.spark import Spark

_NOT_LOCAL = "Not used on one machine."


class Resources(InputModel):
    """The resource requests and limits of a container, as in a pod."""

    requests: Annotated[dict[Key, Quantity], Field(max_length=20)] = Field(
        default_factory=dict, description="The guaranteed resources, such as cpu 500m and memory 1Gi."
    )
    limits: Annotated[dict[Key, Quantity], Field(max_length=20)] = Field(
        default_factory=dict, description="The maximum resources."
    )


class Script(InputModel):
    """Any program. It is started without a shell."""

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
        description="The program and its arguments. Needed on one machine. On a cluster the default is the entry point "
        "of the image.",
    )
    args: Arguments = Field(default=(), description="Arguments after those of the command or entry point.")
    working_directory: Text | None = Field(
        default=None,
        description="The working directory. On one machine it is relative to the folder of the file, which is the "
        "default. On a cluster it is absolute, and the default is the image's.",
    )
    image_pull_policy: Annotated[Literal["Always", "IfNotPresent", "Never"] | None, NEVER_NULL] = Field(
        default=None, description=f"The pull policy of the image. The default is that of Kubernetes. {_NOT_LOCAL}"
    )
    resources: Resources | None = Field(
        default=None, description=f"The resource requests and limits of the container. {_NOT_LOCAL}"
    )
    preflight: Flag = Field(
        default=False,
        description="Look at the locations of the job's data sets before the script starts: local paths, and tables in "
        "Postgres. If an input is missing, or the folder or database of an output, the run does not start, which "
        "consumes no retry. Not used on a cluster, where only pipelines are checked.",
    )


class PodMetadata(InputModel):
    """Labels and annotations of the object that is created for each run."""

    labels: TextMap | None = Field(default=None, description="Labels, in addition to those of the framework.")
    annotations: TextMap | None = Field(default=None, description="Annotations, in addition to those of the framework.")


class SparkApplicationTemplate(InputModel):
    """The template of the SparkApplications. The framework adds its own fields."""

    metadata: PodMetadata | None = Field(default=None, description="Labels and annotations of SparkApplications.")
    spec: dict[str, Any] = Field(
        description="The spec of a SparkApplication, sparkoperator.k8s.io/v1beta2, of the Kubeflow Spark operator."
    )


class SparkApplication(InputModel):
    """A SparkApplication of the Kubeflow Spark operator for each run."""

    template: SparkApplicationTemplate = Field(description="The template of the SparkApplication of a run.")

    @property
    def program(self) -> str:
        """The file that a run executes; empty if none is written."""
        written = self.template.spec.get("mainApplicationFile")
        return written if isinstance(written, str) else ""


class Runtime(InputModel):
    """The program of a run: exactly one of the four fields."""

    rules: ClassVar = (exactly_one("script", "spark", "pipeline", "sparkApplication"),)

    script: Script | None = Field(default=None, description="Any program.")
    spark: Spark | None = Field(default=None, description="A PySpark program.")
    pipeline: PipelineRuntime | None = Field(default=None, description="A pipeline of a project of transformations.")
    spark_application: SparkApplication | None = Field(
        default=None, description=f"A program that the Kubeflow Spark operator runs. {_NOT_LOCAL}"
    )


class Chunks(InputModel):
    """A range of data ids in natural order. Both ends are inclusive."""

    start: Id | None = Field(default=None, alias="from", description="The first data id to process.")
    end: Id | None = Field(default=None, alias="to", description="The last data id to process.")


class Backoff(InputModel):
    """The delay before a retry: `initial` at first, then multiplied by `factor` each time, at most `max`."""

    rules: ClassVar = (
        Rule(
            "initial is longer than max; write a longer max",
            lambda it: it.initial_seconds <= it.maximum_seconds,
            "duration(self.initial) <= duration(self.max)",
            detailed=lambda it: f"initial ({it.initial}) is longer than max ({it.maximum}); write a longer max",
        ),
    )

    initial: Duration = Field(default="10s", description="The delay after the first failure.")
    factor: Annotated[float, Strict(), Field(ge=1, allow_inf_nan=False)] = Field(
        default=2.0, description="The factor between a delay and the next one."
    )
    maximum: Duration = Field(default="10m", alias="max", description="The longest delay.")

    @property
    def initial_seconds(self) -> float:
        """The delay after the first failure, in seconds."""
        return duration_seconds(self.initial)

    @property
    def maximum_seconds(self) -> float:
        """The longest delay, in seconds."""
        return duration_seconds(self.maximum)


class Retry(InputModel):
    """The automatic retries of a task."""

    limit: Count = Field(default=2, description="The number of retries after failures of the program.")
    infrastructure_limit: Count = Field(
        default=5,
        description="The number of retries after failures of the infrastructure, such as a lost node or process.",
    )
    backoff: Backoff = Field(default_factory=Backoff, description="The delays before retries.")


class OnNodeUnreachable(InputModel):
    """The handling of a run whose node does not answer, so that the run may still be writing."""

    retry_after: Duration = Field(
        description="Start another attempt after this time, although the end of the run is not proven. Only for runs "
        "whose writes check the fencing token, because two runs may write at the same time."
    )


class PodTemplate(InputModel):
    """The template of run pods: volumes, sidecars, service account ... The framework adds its own fields."""

    metadata: PodMetadata | None = Field(default=None, description="Labels and annotations of run pods.")
    spec: dict[str, Any] = Field(
        default_factory=dict, description="The spec of a pod. The container `main` executes the run."
    )


class Resubmit(InputModel):
    """A request to process chunks again. It is executed once for each id, so `kubectl patch` can be repeated."""

    rules: ClassVar = (
        Rule(
            "exactly one of chunks, failed, stale, from and to is wanted",
            lambda it: (
                [it.ids is not None, it.failed, it.stale, not (it.start is None and it.end is None)].count(True) == 1
            ),
            "[has(self.chunks), self.failed, self.stale, has(self.from) || has(self.to)]"
            ".filter(given, given).size() == 1",
        ),
        Rule(
            "an id can be used once; write another id for another request",
            cel="self.id != oldSelf.id || self == oldSelf",
            at="id",
        ),
    )

    id: Id = Field(description="A name of your choice for this request. The same id again has no effect.")
    ids: DataIds | None = Field(default=None, alias="chunks", description="Select these data ids.")
    failed: Flag = Field(default=False, description="Select all failed tasks.")
    stale: Flag = Field(
        default=False,
        description="Select all done tasks that were made from an older version of an input or of the job.",
    )
    start: Id | None = Field(default=None, alias="from", description="Start at this data id, in natural order.")
    end: Id | None = Field(default=None, alias="to", description="End at this data id, inclusive.")
    cascade: Flag = Field(default=False, description="Also select all downstream chunks that were built from these.")


class InputCredentials(InputModel):
    """The login with which the runs of a job read a data set of another namespace."""

    username: Text | None = Field(
        default=None, description="The user name of the connection. The default is that of the data set."
    )
    secret_ref: SecretKey = Field(description="The Secret with the password, in the namespace of the job.")
    accept_location: NonEmpty | None = Field(
        default=None,
        description="The hash of the location to which runs may send the password. The condition Stalled shows the "
        "location and its hash (reason LocationNotAccepted), also after the owner of the data set has changed it.",
    )


class DataFlowJobSpec(InputModel):
    """The specification of a job."""

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
            detailed=lambda it: (
                f"{next(name for name in it.outputs if name in it.inputs)} is in inputs and in outputs; "
                "a job can't make what it reads"
            ),
            at="outputs",
        ),
        Rule(
            "an alias is of no input; write the input as it is in inputs",
            lambda it: set(it.aliases.values()) <= set(it.inputs),
            "!has(self.aliases) || self.aliases.all(alias, has(self.inputs) && self.aliases[alias] in self.inputs)",
            detailed=lambda it: (
                f"{next(name for name in it.aliases.values() if name not in it.inputs)} is not in inputs; "
                "write it as it is there"
            ),
            at="aliases",
        ),
        Rule(
            "credentials are for inputs of other namespaces, as they are written in inputs; the DataSet has the others",
            lambda it: all(name in it.inputs and bare(name) != name for name in it.credentials),
            "!has(self.credentials) || "
            "self.credentials.all(name, name.contains('/') && has(self.inputs) && name in self.inputs)",
            at="credentials",
        ),
        Rule(
            "two data sets have the same name in runs",
            lambda it: it.same_names() is None,
            detailed=lambda it: (
                f"{' and '.join(it.same_names())} have the same name in runs; give one that is read another name by "
                f"aliases: {{NAME: {it.same_names()[0]}}}"
            ),
        ),
        Rule(
            "the pods of a SparkApplication are described in runtime.sparkApplication.template.spec, by driver and "
            "executor; write it there",
            lambda it: it.pod_template is None or it.runtime.spark_application is None,
            "!has(self.podTemplate) || !has(self.runtime.sparkApplication)",
            at="podTemplate",
        ),
        immutable("id", "the id of a job can't be changed; make another DataFlowJob"),
    )

    id: ObjectId | None = Field(default=None, description="The id in its namespace. The default is the name.")
    inputs: InputIds = Field(
        default=(),
        description="The data sets whose chunks must be READY. `team-a/raw` is one that the namespace team-a shares. "
        "`today` is built in.",
    )
    outputs: OutputIds = Field(default=(), description="The data sets that the job writes, of its own namespace.")
    aliases: Aliases = Field(
        default_factory=dict,
        description="Names of inputs in runs, such as {raw_a: team-a/raw}. The default is the id without the "
        "namespace. Needed if two data sets of the job have the same id.",
    )
    credentials: Annotated[dict[Key, InputCredentials], Field(max_length=100)] = Field(
        default_factory=dict,
        description="The logins for inputs of other namespaces, such as {team-a/raw: {secretRef: …}}. What their "
        f"DataSets name as Secrets is never used by jobs of other namespaces. {_NOT_LOCAL}",
    )
    runtime: Runtime = Field(description="The program of a run.")
    parallelism: Count = Field(default=1, description="The maximum number of runs at a time. 0 starts none.")
    suspend: Flag = Field(default=False, description="True: no new runs start. Active runs continue.")
    order: Literal["ascending", "descending"] = Field(
        default="ascending", description="The order in which data ids are processed."
    )
    priority: Priority = Field(
        default=0, description="Jobs with a higher number get free slots first. From -1000 to 1000."
    )
    chunks: Chunks | None = Field(default=None, description="Process only a range of data ids.")
    retry: Retry = Field(default_factory=Retry, description="The automatic retries of a task.")
    start_deadline: Annotated[
        Duration,
        Rule(
            "the time to start must be longer than 0; leave it out for the default",
            lambda text: duration_seconds(text) > 0,
            "self.matches('[1-9]')",
        ),
    ] = Field(
        default="10m",
        description="The longest time that a run may need to start, including the wait for a node and the image pull. "
        f"After it, the run fails because of the infrastructure. {_NOT_LOCAL}",
    )
    run_deadline: (
        Annotated[
            Duration,
            Rule(
                "the deadline must be longer than 0; leave it out for no deadline",
                lambda text: duration_seconds(text) > 0,
                "self.matches('[1-9]')",
            ),
        ]
        | None
    ) = Field(default=None, description="The longest duration of a run, such as 2h.")
    on_node_unreachable: OnNodeUnreachable | None = Field(
        default=None,
        description="The handling of a run whose node does not answer. Without it, the task waits until the end of the "
        f"run is proven. {_NOT_LOCAL}",
    )
    on_delete: Literal["Drain", "Cancel"] = Field(
        default="Drain",
        description="The handling of active runs if the resource is deleted. `Drain`: they continue. `Cancel`: they "
        f"are ended. {_NOT_LOCAL}",
    )
    resubmit: Resubmit | None = Field(
        default=None, description=f"Process chunks again. {_NOT_LOCAL} Use `dataflow resubmit` there."
    )
    allow: Allow | None = Field(
        default=None,
        description=f"Allow a change that affects finished tasks. {_NOT_LOCAL} `dataflow apply` has options.",
    )
    keep_log: Flag = Field(
        default=True,
        description="Whether to store the end of a failed run's log in the database, and to show its last line in "
        f"messages. Write false for programs that may print a secret. {_NOT_LOCAL}",
    )
    env: Env = Field(default_factory=dict, description="Environment variables of runs, besides the standard ones.")
    pod_template: PodTemplate | None = Field(
        default=None, description=f"The template of run pods. The framework adds its own fields. {_NOT_LOCAL}"
    )

    def name_in_runs(self, dataset: str) -> str:
        """Return the name of a data set in runs. `dataset`: as it is in `inputs` or `outputs`."""
        return next((alias for alias, written in self.aliases.items() if written == dataset), bare(dataset))

    def same_names(self) -> tuple[str, str] | None:
        """Return two data sets that have the same name in runs, the one of another namespace first; None if none."""
        seen: dict[str, str] = {}
        for written in (*self.outputs, *self.inputs):
            name = self.name_in_runs(written)
            if name in seen and written != seen[name]:
                return (written, seen[name]) if written != bare(written) else (seen[name], written)
            seen[name] = written
        return None

    @property
    def run_deadline_seconds(self) -> float | None:
        """The longest duration of a run in seconds; None for no limit."""
        return None if self.run_deadline is None else duration_seconds(self.run_deadline)

    @property
    def start_deadline_seconds(self) -> float:
        """The longest time until a run has started, in seconds."""
        return duration_seconds(self.start_deadline)


class DataFlowJob(InputModel):
    """A job. For each data id whose input chunks are READY, it writes the output chunks with the same data id."""

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

    api_version: Literal["opendataflow.io/v1alpha1"] = Field(description="The API version.")
    kind: Literal["DataFlowJob"] = Field(description="The kind of the resource.")
    metadata: Metadata = Field(description="The name of the job.")
    spec: DataFlowJobSpec = Field(description="The specification of the job.")

    @property
    def id(self) -> str:
        """The id in the database."""
        return self.spec.id or self.metadata.name
