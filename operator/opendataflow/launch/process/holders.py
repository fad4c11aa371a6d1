"""The JVMs that runs of one job share, one after another (holders).

A holder is started like a run: with a folder, a shim and a record. Its standard input is a pipe of this program, so the
JVM ends with this program. The folder of a run names its holder, so a later program ends the JVM before the run counts
as dead.

    started -> ready -> used by one run -> idle -> used by the next run -> ... -> retired

A run gives its holder back after its process has ended. The next run gets the holder only if nothing of the former one
is left in the JVM: the run has succeeded and has declared the JVM reusable, no connection is open, and all Python
workers have ended. In any other case the JVM is ended, and the next run gets another one.

Every wait here is limited. If a holder can't be used, the run starts a JVM of its own, and its log has the reason.
"""

import asyncio
import shutil
import signal
import struct
from collections import Counter
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from opendataflow.core.runs.outcome import last_line
from opendataflow.launch.process.child import Child, ExitStatus, Stop, spawn
from opendataflow.launch.process.folder import HOLDERS, RunFolder
from opendataflow.launch.process.host import boot_and_namespace
from opendataflow.launch.process.record import Record, Tombstone, new_token, read_record
from opendataflow.launch.process.session import find_process, kill_session, scan_session, signal_processes
from opendataflow.model.records.run import HolderOrder, Host
from opendataflow.names import HOLDER_CONNECTION, HOLDER_EXIT, HOLDER_VARIABLE

START_SECONDS = 120.0
"""How long a JVM may take to be ready."""
QUIET_SECONDS = 5.0
"""How long the rest of a run may stay in a JVM."""
END_SECONDS = 10.0
"""How long a JVM may take to end, and to delete its temporary folders, before it is killed."""
MOST_IDLE = 4
MOST_WASTED = 2
"""After this number of holders in a row that no second run could use, a job gets no more holders."""

_PAUSE = 0.02
_OPEN = ("01", "08")
"""States of a connection in /proc/net/tcp: established, and closed by the other side only."""


