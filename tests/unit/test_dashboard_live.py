"""Browsers hear of a change once, and while none of them watches, nobody reads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from opendataflow.dashboard.live import Changes, News
from opendataflow.errors import Unreachable
from opendataflow.store import dashboard
from opendataflow.store.database import Database


class Db(Database):
    """A database whose version a test sets. It reports a change when the test does."""

    def __init__(self) -> None:
        self.version: str | None = "1"
        self.reads = 0
        self.looks = asyncio.Queue[None]()
        self.reported = asyncio.Queue[str]()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[AsyncIterator[str]]:
        async def jobs() -> AsyncIterator[str]:
            while True:
                yield await self.reported.get()

        yield jobs()


@pytest.fixture
async def db(monkeypatch: pytest.MonkeyPatch) -> Db:
    db = Db()

    async def version(_: Database) -> str:
        db.reads += 1
        db.looks.put_nowait(None)
        if db.version is None:
            raise Unreachable("Postgres does not answer")
        return db.version

    monkeypatch.setattr(dashboard, "version", version)
    return db


@pytest.fixture
async def changes(db: Db) -> AsyncIterator[Changes]:
    """Changes that look again only if something is reported."""
    changes = Changes(db, look_seconds=3600, least_seconds=0)
    changes.start()
    yield changes
    await changes.close()


async def test_nobody_reads_while_no_browser_watches(db: Db, changes: Changes) -> None:
    for _ in range(10):
        await asyncio.sleep(0)
    assert db.reads == 0
    with changes.watching():
        assert await changes.after(None) == News("version", "1")
    assert db.reads == 1


async def test_a_reported_change_reaches_every_browser(db: Db, changes: Changes) -> None:
    with changes.watching(), changes.watching():
        known = await changes.after(None)
        waiting = [asyncio.create_task(changes.after(known)) for _ in range(2)]
        db.version = "2"
        db.reported.put_nowait("job")
        assert await asyncio.gather(*waiting) == [News("version", "2")] * 2


async def test_a_report_without_a_change_is_no_news(db: Db, changes: Changes) -> None:
    with changes.watching():
        known = await changes.after(None)
        waiting = asyncio.create_task(changes.after(known))
        db.reported.put_nowait("job")
        for _ in range(2):
            await db.looks.get()
        assert not waiting.done()
        await changes.close()
        assert await waiting is None


async def test_a_database_that_does_not_answer_is_news_and_so_is_its_return(db: Db, changes: Changes) -> None:
    with changes.watching():
        known = await changes.after(None)
        db.version = None
        db.reported.put_nowait("job")
        known = await changes.after(known)
        assert known == News("unreachable", "Postgres does not answer")
        db.version = "1"
        db.reported.put_nowait("job")
        assert await changes.after(known) == News("version", "1")
