"""What a run gets to see: its environment variables, and the context file with the same and more.

The names without capitals are those of the framework that came before, so that its users' scripts run
unchanged. Values are handed on untouched; two things that would set one variable are refused. Plain passwords
are not known here: whoever opens the ciphertext adds `D_password` by itself.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from opendataflow.errors import InvalidInput, UnknownThing
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.names import RESERVED_PREFIX, is_shell_name, shell_name

if TYPE_CHECKING:  # a wrapped script starts without the models of job files, whose import takes longer than its run
    from opendataflow.model.resources.api import DataFlowJob

CONTEXT_FILE = "context.json"
"""The name of the context in the run's folder."""

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
    """What a run inherits from its job. `program`: the first word of its command. The rest: ids and items."""

    id: str
    program: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    namespace: str | None = None

    @classmethod
    def of(cls, job: "DataFlowJob") -> Self:
        """Return the facts of a job as it is written."""
        return cls(
            id=job.id,
            program=_program(job),
            inputs=job.spec.inputs,
            outputs=job.spec.outputs,
            env=job.spec.env,
            namespace=job.metadata.namespace,
        )

    def roles(self) -> Iterator[tuple[str, str]]:
        """Yield (data set id, IN or OUT) of each data set."""
        yield from ((name, "IN") for name in self.inputs)
        yield from ((name, "OUT") for name in self.outputs)


def _program(job: "DataFlowJob") -> str:
    """What a job executes, in a word: program, main file of Spark, pipeline, or the image with its own entry point."""
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
    """What is a run's own: its id, the chunk, which attempt it is, and its fence."""

    run: int
    data_id: str
    attempt: int
    fence: int


def check_names(job: JobFacts) -> None:
    """Check that no two things set the same variable; it needs no run. Raises InvalidInput as `taken_names` does."""
    taken_names(job)


def taken_names(job: JobFacts) -> Mapping[str, str]:
    """Return the names of all variables of a job's runs, each with its origin, for people.

    Raises InvalidInput with both origins and the remedy where two things set the same variable. A variable counts also
    where its column is null now.
    """
    origins = dict.fromkeys(_BUILT_IN, "the framework")
    for dataset, _ in job.roles():
        for suffix in _SUFFIXES:
            _take(job, origins, _variable(dataset, suffix), f"the data set {dataset}")
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
        _take(job, origins, name, origin)
    return origins


def _take(job: JobFacts, origins: dict[str, str], name: str, origin: str) -> None:
    if name in origins:
        remedy = "rename the env item" if origin.startswith("the env") else "give one of them another id"
        raise InvalidInput(f"job {job.id}: {origins[name]} and {origin} both set the variable {name}; {remedy}")
    origins[name] = origin


def password_variable(dataset: str) -> str:
    """Return the name of the variable that has a data set's password, opened."""
    return _variable(dataset, "password")


def _variable(dataset: str, suffix: str) -> str:
    return shell_name(f"{dataset}_{suffix}")


def environment(job: JobFacts, run: RunFacts, datasets: Mapping[str, DataSetFacts]) -> dict[str, str]:
    """Return every variable of a run, values untouched. `datasets`: by id, at least those of the job.

    `{run_folder}` in DATAFLOW_CONTEXT is for the launcher to fill in. Raises InvalidInput as `check_names`
    does, and UnknownThing for a data set that is not given.
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
    """Return the content of the context file, ready for JSON; it holds no password, encrypted or not.

    `bounds`: data set id -> what its chunk covers, where that is known. What is not known is null.
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