@dataclass(eq=False)
class Holder:
    """One JVM. `port`: where it listens. `variables`: what the process of a run needs to use it."""

    job: str
    order: HolderOrder
    child: Child
    began: float
    port: int = 0
    variables: Mapping[str, str] = field(default_factory=dict)
    runs: int = 0
    expiry: asyncio.TimerHandle | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether the JVM has ended."""
        return self.child.ended.done()

    @property
    def is_alive(self) -> bool:
        """Return whether the JVM is alive at this moment: its end is observed a little later."""
        process = find_process(self.child.session)
        return not (self.has_ended or process is None or process.gone)


class Holders:
    """The holders of one launcher. `runs_home`: the parent of the folders of runs. `ln`: the full path of `ln`."""

    def __init__(self, runs_home: Path, host: Host, ln: str) -> None:
        self._home = runs_home / HOLDERS
        self._host = host
        self._ln = ln
        self._idle: list[Holder] = []
        self._all: set[Holder] = set()
        self._wasted: Counter[str] = Counter()
        self._unneeded: dict[str, HolderOrder] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def acquire(self, job: str, order: HolderOrder, stop: asyncio.Future[Stop]) -> Holder | str | None:
        """Return a holder for one run, or the reason why the run has to start a JVM of its own; None if it needs none.

        `stop`: set if the run is asked to end; then the answer does not matter.
        """
        for holder in [one for one in self._idle if one.job == job]:
            self._take(holder)
            if holder.order == order and holder.is_alive and not self._is_used_up(holder):
                return holder
            self._in_background(self._retire(holder))
        if self._unneeded.get(job) == order:
            return None
        if self._wasted[job] >= MOST_WASTED:
            return f"{MOST_WASTED} shared JVMs of this job in a row could not be used again"
        return await self._start(job, order, stop)

    async def give_back(self, holder: Holder, *, succeeded: bool, reusable: bool) -> None:
        """Take a holder back from a run whose processes have ended. Afterwards nothing of the run is in its JVM.

        `succeeded`: true, too, for a run that has failed without using the JVM. `reusable`: as declared by the run.
        """
        holder.runs += 1
        if succeeded and reusable and await self._is_quiet(holder):
            self._wasted[holder.job] = 0
            if not self._is_used_up(holder):
                self._put(holder)
                return
        elif succeeded or holder.has_ended:
            self._wasted[holder.job] += 1
        await self._retire(holder)

    async def close(self) -> None:
        """End all JVMs. Wait for a limited time, because a process may be impossible to kill."""
        for holder in list(self._all):
            if holder in self._idle:
                self._take(holder)
            self._in_background(self._retire(holder))
        if self._tasks:
            _, unfinished = await asyncio.wait(set(self._tasks), timeout=2 * END_SECONDS)
            for future in unfinished:
                future.cancel()

    def sweep(self) -> None:
        """Delete the folders of holders of ended programs of this machine, if nothing of them is left."""
        with suppress(OSError):
            for path in self._home.iterdir():
                if self._is_left(RunFolder(path)):
                    shutil.rmtree(path, ignore_errors=True)

    def _is_left(self, folder: RunFolder) -> bool:
        record = read_record(folder.record)
        if not isinstance(record, Record):
            return isinstance(record, Tombstone)
        return (record.boot, record.namespace) == boot_and_namespace(self._host) and scan_session(record.pid).empty

    # -- start -----------------------------------------------------------------------------------------------

    async def _start(self, job: str, order: HolderOrder, stop: asyncio.Future[Stop]) -> Holder | str | None:
        folder = RunFolder(self._home / new_token())
        try:
            child = spawn(order.command, folder, self._host, self._ln, until_closed=True)
        except (OSError, ValueError) as error:
            self._wasted[job] += 1
            return f"no shared JVM could be started: {error}"
        clock = asyncio.get_running_loop()
        holder = Holder(job, order, child, clock.time())
        self._all.add(holder)
        child.ended.add_done_callback(partial(self._jvm_ended, holder))
        try:
            if await self._becomes_ready(holder, stop):
                return holder
        except BaseException:
            self._in_background(self._retire(holder))
            raise
        if holder.has_ended and child.ended.result().code == 0:
            self._unneeded[job] = order
            await self._retire(holder)
            return None
        reason = last_line(folder.read_tail()) if holder.has_ended else f"it was not ready after {START_SECONDS:.0f} s"
        await self._retire(holder)
        if not stop.done():
            self._wasted[job] += 1
        return f"no shared JVM could be started: {reason}"

    async def _becomes_ready(self, holder: Holder, stop: asyncio.Future[Stop]) -> bool:
        clock = asyncio.get_running_loop()
        events: set[asyncio.Future[Any]] = {stop, holder.child.ended}
        while clock.time() < holder.began + START_SECONDS and not (stop.done() or holder.has_ended):
            connection = _read_connection(holder.child.folder.path / HOLDER_CONNECTION)
            if connection is not None:
                holder.port, secret = connection
                holder.variables = {
                    HOLDER_VARIABLE: str(holder.child.folder.path),
                    "PYSPARK_GATEWAY_PORT": str(holder.port),
                    "PYSPARK_GATEWAY_SECRET": secret,
                }
                return True
            await asyncio.wait(events, timeout=_PAUSE, return_when=asyncio.FIRST_COMPLETED)
        return False

    # -- idle holders ----------------------------------------------------------------------------------------

    def _is_used_up(self, holder: Holder) -> bool:
        age = asyncio.get_running_loop().time() - holder.began
        return holder.runs >= holder.order.most_runs or age >= holder.order.longest_age

    def _put(self, holder: Holder) -> None:
        """Keep a holder for the next run. Too many idle holders: retire the one that has waited longest."""
        loop = asyncio.get_running_loop()
        holder.expiry = loop.call_later(holder.order.longest_idle, self._expire, holder)
        self._idle.append(holder)
        if len(self._idle) > MOST_IDLE:
            self._expire(self._idle[0])

    def _take(self, holder: Holder) -> None:
        self._idle.remove(holder)
        if holder.expiry is not None:
            holder.expiry.cancel()
            holder.expiry = None

    def _expire(self, holder: Holder) -> None:
        if holder in self._idle:
            self._take(holder)
            self._in_background(self._retire(holder))

    # -- end -------------------------------------------------------------------------------------------------

    def _jvm_ended(self, holder: Holder, ended: asyncio.Future[ExitStatus]) -> None:
        """Record the end of a JVM for the run that uses it. Retire an idle holder."""
        status = ended.result()
        code = status.code if status.signal is None else -status.signal
        with suppress(OSError):
            holder.child.folder.write_private(HOLDER_EXIT, str(code).encode())
        self._expire(holder)

    async def _is_quiet(self, holder: Holder) -> bool:
        """Wait until no command of the run is left in the JVM, then end its Python workers. Return False in vain."""
        clock = asyncio.get_running_loop()
        give_up = clock.time() + QUIET_SECONDS
        while clock.time() < give_up and not holder.has_ended:
            with suppress(OSError):  # /proc can't be read: nothing is known
                if not _has_connections(holder.port) and _end_workers(holder.child.session):
                    return True
            await asyncio.sleep(_PAUSE)
        return False

    async def _retire(self, holder: Holder) -> None:
        """End the JVM and everything that it has started. Return when nothing is left."""
        if holder not in self._all:
            return
        self._all.discard(holder)
        child = holder.child
        assert child.process.stdin is not None
        with suppress(OSError):
            child.process.stdin.close()
        await asyncio.wait({child.ended}, timeout=END_SECONDS)
        await kill_session(child.session)
        await child.ended
        child.reap()
        await asyncio.to_thread(shutil.rmtree, child.folder.path, ignore_errors=True)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        future = asyncio.create_task(work)
        self._tasks.add(future)
        future.add_done_callback(self._tasks.discard)


def _read_connection(file: Path) -> tuple[int, str] | None:
    """Return the port and the secret of a JVM that is ready. The JVM creates the file by a rename."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    port, length = struct.unpack_from("!ii", content)
    return port, content[8 : 8 + length].decode()


def _end_workers(session: int) -> bool:
    """Kill all processes of a session but the first one. Return True if there is no other one."""
    scan = scan_session(session)
    workers = [process for process in scan.members if process.pid != session]
    signal_processes(workers, signal.SIGKILL)
    return scan.complete and not workers


def _has_connections(port: int) -> bool:
    """Return whether a connection to a port of this machine is open at the side of the listening program."""
    tables = [Path("/proc/net/tcp"), Path("/proc/net/tcp6")]
    for table in tables if tables[1].exists() else tables[:1]:
        for line in table.read_text("ascii").splitlines()[1:]:
            _, local, _, state = line.split(maxsplit=4)[:4]
            if int(local.rpartition(":")[2], 16) == port and state in _OPEN:
                return True
    return False
