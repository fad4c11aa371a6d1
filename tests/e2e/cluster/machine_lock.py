"""One cluster on a machine at a time: whoever comes second waits, and says so."""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PATH = Path(tempfile.gettempdir()) / "opendataflow-e2e.lock"


@contextmanager
def only_one(say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of this machine; it ends with the process, however that ends."""
    if not _PATH.exists():
        _PATH.touch()
    lock = os.open(_PATH, os.O_RDONLY | os.O_CLOEXEC)  # reading is enough: another user may have made it
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another session uses the cluster of this machine: waiting until it has ended ({_PATH})")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
