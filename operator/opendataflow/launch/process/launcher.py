"""The launcher of local runs: starts them, stops them and reports their ends. Implements `engine.ports.LocalLauncher`.

One coroutine watches each run from its start to the report of its end:

    started -> ends by itself, or is asked to stop (deadline, cancel, close)
            -> if asked to stop: SIGTERM to the whole session, then a grace period
            -> SIGKILL to the remaining processes of the session, until it is empty
            -> its process is reaped, and its end is reported

So a reported run has no process left that could still write. If it has used the JVM of a holder, nothing of the run is
left in it, or this JVM has ended, too; see `holders`. No call blocks the event loop; one scan of /proc takes
about a millisecond. This module never judges or commits an end.
"""

import asyncio
import errno
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from opendataflow.core.pipelines.report import LARGEST_FILE, read_report, redact_report
from opendataflow.errors import Backpressure, Refused
from opendataflow.launch.process.child import Child, ExitStatus, Stop, spawn
from opendataflow.launch.process.folder import RunFolder
from opendataflow.launch.process.holders import Holder, Holders
from opendataflow.launch.process.host import this_host
from opendataflow.launch.process.presence import Presence
from opendataflow.launch.process.record import Record, Tombstone, read_record
from opendataflow.launch.process.session import kill_session, scan_session, signal_processes, wait_for_session
from opendataflow.launch.process.shim import NOT_EXECUTABLE, NOT_FOUND, REFUSED, find_ln
from opendataflow.launch.process.takeover import prove_dead
from opendataflow.launch.process.tee import Redact
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.run import Ended, Host, Proof, Report, RunOrder
from opendataflow.names import OWN_JVM_FILE, OWN_JVM_METRIC

DEADLINE_GRACE = 10.0
KILL_GRACE = 3.0
CLOSE_SECONDS = 10.0
JVM_GRACE = 20.0
"""How long a run may take to report that the JVM of its holder has ended."""


_LOST = {
    Stop.LOST: "stopped by the runner",
    Stop.NO_HOLDER: "the JVM that it shared with other runs has ended, and it did not end by itself",
}

_LEAST_SPACE = 1024 * 1024
"""Bytes that a start needs at least for the files of a run."""


