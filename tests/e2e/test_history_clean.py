"""`dataflow history clean`: old runs go with the logs that this machine has of them."""

from pathlib import Path

import pytest

from opendataflow.launch.process.host import this_host
from opendataflow.names import ExitCode, run_name
from tests.e2e.conftest import Inside, Program
from tests.sql.conftest import Connection
from tests.sql.graph import apply, claim, dataset, end, job, open_lease, raw, value


@pytest.fixture
def two_attempts(dataflow: Program, db: Connection) -> list[Path]:
    """The folders of two runs of one task, both a year old; the second one has succeeded."""
    apply(db, [dataset("a", "1"), dataset("b")], [job("j", ["a"], ["b"])])
    folders = []
    for verdict in ("RETRYING", "DONE"):
        [run] = claim(db, open_lease(db), "j")
        end(db, run, verdict)
        db.execute("SELECT opendataflow.retry_due()")
        folder = dataflow.home / "runs" / run_name("j", run["run"])
        folder.mkdir(parents=True)
        (folder / "output.log").write_text("hello")
        folders.append(folder)
    raw(
        db,
        "UPDATE opendataflow.run SET finished_at = now() - interval '1 year', claimed_at = now() - interval '1 year', "
        "host = %s, runs_home = %s",
        this_host().name,
        str(dataflow.home / "runs"),
    )
    return folders


def test_old_runs_go_with_their_logs(
    dataflow: Program, db: Connection, inside: Inside, two_attempts: list[Path]
) -> None:
    dry = inside.ask(dataflow, "history", "clean", "--dry-run")
    assert dry.out == (
        "older than 90d: 1 run, 1 log folder of this machine and 0 events would go; nothing was changed\n"
    )
    assert all(folder.exists() for folder in two_attempts)
    answer = inside.ask(dataflow, "history", "clean", "--job", "j", "--older-than", "90d")
    assert answer.out == "older than 90d: 1 run, 1 log folder of this machine and 0 events gone\n"
    assert [folder.exists() for folder in two_attempts] == [False, True]
    assert value(db, "SELECT count(*) FROM opendataflow.run") == 1


def test_logs_of_runs_elsewhere_are_left_alone(
    dataflow: Program, db: Connection, inside: Inside, two_attempts: list[Path]
) -> None:
    raw(db, "UPDATE opendataflow.run SET host = 'elsewhere'")
    inside.ask(dataflow, "history", "clean")
    assert all(folder.exists() for folder in two_attempts)
    assert value(db, "SELECT count(*) FROM opendataflow.run") == 1


@pytest.mark.parametrize("text", ["90", "d", "-1d", "1.5d", "3 months", "999999d"])
def test_an_age_that_is_none_is_refused(dataflow: Program, inside: Inside, text: str) -> None:
    answer = inside.ask(dataflow, "history", "clean", f"--older-than={text}")
    assert answer.code == ExitCode.USAGE
    assert "write a whole number of hours, days, weeks or years" in answer.err


def test_an_unknown_job_is_named(dataflow: Program, inside: Inside, two_attempts: list[Path]) -> None:
    assert two_attempts
    answer = inside.ask(dataflow, "history", "clean", "--job", "k")
    assert answer.err == "error: there is no job k (known: j)\n"


@pytest.mark.parametrize(
    ("options", "runs"),
    [((), 1), (("--days_old=30",), 1), (("--pipeline=p",), 1), (("--pipeline=p", "--days_old=999"), 0)],
)
def test_the_four_forms_of_the_django_tool_clean_runs_of_pipelines(
    dataflow: Program, db: Connection, inside: Inside, two_attempts: list[Path], options: tuple[str, ...], runs: int
) -> None:
    assert two_attempts
    raw(db, "UPDATE opendataflow.job SET pipeline = 'p'")
    answer = inside.ask(dataflow, "history", "clean", "--dry-run", *options)
    assert f": {runs} run" in answer.out, answer


def test_an_unknown_pipeline_is_named(dataflow: Program, inside: Inside, two_attempts: list[Path]) -> None:
    assert two_attempts
    answer = inside.ask(dataflow, "history", "clean", "--pipeline", "q")
    assert (answer.code, answer.err) == (ExitCode.USAGE, "error: no job runs a pipeline q\n")
