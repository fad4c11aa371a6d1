"""RunJob that ends where nobody expects it, many of them at once, and chunks that are forced: none is lost or doubled.

Seen at the framework before: a runner that died left RUNNING for ever. Seen at others: a controller that is restarted
between the creation of a child and its record starts it twice, or never.
"""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from opendataflow.crypto.sealed import NONCE_BYTES, SALT_BYTES, seal
from tests.e2e.conftest import Program, alive
from tests.e2e.moments import MOMENTS, start_runjob
from tests.e2e.test_runjob import JOB, RUNJOB, folder, outputs, run, script, start  # noqa: F401 # folder: a fixture
from tests.sql.conftest import Connection
from tests.sql.graph import problems
from tests.waiting import wait_for_file


def die(program: Program, where: Path, moment: str) -> None:
    """Run RunJob until that moment, and kill it there."""
    process = start_runjob(program, where, moment, "import signal; os.kill(os.getpid(), signal.SIGKILL)")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL, output


def run_states(db: Connection) -> list[str]:
    return [row["state"] for row in db.execute("SELECT state FROM opendataflow.run ORDER BY id")]


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_at_any_moment_the_next_one_goes_on_from_there(
    dataflow: Program,
    folder: Path,  # noqa: F811
    db: Connection,
    moment: str,
) -> None:
    running = moment == "while the script runs"
    script(folder, f"echo $$ >> pids; if [ -e second ]; then exit 0; fi; {'sleep 600' if running else 'true'}")
    die(dataflow, folder, moment)
    (folder / "second").touch()
    code, lines, err = run(dataflow, folder)

    committed = moment == "after the commit"
    assert code == 0
    assert lines[0] == f"Launching ./loadbob.sh with dataid {'10.0' if committed else '2.0'}"
    if committed:
        assert run_states(db) == ["SUCCEEDED", "SUCCEEDED"]
    elif moment in ("at its beginning", "before its claim"):
        assert run_states(db) == ["SUCCEEDED"]
    else:
        assert run_states(db) == ["LOST", "SUCCEEDED"]
        assert "taken over from an engine that has ended" in err
    assert not any(alive(pid) for pid in (folder / "pids").read_text().split())
    assert outputs(db)["2.0"] == "READY"
    assert problems(db) == []


def test_with_both_readers_gone_from_the_start_it_does_its_work(
    dataflow: Program,
    folder: Path,  # noqa: F811
    db: Connection,
) -> None:
    script(folder, "echo out; echo err >&2; yes | head -1; touch done")
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(
        [RUNJOB, "./loadbob.sh"], cwd=folder, env=dataflow.environ, stdout=writing, stderr=writing
    )
    os.close(writing)
    assert process.wait(300) == 0
    assert (folder / "done").exists()
    assert outputs(db)["2.0"] == "READY"
    assert "out\n" in dataflow.run("logs", "loadbob", "2.0")


def test_what_another_machine_was_doing_is_left_alone_until_a_person_says_that_it_is_lost(
    dataflow: Program,
    folder: Path,  # noqa: F811
    db: Connection,
) -> None:
    script(folder, "true")
    die(dataflow, folder, "between claim and start")
    db.execute("UPDATE opendataflow.run SET host = 'elsewhere', boot = 'another'")
    db.execute("UPDATE opendataflow.lease SET host = 'elsewhere', boot = 'another', expires_at = now()")

    code, lines, err = run(dataflow, folder)
    assert (code, lines[0]) == (0, "Launching ./loadbob.sh with dataid 10.0")
    assert "has no engine any more and is not known to be dead: it belongs to another host, elsewhere" in err
    assert "dataflow lost 1" in err
    assert run(dataflow, folder)[0] == 75, "the chunk of the other machine was taken"

    dataflow.run("lost", "1", "--yes")
    code, lines, _ = run(dataflow, folder)
    assert (code, lines[0]) == (0, "Launching ./loadbob.sh with dataid 2.0")
    assert problems(db) == []


def test_what_ran_before_this_machine_was_restarted_is_taken_over(
    dataflow: Program,
    folder: Path,  # noqa: F811
    db: Connection,
) -> None:
    script(folder, "true")
    die(dataflow, folder, "between claim and start")
    db.execute("UPDATE opendataflow.run SET boot = 'another/' || split_part(boot, '/', 2)")
    code, lines, err = run(dataflow, folder)
    assert (code, lines[0]) == (0, "Launching ./loadbob.sh with dataid 2.0")
    assert "has restarted since" in err


