"""Publish the folder of one partition, so that a second attempt at a chunk has the same result as the first one.

An attempt writes into a hidden folder beside the target and then swaps both by renaming. The fencing token of the
attempt is in the hidden folder's name and, once published, in the file `_fence`. An attempt with a lower fencing token
than any here publishes nothing. Readers see the old or the new partition, never a part of one. Names that begin with
`.` or `_` are invisible to Spark. This works within one file system. It never reads the data itself.
"""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from context import ChunkError

FENCE_FILE = "_fence"


class OlderFenceError(ChunkError):
    """A newer attempt has started or published this partition. The older one must not change it."""


@contextmanager
def staged(target: Path, fence: int) -> Iterator[Path]:
    """Yield an empty folder. At the end of the block it replaces `target`.

    Folders of earlier attempts are removed. If the block fails, `target` stays unchanged. Raise OlderFenceError, before
    or after the block, if a newer attempt has been here.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = _beside(target, "staging", fence)
    with _only_one(target):
        _refuse_if_older(target, fence)
        for leftover in _leftovers(target):
            shutil.rmtree(leftover)
        staging.mkdir()
    try:
        yield staging
        (staging / FENCE_FILE).write_text(f"{fence}\n", encoding="ascii")
        with _only_one(target):
            _refuse_if_older(target, fence)
            _swap(staging, target, fence)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _swap(staging: Path, target: Path, fence: int) -> None:
    old = _beside(target, "old", fence)
    if target.exists():
        target.rename(old)
    staging.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _refuse_if_older(target: Path, fence: int) -> None:
    newest = max(_fences(target), default=fence)
    if newest > fence:
        raise OlderFenceError(
            f"{target}: this attempt has fence {fence}, a newer one with fence {newest} was here already; "
            "nothing was changed, and nothing needs to be done"
        )


def _fences(target: Path) -> Iterator[int]:
    if (target / FENCE_FILE).is_file():
        yield int((target / FENCE_FILE).read_text(encoding="ascii"))
    for leftover in _leftovers(target):
        yield int(leftover.name.rpartition("-")[2])


def _leftovers(target: Path) -> list[Path]:
    return [path for kind in ("staging", "old") for path in target.parent.glob(f".{target.name}.{kind}-*")]


def _beside(target: Path, kind: str, fence: int) -> Path:
    return target.with_name(f".{target.name}.{kind}-{fence}")


@contextmanager
def _only_one(target: Path) -> Iterator[None]:
    """Lock the target, so that one process at a time compares fencing tokens and renames folders."""
    with target.with_name(f".{target.name}.lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
