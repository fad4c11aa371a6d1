"""Waits for what comes true by itself, as processes and servers do their work."""

import asyncio
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


def wait_until(true: Callable[[], object], what: str, seconds: float = 240, every: float = 0.1) -> None:
    """Look again and again; raise TimeoutError that names `what` when it has not become true in time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(every)


async def until(
    true: Callable[[], object], what: str = "the condition is true", seconds: float = 300, every: float = 0.02
) -> None:
    """Do the same in an event loop, whose other tasks go on. The condition itself must not block."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        await asyncio.sleep(every)


def wait_for_file(path: Path, process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Wait for a file that a process makes, and fail at once if the process ends before."""

    def made() -> bool:
        ended = process.poll()
        assert path.exists() or ended is None, f"the process has ended with {ended} and made no {path.name}"
        return path.exists()

    wait_until(made, f"{path.name} is made", every=0.02)
