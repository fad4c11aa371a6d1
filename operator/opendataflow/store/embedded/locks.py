"""The three locks of a home. Never tells who holds one, and never trusts the number of a process.

All are flocks: the file stays, the lock ends with the last process that has it open.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opendataflow.store.embedded.files import private
from opendataflow.store.embedded.home import Home


@contextmanager
def starting(home: Home) -> Iterator[None]:
    """Hold start.lock; waits for whoever creates, starts or stops the server."""
    lock = _open(home.path / "start.lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        _release(lock)


class Share:
    """A process' part in users.lock, taken when this is made, under start.lock."""

    def __init__(self, home: Home) -> None:
        self._lock = _open(home.path / "users.lock")
        self._owner = os.getpid()
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    @property
    def inherited(self) -> bool:
        """Whether this process is a fork of the one that took it."""
        return self._owner != os.getpid()

    def is_last(self) -> bool:
        """Whether no other process has a share; start.lock is held."""
        return _try_alone(self._lock)

    def give_up(self) -> None:
        """End it; a fork only closes its copy: the share is its parent's."""
        if self.inherited:
            os.close(self._lock)
        else:
            _release(self._lock)


@contextmanager
def to_hand_on(home: Home) -> Iterator[int]:
    """Hold server.lock and yield its descriptor: it stays with the programs that inherit that meanwhile."""
    lock = _open(home.path / "server.lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)  # and no unlocking: that would take it from those programs


def nothing_runs(home: Home) -> bool:
    """Whether no process of any server of this home is left.

    Only under start.lock: looking takes the lock.
    """
    lock = _open(home.path / "server.lock")
    try:
        return _try_alone(lock)
    finally:
        _release(lock)


def _open(path: Path) -> int:
    return private(str(path), os.O_RDWR)


def _try_alone(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _release(lock: int) -> None:
    """Give up a lock also where a fork of this process has inherited it."""
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)
