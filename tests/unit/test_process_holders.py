"""One JVM for many runs: it is used again only if nothing of a run is left in it, and no run waits for it forever.

A small program takes the place of the JVM. It is ready, answers and ends as pyspark's JVM does.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from opendataflow.launch.process import holders as holders_module
from opendataflow.launch.process import launcher as launcher_module
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.launch.process.session import find_process
from opendataflow.model.records.run import Command, Ended, HolderOrder, RunOrder
from tests.waiting import until

JVM = """
import os, socket, struct, subprocess, sys, threading

def serve(connection):
    while word := connection.recv(100):
        if word == b"work":
            threading.Event().wait()
        if word == b"fork":
            connection.send(str(subprocess.Popen(["sleep", "1000"]).pid).encode())
    connection.close()

def accept():
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

listener = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=accept, daemon=True).start()
folder, port = os.environ["SPARK_CONF_DIR"], listener.getsockname()[1]
with open(f"{folder}/new", "wb") as file:
    file.write(struct.pack("!ii", port, 6) + b"secret")
os.rename(f"{folder}/new", f"{folder}/connection")
sys.stdin.buffer.read()
if "deaf" in sys.argv:
    threading.Event().wait()
"""

RUN = """
import os, pathlib, socket, sys, time

folder = pathlib.Path(os.environ["DATAFLOW_CONTEXT"]).parent
holder = os.environ.get("DATAFLOW_HOLDER")
connection = holder and socket.create_connection(("127.0.0.1", int(os.environ["PYSPARK_GATEWAY_PORT"])))
for word in sys.argv[1:]:
    if word == "reusable":
        (folder / "reusable").touch()
    elif word in ("fail", "vanish"):
        os._exit(1 if word == "fail" else 0)
    elif word == "wait":
        (folder / "waits").touch()
        time.sleep(1000)
    elif word == "listen":
        (folder / "waits").touch()
        connection.recv(1)
        sys.exit("the JVM has ended")
    else:
        connection.send(word.encode())
        if word == "fork":
            print(connection.recv(100).decode(), end=" ")