def test_many_at_once_run_each_chunk_once(
    dataflow: Program,
    folder: Path,  # noqa: F811
    db: Connection,
) -> None:
    ids = [str(number) for number in range(5)]
    (folder / "job.yaml").write_text(JOB.replace('["2.0", "10.0"]', str(ids)))
    dataflow.run("apply", "-f", str(folder / "job.yaml"))
    script(folder, 'echo "$dataid" >> seen')
    processes = [start(dataflow, folder) for _ in range(8)]
    for process in processes:
        process.communicate(timeout=300)
    assert sorted(process.returncode for process in processes) == [0] * 5 + [75] * 3
    assert sorted((folder / "seen").read_text().split()) == ids
    assert problems(db) == []


def test_a_chunk_that_is_done_is_not_run_a_second_time(
    dataflow: Program,
    folder: Path,  # noqa: F811
) -> None:
    script(folder, 'echo "$dataid" >> seen')
    for code in (0, 0, 75):
        assert run(dataflow, folder)[0] == code
    assert (folder / "seen").read_text() == "2.0\n10.0\n"


def force(program: Program, data_id: str, *command: str, code: int) -> str:
    return program.run("run", "--job", "loadbob", "--data-id", data_id, "--force", "--", *command, code=code)


def test_a_forced_chunk_runs_whatever_its_data_is_and_the_history_knows_who_wanted_it(
    dataflow: Program,
    folder: Path,  # noqa: F811
    db: Connection,
) -> None:
    assert (folder / "job.yaml").exists()
    dataflow.run("hold", "--dataset", "bobin", "2.0")
    dataflow.run("run", "--job", "loadbob", "--data-id", "2.0", "--", "true", code=75)
    output = force(dataflow, "2.0", "true", code=0)
    assert "Launching true with dataid 2.0" in output
    assert outputs(db)["2.0"] == "READY"
    assert "Launching" in force(dataflow, "2.0", "true", code=0), "it can be forced again when it is done"
    query = "SELECT DISTINCT actor, reason FROM opendataflow.history WHERE event = 'force'"
    (row,) = db.execute(query).fetchall()
    assert "@" in row["actor"]
    assert row["reason"] == "dataflow run --force"
    forced = db.execute("SELECT forced FROM opendataflow.run ORDER BY id").fetchall()
    assert [row["forced"] for row in forced] == [True, True]
    assert problems(db) == []


def test_what_can_not_be_forced_starts_nothing(
    dataflow: Program,
    folder: Path,  # noqa: F811
) -> None:
    assert "job loadbob has no task for 9.9" in force(dataflow, "9.9", "touch", str(folder / "started"), code=2)
    script(folder, "touch running; sleep 600")
    process = start(dataflow, folder)
    wait_for_file(folder / "running", process)
    output = force(dataflow, "2.0", "touch", str(folder / "started"), code=1)
    assert "2.0 of job loadbob is running (run 1): force it" in output
    process.terminate()
    process.communicate(timeout=300)
    output = dataflow.run("run", "--job", "loadbob", "--force", "--", "true", code=2)
    assert "--force needs the chunk that is meant: --data-id" in output
    assert not (folder / "started").exists()


def test_a_runjob_runs_first_what_was_forced_before(
    dataflow: Program,
    folder: Path,  # noqa: F811
) -> None:
    script(folder, "true")
    dataflow.run("force", "loadbob", "10.0")
    _, lines, _ = run(dataflow, folder)
    assert lines[0] == "Launching ./loadbob.sh with dataid 10.0"


def test_dataflow_run_takes_the_passkey_from_a_file(
    dataflow: Program,
    folder: Path,  # noqa: F811
    db: Connection,
) -> None:
    text = seal("opened", "plugh", salt=b"s" * SALT_BYTES, nonce=b"n" * NONCE_BYTES)
    db.execute("UPDATE opendataflow.dataset SET encryptedpass = %s WHERE id = 'bobin'", (text,))
    key = folder / "key"
    key.write_text("plugh\n")
    key.chmod(0o600)
    command = ("sh", "-c", f'printf %s "$bobin_password" > {folder}/seen')
    dataflow.run("run", "--job", "loadbob", "--key-file", str(key), "--", *command)
    assert (folder / "seen").read_text() == "opened"
