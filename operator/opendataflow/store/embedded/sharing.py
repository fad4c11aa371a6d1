"""Shares the server of a home between processes: join, ensure, leave.

It never accesses a file or a process itself.
"""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from opendataflow.errors import EmbeddedPostgresError
from opendataflow.store.embedded.binaries import accessible_binaries
from opendataflow.store.embedded.client import Answer, create_database, dsn, probe
from opendataflow.store.embedded.cluster import check_version, create_cluster
from opendataflow.store.embedded.home import Home
from opendataflow.store.embedded.locks import UserLock, start_lock
from opendataflow.store.embedded.server import SETTINGS, start, stop, wait_until_settled
from opendataflow.store.embedded.user import ServerUser

_OF_SYSTEM = re.compile(r"\[Errno \d+\] ([^:]+)")
"""The text of an error of the operating system, with its number."""


class EmbeddedPostgres:
    """The server of one home, for one process.

    `home`: the folder of all files, created if missing. `options`: server settings by name that override the defaults.
    They apply if this process starts the server. As a context manager it joins, returns the URL, and leaves. All
    methods block, may be called from any thread, and raise EmbeddedPostgresError.
    """

    def __init__(self, home: Path, options: Mapping[str, str] | None = None) -> None:
        self._home = Home(home.resolve())
        self._settings = {**SETTINGS, **(options or {})}
        self._guard = threading.RLock()
        self._lock: UserLock | None = None

    def join(self) -> str:
        """Become a user of the server and return its libpq URL. Create and start the server if necessary.

        This takes some seconds the first time, and up to ten minutes after a crash. A second call acts like `ensure`.
        """
        with self._guard, _translated_errors(self._home):
            if self._lock is not None:
                return self.ensure()
            ServerUser(self._home.data).make_folder(self._home.path)
            with start_lock(self._home):
                self._lock = UserLock(self._home)
                try:
                    self._ensure_running()
                    create_database(self._home)
                except EmbeddedPostgresError:
                    # Do not stop the server: it may be recovering, and would have to begin again.
                    self._release(self._lock)
                    raise
                except BaseException:
                    self._stop_if_last(self._lock)
                    raise
            return dsn(self._home)

    def ensure(self) -> str:
        """Return the URL of the server, after a new start if the server has died. The port may have changed.

        Raise RuntimeError unless called between `join` and `leave`.
        """
        with self._guard, _translated_errors(self._home):
            if self._lock is None:
                raise RuntimeError("ensure() is for a process between join() and leave()")
            if probe(self._home) is not Answer.OURS:
                with start_lock(self._home):
                    self._ensure_running()
            return dsn(self._home)

    def leave(self) -> None:
        """Stop using the server. The last process to leave stops the server. A second call does nothing."""
        with self._guard, _translated_errors(self._home):
            if self._lock is None:
                return
            if self._lock.inherited:
                self._release(self._lock)
                return
            with start_lock(self._home):
                self._stop_if_last(self._lock)

    def __enter__(self) -> str:
        return self.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def _ensure_running(self) -> None:
        """Create and start the server if necessary. Return when it answers. The caller holds start.lock."""
        if wait_until_settled(self._home):
            return
        check_version(self._home)
        user = ServerUser(self._home.data)
        durable = self._settings.get("fsync") != "off"
        binaries = accessible_binaries(self._home, user, durable=durable)
        create_cluster(self._home, user, binaries, durable=durable)
        start(self._home, user, binaries, self._settings)

    def _stop_if_last(self, lock: UserLock) -> None:
        """Release this process's lock, and stop the server if no other process uses it. The caller holds start.lock."""
        try:
            if lock.is_last():
                stop(self._home)
        finally:
            self._release(lock)

    def _release(self, lock: UserLock) -> None:
        lock.release()
        self._lock = None


@contextmanager
def _translated_errors(home: Home) -> Iterator[None]:
    """Translate errors of the operating system into EmbeddedPostgresError."""
    try:
        yield
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedPostgresError(
            f"The embedded Postgres can't use its folder {home.path} ({_reason(error)}): fix that, or set "
            "DATAFLOW_HOME to another folder."
        ) from error


def _reason(error: BaseException) -> str:
    """Return an error in words. A copy of a folder reports a list of files with their errors: return the first one."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        _, file, reason = error.args[0][0]
        known = _OF_SYSTEM.match(reason)
        return f"{file}: {known[1] if known else reason}"
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
