"""Adding chunks in one transaction, beside others who add some too."""

import asyncio

import pytest

from opendataflow.errors import Refused
from opendataflow.store.loading import Existing, load_chunks
from opendataflow.store.store import Store
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import apply, chunks, dataset
from tests.waiting import until


def only_where_empty(existing: Existing) -> str | None:
    return f"{next(iter(existing))} is there" if existing else None


async def load(store: Store, *ids: str) -> None:
    made = [(data_id, {"predicate": data_id}) for data_id in ids]
    await load_chunks(store, "a", made, "test", None, publish=False, why_not=only_where_empty)


async def test_what_is_refused_changes_nothing(store: Store, db: Connection) -> None:
    apply(db, [dataset("a")], [])
    await load(store, "x", "y")
    with pytest.raises(Refused, match=r"^x is there$"):
        await load(store, "z")
    assert chunks(db).keys() == {"a/x", "a/y"}


async def test_whoever_adds_at_the_same_moment_is_waited_for_and_seen(store: Store, db: Connection, dsn: str) -> None:
    apply(db, [dataset("a")], [])
    with open_connection(dsn) as other:
        with other.transaction():
            other.execute("SELECT opendataflow.declare_chunks('a', ARRAY['first'], ARRAY[NULL]::jsonb[], 'test')")
            loading = asyncio.create_task(load(store, "second"))
            waiting = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            await until(lambda: loading.done() or db.execute(waiting).fetchall(), "it waits for the other")
            assert not loading.done()
        with pytest.raises(Refused, match=r"^first is there$"):
            await loading
    assert chunks(db).keys() == {"a/first"}
