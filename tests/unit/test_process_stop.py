"""How the local launcher ends runs: at a deadline, when asked to, and what a run leaves behind."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from opendataflow.launch.process.child import Stop
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.launch.process.session import find_process, kill_session, scan_session
from opendataflow.model.records.run import Command, Ended, RunOrder
from tests.pods import claimed
from tests.waiting import wait_until

PATIENT = 60.0

IN_ANOTHER_GROUP = """
import os, sys, time
if os.fork() == 0:
    os.setpgid(0, 0)
    if os.fork() == 0:
        open(sys.argv[1] + ".new", "w").write(f"{os.getpid()} {os.getppid()}")
        os.rename(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(1000)
"""

DEAF = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)
"""

OBEDIENT = """
import os, signal, sys, time
def stop(*_):
    print("tidied up", flush=True)
    sys.exit(3)
signal.signal(signal.SIGTERM, stop)
open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(1000)
"""

Order = Callable[..., RunOrder]


@pytest.fixture
async def launcher(tmp_path: Path) -> AsyncIterator[ProcessLauncher]:
    made = ProcessLauncher(tmp_path / "runs", deadline_grace=PATIENT, kill_grace=PATIENT)
    yield made
    made._graces = dict.fromkeys(made._graces, 0.0)
    await made.close()


@pytest.fixture
def order(tmp_path: Path) -> Order:
    def make(*argv: str, run: int = 1, deadline: float | None = None) -> RunOrder:
        return RunOrder(run, f"etl-r{run}", "etl", "x", 1, 7, Command(argv, {}, tmp_path), deadline)

    return make


async def pids_in(path: Path) -> list[int]:
    """Wait until a run has written its process ids."""
    return await asyncio.to_thread(_wait_for_pids, path)


def _wait_for_pids(path: Path) -> list[int]:
    wait_until(path.exists, "the run has written its process ids", every=0.005)
    return [int(word) for word in path.read_text().split()]


def alive(pids: list[int]) -> list[int]:
    found = [find_process(pid) for pid in pids]
    return [process.pid for process in found if process is not None and not process.gone]


async def test_a_deadline_ends_the_run_and_says_so(launcher: ProcessLauncher, order: Order) -> None:
    await launcher.start(order("sleep", "1000", deadline=0.05))
    end = await launcher.ended()
    assert end.deadline_exceeded
    assert (end.exit_code, end.signal, end.lost, end.cancelled) == (None, signal.SIGTERM, None, False)


async def test_a_run_that_is_done_before_its_deadline_is_as_any_other(launcher: ProcessLauncher, order: Order) -> None:
    await launcher.start(order("true", deadline=1000))
    assert (await launcher.ended()) == Ended(1, exit_code=0, log_path=str(launcher._runs_home / "etl-r1/output.log"))


async def test_a_deadline_ends_grandchildren_in_another_process_group(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    script = f"{sys.executable} -c '{IN_ANOTHER_GROUP}' {pids}; sleep 1000"
    await launcher.start(order("sh", "-c", script))
    started = await pids_in(pids)
    assert alive(started) == started
    launcher._children[1].stop(Stop.DEADLINE)
    end = await launcher.ended()
    assert end.deadline_exceeded
    assert alive(started) == []


async def test_a_run_may_tidy_up_within_the_grace(launcher: ProcessLauncher, order: Order, tmp_path: Path) -> None:
    await launcher.start(order(sys.executable, "-c", OBEDIENT, str(tmp_path / "pids")))
    await pids_in(tmp_path / "pids")
    await launcher.kill(1, cancelled=True)
    end = await launcher.ended()
    assert (end.cancelled, end.exit_code, end.signal) == (True, None, None)
    assert end.log_tail == "tidied up\n"


async def test_a_child_may_tidy_up_although_its_shell_has_ended(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    script = f"{sys.executable} -c '{OBEDIENT}' {tmp_path / 'pids'}; echo never"
    await launcher.start(order("sh", "-c", script))
    await pids_in(tmp_path / "pids")
    await launcher.kill(1, cancelled=True)
    assert (await launcher.ended()).log_tail == "tidied up\n"


async def test_a_run_that_does_not_obey_is_killed_after_the_grace(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    launcher._graces = dict.fromkeys(launcher._graces, 0.05)
    await launcher.start(order(sys.executable, "-c", DEAF, str(tmp_path / "pids")))
    pids = await pids_in(tmp_path / "pids")
    await launcher.kill(1, cancelled=True)
    end = await launcher.ended()
    assert (end.cancelled, end.signal) == (True, signal.SIGKILL)
    assert alive(pids) == []


async def test_a_killed_run_that_nobody_cancelled_is_lost(launcher: ProcessLauncher, order: Order) -> None:
    await launcher.start(order("sleep", "1000"))
    await launcher.kill(1, cancelled=False)
    end = await launcher.ended()
    assert (end.lost, end.cancelled, end.exit_code) == ("stopped by the runner", False, None)


async def test_the_first_reason_to_end_a_run_counts(launcher: ProcessLauncher, order: Order) -> None:
    await launcher.start(order("sleep", "1000"))
    await launcher.kill(1, cancelled=True)
    await launcher.kill(1, cancelled=False)
    assert (await launcher.ended()).cancelled


async def test_killing_a_run_that_is_over_or_unknown_does_nothing(launcher: ProcessLauncher, order: Order) -> None:
    await launcher.start(order("true"))
    assert (await launcher.ended()).exit_code == 0
    await launcher.kill(1, cancelled=True)
    await launcher.kill(99, cancelled=True)
    assert launcher._ends.empty()


async def test_what_a_run_leaves_is_gone_when_its_end_is_reported(launcher: ProcessLauncher, order: Order) -> None:
    await launcher.start(order("sh", "-c", "sleep 1000 & exit 4"))
    session = launcher._children[1].session
    assert (await launcher.ended()).exit_code == 4
    assert scan_session(session).members == ()


async def test_a_daemon_of_the_session_that_runs_already_is_gone_when_the_end_is_reported(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    wait = f"while [ ! -e {pids} ]; do sleep 0.01; done"
    await launcher.start(order("sh", "-c", f"{sys.executable} -c '{IN_ANOTHER_GROUP}' {pids}; {wait}"))
    end = await launcher.ended()
    assert end.exit_code == 0
    started = await pids_in(pids)
    assert len(started) == 2
    assert alive(started) == []


async def test_the_number_of_an_ended_run_is_not_free_before_its_session_is_empty(
    launcher: ProcessLauncher, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    async def watched(session: int) -> tuple[set[int], set[int]]:
        seen.append(find_process(session))
        return await kill_session(session)

    monkeypatch.setattr("opendataflow.launch.process.launcher.kill_session", watched)
    await launcher.start(order("true"))
    await launcher.ended()
    assert [process.gone for process in seen if process] == [True]


async def test_close_ends_every_run_and_still_reports_each(launcher: ProcessLauncher, order: Order) -> None:
    for run in range(5):
        await launcher.start(order("sleep", "1000", run=run))
    sessions = [child.session for child in launcher._children.values()]
    await launcher.close()
    assert [scan_session(session).members for session in sessions] == [()] * 5
    ends = [await launcher.ended() for _ in sessions]
    assert sorted(end.run for end in ends) == list(range(5))
    assert {end.lost for end in ends} == {"stopped by the runner"}


async def test_releasing_a_run_that_goes_on_forgets_nothing(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    await launcher.start(order(sys.executable, "-c", OBEDIENT, str(tmp_path / "pids")))
    await pids_in(tmp_path / "pids")
    await launcher.release(claimed(1, "etl"))
    await launcher.kill(1, cancelled=True)
    assert (await launcher.ended()).cancelled
