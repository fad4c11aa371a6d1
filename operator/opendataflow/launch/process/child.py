"""The process of one run: starts its shim, waits for its end, and reaps it.

The end is first observed without reaping (`waitid` with WNOWAIT). Until `reap` the ended process keeps its id. So no
other session can get this id while the rest of the session is killed. The subprocesses of asyncio are not used, because
they reap at once. This module never decides when a run has to end.
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
from opendataflow.model.records.run import Command, Host

UNSAFE_VARIABLES_FILE = ".environment"
"""The file with the variables that can't pass through a shell; see `restore`."""


class Stop(StrEnum):
    """Why the launcher ends a run."""

    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    LOST = "lost"
    NO_HOLDER = "no holder"


@dataclass(frozen=True)
class ExitStatus:
    """How a process ended. Both fields are None if other code has reaped it."""

    code: int | None = None
    signal: int | None = None


@dataclass(frozen=True)
class Child:
    """The process of a run or of a holder.

    `token`: identifies this start in the record. `ended`: set once, when the process ends. `stopping`: set once, when
    the launcher asks it to end.
    """

    name: str
    folder: RunFolder
    token: str
    process: subprocess.Popen[bytes]
    tee: Tee | None
    ended: asyncio.Future[ExitStatus]
    stopping: asyncio.Future[Stop]

    @property
    def session(self) -> int:
        """Return the id of the session, which is also the id of its process group and its first process."""
        return self.process.pid

    def stop(self, why: Stop) -> None:
        """Ask the run to end. The first reason counts."""
        if not self.stopping.done():
            self.stopping.set_result(why)

    def set_exit_status(self, status: ExitStatus) -> None:
        """Record the end of the process."""
        if not self.ended.done():
            self.ended.set_result(status)

    def reap(self) -> None:
        """Reap the ended process. Its id is free after that."""
        self.process.wait()
        with suppress(OSError):
            draft_path(self.folder, self.token).unlink(missing_ok=True)


def draft_path(folder: RunFolder, token: str) -> Path:
    """Return the path of the draft that the shim links as the record."""
    return folder.record.with_name(f"{folder.record.name}.{token}")


def spawn(
    command: Command,
    folder: RunFolder,
    host: Host,
    ln: str,
    *,
    foreground: bool = False,
    redact: Redact | None = None,
    until_closed: bool = False,
) -> Child:
    """Start the shim of a run in a session of its own. Takes a few milliseconds and can't be cancelled in between.

    `ln`: the full path of `ln`. `foreground`: also show the output of the run, and let it read this program's standard
    input; `redact` then removes secrets from its log. `until_closed`: its standard input is a pipe, which ends with
    this program. Raises OSError or ValueError if no process was created.
    """
    token = new_token()
    folder.prepare(command.files)
    environment = run_environment(os.environb, command.env, folder.path)
    shim = [SHELL, "-c", SHIM, "dataflow"]
    shim += [str(folder.record), str(draft_path(folder, token)), record_heading(token, host), ln]
    log = folder.open_log()
    tee = Tee(log, redact) if foreground else None
    out, err = tee.open() if tee else (log, log)
    try:
        process = subprocess.Popen(
            [*shim, *_restore_command(environment, folder), *command.argv],
            env=environment.plain,
            cwd=command.cwd,
            stdin=subprocess.PIPE if until_closed else None if foreground else subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    finally:
        if tee is not None:
            tee.close_write_ends()
        else:
            os.close(log)
    loop = asyncio.get_running_loop()
    child = Child(folder.path.name, folder, token, process, tee, loop.create_future(), loop.create_future())
    _watch(child, loop)
    return child


def _restore_command(environment: Environment, folder: RunFolder) -> list[str]:
    if not environment.unsafe:
        return []
    file = folder.write_private(UNSAFE_VARIABLES_FILE, environment.unsafe_file)
    return [sys.executable, "-I", "-S", restore.__file__, str(file)]


def _watch(child: Child, loop: asyncio.AbstractEventLoop) -> None:
    """Start the thread that waits for the end. Kill the run if there can be no thread: its end would go unnoticed."""
    name = f"wait-{child.name}"
    thread = threading.Thread(target=_wait, args=(child, loop), name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        os.killpg(child.session, signal.SIGKILL)
        child.reap()
        raise OSError(errno.EAGAIN, "no thread is left to watch it") from error


def _wait(child: Child, loop: asyncio.AbstractEventLoop) -> None:
    try:
        seen = os.waitid(os.P_PID, child.session, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        seen = None
    with suppress(RuntimeError):  # the loop is closed: the program ends
        loop.call_soon_threadsafe(child.set_exit_status, _exit_status(seen))


def _exit_status(seen: os.waitid_result | None) -> ExitStatus:
    if seen is None:
        return ExitStatus()
    if seen.si_code == os.CLD_EXITED:
        return ExitStatus(code=seen.si_status)
    return ExitStatus(signal=seen.si_status)
