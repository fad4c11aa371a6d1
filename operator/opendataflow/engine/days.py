"""Which day it is: the data ids of the data set `today`, by the clock and the time zone of this machine."""

from collections.abc import Callable
from datetime import datetime

Clock = Callable[[], datetime]
"""The current time, with its time zone."""


def local_time() -> datetime:
    """The current time in the time zone of this machine."""
    return datetime.now().astimezone()


def current_day(clock: Clock = local_time) -> str:
    """The data id of the day that it is here: 2026-11-28."""
    return clock().date().isoformat()
