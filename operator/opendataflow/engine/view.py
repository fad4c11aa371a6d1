"""The engine's view of one job between two claims: a cache that the engine can rebuild from Postgres.

This module sends no query and starts no run.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field

from opendataflow.core.runs.plan import Demand
from opendataflow.core.runs.retry import RetryPolicy
from opendataflow.engine import limits
from opendataflow.engine.takeover import retry_policy
from opendataflow.errors import NotStarted
from opendataflow.keys import namespace_of
from opendataflow.model.records.claim import DeclaredJob, Position


@dataclass
class JobView:
    """The view of one job.

    `matches`: the order maker describes the job as it is declared now. `may_have_queued`: the next search may find
    QUEUED tasks. `position`: where the search goes on. `searched_at`: time of the last search from the start.
    `starting`: number of runs that are claimed and not yet started. `window`: the limit of that number. `start_error`:
    why runs can't be started at the moment. `paused_until`: when the next claim is allowed.
    """

    declared: DeclaredJob
    matches: bool = True
    position: Position = field(default_factory=Position)
    may_have_queued: bool = True
    searched_at: float = 0.0
    starting: int = 0
    window: int = limits.FIRST_STARTS
    start_error: NotStarted | None = None
    paused_until: float = 0.0
    _freed: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def declare(self, declared: DeclaredJob) -> None:
        """Update the declaration. A job that was applied again is tried at once, without the rest of its pause."""
        if declared.job["declared_as"] != self.declared.job["declared_as"]:
            self.paused_until = 0.0
        self.declared = declared

    @property
    def active(self) -> bool:
        """Return whether the declaration of the job allows runs."""
        row = self.declared.job
        return self.matches and not row["suspended"] and not row["deleted"] and row["parallelism"] > 0

    @property
    def namespace(self) -> str:
        """Return the namespace of the job; empty on one machine."""
        return namespace_of(self.declared.job["id"])

    def reads(self, dataset: str) -> bool:
        """Return whether a data set is an input of the job."""
        return any(row["id"] == dataset and row["itemtype"] == "IN" for row in self.declared.datasets)

    @property
    def policy(self) -> RetryPolicy:
        """Return when and how often the tasks of the job are retried."""
        return retry_policy(self.declared)

    def demand(self, running: int) -> Demand | None:
        """Return the demand of the job for slots, within its start window; None for no demand.

        `running`: number of active runs of the job.
        """
        if not (self.may_have_queued and self.active) or self.claims_paused:
            return None
        row = self.declared.job
        startable = running + max(self.window - self.starting, 0)
        limit = min(row["parallelism"], startable)
        return Demand(row["id"], row["priority"], limit, running, self.namespace)

    @property
    def claims_paused(self) -> bool:
        """Return whether claims have to wait: claimed runs could not be started yet, or a claim was refused."""
        return (self.start_error is not None and self.starting > 0) or time.monotonic() < self.paused_until

    def claim_failed(self, pause: float) -> None:
        """Record a refused claim: claim nothing for `pause` seconds."""
        self.paused_until = time.monotonic() + pause

    def start_succeeded(self) -> None:
        """Record a successful start: the start window doubles."""
        self.window = min(2 * self.window, limits.MOST_STARTS)
        self.start_error, self.paused_until = None, 0.0

    def start_failed(self, reason: NotStarted, pause: float) -> None:
        """Record a failed start: one start at a time from now on. Without one, claim nothing for `pause` seconds."""
        self.window = 1
        self.start_error, self.paused_until = reason, time.monotonic() + pause

    async def pause(self, seconds: float) -> None:
        """Wait `seconds` before the next try of a start, or until a run of the job has ended and may have made room."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._freed.acquire()

    def wake(self) -> None:
        """Record that the job may have QUEUED tasks. Search from the start, unless that was done a moment ago."""
        self.may_have_queued = True
        if self.start_error is not None and self._freed.locked():
            self._freed.release()
        if time.monotonic() - self.searched_at > limits.REWIND_SECONDS:
            self.position = Position()
