"""One started run: spawning its shim, hearing of its end, collecting its exit code.

The end is only looked at first (`waitid` with WNOWAIT): until `collect` the ended process keeps its number,
so nobody else's session can have that number while the rest of this one is killed. That is why asyncio's own
subprocesses are not used: they collect at once. Never decides when a run has to end.
"""

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from opendataflow.launch.process import restore
from opendataflow.launch.process.environment import Environment, run_environment
from opendataflow.launch.process.folder import RunFolder
from opendataflow.launch.process.record import new_token, record_heading
from opendataflow.launch.process.shim import SHELL, SHIM
from opendataflow.launch.process.tee import Redact, Tee
from opendataflow.model.records.run import Host, RunOrder

AWKWARD_FILE = ".environment"


class Stop(StrEnum):
    """Why a run is ended by the launcher."""

    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    LOST = "lost"


@dataclass(frozen=True)
class ExitStatus:
    """How a process ended; both None where somebody else has collected it."""

    code: int | None = None
    signal: int | None = None


@dataclass(frozen=True)
class Child:
    """A run's process. `ended` and `stopping` are set once, by the operating system and by the launcher."""

    order: RunOrder
    folder: RunFolder
    token: str
    process: subprocess.Popen[bytes]
    tee: Tee | None
    ended: asyncio.Future[ExitStatus]
    stopping: asyncio.Future[Stop]

    @property
    def session(self) -> int:
        """The number of its session, its process group and its first process."""
        return self.process.pid

    def stop(self, why: Stop) -> None:
        """Ask for the run's end; the first reason counts."""
        if not self.stopping.done():
            self.stopping.set_result(why)

    def end(self, status: ExitStatus) -> None:
        """Take note of its end."""
        if not self.ended.done():
            self.ended.set_result(status)

    def collect(self) -> None:
        """Let the ended process go: its number is free after that."""
        self.process.wait()
        with suppress(OSError):
            draft_of(self.folder, self.token).unlink(missing_ok=True)


def draft_of(folder: RunFolder, token: str) -> Path:
    """Return where the shim drafts its record before it links it."""
    return folder.record.with_name(f"{folder.record.name}.{token}")


def spawn(
    order: RunOrder,
    folder: RunFolder,
    host: Host,
    ln: str,
    *,
    foreground: bool = False,
    redact: Redact | None = None,
) -> Child:
    """Start the run's shim in a session of its own; a few milliseconds, never cancelled half-way.

    `foreground`: what it prints is shown as well, and it reads what this program would read; `redact` hides secrets in
    its log then. Raises OSError or ValueError where no process could be made; nothing runs then.
    """
    token = new_token()
    folder.prepare(order.command.files)
    environment = run_environment(os.environb, order.command.env, folder.path)
    shim = [SHELL, "-c", SHIM, "dataflow"]
    shim += [str(folder.record), str(draft_of(folder, token)), record_heading(token, host), ln]
    log = folder.open_log()
    tee = Tee(log, redact) if foreground else None
    out, err = tee.open() if tee else (log, log)
    try:
        process = subprocess.Popen(
            [*shim, *_around_the_shell(environment, folder), *order.command.argv],
            env=environment.plain,
            cwd=order.command.cwd,
            stdin=None if foreground else subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    finally:
        if tee is not None:
            tee.started()
        else:
            os.close(log)
    loop = asyncio.get_running_loop()
    child = Child(order, folder, token, process, tee, loop.create_future(), loop.create_future())
    _watch(child, loop)
    return child


def _around_the_shell(environment: Environment, folder: RunFolder) -> list[str]:
    if not environment.awkward:
        return []
    file = folder.write_private(AWKWARD_FILE, environment.awkward_file)
    return [sys.executable, "-I", "-S", restore.__file__, str(file)]


def _watch(child: Child, loop: asyncio.AbstractEventLoop) -> None:
    """Start the thread that waits for the end; without it nobody would ever learn of it."""
    name = f"wait-{child.order.name}"
    thread = threading.Thread(target=_wait, args=(child, loop), name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        os.killpg(child.session, signal.SIGKILL)
        child.collect()
        raise OSError(errno.EAGAIN, "no thread is left to watch it") from error


def _wait(child: Child, loop: asyncio.AbstractEventLoop) -> None:
    try:
        seen = os.waitid(os.P_PID, child.session, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        seen = None
    with suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
        loop.call_soon_threadsafe(child.end, _exit_status(seen))


def _exit_status(seen: os.waitid_result | None) -> ExitStatus:
    if seen is None:
        return ExitStatus()
    if seen.si_code == os.CLD_EXITED:
        return ExitStatus(code=seen.si_status)
    return ExitStatus(signal=seen.si_status)
