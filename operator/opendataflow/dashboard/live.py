"""Reports to browsers when something has changed: one LISTEN and one reader of the version for all of them.

Nobody reads anything while no browser watches. A state that changes without a notification is seen at the next look.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from aiohttp import web

from opendataflow.errors import DataflowError
from opendataflow.store import dashboard
from opendataflow.store.database import Database

LOOK_SECONDS = 2.0
"""How often the version is read while a browser watches and Postgres reports nothing."""
LEAST_SECONDS = 0.5
"""The shortest time between two looks, however much is reported."""


PING_SECONDS = 15.0
"""After this time without news a comment is sent, to find out whether the browser still listens."""


@dataclass(frozen=True)
class News:
    """What browsers get. `kind`: `version` or `unreachable`. `text`: the version, or why Postgres does not answer."""

    kind: str
    text: str


class Changes:
    """The newest version of the state, and who waits for the next one."""

    def __init__(
        self, database: Database, look_seconds: float = LOOK_SECONDS, least_seconds: float = LEAST_SECONDS
    ) -> None:
        self._database = database
        self._look_seconds, self._least_seconds = look_seconds, least_seconds
        self._news: News | None = None
        self._arrived = asyncio.Condition()
        self._watched, self._reported = asyncio.Event(), asyncio.Event()
        self._watchers = 0
        self._closed = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start to look. It costs nothing until a browser watches."""
        self._tasks = [asyncio.create_task(self._look()), asyncio.create_task(self._listen())]

    async def close(self) -> None:
        """Release all watchers, and stop looking."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        async with self._arrived:
            self._arrived.notify_all()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count one browser that watches."""
        self._watchers += 1
        self._watched.set()
        try:
            yield
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._watched.clear()
                self._news = None  # it may be old when the next one comes

    async def after(self, known: News | None) -> News | None:
        """Wait for news that differ from what a browser knows. Return None at the end."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: self._closed or self._news not in (None, known))
            return None if self._closed else self._news

    async def _look(self) -> None:
        while True:
            await self._watched.wait()
            self._reported.clear()
            try:
                news = News("version", await dashboard.version(self._database))
            except DataflowError as error:
                news = News("unreachable", str(error))
            async with self._arrived:
                self._news = news
                self._arrived.notify_all()
            await asyncio.sleep(self._least_seconds)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._reported.wait(), self._look_seconds)

    async def _listen(self) -> None:
        while True:
            await self._watched.wait()
            try:
                async with self._database.listening() as jobs:
                    async for _ in jobs:
                        self._reported.set()
            except DataflowError:
                self._reported.set()
                await asyncio.sleep(self._look_seconds)


CHANGES: web.AppKey[Changes] = web.AppKey("changes", Changes)


async def events(request: web.Request) -> web.StreamResponse:
    """Send news to one browser until it leaves, as server-sent events."""
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
    await answer.prepare(request)
    changes, known = request.app[CHANGES], None
    with changes.watching(), suppress(ConnectionError):
        while True:
            try:
                known = await asyncio.wait_for(changes.after(known), PING_SECONDS)
            except TimeoutError:
                await answer.write(b":\n\n")  # fails if the browser has left
                continue
            if known is None:
                break
            lines = "".join(f"data: {line}\n" for line in known.text.splitlines())
            await answer.write(f"event: {known.kind}\n{lines}\n".encode())
    return answer