class ProcessLauncher:
    """Starts runs as local processes, each with a folder of its own under `runs_home`.

    `former_home`: another parent of run folders, where earlier versions of the program put the runs of all databases.
    `foreground`: show the output of runs, and let them read the terminal; see `tee`. `redactor`: returns a function
    that removes the secrets of all runs so far from a text. It applies to reports, and in the foreground also to logs.
    `deadline_grace`, `kill_grace`: seconds between SIGTERM and SIGKILL, at a deadline and at a kill. Raises Refused
    if this machine is not Linux with /proc.
    """

    def __init__(
        self,
        runs_home: Path,
        *,
        former_home: Path | None = None,
        foreground: bool = False,
        redactor: Callable[[], Redact | None] = lambda: None,
        deadline_grace: float = DEADLINE_GRACE,
        kill_grace: float = KILL_GRACE,
    ) -> None:
        """Inspect the host. Create nothing yet."""
        self._host = this_host()
        self._ln = find_ln()
        self._runs_home = runs_home.absolute()
        self._former_home = former_home and former_home.absolute()
        self._presence = Presence(self._runs_home)
        self._graces = {stop: deadline_grace if stop is Stop.DEADLINE else kill_grace for stop in Stop}
        self._holders = Holders(self._runs_home, self._host, self._ln)
        self._acquiring: dict[int, asyncio.Future[Stop]] = {}
        self._names: set[str] = set()
        self._children: dict[int, Child] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._ends: asyncio.Queue[Ended | BaseException] = asyncio.Queue()
        self._foreground = foreground
        self._redactor = redactor
        self._closed = False

    @property
    def host(self) -> Host:
        """Return this host, with its boot and its process id namespace."""
        return self._host

    @property
    def runs_home(self) -> str:
        """Return the parent of the folders of all runs."""
        return str(self._runs_home)

    def of_home(self, runs_home: str) -> "ProcessLauncher | None":
        """Return the launcher for runs of earlier engines in `runs_home`; None if this engine has another home."""
        if runs_home == self.runs_home:
            return self
        former = self._former_home
        return ProcessLauncher(former) if former is not None and runs_home == str(former) else None

    async def announce(self, lease: str) -> None:
        """Show that the engine with this lease is alive; see `presence`."""
        self._presence.hold(lease)
        self._holders.sweep()

    async def withdraw(self, lease: str) -> None:
        """Undo `announce`: all runs of the engine are committed."""
        self._presence.release(lease)

    async def prove_owner_dead(self, lease: str, host: Host) -> Proof:
        """Prove that the engine with this lease has ended."""
        return self._presence.prove_owner_dead(lease, host)

    async def start(self, order: RunOrder) -> None:
        """Start a run, once for each name. `ended` reports all errors of the run.

        Raises Refused after `close`, and Backpressure if the disk is full. If this call is cancelled, nothing was
        started.
        """
        await asyncio.sleep(0)  # many starts in a row must not block the event loop
        if self._closed:
            raise Refused(f"run {order.name} can't be started: its launcher is closed")
        if order.name in self._names:
            return
        self.check_space()
        self._names.add(order.name)
        folder = self._folder(order.name)
        try:
            if folder.has_record():
                self._ends.put_nowait(_report(order, folder, lost=_why_refused(order, folder)))
                return
            holder = await self._acquire_holder(order, folder)
            if isinstance(holder, Stop):
                self._ends.put_nowait(_end_by_launcher(order, folder, holder, ExitStatus()))
                return
            await self._spawn_with(holder, order, folder)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                self._names.discard(order.name)
                raise self._full() from error
            self._ends.put_nowait(_end_without_process(order, folder, error))

    async def _acquire_holder(self, order: RunOrder, folder: RunFolder) -> Holder | Stop | None:
        """Return the holder that the run uses, if any; or why the run has to end before it starts."""
        wanted = order.command.holder
        if wanted is None:
            return None
        stop = self._acquiring[order.run] = asyncio.get_running_loop().create_future()
        try:
            found = await self._holders.acquire(order.job, wanted, stop)
        except asyncio.CancelledError:
            self._names.discard(order.name)
            raise
        finally:
            del self._acquiring[order.run]
        if isinstance(found, Holder) and stop.done():
            await self._holders.give_back(found, succeeded=False, reusable=False)
        if stop.done():
            why: Stop = stop.result()
            return why
        if isinstance(found, Holder) or found is None:
            return found
        folder.prepare({})
        folder.write_private(OWN_JVM_FILE, found.encode())
        folder.write_log(f"dataflow: this run has a JVM of its own: {found}")
        return None

    async def _spawn_with(self, holder: Holder | None, order: RunOrder, folder: RunFolder) -> None:
        """Start a run. If that fails, its holder is not used by anybody."""
        try:
            self._spawn(order, folder, holder)
        except (OSError, ValueError):
            if holder is not None:
                await self._holders.give_back(holder, succeeded=False, reusable=False)
            raise

    def _spawn(self, order: RunOrder, folder: RunFolder, holder: Holder | None) -> None:
        command = order.command
        if holder is not None:
            folder.prepare({})
            folder.write_holder(holder.child.folder)
            command = replace(command, env={**command.env, **holder.variables})
        redact = self._redactor()
        child = spawn(command, folder, self._host, self._ln, foreground=self._foreground, redact=redact)
        self._children[order.run] = child
        heard = holder.child.folder.log_size() if holder is not None else 0
        watch = asyncio.create_task(self._watch(order, child, holder, heard), name=f"watch-{order.name}")
        self._watches.add(watch)
        watch.add_done_callback(self._watch_done)

    def check_space(self) -> None:
        """Raise Backpressure if the disk of the runs is full: a run would start, and then not record its process."""
        existing = next((it for it in (self._runs_home, *self._runs_home.parents) if it.exists()), self._runs_home)
        found = os.statvfs(existing)
        if found.f_bavail * found.f_frsize < _LEAST_SPACE or (found.f_files and not found.f_favail):
            raise self._full()

    def _full(self) -> Backpressure:
        return Backpressure(f"the disk of {self._runs_home} is full: no run starts there until there is room")

    async def adopt(self, run: ClaimedRun) -> bool:
        """Return whether this process watches the run. Runs of earlier processes are proven dead, never adopted."""
        return run.name in self._names

    async def wait_for_late_start(self, run: ClaimedRun) -> bool:  # noqa: ARG002 # a protocol
        """Return False: a local start is never delayed."""
        return False

    async def ended(self) -> Ended:
        """Wait for the next end. Each started run is returned once."""
        end = await self._ends.get()
        if isinstance(end, BaseException):
            raise end
        redact = self._redactor()
        return end if redact is None else await asyncio.to_thread(self._without_secrets, end, redact)

    def _without_secrets(self, end: Ended, redact: Callable[[str], str]) -> Ended:
        log = end.log_tail if self._foreground else redact(end.log_tail)  # a foreground log has no secrets
        return replace(end, log_tail=log, report=redact_report(end.report, redact))

    async def kill(self, run: int, *, cancelled: bool) -> None:
        """Ask a run to end now. Ignore ended and unknown runs."""
        why = Stop.CANCELLED if cancelled else Stop.LOST
        if (stop := self._acquiring.get(run)) is not None and not stop.done():
            stop.set_result(why)
        if (child := self._children.get(run)) is not None:
            child.stop(why)

    async def prove_dead(self, name: str, host: Host) -> Proof:
        """Prove that a run of an earlier process does not run and never will; see `takeover`."""
        return await prove_dead(self._folder(name), host, self._host)

    async def recover_report(self, name: str) -> Report:
        """Return the steps that a run of an earlier process reported, without their output and errors.

        These texts may hold secrets that this process does not know.
        """
        report = read_report(self._folder(name).read_report(), LARGEST_FILE) or Report()
        steps = tuple(replace(step, error=None, stdout=None) for step in report.steps)
        return Report(steps=steps, unfinished=report.unfinished)

    async def release(self, run: ClaimedRun) -> None:
        """Release a run whose outcome is committed. Its log, context and record stay."""
        name = run.name
        if any(child.name == name for child in self._children.values()):
            return
        self._names.discard(name)
        self._folder(name).remove_private_files()

    async def close(self) -> None:
        """End all runs and wait for them. `ended` still returns their ends.

        A process may be impossible to kill: it hangs in the kernel, or belongs to another user. Then `close` waits for
        the grace period plus 10 s. The record stays, so that a later engine can prove the run dead.
        """
        self._closed = True
        for child in self._children.values():
            child.stop(Stop.LOST)
        if self._watches:
            _, unfinished = await asyncio.wait(set(self._watches), timeout=max(self._graces.values()) + CLOSE_SECONDS)
            for watch in unfinished:
                watch.cancel()
        await self._holders.close()

    def _folder(self, name: str) -> RunFolder:
        return RunFolder(self._runs_home / name)

    async def _watch(self, order: RunOrder, child: Child, holder: Holder | None, heard: int) -> None:
        """Follow one run from its start to the report of its end. `heard`: the size of the JVM's log at the start."""
        stop = await self._wait_for_end(order, child, holder)
        if stop is not None:
            signal_processes(scan_session(child.session).members, signal.SIGTERM)
            await wait_for_session(child.session, self._graces[stop])
        await kill_session(child.session)
        status = await child.ended
        if child.tee is not None:
            await asyncio.to_thread(child.tee.finish, CLOSE_SECONDS)
        child.reap()
        if holder is not None:
            succeeded = status.code == 0 or child.folder.has_not_used_holder
            reusable = child.folder.is_reusable
            await self._holders.give_back(holder, succeeded=stop is None and succeeded, reusable=reusable)
            if holder.order.is_heard:
                child.folder.append_output_of(holder.child.folder, heard)
        del self._children[order.run]
        self._ends.put_nowait(
            _end_by_launcher(order, child.folder, stop, status) if stop else _end_by_itself(order, child, status)
        )

    async def _wait_for_end(self, order: RunOrder, child: Child, holder: Holder | None) -> Stop | None:
        """Wait for the end of a run. Return why the run has to be ended; None if it has ended by itself."""
        events: set[asyncio.Future[Any]] = {child.ended, child.stopping}
        jvm = {holder.child.ended} if holder is not None else set()
        await asyncio.wait(events | jvm, timeout=order.deadline, return_when=asyncio.FIRST_COMPLETED)
        why = Stop.DEADLINE
        if holder is not None and holder.has_ended:
            await asyncio.wait(events, timeout=JVM_GRACE, return_when=asyncio.FIRST_COMPLETED)
            why = Stop.NO_HOLDER
        return None if child.ended.done() else child.stopping.result() if child.stopping.done() else why

    def _watch_done(self, watch: asyncio.Task[None]) -> None:
        """Report an error of a watch through `ended`. Otherwise the engine would wait for the end forever."""
        self._watches.discard(watch)
        if not watch.cancelled() and (error := watch.exception()) is not None:
            self._ends.put_nowait(error)


