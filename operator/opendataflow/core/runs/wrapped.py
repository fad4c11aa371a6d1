"""The run of a wrapped script (RunJob). Its caller names the script; Postgres describes the job. Pure."""

from collections.abc import Mapping
from pathlib import Path

from opendataflow.core.runs.environment import JobFacts
from opendataflow.core.runs.run_files import environment_and_files
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.records.run import Command, RunOrder


def job_of(script: str) -> str:
    """Return the id of a script's job: the file name without the extension."""
    return Path(script).stem


def wrapped_order(
    run: ClaimedRun, declared: DeclaredJob, argv: tuple[str, ...], cwd: Path, passwords: Mapping[str, str]
) -> RunOrder:
    """Return the order for a claimed run that executes `argv` in `cwd`.

    `passwords`: variables with plain passwords, for this process only. They are not in the files of the run.
    """
    run, declared = run.with_names({}), declared.with_names({})
    datasets = {row["id"]: DataSetFacts.of_row(row) for row in declared.datasets}
    facts = JobFacts(
        id=run.job,
        program=argv[0],
        inputs=tuple(row["id"] for row in declared.datasets if row["itemtype"] == "IN"),
        outputs=tuple(row["id"] for row in declared.datasets if row["itemtype"] == "OUT"),
        env=declared.job["env"],
    )
    env, files = environment_and_files(facts, run, datasets)
    return run.order(Command(argv, {**env, **passwords}, cwd, files), declared.job["run_deadline"])
