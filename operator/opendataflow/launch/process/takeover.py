"""Proves that a run of an earlier process is dead, and kills its remaining processes.

The earlier process may have been killed at any moment: before it created the folder of the run, between the fork and
the record, during the run, or after its end. The checks, in this order:

1.  Another host: nothing can be known. Nothing is changed, because the folder may be on another disk.
2.  The same host after a restart (another boot id): no earlier process is alive.
3.  The same boot in another process id namespace (another container): its processes are not visible.
4.  No record yet: a tombstone takes its place. After that the shim of the run can't start the command.
5.  A record: every process of its session is killed, until none is left.

Process ids are reused, so in step 5 the recorded id L may belong to another program by now. The kernel assigns L only
if no process has it as its own id, as the id of its group, or of its session. So the members of session L belong
together at any time: all of them belong to the run, or none.

*   Process L exists, and its start time is the recorded one: all belong to the run.
*   Process L exists, and its start time is another one: L was free in between, so the session of the run was empty.
    It can't get new members. The run has ended, and the other processes are not touched.
*   Process L does not exist, but session L has members. They belong to the run if one of them writes to its log, or
    has its folder in the environment (every run has it, in DATAFLOW_CONTEXT). Otherwise nothing is proven and no
    process is killed.

If the run has used the JVM of a holder, the same is proven of the holder: the JVM executes what the run has begun.

This module never guesses. If nothing is proven, it reports that, with a remedy.
"""

import asyncio
import os
from pathlib import Path

from opendataflow.launch.process.folder import RunFolder
from opendataflow.launch.process.host import boot_and_namespace
from opendataflow.launch.process.record import Record, Tombstone, place_tombstone, read_record
from opendataflow.launch.process.session import Process, Scan, find_process, kill_session, scan_session
from opendataflow.model.records.run import Host, Proof

KILL_SECONDS = 10.0
BY_HAND = "when it is certain that it has ended, run `dataflow lost RUN`"


async def prove_dead(folder: RunFolder, then: Host, here: Host, seconds: float = KILL_SECONDS) -> Proof:
    """Prove that the run of `folder`, started at `then`, does not run and never will, not even in a JVM of a holder.

    `seconds`: how long to wait for the end of killed processes.
    """
    run = f"run {folder.path.name}"
    proof = await _prove(run, folder, then, here, seconds)
    try:
        holder = folder.read_holder() if proof.dead else None
    except OSError as error:
        return Proof(False, f"nothing is known about the JVM of {run}: {error}; make its folder readable")
    if holder is None:
        return proof
    held = await _prove(f"the shared JVM of {run}", holder, then, here, seconds)
    return Proof(True, f"{proof.reason}; {held.reason}") if held.dead else held


async def _prove(what: str, folder: RunFolder, then: Host, here: Host, seconds: float) -> Proof:
    verdict = _judge_host(what, then, here)
    if verdict is not None:
        return verdict
    try:
        return await _judge_record(what, folder, then, here, seconds)
    except OSError as error:
        return Proof(False, f"nothing is known about {what}: {error}; make its folder and /proc readable")


async def _judge_record(what: str, folder: RunFolder, then: Host, here: Host, seconds: float) -> Proof:
    if place_tombstone(folder.record, here):
        return Proof(True, f"{what} was never started")
    record = read_record(folder.record)
    if isinstance(record, Tombstone):
        return Proof(True, f"{what} was never started: an earlier process gave it up")
    if not isinstance(record, Record):
        return Proof(False, f"{folder.record} does not say which process {what} was; {BY_HAND}")
    recorded = Host(then.name, f"{record.boot}/{record.namespace}")
    return _judge_host(what, recorded, here) or await _end(what, folder, record, seconds)


def _judge_host(what: str, then: Host, here: Host) -> Proof | None:
    """Return the proof that follows from the two hosts alone; None if the processes have to be inspected."""
    if then.name != here.name:
        return Proof(
            False,
            f"{what} was started on host {then.name}, which can't be seen from {here.name}; {BY_HAND}",
        )
    boot, namespace = boot_and_namespace(then)
    boot_now, namespace_now = boot_and_namespace(here)
    if boot != boot_now:
        return Proof(True, f"host {here.name} has restarted since {what} was started")
    if namespace != namespace_now:
        return Proof(False, f"{what} was started in another container of host {here.name}; {BY_HAND}")
    return None


async def _end(what: str, folder: RunFolder, record: Record, seconds: float) -> Proof:
    leader, scan = await _look(record.pid)
    if (leader is not None and leader.start != record.start) or scan.empty:
        return Proof(True, f"{what} had already ended")
    if leader is None and not any(_belongs(process.pid, folder) for process in scan.members):
        numbers = _numbers({process.pid for process in scan.members})
        return Proof(False, f"process {numbers} may be left from {what}: end it if it is; {BY_HAND}")
    killed, left = await kill_session(record.pid, since=record.start, seconds=seconds)
    if left:
        return Proof(False, f"process {_numbers(left)} of {what} can't be ended from here: end it; {BY_HAND}")
    if not killed:
        return Proof(True, f"{what} had already ended")
    count = "1 process" if len(killed) == 1 else f"{len(killed)} processes"
    return Proof(True, f"killed {count} left from {what}")


async def _look(session: int) -> tuple[Process | None, Scan]:
    """Return the process with the id `session`, and a scan of the session. An empty scan is always a complete one."""
    while True:
        leader = find_process(session)
        scan = scan_session(session)
        if scan.complete or scan.members:
            return leader, scan
        await asyncio.sleep(0)


def _belongs(pid: int, folder: RunFolder) -> bool:
    """Return whether a process writes to the log of the run, or has its folder in the environment."""
    return _writes_to(pid, folder.log) or _names_folder(pid, folder.path)


def _writes_to(pid: int, log: Path) -> bool:
    for descriptor in (1, 2):
        try:
            if os.path.samestat(os.stat(f"/proc/{pid}/fd/{descriptor}"), log.stat()):
                return True
        except OSError:
            continue
    return False


def _names_folder(pid: int, folder: Path) -> bool:
    path = os.fsencode(folder)
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return any(path + end in environment for end in (b"/", b"\0"))


def _numbers(pids: set[int]) -> str:
    return ", ".join(str(pid) for pid in sorted(pids))
