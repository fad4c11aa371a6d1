"""Proving that a run of an earlier process is dead, and ending what is left of it.

The earlier process may have been killed at any moment: before it had made the run's folder, between the fork
and the record, while the run was going on, after its end. In this order:

1.  Another host: nothing can be known here. Nothing is touched: its folder may be another disk's.
2.  The same host after a restart (another boot id): no process of before is alive.
3.  The same boot in another process id namespace (a container beside this one): its processes can't be seen.
4.  No record yet: the tombstone is put in its place. From now on the run's shim can't start the command.
5.  A record: every process of its session is killed, until none is left.

Numbers of processes are used again, so in step 5 the recorded number L may by now belong to somebody else.
The kernel gives out L only when no process has it as its own number, its group's or its session's. Hence all
that is in session L at one time belongs together: all ours, or all of strangers. Which of them?

*   Process L is there and started when the record says: ours.
*   Process L is there and started at another time: L was free in between, so our session was empty then, and
    nothing can come back into it. The run has ended; the strangers are left alone.
*   Process L is not there but others are in session L: ours whose first process has ended, or a stranger's
    daemon with the same past. Ours if one of them writes to the run's log or has the run's folder in its
    environment, as every run has through DATAFLOW_CONTEXT. Else nothing is proven and nothing is killed.

Nothing here ever guesses: what can't be proven is said to be so, with what a person can do.
"""

import asyncio
import os
from pathlib import Path

from opendataflow.launch.process.folder import RunFolder
from opendataflow.launch.process.host import boot_and_namespace
from opendataflow.launch.process.record import Record, Tombstone, place_tombstone, read_record
from opendataflow.launch.process.session import Process, Scan, find_process, kill_session, scan_session
from opendataflow.model.records.run import Host, Proof

SECONDS_TO_DIE = 10.0
BY_HAND = "when it is certain that it has ended, `dataflow lost RUN` says so by hand"


async def prove_dead(folder: RunFolder, then: Host, here: Host, seconds: float = SECONDS_TO_DIE) -> Proof:
    """Make certain that the run of `folder`, started at `then`, does not run and never will.

    `seconds`: how long killed processes get to be gone.
    """
    run = folder.path.name
    verdict = _judge_host(run, then, here)
    if verdict is not None:
        return verdict
    try:
        return await _judge_record(folder, then, here, seconds)
    except OSError as error:
        return Proof(False, f"nothing is known about run {run}: {error}; make its folder and /proc readable")


async def _judge_record(folder: RunFolder, then: Host, here: Host, seconds: float) -> Proof:
    run = folder.path.name
    if place_tombstone(folder.record, here):
        return Proof(True, f"run {run} was never started")
    record = read_record(folder.record)
    if isinstance(record, Tombstone):
        return Proof(True, f"run {run} was never started: an earlier process gave it up")
    if not isinstance(record, Record):
        return Proof(False, f"{folder.record} does not say which process the run was; {BY_HAND}")
    recorded = Host(then.name, f"{record.boot}/{record.namespace}")
    return _judge_host(run, recorded, here) or await _end(folder, record, seconds)


def _judge_host(run: str, then: Host, here: Host) -> Proof | None:
    """Return what the two hosts say alone; None where the processes have to be looked at."""
    if then.name != here.name:
        return Proof(
            False,
            f"run {run} was started on host {then.name}, which can't be seen from {here.name}; {BY_HAND}",
        )
    boot, namespace = boot_and_namespace(then)
    boot_now, namespace_now = boot_and_namespace(here)
    if boot != boot_now:
        return Proof(True, f"host {here.name} has restarted since run {run} was started")
    if namespace != namespace_now:
        return Proof(False, f"run {run} was started in another container of host {here.name}; {BY_HAND}")
    return None


async def _end(folder: RunFolder, record: Record, seconds: float) -> Proof:
    run = folder.path.name
    leader, scan = await _look(record.pid)
    if (leader is not None and leader.start != record.start) or scan.empty:
        return Proof(True, f"run {run} had already ended")
    if leader is None and not any(_belongs(process.pid, folder) for process in scan.members):
        numbers = _numbers({process.pid for process in scan.members})
        return Proof(False, f"process {numbers} may be left from run {run}: end it if it is; {BY_HAND}")
    killed, left = await kill_session(record.pid, since=record.start, seconds=seconds)
    if left:
        return Proof(False, f"process {_numbers(left)} of run {run} can't be ended from here: end it; {BY_HAND}")
    if not killed:
        return Proof(True, f"run {run} had already ended")
    count = "1 process" if len(killed) == 1 else f"{len(killed)} processes"
    return Proof(True, f"killed {count} left from run {run}")


async def _look(session: int) -> tuple[Process | None, Scan]:
    """Return the process of that number, and its session's members; none only where none was overlooked."""
    while True:
        leader = find_process(session)
        scan = scan_session(session)
        if scan.steady or scan.members:
            return leader, scan
        await asyncio.sleep(0)


def _belongs(pid: int, folder: RunFolder) -> bool:
    """Whether a process writes to the run's log or names the run's folder in its environment."""
    return _writes_to(pid, folder.log) or _names(pid, folder.path)


def _writes_to(pid: int, log: Path) -> bool:
    for descriptor in (1, 2):
        try:
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{descriptor}"), log.stat()):
                return True
        except OSError:
            continue
    return False


def _names(pid: int, folder: Path) -> bool:
    path = os.fsencode(folder)
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return any(path + end in environment for end in (b"/", b"\0"))


def _numbers(pids: set[int]) -> str:
    return ", ".join(str(pid) for pid in sorted(pids))
