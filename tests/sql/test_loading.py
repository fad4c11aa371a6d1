"""Adding chunks in one transaction, beside others who add some too."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

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


# Bounds that overlap

LISTS: dict[str, tuple[dict[str, tuple[object, object]], dict[str, tuple[object, object]], list[str]]] = {
    "a text range in a finished one": ({"A-M": ("A", "N")}, {"A-F": ("A", "G")}, ["A-F"]),
    "text ranges beside each other": ({"A-M": ("A", "N")}, {"N-Z": ("N", "Zz")}, []),
    "numbers that a list has as texts": ({"x": ("0", "100")}, {"y": ("20", "30"), "z": ("100", "110")}, ["y"]),
    "numbers and texts": ({"x": (0, 100)}, {"y": ("A", "B")}, ["y"]),
    "an hour in a day": ({"x": ("2013-01-01", "2013-01-02")}, {"y": ("2013-01-01T05", "2013-01-01T06:00")}, ["y"]),
    "an hour beside a day": ({"x": ("2013-01-01", "2013-01-02")}, {"y": ("2013-01-02 00:00", "2013-01-02 01")}, []),
    "a day that does not exist": ({"x": ("2013-02-28", "2013-02-30")}, {"y": ("2013-02-29", "2013-03-01")}, ["y"]),
}


def ranges(made: Mapping[str, tuple[object, object]]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(i, {"from": low, "to": high}) for i, (low, high) in made.items()]


async def overlaps(
    store: Store,
    made: Sequence[tuple[str, Mapping[str, Any] | None]],
    *,
    dry_run: bool = False,
    allow_overlap: bool = False,
) -> Sequence[str]:
    """The chunks of a list that are refused."""
    found = await load_chunks(
        store, "a", made, "ada", None, publish=False, dry_run=dry_run, allow_overlap=allow_overlap
    )
    return () if found["overlaps"] is None else found["overlaps"].examples["overlapping"]


@pytest.mark.parametrize("state", ["to do", "finished", "retired"])
@pytest.mark.parametrize("name", sorted(LISTS))
async def test_a_list_is_refused_if_bounds_overlap_those_of_another_chunk(
    store: Store, db: Connection, lease: str, name: str, state: str
) -> None:
    first, second, refused = LISTS[name]
    apply(db, [dataset("a"), dataset("b")], [job("j", ["a"], ["b"])])
    await load_chunks(store, "a", ranges(first), "ada", None, publish=True)
    if state != "to do":
        end(db, claim(db, lease, "j")[0], "DONE")
    if state == "retired":
        with db.transaction():
            db.execute("SELECT opendataflow.begin_event('apply', 'ada')")
            db.execute("SELECT opendataflow.retire_chunks(ARRAY['a'], ARRAY[%s])", (next(iter(first)),))
    before = chunks(db)
    assert list(await overlaps(store, ranges(second))) == refused
    assert (chunks(db) == before) == bool(refused)
    assert list(await overlaps(store, ranges(second), allow_overlap=True)) == []
    assert set(second) <= {name.removeprefix("a/") for name in chunks(db)}


async def test_chunks_of_one_list_overlap_each_other(store: Store, db: Connection) -> None:
    apply(db, [dataset("a")], [])
    assert list(await overlaps(store, ranges({"1": (0, 10), "2": (5, 15), "3": (15, 20)}))) == ["1", "2"]
    assert chunks(db) == {}


async def test_other_bounds_of_a_known_chunk_overlap_like_those_of_a_new_one(store: Store, db: Connection) -> None:
    apply(db, [dataset("a")], [])
    assert list(await overlaps(store, ranges({"1": (0, 10), "2": (10, 20)}))) == []
    assert list(await overlaps(store, ranges({"1": (0, 10), "2": (10, 20)}))) == []
    assert list(await overlaps(store, ranges({"2": (9, 20)}))) == ["2"]


async def test_a_list_without_bounds_is_compared_by_what_its_ids_say_of_the_partitioning(
    store: Store, db: Connection
) -> None:
    apply(db, [{**dataset("a"), "partitioning": {"column": "c", "type": "date"}}], [])
    assert list(await overlaps(store, [("2013-01", None), ("2013-02", None)])) == []
    assert list(await overlaps(store, [("2013-01", None), ("2013-01-05", None), ("2013-03-05", None)])) == [
        "2013-01-05"
    ]
    assert chunks(db).keys() == {"a/2013-01", "a/2013-02"}
    assert list(await overlaps(store, [("2013-01-05", None)], allow_overlap=True)) == []
    assert list(await overlaps(store, [("2013-01-05", None)])) == []


PLANNED: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "one value": ({"value": "x"}, {"value": "x"}, True),
    "other values": ({"value": "x"}, {"value": "y"}, False),
    "a value of the rest": ({"rest": True, "values": ["x"]}, {"value": "y"}, True),
    "a value beside the rest": ({"rest": True, "values": ["x"]}, {"value": "x"}, False),
    "a date of the rest": (
        {"rest": True, "from": "2013-01-01", "to": "2014-01-01"}, {"from": "2014-01-01", "to": "2014-01-02"}, True,
    ),
    "a date beside the rest": (
        {"rest": True, "from": "2013-01-01", "to": "2014-01-01"}, {"from": "2013-01-01", "to": "2013-01-02"}, False,
    ),
    "the rest twice": ({"rest": True, "values": ["x"]}, {"rest": True, "values": ["y"]}, True),
    "NULLs beside a range": ({"nulls": True}, {"from": 0, "to": 10}, False),
    "NULLs twice": ({"nulls": True}, {"from": 0, "to": 10, "nulls": True}, True),
    "ranges of two columns": ({"column": "a", "from": 0, "to": 1}, {"column": "b", "from": 5, "to": 6}, True),
    "an open end": ({"from": 0}, {"from": 5, "to": 6}, True),
    "an open end beside": ({"to": 5}, {"from": 5, "to": 6}, False),
    "one bucket under two ids": ({"bucket": 0, "buckets": 4}, {"bucket": 0, "buckets": 4}, True),
    "a bucket in another": ({"bucket": "1", "buckets": "2"}, {"bucket": 3, "buckets": 4}, True),
    "no bucket": ({"bucket": "none", "buckets": "0"}, {"bucket": 3, "buckets": 4}, False),
    "names that only the user knows": ({"first": "A"}, {"first": "A"}, False),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PLANNED))
async def test_bounds_of_all_kinds_are_compared(store: Store, db: Connection, name: str) -> None:
    one, other, overlapping = PLANNED[name]
    apply(db, [dataset("a")], [])
    for first, second in ((one, other), (other, one)):
        assert bool(await overlaps(store, [("1", first), ("2", second)], dry_run=True)) == overlapping
    assert not await overlaps(store, [("1", one)])
    assert list(await overlaps(store, [("2", other)])) == ["2"] * overlapping


async def test_texts_of_one_plan_are_ordered_by_their_database_only(store: Store, db: Connection) -> None:
    apply(db, [dataset("a")], [])
    plan: list[tuple[str, Mapping[str, Any]]] = [
        ("1", {"to": "a", "predicate": "…"}),
        ("2", {"from": "a", "to": "B", "predicate": "…"}),
        ("3", {"from": "B", "predicate": "…"}),
    ]
    assert list(await overlaps(store, plan)) == []