print(holder and pathlib.Path(holder).name, os.environ["CHUNK"], os.environ.get("PYSPARK_GATEWAY_SECRET"))
"""

Order = Callable[..., RunOrder]


def jvm(folder: Path, *arguments: str, script: str = JVM, **limits: float) -> HolderOrder:
    """The order of a holder."""
    made = Command((sys.executable, "-c", script, *arguments), {"SPARK_CONF_DIR": "{run_folder}"}, folder)
    known = {"most_runs": 100, "longest_idle": 1000, "longest_age": 1000}
    return HolderOrder(made, **{**known, **limits})  # type: ignore[arg-type]


@pytest.fixture
async def launcher(tmp_path: Path) -> AsyncIterator[ProcessLauncher]:
    made = ProcessLauncher(tmp_path / "runs", deadline_grace=0.1, kill_grace=0.1)
    yield made
    await made.close()


@pytest.fixture
def order(tmp_path: Path) -> Order:
    def make(run: int, *words: str, holder: HolderOrder | None = None, job: str = "etl") -> RunOrder:
        env = {"DATAFLOW_CONTEXT": "{run_folder}/context.json", "CHUNK": f"chunk-{run}"}
        command = Command((sys.executable, "-c", RUN, *words), env, tmp_path, {}, holder or jvm(tmp_path))
        return RunOrder(run, f"{job}-r{run}", job, "x", 1, 7, command)

    return make


async def run(launcher: ProcessLauncher, order: RunOrder) -> Ended:
    await launcher.start(order)
    return await launcher.ended()


def holders(tmp_path: Path) -> dict[str, int]:
    """The holders whose folder exists, with the process of each."""
    found = {}
    for folder in (tmp_path / "runs" / "holders").glob("*"):
        with suppress(FileNotFoundError):  # it is being deleted at this moment
            stat = (folder / "process").read_text().split("stat ")[1]
            found[folder.name] = int(stat.split()[0])
    return found


def is_alive(pid: int) -> bool:
    process = find_process(pid)
    return process is not None and not process.gone


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def used(ended: Ended) -> str:
    """The holder that a run has used."""
    return ended.log_tail.split()[-3]


async def test_the_next_run_uses_the_jvm_with_variables_of_its_own(launcher: ProcessLauncher, order: Order) -> None:
    first, second = await run(launcher, order(1, "reusable")), await run(launcher, order(2, "reusable"))
    assert used(first) == used(second) != "None"
    assert first.log_tail.endswith(" chunk-1 secret\n")
    assert second.log_tail.endswith(" chunk-2 secret\n")
    assert (first.exit_code, second.exit_code) == (0, 0)


async def test_no_variable_of_a_run_is_in_the_jvm(launcher: ProcessLauncher, order: Order, tmp_path: Path) -> None:
    await run(launcher, order(1, "reusable"))
    (pid,) = holders(tmp_path).values()
    environment = environment_of(pid)
    assert b"SPARK_CONF_DIR=" in environment
    assert b"chunk-1" not in environment


async def test_runs_at_the_same_time_use_different_jvms(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    await launcher.start(order(1, "wait"))
    second = await run(launcher, order(2, "reusable"))
    assert len(holders(tmp_path)) == 2
    await launcher.kill(1, cancelled=True)
    assert (await launcher.ended()).cancelled
    assert [*holders(tmp_path)] == [used(second)]


@pytest.mark.parametrize(
    "words",
    [(), ("vanish",), ("reusable", "fail"), ("work", "reusable")],
    ids=lambda words: "-".join(words) or "silent",
)
async def test_a_jvm_in_which_something_may_be_left_has_ended_before_the_end_of_the_run_is_reported(
    launcher: ProcessLauncher,
    order: Order,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    monkeypatch.setattr(holders_module, "QUIET_SECONDS", 0.3)
    first = await run(launcher, order(2, *words))
    assert holders(tmp_path) == {}
    second = await run(launcher, order(3, "reusable"))
    assert len(holders(tmp_path)) == 1
    assert used(second) not in first.log_tail


async def test_a_jvm_ends_with_a_run_that_is_cancelled_lost_or_past_its_deadline(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    for number, cancelled in ((1, True), (2, False)):
        await launcher.start(order(number, "reusable", "wait"))
        (pid,) = holders(tmp_path).values()
        await launcher.kill(number, cancelled=cancelled)
        assert (await launcher.ended()).cancelled is cancelled
        assert not is_alive(pid)
    late = await run(launcher, replace(order(3, "reusable", "wait"), deadline=0.2))
    assert late.deadline_exceeded
    assert holders(tmp_path) == {}


async def test_workers_of_a_run_end_before_the_next_run(launcher: ProcessLauncher, order: Order) -> None:
    first = await run(launcher, order(1, "fork", "reusable"))
    worker = int(first.log_tail.split()[0])
    assert not is_alive(worker)
    assert used(await run(launcher, order(2, "reusable"))) == used(first)


async def test_a_jvm_ends_after_its_number_of_runs_its_age_or_its_idle_time(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    twice = jvm(tmp_path, most_runs=2)
    one, two = [used(await run(launcher, order(number, "reusable", holder=twice))) for number in (1, 2)]
    assert one == two
    assert holders(tmp_path) == {}
    await run(launcher, order(3, "reusable", holder=jvm(tmp_path, longest_age=0)))
    assert holders(tmp_path) == {}
    await run(launcher, order(4, "reusable", holder=jvm(tmp_path, longest_idle=0)))
    await until(lambda: holders(tmp_path) == {}, "the idle JVM ends")


async def test_a_run_with_another_order_never_gets_a_jvm_of_an_earlier_one(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    first = await run(launcher, order(1, "reusable"))
    changed = await run(launcher, order(2, "reusable", holder=jvm(tmp_path, "changed")))
    assert used(changed) != used(first)
    await until(lambda: [*holders(tmp_path)] == [used(changed)], "the JVM of the earlier order ends")
    other_job = await run(launcher, order(3, "reusable", holder=jvm(tmp_path, "changed"), job="other"))
    assert used(other_job) != used(changed)


async def test_few_jvms_are_kept_idle(
    launcher: ProcessLauncher, order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders_module, "MOST_IDLE", 1)
    await run(launcher, order(1, "reusable"))
    second = await run(launcher, order(2, "reusable", job="other"))
    await until(lambda: [*holders(tmp_path)] == [used(second)], "the JVM that has waited longest ends")


async def test_a_jvm_that_ends_while_it_is_idle_is_replaced(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    first = await run(launcher, order(1, "reusable"))
    pid = holders(tmp_path)[used(first)]
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not is_alive(pid), "the JVM ends")
    second = await run(launcher, order(2, "reusable"))
    assert second.exit_code == 0
    assert used(second) != used(first)


async def test_the_error_of_a_run_whose_jvm_ends_is_its_own(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    await launcher.start(order(1, "listen"))
    await until((tmp_path / "runs" / "etl-r1" / "waits").exists)
    os.kill(next(iter(holders(tmp_path).values())), signal.SIGKILL)
    ended = await launcher.ended()
    assert (ended.exit_code, ended.log_tail) == (1, "the JVM has ended\n")
    assert holders(tmp_path) == {}


async def test_a_run_that_goes_on_without_its_jvm_is_ended(
    launcher: ProcessLauncher, order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher_module, "JVM_GRACE", 0.1)
    await launcher.start(order(1, "wait"))
    await until((tmp_path / "runs" / "etl-r1" / "waits").exists)
    os.kill(next(iter(holders(tmp_path).values())), signal.SIGKILL)
    ended = await launcher.ended()
    assert ended.lost == "the JVM that it shared with other runs has ended, and it did not end by itself"


async def test_a_run_whose_holder_cannot_start_has_a_jvm_of_its_own_and_says_so(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    broken = jvm(tmp_path, script="import sys; sys.exit('there is no Java')")
    ends = [await run(launcher, order(number, holder=broken)) for number in (1, 2, 3)]
    reason = "no shared JVM could be started: there is no Java"
    last = "2 shared JVMs of this job in a row could not be used again"
    assert [end.log_tail for end in ends] == [
        f"dataflow: this run has a JVM of its own: {why}\nNone chunk-{number} None\n"
        for number, why in ((1, reason), (2, reason), (3, last))
    ]
    assert [end.report.metrics for end in ends] == [{"own_jvm": why} for why in (reason, reason, last)]
    assert holders(tmp_path) == {}


async def test_a_holder_that_is_never_ready_delays_a_run_for_a_limited_time(
    launcher: ProcessLauncher, order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders_module, "START_SECONDS", 0.2)
    hanging = jvm(tmp_path, script="import sys; sys.stdin.read()")
    ended = await run(launcher, order(1, holder=hanging))
    assert "this run has a JVM of its own: no shared JVM could be started: it was not ready" in ended.log_tail
    assert ended.exit_code == 0
    assert holders(tmp_path) == {}


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_run_that_is_ended_while_its_holder_starts_never_starts(
    launcher: ProcessLauncher, order: Order, tmp_path: Path, cancelled: bool
) -> None:
    hanging = jvm(tmp_path, script="import sys; sys.stdin.read()")
    start = asyncio.create_task(launcher.start(order(1, holder=hanging)))
    await until((tmp_path / "runs" / "holders").exists)
    await launcher.kill(1, cancelled=cancelled)
    ended = await launcher.ended()
    assert (ended.cancelled, ended.lost) == (cancelled, None if cancelled else "stopped by the runner")
    await start
    assert not (tmp_path / "runs" / "etl-r1").exists()
    assert holders(tmp_path) == {}


async def test_the_jvm_of_a_run_that_cannot_be_started_ends(
    launcher: ProcessLauncher, order: Order, tmp_path: Path
) -> None:
    impossible = order(1)
    command = replace(impossible.command, env={**impossible.command.env, "CHUNK": "nul \0"})
    assert (await run(launcher, replace(impossible, command=command))).exit_code == 126
    assert holders(tmp_path) == {}


async def test_a_jvm_that_does_not_end_is_killed(
    launcher: ProcessLauncher, order: Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders_module, "END_SECONDS", 0.1)
    ended = await run(launcher, order(1, holder=jvm(tmp_path, "deaf")))
    assert ended.exit_code == 0
    assert holders(tmp_path) == {}


async def test_closing_ends_idle_and_busy_jvms(launcher: ProcessLauncher, order: Order, tmp_path: Path) -> None:
    await launcher.start(order(1, "wait"))
    await run(launcher, order(2, "reusable"))
    pids = holders(tmp_path).values()
    await launcher.close()
    assert [pid for pid in pids if is_alive(pid)] == []
    assert holders(tmp_path) == {}


ENGINE = """
import asyncio, sys, time
from opendataflow.launch.process.launcher import ProcessLauncher
from tests.unit.test_process_holders import *

