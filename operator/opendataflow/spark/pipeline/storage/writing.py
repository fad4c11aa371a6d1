"""Writing so that doing it twice equals doing it once, and that nobody sees half of it: first beside, then a swap.

Names that begin with a dot are invisible to Spark. It works within one file system, and never looks at the data.
"""

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opendataflow.errors import StepFailed

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def staged_folder(target: Path) -> Iterator[Path]:
    """Give a folder that isn't there yet; at the end of the block it takes the place of `target`.

    If the block fails, `target` stays as it was. What a killed one has left is removed or put back. A link stays one:
    the folder that it names is the one that changes.
    """
    target = Path(os.path.realpath(target))
    staging, old, lock = (target.with_name(f".{target.name}.{kind}") for kind in ("staging", "old", "lock"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w", encoding="ascii") as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # of two at once the second waits
            if old.exists() and not target.exists():
                old.rename(target)
            shutil.rmtree(old, ignore_errors=True)
            shutil.rmtree(staging, ignore_errors=True)
            try:
                yield staging
                _swap(staging, target, old)
            finally:
                shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise _refused(error, target) from error


def _refused(error: OSError, target: Path) -> StepFailed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StepFailed(f"{target}: there is no space left on its disk; free some, or write to another path")
    return StepFailed(f"{error.filename or target}: can't be written: {error.strerror}")


def _swap(staging: Path, target: Path, old: Path) -> None:
    if not target.exists():
        staging.rename(target)
    elif not _exchanged(staging, target):
        target.rename(old)
        try:
            staging.rename(target)
        except OSError:
            old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Let two paths change places in one moment; False where the system can't."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    done: int = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return done == 0


@contextmanager
def staged_file(target: Path) -> Iterator[Path]:
    """Give a file to write; at the end of the block it is renamed to `target`."""
    staging = target.with_name(f".{target.name}.staging")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield staging
            staging.rename(target)
        finally:
            staging.unlink(missing_ok=True)
    except OSError as error:
        raise _refused(error, target) from error
