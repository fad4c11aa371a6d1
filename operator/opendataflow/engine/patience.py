"""Whether to ask Postgres again after an error: a server that is away comes back, one that refuses us may not."""

import time

from opendataflow.engine import limits
from opendataflow.errors import DataflowError, NoAccess


class Patience:
    """That of one program which has runs to look after."""

    def __init__(self) -> None:
        self._refused_at: float | None = None

    def again(self, error: DataflowError) -> bool:
        """Say whether to ask again; where access was taken away, long enough for somebody to give it back."""
        if not isinstance(error, NoAccess):
            self._refused_at = None
            return error.retryable
        now = time.monotonic()
        if self._refused_at is None:
            self._refused_at = now
        return now - self._refused_at < limits.REFUSED_SECONDS

    def answered(self) -> None:
        """Begin anew."""
        self._refused_at = None