async def main(home, words, *jvm_words):
    tmp_path = Path(home)
    launcher = ProcessLauncher(tmp_path / "runs")
    env = {"DATAFLOW_CONTEXT": "{run_folder}/context.json", "CHUNK": "chunk-1"}
    command = Command((sys.executable, "-c", RUN, *words.split()), env, tmp_path, {}, jvm(tmp_path, *jvm_words))
    await launcher.start(RunOrder(1, "etl-r1", "etl", "x", 1, 7, command))
    if "wait" in words:
        await until(lambda: [*tmp_path.glob("runs/**/waits")], "the run waits")
    else:
        await launcher.ended()
    print("ready", flush=True)
    time.sleep(1000)

asyncio.run(main(*sys.argv[1:]))
"""


async def killed_engine(tmp_path: Path, *words: str) -> None:
    """Start an engine that does what the words say, and kill it."""
    root = str(Path(__file__).parents[2])
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", ENGINE, str(tmp_path), *words, stdout=asyncio.subprocess.PIPE, cwd=root
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    process.kill()
    await process.wait()


async def test_a_jvm_ends_with_its_engine_and_the_next_engine_deletes_its_folder(
    launcher: ProcessLauncher, tmp_path: Path
) -> None:
    await killed_engine(tmp_path, "reusable")
    (pid,) = holders(tmp_path).values()
    await until(lambda: not is_alive(pid), "the JVM ends")
    await launcher.announce("a-lease")
    assert holders(tmp_path) == {}


async def test_the_folder_of_a_jvm_that_is_alive_stays(launcher: ProcessLauncher, order: Order, tmp_path: Path) -> None:
    await run(launcher, order(1, "reusable"))
    other = ProcessLauncher(tmp_path / "runs")
    await other.announce("another-lease")
    assert len(holders(tmp_path)) == 1


async def test_a_takeover_ends_the_run_and_its_jvm(launcher: ProcessLauncher, tmp_path: Path) -> None:
    await killed_engine(tmp_path, "wait", "deaf")
    (pid,) = holders(tmp_path).values()
    assert is_alive(pid)
    proof = await launcher.prove_dead("etl-r1", launcher.host)
    assert proof.dead
    assert (
        proof.reason == "killed 1 process left from run etl-r1; killed 1 process left from the shared JVM of run etl-r1"
    )
    assert not is_alive(pid)


async def test_a_run_is_not_dead_while_its_jvm_may_be_alive(launcher: ProcessLauncher, tmp_path: Path) -> None:
    await killed_engine(tmp_path, "wait", "deaf")
    ((name, pid),) = holders(tmp_path).items()
    record = tmp_path / "runs" / "holders" / name / "process"
    text = record.read_text()
    record.write_text("unreadable")
    proof = await launcher.prove_dead("etl-r1", launcher.host)
    assert not proof.dead
    assert "does not say which process the shared JVM of run etl-r1 was" in proof.reason
    assert is_alive(pid)
    record.write_text(text)
    assert (await launcher.prove_dead("etl-r1", launcher.host)).dead
    assert not is_alive(pid)
