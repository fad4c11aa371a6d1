"""RunJob whose reader goes away, and RunJob that is asked to end, at each moment of its life.

Seen at the framework before: a runner whose pipe was closed died, left RUNNING for ever and its chunk blocked.
"""

import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.conftest import Program, alive
from tests.e2e.moments import MOMENTS, start_runjob
from tests.e2e.test_runjob import JOB, RUNJOB, folder, outputs, script  # noqa: F401 # folder: a fixture
from tests.sql.conftest import Connection
from tests.sql.graph import problems
from tests.waiting import wait_for_file

MORE_THAN_A_PIPE_HOLDS = 20_000


def _log(program: Program) -> str:
    (log,) = (program.home / "runs").rglob("output.log")
    return log.read_text()


@pytest.mark.parametrize("ending", [0, 7])
@pytest.mark.parametrize("moment", MOMENTS)
def test_whenever_its_reader_goes_away_the_script_does_all_and_its_outcome_is_committed(
    dataflow: Program,
    folder: Path,  # noqa: F811
    db: Connection,
    moment: str,
    ending: int,
) -> None:
    ended_before = moment in ("after its end, before the commit", "after the commit")
    lines = 3 if ended_before else MORE_THAN_A_PIPE_HOLDS  # nobody reads: until the reader has gone, the pipe must hold
    script(folder, f"seq {lines}; echo err >&2; yes | head -1; touch done; exit {ending}")
    reading, writing = os.pipe()
    process = start_runjob(dataflow, folder, moment, f"os.close({reading})", output=writing, kept=(reading,))
    os.close(reading)
    os.close(writing)

    assert process.wait(300) == ending
    assert (folder / "done").exists()
    assert Counter(_log(dataflow)) == Counter("".join(f"{number}\n" for number in range(1, lines + 1)) + "err\ny\n")
    assert outputs(db)["2.0"] == ("FAILED" if ending else "READY")
    assert [row["state"] for row in db.execute("SELECT state FROM opendataflow.run")] == [
        "FAILED" if ending else "SUCCEEDED"
    ]
    assert db.execute("SELECT 1 FROM opendataflow.lease").fetchall() == []
    assert problems(db) == []


def _without_reader(program: Program, where: Path, *command: str | Path) -> int:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(command, cwd=where, env=program.environ, stdout=writing, stderr=writing)
    os.close(writing)
    return process.wait(300)


def test_a_warning_that_nobody_reads_keeps_nothing_from_running(
    dataflow: Program,
    folder: Path,  # noqa: F811
    db: Connection,
) -> None:
    script(folder, "touch done")
    assert _without_reader(dataflow, folder, RUNJOB, "the-passkey", "./loadbob.sh") == 0
    assert (folder / "done").exists()
    assert outputs(db)["2.0"] == "READY"


@pytest.mark.parametrize(
    "command", [[RUNJOB, "./other.sh"], [RUNJOB.with_name("dataflow"), "run", "--job", "other", "--", "true"]]
)
def test_an_error_that_nobody_reads_has_its_exit_code_all_the_same(
    dataflow: Program,
    folder: Path,  # noqa: F811
    command: list[str | Path],
) -> None:
    assert _without_reader(dataflow, folder, *command) == 2


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_with_its_output_closed_it_does_its_work_and_writes_nowhere_else(
    dataflow: Program,
    folder: Path,  # noqa: F811
    db: Connection,
    closed: str,
) -> None:
    script(folder, "seq 1000; echo err >&2; touch done")
    process = subprocess.run(
        ["sh", "-c", f'exec "$0" ./loadbob.sh {closed}', RUNJOB],
        cwd=folder,
        env=dataflow.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (process.returncode, "Traceback" in process.stdout + process.stderr) == (0, False)
    assert len(_log(dataflow).split()) == 1001
    assert outputs(db)["2.0"] == "READY"
    assert problems(db) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", MOMENTS)
def test_whenever_it_is_asked_to_end_it_leaves_nothing_running_and_the_chunk_is_done_or_given_back(
    dataflow: Program,
    folder: Path,  # noqa: F811
    db: Connection,
    moment: str,
    number: signal.Signals,
) -> None:
    ended_before = moment in ("after its end, before the commit", "after the commit")
    script(folder, f"echo $$ >> pids; {'true' if ended_before else 'sleep 600'}")
    process = start_runjob(dataflow, folder, moment, f"import signal; os.kill(os.getpid(), {int(number)})")
    printed, _ = process.communicate(timeout=300)

    assert b"Traceback" not in printed
    assert process.returncode == (0 if ended_before else 128 + signal.SIGTERM), printed
    runs = [row["state"] for row in db.execute("SELECT state FROM opendataflow.run")]
    (task,) = db.execute("SELECT state FROM opendataflow.task WHERE data_id = '2.0'").fetchall()
    given_back = [(["LOST"], "RETRYING")]
    if moment in ("at its beginning", "before its claim"):  # the signal may be seen before the claim or after it
        given_back.append(([], "QUEUED"))
    assert (runs, task["state"]) in ([(["SUCCEEDED"], "DONE")] if ended_before else given_back)
    assert db.execute("SELECT 1 FROM opendataflow.lease").fetchall() == []
    if (folder / "pids").exists():
        assert not any(alive(pid) for pid in (folder / "pids").read_text().split())
    assert problems(db) == []


def test_under_nohup_a_terminal_that_hangs_up_does_not_end_the_script(
    dataflow: Program,
    folder: Path,  # noqa: F811
    db: Connection,
) -> None:
    script(folder, "touch started; while [ ! -e stop ]; do sleep 0.05; done")
    process = subprocess.Popen(
        ["nohup", RUNJOB, "./loadbob.sh"],
        cwd=folder,
        env=dataflow.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for_file(folder / "started", process)
    process.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    (folder / "stop").touch()
    assert process.wait(300) == 0
    assert outputs(db)["2.0"] == "READY"


def test_a_slow_reader_of_a_stream_that_does_not_wait_gets_everything(
    dataflow: Program,
    folder: Path,  # noqa: F811
) -> None:
    script(folder, f"seq {MORE_THAN_A_PIPE_HOLDS}; touch done")
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    process = subprocess.Popen([RUNJOB, "./loadbob.sh"], cwd=folder, env=dataflow.environ, stdout=writing)
    os.close(writing)
    wait_for_file(folder / "done", process)  # all that it prints has to wait now
    with os.fdopen(reading) as pipe:
        lines = pipe.read().splitlines()
    assert process.wait(300) == 0
    assert lines[1 : MORE_THAN_A_PIPE_HOLDS + 1] == [str(n) for n in range(1, MORE_THAN_A_PIPE_HOLDS + 1)]
    assert lines[-1].startswith("1 rows updated to READY")


def test_a_locale_without_the_characters_of_a_data_id_does_not_fail_the_run(
    dataflow: Program,
    folder: Path,  # noqa: F811
) -> None:
    (folder / "job.yaml").write_text(JOB.replace('["2.0", "10.0"]', '["ü漢"]'))
    dataflow.run("apply", "-f", str(folder / "job.yaml"))
    script(folder, 'printf %s "$dataid" > seen')
    done = subprocess.run(
        [RUNJOB, "./loadbob.sh"],
        cwd=folder,
        env=dataflow.environ | {"PYTHONIOENCODING": "ascii:strict"},  # as a locale of old has it
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "seen").read_text() == "ü漢"
    assert r"with dataid \xfc\u6f22" in done.stdout
