"""Jobs of one operator: none takes the slots of another namespace, and none stops the others with a failure."""

import asyncio
from collections import Counter

import pytest

from opendataflow.engine import limits
from opendataflow.engine.claim_authority import Leadership, LocalClaimAuthority
from opendataflow.engine.engine import Engine
from opendataflow.errors import DataflowError
from opendataflow.model.records.run import Ended, Host, RunOrder
from opendataflow.store.store import Store
from tests.e2e.test_outage import Anything
from tests.e2e.test_outage import Database as LauncherOfNothing
from tests.seen import Seen
from tests.sql.conftest import Connection
from tests.sql.graph import apply, dataset, job, value
from tests.waiting import until


class LauncherOfTheEndless(LauncherOfNothing):
    """Its runs end when a test ends them."""

    async def start(self, order: RunOrder) -> None:
        """Start nothing."""


async def test_a_namespace_takes_no_slots_of_others_with_its_priorities(db: Connection, store: Store) -> None:
    ids = [str(number) for number in range(9)]
    priorities = {"greedy/a": 1000, "greedy/b": 1000, "other/c": -1000}
    jobs = [job(j, [], [f"{j}-out"], owner=j, priority=priority) for j, priority in priorities.items()]
    apply(db, [dataset(f"{j}-out", *ids) for j in priorities], jobs)
    launcher, seen = LauncherOfTheEndless(there=True), Seen()
    leadership = Leadership(store, Host("operator", "1"), lambda _: None)
    makers = dict.fromkeys(priorities, Anything())
    engine = Engine(store, launcher, leadership, makers, seen, parallelism=50, namespace_parallelism=4)
    working = asyncio.create_task(engine.run())
    await until(lambda: working.done() or len(seen.claims) == 8)
    launcher.ends.put_nowait(Ended(next(run.run for run in seen.claims if run.job == "greedy/a"), exit_code=0))
    await until(lambda: working.done() or len(seen.claims) == 9)
    engine.leave()
    await asyncio.wait_for(working, 240)
    assert Counter(run.runs_home for run in seen.claims) == {"greedy": 5, "other": 4}


def two_jobs_one_of_which_cannot_be_claimed(db: Connection) -> None:
    apply(db, [dataset("a", "1"), dataset("b", "1")], [job("good", [], ["a"]), job("bad", [], ["b"])])
    db.execute("ALTER TABLE opendataflow.run ADD CONSTRAINT refused CHECK (job <> 'bad')")


async def test_a_claim_that_postgres_refuses_stops_only_its_job(
    db: Connection, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CLAIM_REFUSED_SECONDS", 0.1)
    two_jobs_one_of_which_cannot_be_claimed(db)
    seen = Seen()
    leadership = Leadership(store, Host("operator", "1"), lambda _: None)
    makers = dict.fromkeys(("good", "bad"), Anything())
    engine = Engine(store, LauncherOfNothing(there=True), leadership, makers, seen, parallelism=4)
    working = asyncio.create_task(engine.run())
    await until(lambda: working.done() or (len(seen.ends) == 1 and len(seen.notes) > 1))
    assert "job bad: Postgres refused a statement (23514)" in seen.notes[0]
    db.execute("ALTER TABLE opendataflow.run DROP CONSTRAINT refused")
    await until(lambda: working.done() or len(seen.ends) == 2)
    engine.leave()
    await asyncio.wait_for(working, 240)
    assert value(db, "SELECT count(*) FROM opendataflow.task WHERE state = 'DONE'") == 2


async def test_an_outcome_that_postgres_refuses_stops_no_other_run_and_is_committed_later(
    db: Connection, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OUTCOME_REFUSED_SECONDS", 0.1)
    apply(db, [dataset("a", *"1234"), dataset("b", "1")], [job("good", [], ["a"]), job("bad", [], ["b"])])
    db.execute("ALTER TABLE opendataflow.run ADD CONSTRAINT refused CHECK (job <> 'bad' OR state <> 'SUCCEEDED')")
    seen, launcher = Seen(), LauncherOfTheEndless(there=True)
    leadership = Leadership(store, Host("operator", "1"), lambda _: None)
    engine = Engine(store, launcher, leadership, dict.fromkeys(("good", "bad"), Anything()), seen, parallelism=9)
    working = asyncio.create_task(engine.run())
    await until(lambda: working.done() or len(seen.claims) == 5)
    for run in seen.claims:
        launcher.ends.put_nowait(Ended(run.run, exit_code=0))
    await until(lambda: working.done() or (len(seen.ends) == 4 and len(seen.notes) > 1))
    assert all("of job bad: Postgres refused a statement (23514)" in note for note in seen.notes)
    assert value(db, "SELECT count(*) FROM opendataflow.task WHERE state = 'DONE'") == 4
    db.execute("ALTER TABLE opendataflow.run DROP CONSTRAINT refused")
    await until(lambda: working.done() or len(seen.ends) == 5)
    engine.leave()
    await asyncio.wait_for(working, 240)
    assert value(db, "SELECT count(*) FROM opendataflow.task WHERE state = 'DONE'") == 5


async def test_a_local_engine_ends_with_a_claim_that_postgres_refuses(db: Connection, store: Store) -> None:
    two_jobs_one_of_which_cannot_be_claimed(db)
    seen, launcher = Seen(), LauncherOfNothing(there=True)
    authority = LocalClaimAuthority(store, launcher, seen.note)
    engine = Engine(store, launcher, authority, {"bad": Anything()}, seen, parallelism=4)
    with pytest.raises(DataflowError, match="23514"):
        await engine.run()
