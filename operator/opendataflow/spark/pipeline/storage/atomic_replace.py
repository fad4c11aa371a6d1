"""Replace a file or folder of this machine atomically: write beside the target, then swap.

Readers never see a partial result. The staging path is in the target's file system. Spark ignores its leading dot.
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
    """Yield the path of a folder to create. At the end of the block the folder replaces `target`.

    If the block fails, `target` is unchanged. Leftovers of a killed program are deleted or restored. If `target` is a
    link, the folder behind the link changes.
    """
    target = Path(os.path.realpath(target))
    staging, old, lock = (target.with_name(f".{target.name}.{kind}") for kind in ("staging", "old", "lock"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with lock.open("w", encoding="ascii") as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # a second writer waits
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
        raise _explain_write_error(error, target) from error


def _explain_write_error(error: OSError, target: Path) -> StepFailed:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StepFailed(f"{target}: there is no space left on its disk; free some, or write to another path")
    return StepFailed(f"{error.filename or target}: can't be written: {error.strerror}")


def _swap(staging: Path, target: Path, old: Path) -> None:
    if not target.exists():
        staging.rename(target)
    elif not _exchange(staging, target):
        target.rename(old)
        try:
            staging.rename(target)
        except OSError:
            old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two paths atomically. Return False if the system does not support the call."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    if rename is None:
        return False
    done: int = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return done == 0


@contextmanager
def staged_file(target: Path) -> Iterator[Path]:
    """Yield the path of a file to write. At the end of the block the file is renamed to `target`."""
    staging = target.with_name(f".{target.name}.staging")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield staging
            staging.rename(target)
        finally:
            staging.unlink(missing_ok=True)
    except OSError as error:
        raise _explain_write_error(error, target) from error
