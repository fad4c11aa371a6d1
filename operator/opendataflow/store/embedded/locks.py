"""The three locks of a home. They do not show which process holds them, and never rely on a process id.

All are flocks: the file stays, and the lock ends with the last process that has the file open.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opendataflow.store.embedded.home import Home, open_private


@contextmanager
def start_lock(home: Home) -> Iterator[None]:
    """Hold start.lock. Wait until no other process creates, starts or stops the server."""
    lock = _open(home.path / "start.lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        _release(lock)


class UserLock:
    """This process's shared lock on users.lock. Create it under start.lock."""

    def __init__(self, home: Home) -> None:
        self._lock = _open(home.path / "users.lock")
        self._owner = os.getpid()
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    @property
    def inherited(self) -> bool:
        """Whether this process is a fork of the one that took the lock."""
        return self._owner != os.getpid()

    def is_last(self) -> bool:
        """Return whether no other process holds the lock. The caller holds start.lock."""
        return _try_exclusive(self._lock)

    def release(self) -> None:
        """Release the lock. A fork only closes its copy, because the lock belongs to its parent."""
        if self.inherited:
            os.close(self._lock)
        else:
            _release(self._lock)


@contextmanager
def inheritable_server_lock(home: Home) -> Iterator[int]:
    """Hold server.lock and yield its file descriptor. Programs that inherit the descriptor keep the lock."""
    lock = _open(home.path / "server.lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)  # without LOCK_UN, which would also unlock it for those programs


def is_stopped(home: Home) -> bool:
    """Return whether no process of any server of this home is left.

    The caller holds start.lock, because the check takes server.lock for a moment.
    """
    lock = _open(home.path / "server.lock")
    try:
        return _try_exclusive(lock)
    finally:
        _release(lock)


def _open(path: Path) -> int:
    return open_private(str(path), os.O_RDWR)


def _try_exclusive(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _release(lock: int) -> None:
    """Release a lock, also if a fork of this process has inherited it."""
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)
