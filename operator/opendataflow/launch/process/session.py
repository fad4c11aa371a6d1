"""The processes of one session: finding them in /proc, signalling them, waiting until none is left.

Every run is a session of its own (`setsid` before the exec). Processes may change their group, as the Python
workers of PySpark do, and they stay in the session. What a run puts into another session (`setsid`, a real
daemon, `docker run`) is out of reach here.

Is a scan complete? The list of /proc is read first, then each process is asked for its session. A process
that forks and ends in between leaves a child that is not on the list; so a scan during which any process
vanished proves nothing, and is repeated: that is what `steady` tells.

Never decides whether a session may be ended: `takeover` and `launcher` do.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Collection
from dataclasses import dataclass

FIRST_PAUSE = 0.005
LONGEST_PAUSE = 0.2


@dataclass(frozen=True)
class Process:
    """A line of /proc/PID/stat. `start`: clock ticks since the boot. `gone`: only its exit code is left."""

    pid: int
    start: int
    gone: bool


@dataclass(frozen=True)
class Scan:
    """What was seen of a session. `steady`: no process vanished meanwhile, so nothing was overlooked."""

    members: tuple[Process, ...]
    steady: bool

    @property
    def empty(self) -> bool:
        """Whether the session has certainly no process left."""
        return self.steady and not self.members


def parse_stat(line: str) -> Process:
    """Read a line of /proc/PID/stat; its second field, the program's name, may hold spaces and brackets.

    A zombie counts as gone only with its last thread: a program whose main thread ended looks like one too.
    Raises ValueError or IndexError where the line is something else.
    """
    pid = int(line.split(" ", 1)[0])
    fields = line.rpartition(")")[2].split()
    return Process(pid, start=int(fields[19]), gone=fields[0] in "ZX" and int(fields[17]) <= 1)


def find_process(pid: int) -> Process | None:
    """Return the process `pid`; None where there is none. Raises PermissionError where /proc hides it."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return parse_stat(file.read())
    except (FileNotFoundError, ProcessLookupError):
        return None


def scan_session(session: int) -> Scan:
    """Return the processes of `session` that are not gone; about a millisecond for 300 processes."""
    members = []
    steady = True
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if os.getsid(int(entry)) != session:
                continue
        except PermissionError:
            continue  # a security module hides it; the processes of our own runs are not hidden from us
        except ProcessLookupError:
            steady = False
            continue
        found = _member(int(entry))
        if found is None:
            steady = False
        elif not found.gone:
            members.append(found)
    return Scan(tuple(members), steady)


def _member(pid: int) -> Process | None:
    """Return a process of the session; one of another user, which /proc may hide, counts as just started."""
    try:
        return find_process(pid)
    except PermissionError:
        return Process(pid, start=sys.maxsize, gone=False)


def signal_processes(processes: Collection[Process], number: signal.Signals) -> None:
    """Send a signal to each of them; those that have ended or belong to another user are passed over."""
    for process in processes:
        try:
            os.kill(process.pid, number)
        except (ProcessLookupError, PermissionError):
            continue


async def wait_for_session(session: int, seconds: float) -> None:
    """Return when the session is empty, or after `seconds`."""
    clock = asyncio.get_running_loop()
    give_up = clock.time() + seconds
    pause = FIRST_PAUSE
    while not scan_session(session).empty and clock.time() < give_up:
        await asyncio.sleep(min(pause, max(give_up - clock.time(), 0)))
        pause = min(pause * 1.5, LONGEST_PAUSE)


async def kill_session(session: int, *, since: int = 0, seconds: float | None = None) -> tuple[set[int], set[int]]:
    """Kill the session's processes until none is left, or for `seconds`; None waits for as long as it takes.

    `since`: processes that started earlier (ticks) are not touched. Returns the ids of those that were killed
    and of those that are left: a process of another user, or one that hangs inside the kernel.
    """
    clock = asyncio.get_running_loop()
    give_up = None if seconds is None else clock.time() + seconds
    pause = FIRST_PAUSE
    killed: set[int] = set()
    while True:
        scan = scan_session(session)
        members = [process for process in scan.members if process.start >= since]
        left = {process.pid for process in members}
        if scan.steady and not left:
            return killed, set()
        if left and give_up is not None and clock.time() >= give_up:
            return killed - left, left
        killed |= left
        signal_processes(members, signal.SIGKILL)
        await asyncio.sleep(pause if left else 0)
        pause = min(pause * 1.5, LONGEST_PAUSE)
