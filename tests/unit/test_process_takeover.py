"""A later process takes over: it proves runs of its killed predecessor dead, and ends what is left of them.

The predecessors are real processes that are killed with SIGKILL.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from opendataflow.launch.process.folder import RunFolder
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.launch.process.record import (
    Record,
    Tombstone,
    Unreadable,
    place_tombstone,
    read_record,
    record_heading,
)
from opendataflow.launch.process.session import find_process, parse_stat, scan_session
from opendataflow.launch.process.shim import SHELL, SHIM
from opendataflow.model.records.run import Command, Host, Proof, RunOrder
from tests.waiting import until

NAME = "etl-r1"

ENGINE = """
import asyncio, sys, time
from pathlib import Path
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.model.records.run import Command, RunOrder

async def main(home, cwd, moment, *argv):
    launcher = ProcessLauncher(Path(home))
    if moment == "starting":
        print("ready", flush=True)
    if moment != "before":
        await launcher.start(RunOrder(1, "etl-r1", "etl", "x", 1, 7, Command(argv, {}, Path(cwd))))
    if moment == "after":
        await launcher.ended()
    print("ready", flush=True)
    time.sleep(1000)

asyncio.run(main(*sys.argv[1:]))
"""

WORKER = """
import os, sys, time
if os.fork() == 0:
    os.setpgid(0, 0)
    if os.fork() == 0:
        with open("pids.new", "w") as file:
            file.write(f"{os.getpid()} {os.getppid()} {os.getsid(0)}")
        os.rename("pids.new", "pids")
    time.sleep(1000)
if sys.argv[1] == "stay":
    time.sleep(1000)
while not os.path.exists("pids"):
    time.sleep(0.005)
