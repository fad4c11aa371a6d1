"""The environment variables of a run, and its context file. Pure.

Variables in lower case have the names of the old framework, so that scripts of its users run unchanged. Values are
never changed. A variable that would be set twice is an error. This module never has plain passwords: the code that
decrypts a password adds the variable `D_password`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from opendataflow.errors import InvalidInput, UnknownThing
from opendataflow.keys import bare
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.names import RESERVED_PREFIX, is_shell_name, shell_name

if TYPE_CHECKING:  # RunJob must not import the models of job files: the import takes longer than a short script
    from opendataflow.model.resources.api import DataFlowJob

CONTEXT_FILE = "context.json"
"""The file name of the context in the run's folder."""

_BUILT_IN = (
    "dataid",
    "jobid",
    "cmd",
    "DATAFLOW_JOB",
    "DATAFLOW_DATA_ID",
    "DATAFLOW_RUN_ID",
    "DATAFLOW_ATTEMPT",
    "DATAFLOW_FENCE",
    "DATAFLOW_NAMESPACE",
    "DATAFLOW_CONTEXT",
)
_COLUMNS = ("hostname", "database", "schemaname", "tablename", "username", "encryptedpass")
_SUFFIXES = ("datasetid", "itemtype", *_COLUMNS, "password")


@dataclass(frozen=True)
class JobFacts:
    """The facts of a job that its runs need.

    `id`: without its namespace. `program`: the first word of the command. `inputs`, `outputs`: their names in runs.
    `keys`: the keys of the data sets in the order of `roles()`, for people; empty if they are the names.
    `env`: the job's env items.
    """

    id: str
    program: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    namespace: str | None = None
    keys: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, job: "DataFlowJob") -> Self:
        """Return the facts of a job from its resource."""
        return cls(
            id=job.id,
            program=_program(job),
            inputs=tuple(map(job.spec.name_in_runs, job.spec.inputs)),
            outputs=job.spec.outputs,
            env=job.spec.env,
            namespace=job.metadata.namespace,
            keys=(*job.spec.inputs, *job.spec.outputs),
        )

    def roles(self) -> Iterator[tuple[str, str]]:
        """Yield (data set id, IN or OUT) of each data set."""
        yield from ((name, "IN") for name in self.inputs)
        yield from ((name, "OUT") for name in self.outputs)


def _program(job: "DataFlowJob") -> str:
    """Return what a job executes, in a word: program, main file of Spark, pipeline, or image with an entry point."""
    runtime = job.spec.runtime
    if runtime.script is not None:
        return runtime.script.command[0] if runtime.script.command else runtime.script.image or ""
    if runtime.spark_application is not None:
        return runtime.spark_application.program
    if runtime.pipeline is not None:
        return runtime.pipeline.pipeline
    return runtime.spark.program if runtime.spark is not None else ""


@dataclass(frozen=True)
class RunFacts:
    """The facts of one run: its id, data id, attempt and fencing token."""

    run: int
    data_id: str
    attempt: int
    fence: int


def check_names(job: JobFacts) -> None:
    """Raise InvalidInput, like `taken_names`, if a variable is set twice. The check needs no run."""
    taken_names(job)


def taken_names(job: JobFacts) -> Mapping[str, str]:
    """Return the names of all variables of a job's runs, with the origin of each, for people.

    Raise InvalidInput, with both origins and a remedy, if a variable is set twice. Variables whose column is null now
    count too.
    """
    origins = dict.fromkeys(_BUILT_IN, "the framework")
    names = (*job.inputs, *job.outputs)
    for dataset, key in zip(names, job.keys or names, strict=True):
        for suffix in _SUFFIXES:
            _add_name(job, origins, _variable(dataset, suffix), f"the data set {key}")
    for name in job.env:
        origin = f"the env item {name}"
        if not is_shell_name(name):
            raise InvalidInput(
                f"job {job.id}: {origin} has a name that no shell can have; use letters, digits and _ only"
            )
        if name.startswith(RESERVED_PREFIX) and name not in origins:
            raise InvalidInput(
                f"job {job.id}: the names {RESERVED_PREFIX}* are the framework's, also that of {origin}; "
                "rename the env item"
            )
        _add_name(job, origins, name, origin)
    return origins


def _add_name(job: JobFacts, origins: dict[str, str], name: str, origin: str) -> None:
    if name in origins:
        other = "give one of them another id or alias"
        remedy = "rename the env item" if origin.startswith("the env") else other
        raise InvalidInput(f"job {job.id}: {origins[name]} and {origin} both set the variable {name}; {remedy}")
    origins[name] = origin


def password_variable(dataset: str) -> str:
    """Return the name of the variable with the plain password of a data set. `dataset`: its id or its key."""
    return _variable(bare(dataset), "password")


def _variable(dataset: str, suffix: str) -> str:
    return shell_name(f"{dataset}_{suffix}")


def environment(job: JobFacts, run: RunFacts, datasets: Mapping[str, DataSetFacts]) -> dict[str, str]:
    """Return all variables of a run with unchanged values. `datasets`: by id, at least those of the job.

    DATAFLOW_CONTEXT contains the placeholder `{run_folder}`, which the launcher replaces. Raise InvalidInput like
    `check_names`, and UnknownThing if a data set of the job is not given.
    """
    check_names(job)
    variables = {
        **job.env,
        "dataid": run.data_id,
        "jobid": job.id,
        "cmd": job.program,
        "DATAFLOW_JOB": job.id,
        "DATAFLOW_DATA_ID": run.data_id,
        "DATAFLOW_RUN_ID": str(run.run),
        "DATAFLOW_ATTEMPT": str(run.attempt),
        "DATAFLOW_FENCE": str(run.fence),
        "DATAFLOW_CONTEXT": f"{{run_folder}}/{CONTEXT_FILE}",
    }
    if job.namespace is not None:
        variables["DATAFLOW_NAMESPACE"] = job.namespace
    for name, itemtype in job.roles():
        facts = _facts(job, datasets, name)
        values = {"datasetid": name, "itemtype": itemtype}
        values |= {column: getattr(facts, column) for column in _COLUMNS}
        variables |= {_variable(name, suffix): value for suffix, value in values.items() if value is not None}
    return variables


def context(
    job: JobFacts,
    run: RunFacts,
    datasets: Mapping[str, DataSetFacts],
    bounds: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the content of the context file for JSON. It contains no password, encrypted or plain.

    `bounds`: data set id -> the bounds of its chunk, if known. Unknown values are null.
    """
    return {
        "job": job.id,
        "data_id": run.data_id,
        "run_id": run.run,
        "attempt": run.attempt,
        "fence": run.fence,
        "namespace": job.namespace,
        "datasets": {
            name: _dataset_context(_facts(job, datasets, name), itemtype, bounds.get(name))
            for name, itemtype in job.roles()
        },
    }


def _dataset_context(facts: DataSetFacts, itemtype: str, bounds: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "id": facts.id,
        "itemtype": itemtype,
        "kind": facts.kind,
        "hostname": facts.hostname,
        "database": facts.database,
        "schemaname": facts.schemaname,
        "tablename": facts.tablename,
        "username": facts.username,
        "url": facts.url,
        "format": facts.format,
        "options": dict(facts.options),
        "bounds": None if bounds is None else dict(bounds),
    }


def _facts(job: JobFacts, datasets: Mapping[str, DataSetFacts], name: str) -> DataSetFacts:
    if name not in datasets:
        raise UnknownThing(f"job {job.id}: there is no data set {name}; declare it as a DataSet")
    return datasets[name]
