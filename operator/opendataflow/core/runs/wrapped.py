"""The run of a wrapped script (RunJob). Its caller names the script; Postgres describes the job. Pure."""

import re
from collections.abc import Mapping
from pathlib import Path

from opendataflow.core.runs.environment import JobFacts, check_names
from opendataflow.core.runs.run_files import environment_and_files
from opendataflow.keys import bare
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.records.run import Command, RunOrder

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))", re.ASCII)


def expanded(argument: str, variables: Mapping[str, str]) -> str:
    """Return an argument with the values of `$NAME` and `${NAME}`. Other names stay: nothing else is expanded."""
    return _VARIABLE.sub(lambda found: variables.get(found[1] or found[2], found[0]), argument)


def check_wrapped(declared: DeclaredJob) -> None:
    """Raise InvalidInput if no run of a job can be wrapped, because a variable would be set twice."""
    check_names(_job_facts(declared, ""))


def _job_facts(declared: DeclaredJob, program: str) -> JobFacts:
    """Return the facts of a job whose data sets have their bare ids in runs: RunJob knows no aliases."""
    inputs = tuple(row["id"] for row in declared.datasets if row["itemtype"] == "IN")
    outputs = tuple(row["id"] for row in declared.datasets if row["itemtype"] == "OUT")
    return JobFacts(
        id=bare(declared.job["id"]),
        program=program,
        inputs=tuple(map(bare, inputs)),
        outputs=tuple(map(bare, outputs)),
        env=declared.job["env"],
        keys=(*inputs, *outputs),
    )


def wrapped_order(
    run: ClaimedRun,
    declared: DeclaredJob,
    argv: tuple[str, ...],
    cwd: Path,
    passwords: Mapping[str, str],
    *,
    program: str,
    literal: bool,
) -> RunOrder:
    """Return the order for a claimed run that executes `argv` in `cwd`.

    `passwords`: variables with plain passwords, for this process only. They are not in the files of the run, and never
    in its arguments, which other users of the machine can read. `program`: what is executed as the first of `argv`.
    `literal`: whether arguments stay as they are.
    """
    facts = _job_facts(declared, argv[0])
    run, declared = run.with_names({}), declared.with_names({})
    datasets = {row["id"]: DataSetFacts.of_row(row) for row in declared.datasets}
    env, files = environment_and_files(facts, run, datasets)
    arguments = argv[1:] if literal else tuple(expanded(argument, env) for argument in argv[1:])
    variables = {"args": " ".join(arguments), **env, **passwords}
    return run.order(Command((program, *arguments), variables, cwd, files), declared.job["run_deadline"])