"""


@dataclass(frozen=True)
class Place:
    """Where the predecessor works."""

    home: Path
    cwd: Path

    @property
    def folder(self) -> RunFolder:
        return RunFolder(self.home / NAME)

    @property
    def marker(self) -> Path:
        return self.cwd / "marker"

    def ran(self) -> bool:
        """Whether the command did anything."""
        return self.marker.exists()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "runs", tmp_path)


@pytest.fixture
async def launcher(place: Place) -> AsyncIterator[ProcessLauncher]:
    made = ProcessLauncher(place.home, kill_grace=0)
    yield made
    await made.close()


@pytest.fixture
def engine(place: Place) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start an engine process that has come to a moment of a run's life; it is killed at the latest at the end."""
    started = []

    def start(moment: str, *argv: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", ENGINE, str(place.home), str(place.cwd), moment, *argv]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


Engine = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def stranger() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a process of its own session that belongs to no run."""
    started = []

    def start(*argv: str, **options: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE, env={**os.environ, **options})
        started.append(process)
        return process

    yield start
    for process in started:
        for member in scan_session(process.pid).members:
            os.kill(member.pid, signal.SIGKILL)
        process.communicate()


Stranger = Callable[..., subprocess.Popen[bytes]]


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def running(pids: list[int]) -> list[int]:
    found = [find_process(pid) for pid in pids]
    return [process.pid for process in found if process is not None and not process.gone]


async def worker_pids(place: Place) -> list[int]:
    path = place.cwd / "pids"
    await until(path.exists)
    return [int(word) for word in path.read_text().split()]


def write_record(place: Place, host: Host, pid: int, start: int) -> None:
    """Write a record as a shim of process `pid` that started at `start` would have left it."""
    stat = f"{pid} (sh) S 1 {pid} {pid} " + " ".join("0" for _ in range(15)) + f" {start} 0 0"
    place.folder.prepare({})
    place.folder.record.write_text(f"{record_heading('token', host)}\nstat {stat}\nend\n")


def start_ticks(pid: int) -> int:
    found = find_process(pid)
    assert found is not None
    return found.start


def run_late_shim(place: Place, host: Host) -> subprocess.CompletedProcess[bytes]:
    """Run the shim as a predecessor would have that was stopped between its spawn and its record."""
    record = place.folder.record
    heading = record_heading("late", host)
    command = [SHELL, "-c", SHIM, "dataflow", str(record), f"{record}.late", heading, "/bin/ln", "touch"]
    return subprocess.run([*command, str(place.marker)], stderr=subprocess.PIPE, check=False)


async def test_a_run_claimed_but_never_started_is_dead_and_stays_so(launcher: ProcessLauncher, engine: Engine) -> None:
    kill(engine("before"))
    assert await launcher.prove_dead(NAME, launcher.host) == Proof(True, f"run {NAME} was never started")
    again = await launcher.prove_dead(NAME, launcher.host)
    assert again == Proof(True, f"run {NAME} was never started: an earlier process gave it up")


async def test_a_shim_that_comes_after_the_tombstone_does_not_run_the_command(
    launcher: ProcessLauncher, place: Place
) -> None:
    assert (await launcher.prove_dead(NAME, launcher.host)).dead
    assert run_late_shim(place, launcher.host).returncode == 125
    assert not place.ran()
    assert read_record(place.folder.record) == Tombstone()


async def test_a_shim_that_comes_before_the_tombstone_runs_the_command(launcher: ProcessLauncher, place: Place) -> None:
    place.folder.prepare({})
    assert run_late_shim(place, launcher.host).returncode == 0
    assert place.ran()
    assert await launcher.prove_dead(NAME, launcher.host) == Proof(True, f"run {NAME} had already ended")


async def test_a_start_after_the_tombstone_is_reported_as_lost(launcher: ProcessLauncher, place: Place) -> None:
    place_tombstone(place.folder.record, launcher.host)
    await launcher.start(RunOrder(1, NAME, "etl", "x", 1, 7, Command(("touch", "marker"), {}, place.cwd)))
    end = await launcher.ended()
    assert end.lost == f"run {NAME} was given up by a later process before it could start"
    assert not place.ran()


async def test_a_tombstone_that_comes_during_the_start_is_reported_as_lost(
    launcher: ProcessLauncher, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_tombstone(place.folder.record, launcher.host)
    monkeypatch.setattr(RunFolder, "has_record", lambda _: False)
    await launcher.start(RunOrder(1, NAME, "etl", "x", 1, 7, Command(("touch", "marker"), {}, place.cwd)))
    end = await launcher.ended()
    assert end.lost == f"run {NAME} was given up by a later process before it could start"
    assert not place.ran()


async def test_a_running_run_of_a_killed_engine_is_killed_with_all_its_workers(
    launcher: ProcessLauncher, place: Place, engine: Engine
) -> None:
    predecessor = engine("running", sys.executable, "-c", WORKER, "stay")
    pids = await worker_pids(place)
    kill(predecessor)
    assert sorted(running(pids)) == sorted(pids)
    assert await launcher.prove_dead(NAME, launcher.host) == Proof(True, f"killed 3 processes left from run {NAME}")
    assert running(pids) == []


async def test_workers_whose_first_process_has_ended_are_killed(
    launcher: ProcessLauncher, place: Place, engine: Engine
) -> None:
    predecessor = engine("running", sys.executable, "-c", WORKER, "stay")
    pids = await worker_pids(place)
    kill(predecessor)
    os.kill(pids[2], signal.SIGKILL)
    await until(lambda: not running(pids[2:]))
    assert await launcher.prove_dead(NAME, launcher.host) == Proof(True, f"killed 2 processes left from run {NAME}")
    assert running(pids) == []


async def test_a_run_that_had_ended_before_its_engine_was_killed_is_dead(
    launcher: ProcessLauncher, place: Place, engine: Engine
) -> None:
    kill(engine("after", "touch", "marker"))
    assert place.ran()
    assert await launcher.prove_dead(NAME, launcher.host) == Proof(True, f"run {NAME} had already ended")


@pytest.mark.parametrize("milliseconds", [0, 1, 2, 3, 5, 8, 13])
async def test_a_run_of_an_engine_killed_anywhere_in_its_start_is_dead(
    launcher: ProcessLauncher, place: Place, engine: Engine, milliseconds: int
) -> None:
    """The shim may have recorded itself or not, or not even be there: nothing of it runs after the proof."""
    predecessor = engine("starting", "sh", "-c", "echo $$ > pids; exec sleep 1000")
    await asyncio.sleep(milliseconds / 1000)
    kill(predecessor)
    assert (await launcher.prove_dead(NAME, launcher.host)).dead
    record = read_record(place.folder.record)
    assert record == Tombstone() or (isinstance(record, Record) and not running([record.pid]))
    assert run_late_shim(place, launcher.host).returncode == 125
    assert not place.ran()


async def test_a_second_start_by_a_later_process_is_reported_as_lost(
    launcher: ProcessLauncher, place: Place, engine: Engine
) -> None:
    kill(engine("after", "sh", "-c", "echo first"))
    await launcher.start(RunOrder(1, NAME, "etl", "x", 1, 7, Command(("touch", "marker"), {}, place.cwd)))
    end = await launcher.ended()
    assert end.lost == f"run {NAME} was already started by an earlier process"
    assert end.log_tail == "first\n"
    assert not place.ran()


async def test_a_run_of_another_host_is_not_proven_dead_and_not_touched(
    launcher: ProcessLauncher, place: Place
) -> None:
    proof = await launcher.prove_dead(NAME, Host("elsewhere", launcher.host.boot))
    assert not proof.dead
    assert "host elsewhere" in proof.reason
    assert "dataflow lost" in proof.reason
    assert not place.folder.path.exists()


async def test_a_run_from_before_a_restart_is_dead_and_its_number_s_new_owner_lives(
    launcher: ProcessLauncher, place: Place, stranger: Stranger
) -> None:
    then = Host(launcher.host.name, "earlier-boot/pid:[1]")
    other = stranger("sleep", "1000")
    write_record(place, then, other.pid, start_ticks(other.pid))
    proof = await launcher.prove_dead(NAME, then)
    assert proof == Proof(True, f"host {then.name} has restarted since run {NAME} was started")
    assert running([other.pid]) == [other.pid]


async def test_a_run_of_another_container_is_not_proven_dead(
    launcher: ProcessLauncher, place: Place, stranger: Stranger
) -> None:
    boot = launcher.host.boot.partition("/")[0]
    then = Host(launcher.host.name, f"{boot}/pid:[1]")
    other = stranger("sleep", "1000")
    write_record(place, then, other.pid, start_ticks(other.pid))
    for host in (then, launcher.host):
        proof = await launcher.prove_dead(NAME, host)
        assert not proof.dead
        assert "another container" in proof.reason
    assert running([other.pid]) == [other.pid]


async def test_a_process_with_the_same_number_and_another_start_lives(
    launcher: ProcessLauncher, place: Place, stranger: Stranger
) -> None:
    other = stranger("sleep", "1000")
    write_record(place, launcher.host, other.pid, start_ticks(other.pid) - 1)
    assert await launcher.prove_dead(NAME, launcher.host) == Proof(True, f"run {NAME} had already ended")
    assert running([other.pid]) == [other.pid]


def orphan(stranger: Stranger, **options: str) -> tuple[int, int]:
    """Make a session whose first process has ended; return its number and the process that is left in it."""
    first = stranger("sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo $!", **options)
    assert first.stdout is not None
    left = int(first.stdout.readline())
    first.wait()
    return first.pid, left


async def test_a_stranger_s_daemon_in_a_session_of_the_same_number_lives_and_nothing_is_claimed(
    launcher: ProcessLauncher, place: Place, stranger: Stranger
) -> None:
    session, daemon = orphan(stranger)
    write_record(place, launcher.host, session, start_ticks(daemon) - 1000)
    proof = await launcher.prove_dead(NAME, launcher.host)
    assert not proof.dead
    assert str(daemon) in proof.reason
    assert running([daemon]) == [daemon]


@pytest.mark.parametrize(("value", "dead"), [("context.json", True), ("", False)])
async def test_a_daemon_that_knows_the_run_s_folder_is_the_run_s(
    launcher: ProcessLauncher, place: Place, stranger: Stranger, value: str, dead: bool
) -> None:
    path = f"{place.folder.path}/{value}" if value else f"{place.folder.path}7/context.json"
    session, daemon = orphan(stranger, DATAFLOW_CONTEXT=path)
    write_record(place, launcher.host, session, start_ticks(daemon) - 1)
    proof = await launcher.prove_dead(NAME, launcher.host)
    assert proof.dead is dead
    assert bool(running([daemon])) is not dead


@pytest.mark.parametrize("text", ["", "dataflow-process 1\ntoken x\nstat 1 (sh) S", "something else\nx\nend\n"])
async def test_a_record_that_is_cut_short_proves_nothing(launcher: ProcessLauncher, place: Place, text: str) -> None:
    place.folder.prepare({})
    place.folder.record.write_text(text)
    assert read_record(place.folder.record) == Unreadable()
    proof = await launcher.prove_dead(NAME, launcher.host)
    assert not proof.dead
    assert "does not say which process" in proof.reason


async def test_a_folder_that_can_t_be_written_proves_nothing(launcher: ProcessLauncher, place: Place) -> None:
    place.home.write_text("a file in the place of the folder")
    proof = await launcher.prove_dead(NAME, launcher.host)
    assert not proof.dead
    assert str(place.home) in proof.reason


async def test_the_record_names_the_command_s_own_process(launcher: ProcessLauncher, place: Place) -> None:
    await launcher.start(RunOrder(1, NAME, "etl", "x", 1, 7, Command(("sh", "-c", "cat /proc/$$/stat"), {}, place.cwd)))
    seen = parse_stat((await launcher.ended()).log_tail)
    record = read_record(place.folder.record)
    assert isinstance(record, Record)
    assert (record.pid, record.start) == (seen.pid, seen.start)
    assert f"{record.boot}/{record.namespace}" == launcher.host.boot


def test_a_program_s_name_does_not_confuse_the_reading_of_its_start() -> None:
    line = "42 (a) b) (c) Z 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 8350 0 0"
    assert (parse_stat(line).pid, parse_stat(line).start, parse_stat(line).gone) == (42, 8350, True)


def test_a_zombie_with_living_threads_is_not_gone() -> None:
    assert not parse_stat("42 (java) Z 1 42 42 0 -1 0 0 0 0 0 0 0 0 0 20 0 9 0 8350 0 0").gone


def test_of_two_tombstones_one_is_placed(place: Place) -> None:
    host = Host("here", "boot/namespace")
    assert [place_tombstone(place.folder.record, host) for _ in range(2)] == [True, False]
    assert os.listdir(place.folder.path) == ["process"]
