"""The run of a script that its caller names, of a job that only Postgres describes. Pure."""

from collections.abc import Mapping
from pathlib import Path

from opendataflow.core.runs.environment import JobFacts
from opendataflow.core.runs.run_files import surroundings
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.records.run import Command, RunOrder


def job_of(script: str) -> str:
    """The job that a script is for: its file's name without the extension."""
    return Path(script).stem


def wrapped_order(
    run: ClaimedRun, declared: DeclaredJob, argv: tuple[str, ...], cwd: Path, passwords: Mapping[str, str]
) -> RunOrder:
    """Return the order for a claimed run that executes `argv` in `cwd`. `passwords`: variables for its eyes only."""
    datasets = {row["id"]: DataSetFacts.of_row(row) for row in declared.datasets}
    facts = JobFacts(
        id=run.job,
        program=argv[0],
        inputs=tuple(row["id"] for row in declared.datasets if row["itemtype"] == "IN"),
        outputs=tuple(row["id"] for row in declared.datasets if row["itemtype"] == "OUT"),
        env=declared.job["env"],
    )
    env, files = surroundings(facts, run, datasets)
    return run.order(Command(argv, {**env, **passwords}, cwd, files), declared.job["run_deadline"])
