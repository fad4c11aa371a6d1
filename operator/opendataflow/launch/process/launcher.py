"""The launcher of local runs: starts them, tells of their ends, stops them. Its protocol: `engine.ports`.

One coroutine watches each run from its start to the report of its end:

    started -> ended by itself, or asked to stop (deadline, cancel, close)
            -> asked to stop: SIGTERM to the whole session, and time to obey
            -> SIGKILL to whatever is left of the session, until it is empty
            -> its exit code is collected, its end is reported

So a run that is reported has no process left that could still write. Nothing here waits for a process on the
event loop; the walk through /proc at an end takes about a millisecond. Never judges an end, never commits it.
"""

import asyncio
import errno
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from opendataflow.core.pipelines.report import LARGEST_FILE, read_report, redacted
from opendataflow.errors import Refused
from opendataflow.launch.process.child import Child, ExitStatus, Stop, spawn
from opendataflow.launch.process.folder import RunFolder
from opendataflow.launch.process.host import this_host
from opendataflow.launch.process.presence import Presence
from opendataflow.launch.process.record import Record, Tombstone, read_record
from opendataflow.launch.process.session import kill_session, scan_session, signal_processes, wait_for_session
from opendataflow.launch.process.shim import NOT_EXECUTABLE, NOT_FOUND, REFUSED, find_ln
from opendataflow.launch.process.takeover import prove_dead
from opendataflow.launch.process.tee import Redact
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.run import Ended, Host, Proof, Report, RunOrder

DEADLINE_GRACE = 10.0
KILL_GRACE = 3.0
SECONDS_TO_CLOSE = 10.0


class ProcessLauncher:
    """Runs as local processes, each with a folder of its own under `runs_home`.

    `foreground`: show what runs print, and let them read from the terminal; see `tee`. `redactor`: returns what takes
    the secrets that runs were given so far out of a text: of what is told of a run, in the foreground of its log too.
    `deadline_grace`, `kill_grace`: seconds between SIGTERM and SIGKILL, at a deadline and at a kill. Raises
    `Refused` on a machine that is no Linux with /proc.
    """

    def __init__(
        self,
        runs_home: Path,
        *,
        foreground: bool = False,
        redactor: Callable[[], Redact | None] = lambda: None,
        deadline_grace: float = DEADLINE_GRACE,
        kill_grace: float = KILL_GRACE,
    ) -> None:
        """Look at the host; create nothing yet."""
        self._host = this_host()
        self._ln = find_ln()
        self._runs_home = runs_home.absolute()
        self._presence = Presence(self._runs_home)
        self._graces = {Stop.DEADLINE: deadline_grace, Stop.CANCELLED: kill_grace, Stop.LOST: kill_grace}
        self._names: set[str] = set()
        self._children: dict[int, Child] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._ends: asyncio.Queue[Ended | BaseException] = asyncio.Queue()
        self._foreground = foreground
        self._redactor = redactor
        self._closed = False

    @property
    def host(self) -> Host:
        """This machine, its boot and its process id namespace."""
        return self._host

    @property
    def runs_home(self) -> str:
        """The folder that the runs' folders are in."""
        return str(self._runs_home)

    async def announce(self, lease: str) -> None:
        """Show that the engine with this lease lives; see `presence`."""
        self._presence.hold(lease)

    async def depart(self, lease: str) -> None:
        """Stop showing it: all its runs are committed."""
        self._presence.drop(lease)

    async def owner_gone(self, lease: str, host: Host) -> Proof:
        """Say whether the engine with this lease has certainly ended."""
        return self._presence.gone(lease, host)

    async def start(self, order: RunOrder) -> None:
        """Start the run, once for its name. Whatever is wrong with it arrives at `ended`.

        Raises `Refused` after `close`. Where it is cancelled, nothing has been started.
        """
        await asyncio.sleep(0)  # many starts in a row must not hold up the rest of the program
        if self._closed:
            raise Refused(f"run {order.name} can't be started: its launcher is closed")
        if order.name in self._names:
            return
        self._names.add(order.name)
        folder = self._folder(order.name)
        try:
            if folder.has_record():
                self._ends.put_nowait(_report(order, folder, lost=_why_refused(order, folder)))
                return
            redact = self._redactor()
            child = spawn(order, folder, self._host, self._ln, foreground=self._foreground, redact=redact)
        except (OSError, ValueError) as error:
            self._ends.put_nowait(_not_started(order, folder, error))
            return
        self._children[order.run] = child
        watch = asyncio.create_task(self._watch(child), name=f"watch-{order.name}")
        self._watches.add(watch)
        watch.add_done_callback(self._watched)

    async def adopt(self, run: ClaimedRun) -> bool:
        """Whether it is watched already: what an earlier process has started is not watched here, but proven dead."""
        return run.name in self._names

    async def arrives(self, run: ClaimedRun) -> bool:  # noqa: ARG002 # a protocol
        """Nothing is on its way between two processes of one machine."""
        return False

    async def ended(self) -> Ended:
        """Wait for the next run to end. Each run that was started is returned once."""
        end = await self._ends.get()
        if isinstance(end, BaseException):
            raise end
        redact = self._redactor()
        return end if redact is None else await asyncio.to_thread(self._without_secrets, end, redact)

    def _without_secrets(self, end: Ended, redact: Callable[[str], str]) -> Ended:
        log = end.log_tail if self._foreground else redact(end.log_tail)  # there it was written without secrets
        return replace(end, log_tail=log, report=redacted(end.report, redact))

    async def kill(self, run: int, *, cancelled: bool) -> None:
        """Ask for the run's end now; a run that has ended, or is not known here, is left as it is."""
        child = self._children.get(run)
        if child is not None:
            child.stop(Stop.CANCELLED if cancelled else Stop.LOST)

    async def prove_dead(self, name: str, host: Host) -> Proof:
        """Make certain that an earlier process's run does not run and never will; see `takeover`."""
        return await prove_dead(self._folder(name), host, self._host)

    async def left_behind(self, name: str) -> Report:
        """Return the steps that a run of an earlier process has told of. What they have printed and said is left out:
        the secrets that it may hold are not known to this process."""
        told = read_report(self._folder(name).read_report(), LARGEST_FILE) or Report()
        steps = tuple(replace(step, error=None, stdout=None) for step in told.steps)
        return Report(steps=steps, unfinished=told.unfinished)

    async def release(self, name: str) -> None:
        """Forget a run whose outcome is committed. Its log, its context and its record stay."""
        if any(child.order.name == name for child in self._children.values()):
            return
        self._names.discard(name)
        self._folder(name).remove_private_files()

    async def close(self) -> None:
        """End every run that is left, and wait for it; `ended` still returns them.

        A process that can't be killed (hanging inside the kernel, another user's) is not waited for longer
        than the graces and 10 s; its record stays, and who takes over will see whether it is dead.
        """
        self._closed = True
        for child in self._children.values():
            child.stop(Stop.LOST)
        if self._watches:
            _, unfinished = await asyncio.wait(
                set(self._watches), timeout=max(self._graces.values()) + SECONDS_TO_CLOSE
            )
            for watch in unfinished:
                watch.cancel()

    def _folder(self, name: str) -> RunFolder:
        return RunFolder(self._runs_home / name)

    async def _watch(self, child: Child) -> None:
        """Follow one run from its start to the report of its end."""
        events: set[asyncio.Future[Any]] = {child.ended, child.stopping}
        await asyncio.wait(events, timeout=child.order.deadline, return_when=asyncio.FIRST_COMPLETED)
        stop = None if child.ended.done() else child.stopping.result() if child.stopping.done() else Stop.DEADLINE
        if stop is not None:
            signal_processes(scan_session(child.session).members, signal.SIGTERM)
            await wait_for_session(child.session, self._graces[stop])
        await kill_session(child.session)
        status = await child.ended
        if child.tee is not None:
            await asyncio.to_thread(child.tee.finish, SECONDS_TO_CLOSE)
        child.collect()
        del self._children[child.order.run]
        self._ends.put_nowait(_stopped(child, stop, status) if stop else _ended(child, status))

    def _watched(self, watch: asyncio.Task[None]) -> None:
        """Hand on an error of a watch: an end that is never reported would be waited for without an end."""
        self._watches.discard(watch)
        if not watch.cancelled() and (error := watch.exception()) is not None:
            self._ends.put_nowait(error)


