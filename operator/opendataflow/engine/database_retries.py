"""Decides whether to ask Postgres again after an error.

An unreachable server comes back, so the caller retries without end. A server that refuses access may never accept it
again, so the caller retries for a limited time. This module never connects.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from opendataflow.engine import limits
from opendataflow.errors import DataflowError, HistoryLost, LeadershipLost, NoAccess, SchemaMismatch

T = TypeVar("T")


def concerns_one_request(error: DataflowError) -> bool:
    """Return whether only this request has failed. All requests suffer from any other error: Postgres does not answer,
    another operator leads, the schema is another one, or Postgres has gone back in time."""
    return not (error.retryable or isinstance(error, LeadershipLost | SchemaMismatch | HistoryLost))


class DatabaseRetries:
    """Tracks how long Postgres has refused access. One instance per process."""

    def __init__(self) -> None:
        self._refused_at: float | None = None

    def should_retry(self, error: DataflowError) -> bool:
        """Return whether to ask again. After NoAccess: for `limits.REFUSED_SECONDS` since the first refusal."""
        if not isinstance(error, NoAccess):
            self._refused_at = None
            return error.retryable
        now = time.monotonic()
        if self._refused_at is None:
            self._refused_at = now
        return now - self._refused_at < limits.REFUSED_SECONDS

    def reset(self) -> None:
        """Forget earlier refusals: Postgres has answered."""
        self._refused_at = None

    async def until_answered(self, ask: Callable[[], Awaitable[T]], report: Callable[[DataflowError], None]) -> T:
        """Ask until Postgres answers, and return the answer. The request must be harmless if it is executed twice.

        `report`: called after the first error of each kind.
        """
        reported: type[DataflowError] | None = None
        while True:
            try:
                answer = await ask()
            except DataflowError as error:
                if not self.should_retry(error):
                    raise
                if reported is not type(error):
                    reported = type(error)
                    report(error)
                await asyncio.sleep(limits.RECONNECT_SECONDS)
            else:
                self.reset()
                return answer
