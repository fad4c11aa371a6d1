"""Cleaning lets old runs and events go, and nothing that answers for the present."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from opendataflow.store.store import Store
from tests.sql.conftest import Connection
from tests.sql.graph import apply, ask, claim, dataset, end, job, open_lease, problems, value

LATER = datetime.now(UTC) + timedelta(days=1)
"""A time before which everything here has happened."""


@pytest.fixture
def lease(db: Connection) -> str:
    apply(db, [dataset("a", "1", "2"), dataset("b")], [job("j", ["a"], ["b"], retry_limit=9)])
    return open_lease(db)


def runs(db: Connection) -> list[int]:
    return [row["id"] for row in db.execute("SELECT id FROM opendataflow.run ORDER BY id")]


async def clean(store: Store, job_id: str = "j", before: datetime = LATER) -> tuple[int, int]:
    """Clean all that is older; return how many runs and events have gone."""
    last, gone = None, 0
    while batch := await store.old_runs(job_id, before, last, 2):
        last = batch[-1]
        gone += await store.clean_runs([run.run for run in batch if run.goes])
    return gone, await store.clean_events(None, before, 3, dry_run=False)


def one(db: Connection, lease: str) -> dict[str, Any]:
    [run] = claim(db, lease, "j")
    return run


async def test_runs_that_came_before_the_last_one_of_a_task_go_with_their_steps(
    store: Store, db: Connection, lease: str
) -> None:
    failed = one(db, lease)
    end(db, failed, "RETRYING", steps=[{"ordinal": 1, "name": "s", "status": "FAILED"}])
    assert value(db, "SELECT count(*) FROM opendataflow.step") == 1
    db.execute("SELECT opendataflow.retry_due()")
    good = one(db, lease)
    end(db, good, "DONE")
    assert failed["data_id"] == good["data_id"]
    assert (await clean(store))[0] == 1
    assert runs(db) == [good["run"]]
    assert value(db, "SELECT count(*) FROM opendataflow.step") == 0
    assert problems(db) == []


async def test_the_run_behind_a_version_stays_also_when_a_later_run_has_failed(
    store: Store, db: Connection, lease: str
) -> None:
    apply(db, [dataset("c")], [job("j", ["a"], ["b", "c"], retry_limit=9)])
    first = one(db, lease)
    end(db, first, "DONE")
    ask(db, "publish", "c", "1")
    ask(db, "resubmit", "j", "1")
    second = one(db, lease)
    end(db, second, "FAILED")
    assert (await clean(store))[0] == 1
    assert runs(db) == [second["run"]]


async def test_what_runs_and_what_was_forced_stays(store: Store, db: Connection, lease: str) -> None:
    ask(db, "force", "j", "1")
    forced = one(db, lease)
    end(db, forced, "DONE")
    ask(db, "resubmit", "j", "1")
    again = one(db, lease)
    end(db, again, "DONE")
    running = one(db, lease)
    assert (await clean(store))[0] == 0
    assert runs(db) == [forced["run"], again["run"], running["run"]]
    kept = db.execute("SELECT FROM opendataflow.history WHERE event = 'force' AND kind = 'task'").fetchall()
    assert len(kept) >= 1


async def test_what_is_younger_stays(store: Store, db: Connection, lease: str) -> None:
    for _ in range(2):
        end(db, one(db, lease), "RETRYING")
        db.execute("SELECT opendataflow.retry_due()")
    assert await clean(store, before=datetime.now(UTC) - timedelta(hours=1)) == (0, 0)


async def test_events_go_but_the_last_of_everything_and_those_of_kept_runs_and_who_published(
    store: Store, db: Connection, lease: str
) -> None:
    ask(db, "publish", "a", "1")
    run = one(db, lease)
    end(db, run, "RETRYING")
    db.execute("SELECT opendataflow.retry_due()")
    last = one(db, lease)
    end(db, last, "DONE")
    ask(db, "hold_chunks", "a", "2")
    ask(db, "release_chunks", "a", "2")
    before = int(value(db, "SELECT count(*) FROM opendataflow.history"))

    _, events = await clean(store)

    assert events > 0
    assert int(value(db, "SELECT count(*) FROM opendataflow.history")) == before - events
    left = db.execute("SELECT * FROM opendataflow.history ORDER BY id").fetchall()
    assert {r["run"] for r in left} == {None, last["run"]}
    assert [r["event"] for r in left if (r["owner"], r["data_id"]) == ("a", "1")] == ["apply", "publish"]
    assert [r["event"] for r in left if (r["owner"], r["data_id"]) == ("a", "2")] == ["apply", "release"]
    assert problems(db) == []
    assert (await clean(store)) == (0, 0)


@pytest.mark.parametrize("job_id", ["j", None])
async def test_a_dry_count_has_the_events_of_the_runs_that_would_go(
    store: Store, db: Connection, lease: str, job_id: str | None
) -> None:
    apply(db, [dataset("other")], [job("k", ["a"], ["other"], retry_limit=9)])
    for name in ("j", "k", "j", "k"):
        for run in claim(db, lease, name):
            end(db, run, "RETRYING")
        db.execute("SELECT opendataflow.retry_due()")
    rows = int(value(db, "SELECT count(*) FROM opendataflow.history"))
    counted = await store.clean_events(job_id, LATER, 3, dry_run=True)
    assert int(value(db, "SELECT count(*) FROM opendataflow.history")) == rows
    for name in ("j", "k") if job_id is None else (job_id,):
        await store.clean_runs([run.run for run in await store.old_runs(name, LATER, None, 99) if run.goes])
    assert await store.clean_events(job_id, LATER, 3, dry_run=False) == counted > 0


async def test_the_five_answers_of_a_finished_run_are_the_same_after_cleaning(
    store: Store, db: Connection, lease: str
) -> None:
    end(db, one(db, lease), "RETRYING")
    db.execute("SELECT opendataflow.retry_due()")
    end(db, one(db, lease), "DONE")
    before = await store.inspection("j", "1")
    assert (await clean(store))[0] == 1
    assert await store.inspection("j", "1") == before
