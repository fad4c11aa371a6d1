"""`dataflow logs` of runs that go on, that ran in a pod, and of one step. Whole logs: tests/e2e/test_cli.py."""

import os
import pty
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

from opendataflow.names import ExitCode, pod_name, run_name
from tests.e2e.conftest import DATAFLOW, Inside, Program
from tests.sql.conftest import Connection
from tests.sql.graph import apply, claim, dataset, end, job


@pytest.fixture
def running(db: Connection, request: pytest.FixtureRequest) -> dict[str, Any]:
    """A run that goes on; the parameter: whether its files are here, or it is a pod."""
    apply(db, [dataset("a", "1"), dataset("b")], [job("j", ["a"], ["b"])])
    lease = str(uuid.uuid4())
    query = "SELECT opendataflow.open_lease(%s::uuid, 'local', 'host', 'boot', %s, '1 h')"
    db.execute(query, (lease, request.getfixturevalue("tmp_path").as_posix() if request.param == "here" else "team-a"))
    [run] = claim(db, lease, "j")
    return run


@pytest.mark.parametrize("running", ["here"], indirect=True)
def test_a_log_is_followed_to_the_end_of_its_run(
    dataflow: Program, db: Connection, running: dict[str, Any], tmp_path: Path
) -> None:
    log = tmp_path / run_name("j", running["run"]) / "output.log"
    argv = [str(DATAFLOW), "logs", "j", "1", "--follow"]
    with subprocess.Popen(
        argv, env=dataflow.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == f"run {running['run']} of j 1, attempt 1: RUNNING\n"
        log.parent.mkdir()
        log.write_text("step 1/2 read a: begins\n")
        assert following.stdout.readline() == "step 1/2 read a: begins\n"
        with log.open("a") as file:
            file.write("the last line\n")
        end(db, running, "DONE")
        assert following.stdout.read() == f"the last line\nrun {running['run']}: SUCCEEDED\n"
    assert following.returncode == ExitCode.OK


@pytest.mark.parametrize("running", ["pod"], indirect=True)
def test_the_log_of_a_pod_is_asked_of_kubectl_and_its_end_is_kept(
    dataflow: Program, db: Connection, running: dict[str, Any], inside: Inside
) -> None:
    pod = f"--namespace team-a {pod_name('j', running['run'], running['nonce'])}"
    answer = inside.ask(dataflow, "logs", "j", "1", "-f")
    assert answer.err.splitlines()[1:] == [f"error: it runs in a pod: kubectl logs --follow {pod}"]
    end(db, running, "FAILED", log_tail="step 1/2 read a: begins\nstep 2/2 write b: begins\n")
    answer = inside.ask(dataflow, "logs", "j", "1", "--step", "write b")
    assert answer.out == "step 2/2 write b: begins\n"
    kept = f"its whole log, while its pod is there: kubectl logs {pod}; the end that is kept follows"
    assert answer.err.splitlines()[1:] == [kept]
    answer = inside.ask(dataflow, "logs", "j", "1", "--step", "writeb")
    assert answer.err.splitlines()[-1] == (
        "error: the log says nothing of a step writeb (did you mean write b?); it has read a, write b"
    )


PRINTED = "\x1b[31mred\x1b[0m\u202e\r\n"
SEEN = "\\x1b[31mred\\x1b[0m\\u202e\n"


@pytest.mark.parametrize("running", ["here"], indirect=True)
def test_a_terminal_obeys_no_log_and_a_program_reads_it_as_it_is(
    dataflow: Program, db: Connection, running: dict[str, Any], tmp_path: Path
) -> None:
    log = tmp_path / run_name("j", running["run"]) / "output.log"
    log.parent.mkdir()
    log.write_bytes(PRINTED.encode() + b"\xff\n")
    end(db, running, "FAILED")

    def printed(*arguments: str) -> tuple[bytes, str]:
        argv = [str(DATAFLOW), "logs", "j", "1", *arguments]
        own, theirs = pty.openpty()
        with open(own, "rb", closefd=True) as terminal:
            piped = subprocess.run(argv, env=dataflow.environ, capture_output=True, check=True).stdout
            subprocess.run(argv, env=dataflow.environ, stdout=theirs, stderr=subprocess.DEVNULL, check=True)
            shown = terminal.readline() + terminal.readline()
        os.close(theirs)
        return piped, shown.decode().replace("\r", "")

    assert printed() == (PRINTED.encode() + b"\xff\n", SEEN + "\\xff\n")
    log.unlink()
    db.execute("UPDATE opendataflow.run SET log_tail = %s", (PRINTED + "end\n",))
    assert printed() == (PRINTED.encode() + b"end\n", SEEN + "end\n")
