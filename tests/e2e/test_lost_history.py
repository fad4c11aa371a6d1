"""Postgres is restored while runs work on this machine: who has started them notices it, ends them, and says so."""

import subprocess
from pathlib import Path

from opendataflow.names import ExitCode
from tests.e2e.conftest import Program, alive
from tests.e2e.jobs import squares
from tests.e2e.test_runjob import folder, script, start  # noqa: F401 # folder: a fixture
from tests.sql.conftest import Connection
from tests.waiting import wait_for_file


def forget_runs(db: Connection) -> None:
    """Take all runs away, as a restore does."""
    db.execute("DELETE FROM opendataflow.run")


def ends_with_its_run(process: subprocess.Popen[str], pids: Path) -> str:
    """Wait for the end of a program whose run is lost. Return its output."""
    output = "".join(filter(None, process.communicate(timeout=300)))
    assert process.returncode == ExitCode.HISTORY_LOST, output
    assert "Traceback" not in output
    assert "history was lost" in output
    assert "run 1" in output
    assert not any(alive(pid) for pid in pids.read_text().split())
    return output


def test_a_local_engine_ends_the_runs_that_a_restored_database_does_not_know(
    dataflow: Program, db: Connection, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    (tmp_path / "work.sh").write_text(f"echo $$ > {pids}.new; mv {pids}.new {pids}; sleep 1000")
    (tmp_path / "job.yaml").write_text(squares('{list: ["1"]}'))
    process = dataflow.start("local", "-f", str(tmp_path / "job.yaml"))
    wait_for_file(pids, process)
    forget_runs(db)
    ends_with_its_run(process, pids)


def test_runjob_ends_its_script_if_a_restored_database_does_not_know_its_run(
    dataflow: Program,
    folder: Path,  # noqa: F811
    db: Connection,
) -> None:
    script(folder, "echo $$ > new; mv new pids; sleep 1000")
    process = start(dataflow, folder)
    wait_for_file(folder / "pids", process)
    forget_runs(db)
    ends_with_its_run(process, folder / "pids")


def test_runjob_whose_run_was_lost_before_its_end_does_not_report_success(
    dataflow: Program,
    folder: Path,  # noqa: F811
    db: Connection,
) -> None:
    script(folder, "echo $$ > new; mv new pids; while [ ! -e go ]; do sleep 0.01; done")
    process = start(dataflow, folder)
    wait_for_file(folder / "pids", process)
    forget_runs(db)
    (folder / "go").touch()
    output = ends_with_its_run(process, folder / "pids")
    assert "READY" not in output