def _ended(child: Child, status: ExitStatus) -> Ended:
    """Tell of a run that ended by itself."""
    if status.code == REFUSED:
        record = read_record(child.folder.record)
        if not isinstance(record, Record) or record.token != child.token:
            return _report(child.order, child.folder, lost=_why_refused(child.order, child.folder))
    if status == ExitStatus():
        return _report(child.order, child.folder, lost="its exit code was collected by another part of this program")
    return _report(child.order, child.folder, status)


def _stopped(child: Child, stop: Stop, status: ExitStatus) -> Ended:
    """Tell of a run that the launcher ended; an exit code after SIGTERM says nothing about its work."""
    return _report(
        child.order,
        child.folder,
        ExitStatus(signal=status.signal),
        stop=stop,
        lost="stopped by the runner" if stop is Stop.LOST else None,
    )


def _why_refused(order: RunOrder, folder: RunFolder) -> str:
    """Say why the shim did not run the command."""
    record = read_record(folder.record)
    if record is None:
        return f"run {order.name} could not record its process in {folder.path}; its log says why"
    if isinstance(record, Tombstone):
        return f"run {order.name} was given up by a later process before it could start"
    return f"run {order.name} was already started by an earlier process"


def _not_started(order: RunOrder, folder: RunFolder, error: OSError | ValueError) -> Ended:
    """Tell of a run for which there is no process: as a shell would where the run is wrong, else as lost."""
    cwd = order.command.cwd
    if isinstance(error, ValueError):
        code, sentence = NOT_EXECUTABLE, f"the run's command can't be started: {error}"
    elif error.errno == errno.E2BIG:
        code, sentence = (
            NOT_EXECUTABLE,
            "the run's arguments and environment are too large for a process: shorten them",
        )
    elif error.filename is not None and os.fsdecode(error.filename) == str(cwd):
        code, sentence = NOT_FOUND, f"the folder to start in, {cwd}, can't be entered: {error.strerror}"
    else:
        return _report(order, folder, lost=f"run {order.name} could not be started here: {error}")
    folder.write_log(f"dataflow: {sentence}")
    return _report(order, folder, ExitStatus(code=code))


def _report(
    order: RunOrder,
    folder: RunFolder,
    status: ExitStatus = ExitStatus(),  # noqa: B008  frozen
    *,
    stop: Stop | None = None,
    lost: str | None = None,
) -> Ended:
    return Ended(
        run=order.run,
        exit_code=status.code,
        signal=status.signal,
        deadline_exceeded=stop is Stop.DEADLINE,
        cancelled=stop is Stop.CANCELLED,
        lost=lost,
        log_tail=folder.read_tail(),
        log_path=str(folder.log),
        report=read_report(folder.read_report(), LARGEST_FILE) or Report(),
    )
