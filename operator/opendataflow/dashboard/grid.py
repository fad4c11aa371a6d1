"""The cells of the grids: one letter for each chunk of a job, kept until a state has changed.

Letters: D done, S done and stale, I done and incomplete, R running, Q queued, T retrying, F failed, W waiting, H held,
K skipped. A grid of a million chunks takes a second to read. It is therefore read again only after a pause.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from opendataflow.store import dashboard
from opendataflow.store.dashboard import Part
from opendataflow.store.database import Database

_MOST_GRIDS = 8
_QUICK_SECONDS = 0.2
"""A grid that was read in this time is read again at once."""
_PAUSE_FACTOR = 10
"""A slow grid is read again after so many times the time of its last reading: it costs a tenth of a core at most."""
_LONGEST_SECONDS = 60.0
"""After this time a grid is read again, whatever its version."""


@dataclass(frozen=True)
class Grid:
    """The cells of one job. `until`: not before this time, a newer version is read."""

    version: str
    letters: bytes
    tag: str
    read_at: float
    until: float


class Cells:
    """The grids of the jobs that browsers have looked at last."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._grids: dict[tuple[str, Part], Grid] = {}
        self._reading = asyncio.Lock()

    async def of_job(self, job: str, part: Part) -> tuple[Grid, float]:
        """Return the grid of a part of a job, and in how many seconds a newer one can be read; 0: it is the newest."""
        async with self._reading:  # one reader for all browsers
            known = self._grids.pop((job, part), None)
            wait = await self._seconds_left(known) if known else None
            if known is None or wait is None:
                known, wait = await self._read(job, part), 0.0
            self._grids[job, part] = known
            while len(self._grids) > _MOST_GRIDS:
                self._grids.pop(next(iter(self._grids)))
            return known, wait

    async def _seconds_left(self, grid: Grid) -> float | None:
        """Return how long an older grid is still shown; 0 if it is the newest, None if it is read again now."""
        now = self._clock()
        if now < grid.read_at + _LONGEST_SECONDS and await dashboard.version(self._database) == grid.version:
            return 0.0
        return grid.until - now if now < grid.until else None

    async def _read(self, job: str, part: Part) -> Grid:
        begun = self._clock()
        version, letters = await dashboard.cells(self._database, job, part)
        now = self._clock()
        tag = f'"{hashlib.sha256(letters).hexdigest()[:24]}"'
        took = now - begun
        return Grid(version, letters, tag, now, now + (_PAUSE_FACTOR * took if took > _QUICK_SECONDS else 0))
