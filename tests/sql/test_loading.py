"""Adding chunks in one transaction, beside others who add some too."""

import asyncio

import pytest

from opendataflow.errors import Refused
from opendataflow.store.loading import Existing, load_chunks
from opendataflow.store.store import Store
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import apply, ask, chunks, claim, dataset, end, job, problems, task
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


async def finished(store: Store, db: Connection, lease: str) -> None:
    """Job j has made b from chunk 1 of a, whose list had bounds."""
    apply(db, [dataset("a"), dataset("b")], [job("j", ["a"], ["b"])])
    await load_chunks(store, "a", [("1", {"from": "A", "to": "N"})], "ada", None, publish=True)
    [run] = claim(db, lease, "j")
    end(db, run, "DONE")


@pytest.mark.parametrize("to", ["N", "P"])
async def test_tasks_that_were_done_with_other_bounds_are_stale(
    store: Store, db: Connection, lease: str, to: str
) -> None:
    await finished(store, db, lease)
    await load_chunks(store, "a", [("1", {"from": "A", "to": to})], "ada", None, publish=False)
    assert task(db, "j", "1")["stale"] == (to == "P")
    assert problems(db) == []


async def test_a_task_that_runs_while_its_bounds_change_is_stale_at_its_end(
    store: Store, db: Connection, lease: str
) -> None:
    await finished(store, db, lease)
    ask(db, "resubmit", "j", "1")
    [run] = claim(db, lease, "j")
    await load_chunks(store, "a", [("1", {"from": "A", "to": "P"})], "ada", None, publish=False)
    end(db, run, "DONE")
    assert task(db, "j", "1")["stale"]


async def test_bounds_of_a_published_output_make_no_task_stale(store: Store, db: Connection, lease: str) -> None:
    await finished(store, db, lease)
    for to in ("N", "P"):
        await load_chunks(store, "b", [("1", {"from": "A", "to": to})], "ada", None, publish=True)
    assert not task(db, "j", "1")["stale"]
