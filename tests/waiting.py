"""Waits for what comes true by itself, as processes and servers do their work."""

import time
from collections.abc import Callable


def wait_until(true: Callable[[], bool], what: str, seconds: float = 240, every: float = 0.1) -> None:
    """Look again and again; raise TimeoutError that names `what` when it has not become true in time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(every)
