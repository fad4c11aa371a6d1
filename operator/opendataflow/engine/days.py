"""The current day: the data ids of the data set `today`, in the time zone of this machine."""

from collections.abc import Callable
from datetime import datetime

Clock = Callable[[], datetime]
"""Returns the current time with its time zone."""


def local_time() -> datetime:
    """Return the current time in the time zone of this machine."""
    return datetime.now().astimezone()


def current_day(clock: Clock = local_time) -> str:
    """Return the data id of the current day, like 2026-11-28."""
    return clock().date().isoformat()