def _end_by_itself(order: RunOrder, child: Child, status: ExitStatus) -> Ended:
    """Return the end of a run that ended by itself."""
    if status.code == REFUSED:
        record = read_record(child.folder.record)
        if not isinstance(record, Record) or record.token != child.token:
            return _report(order, child.folder, lost=_why_refused(order, child.folder))
    if status == ExitStatus():
        return _report(order, child.folder, lost="its exit code was collected by another part of this program")
    return _report(order, child.folder, status)


def _end_by_launcher(order: RunOrder, folder: RunFolder, stop: Stop, status: ExitStatus) -> Ended:
    """Return the end of a run that the launcher ended. Its exit code is dropped: after SIGTERM it means nothing."""
    return _report(order, folder, ExitStatus(signal=status.signal), stop=stop, lost=_LOST.get(stop))


def _why_refused(order: RunOrder, folder: RunFolder) -> str:
    """Return why the shim did not run the command."""
    record = read_record(folder.record)
    if record is None:
        return f"run {order.name} could not record its process in {folder.path}; its log says why"
    if isinstance(record, Tombstone):
        return f"run {order.name} was given up by a later process before it could start"
    return f"run {order.name} was already started by an earlier process"


def _end_without_process(order: RunOrder, folder: RunFolder, error: OSError | ValueError) -> Ended:
    """Return the end of a run without a process: an exit code of a shell if the order is wrong, else lost."""
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
        report=_read_report(folder),
    )


def _read_report(folder: RunFolder) -> Report:
    """Return the report of a run, with the reason why it has a JVM of its own, if it has."""
    report, reason = read_report(folder.read_report(), LARGEST_FILE) or Report(), folder.why_own_jvm
    return report if reason is None else replace(report, metrics={**report.metrics, OWN_JVM_METRIC: reason})
