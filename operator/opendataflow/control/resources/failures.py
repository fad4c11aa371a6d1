"""Failures while one resource is handled: which errors are failures of the resource, and when it is tried again.

Such an error never ends the process. It becomes the fault of the resource, and its next try follows a growing pause.
"""

import asyncio
from collections.abc import Callable

from opendataflow.control.resources.catalog import Fault, Key
from opendataflow.engine.database_retries import concerns_one_request
from opendataflow.errors import DataflowError
from opendataflow.names import Reason

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 300.0


def concerns_one_resource(error: Exception) -> bool:
    """Return whether an error is a failure of the handled resource. All resources suffer from any other error: Postgres
    or the API server does not answer, another operator leads, or memory is used up."""
    if isinstance(error, DataflowError):
        return concerns_one_request(error)
    return not isinstance(error, MemoryError)


def failure(error: Exception) -> Fault:
    """Return the fault for a failure. Texts of unexpected errors are in the log only, because they may quote values."""
    cause = str(error) if isinstance(error, DataflowError) else f"the operator has a fault: {type(error).__name__}"
    return Fault(
        Reason.INTERNAL_ERROR,
        f"{cause}. The log of the operator has the details. It tries again after growing pauses of up to "
        f"{LONGEST_PAUSE_SECONDS / 60:.0f} minutes",
    )


class Retries:
    """The next tries of resources that have failed. `retry`: called with a resource when its pause is over."""

    def __init__(self, retry: Callable[[Key], None]) -> None:
        self._retry = retry
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}

    def failed(self, key: Key) -> None:
        """Schedule the next try. Each failure in a row doubles the pause."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 32), LONGEST_PAUSE_SECONDS)
        self._cancel(key)
        self._timers[key] = asyncio.get_running_loop().call_later(pause, self._retry, key)

    def succeeded(self, key: Key) -> None:
        """Forget the failures of a resource."""
        self._failures.pop(key, None)
        self._cancel(key)

    def _cancel(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
