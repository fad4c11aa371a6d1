"""What an engine remembers of a job between two claims. Postgres holds the truth; losing all of this costs a few
questions. It asks nobody and starts nothing.
"""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field

from opendataflow.core.runs.plan import Demand
from opendataflow.core.runs.retry import RetryPolicy
from opendataflow.engine import limits
from opendataflow.engine.takeover import policy_of
from opendataflow.errors import NotStarted
from opendataflow.model.records.claim import DeclaredJob, Position


@dataclass
class JobView:
    """One job. `fits`: this engine knows what the job executes as it is declared now. `position`, `hungry`,
    `searched_at`: of its search for QUEUED tasks. `starting`: runs that are claimed and not yet started; `window`: how
    many of them there may be. `held_back`: why its runs can't be started for now, until about `held_until`."""

    declared: DeclaredJob
    fits: bool = True
    position: Position = field(default_factory=Position)
    hungry: bool = True
    searched_at: float = 0.0
    starting: int = 0
    window: int = limits.FIRST_STARTS
    held_back: NotStarted | None = None
    held_until: float = 0.0
    _freed: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    def declare(self, declared: DeclaredJob) -> None:
        """It is declared like this now. One that was applied anew is tried at once, whatever was wrong with it."""
        if declared.job["declared_as"] != self.declared.job["declared_as"]:
            self.held_until = 0.0
        self.declared = declared

    @property
    def active(self) -> bool:
        """Whether its runs may start at all, as far as people have said."""
        row = self.declared.job
        return self.fits and not row["suspended"] and not row["deleted"] and row["parallelism"] > 0

    @property
    def policy(self) -> RetryPolicy:
        """When and how often its tasks are tried again."""
        return policy_of(self.declared)

    def demand(self, running: int) -> Demand | None:
        """What it asks for now; None for nothing. Never more than may be started at a time."""
        if not (self.hungry and self.active) or self.waits:
            return None
        row = self.declared.job
        startable = running + max(self.window - self.starting, 0)
        return Demand(row["id"], row["priority"], min(row["parallelism"], startable), running)

    @property
    def waits(self) -> bool:
        """Whether nothing is to be claimed because what was claimed can't be started."""
        return self.held_back is not None and (self.starting > 0 or time.monotonic() < self.held_until)

    def started(self) -> None:
        """A run was started: twice as many may be the next time."""
        self.window = min(2 * self.window, limits.MOST_STARTS)
        self.held_back, self.held_until = None, 0.0

    def hold_back(self, reason: NotStarted, pause: float) -> None:
        """A run could not be started: one at a time from now on, and none for `pause` seconds where none is left."""
        self.window = 1
        self.held_back, self.held_until = reason, time.monotonic() + pause

    async def pause(self, seconds: float) -> None:
        """Wait before a start is tried again, or until a run of the job has ended and may have made room for one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._freed.acquire()

    def feed(self) -> None:
        """It may have QUEUED tasks: ask for it, from the start of its order unless that was done just now."""
        self.hungry = True
        if self.held_back is not None and self._freed.locked():
            self._freed.release()
        if time.monotonic() - self.searched_at > limits.REWIND_SECONDS:
            self.position = Position()
