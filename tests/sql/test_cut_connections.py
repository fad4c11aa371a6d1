"""The connection to Postgres is cut at every statement that comes: the program asks again, and nothing is done twice.

The statements are found by themselves, so that no new one can be forgotten. For the whole operator see
tests/kube/test_postgres_faults.py.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from opendataflow.control import migration
from opendataflow.control.migration import migrate_database
from opendataflow.engine import limits
from opendataflow.engine.claim_authority import Leadership, LocalClaimAuthority
from opendataflow.engine.engine import Engine
from opendataflow.model.records.run import Host
from opendataflow.names import TaskState
from opendataflow.settings import Settings
from opendataflow.store.store import Store
from tests.e2e.conftest import Program
from tests.e2e.jobs import squares
from tests.e2e.test_outage import Anything
from tests.e2e.test_outage import Database as LauncherOfNothing
from tests.kube.postgres import Cut, PostgresProxy, postgres_proxy
from tests.seen import Seen
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import apply, dataset, job, value
from tests.waiting import until

FUNCTION = re.compile(r"opendataflow\.(\w+)\(")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("RENEW_SECONDS", "RECONNECT_SECONDS", "POLL_SECONDS", "TAKEOVER_SECONDS"):
        monkeypatch.setattr(limits, pause, 0.02)
    monkeypatch.setattr(migration, "PAUSE_SECONDS", 0.0)


@pytest.fixture
def proxy(dsn: str) -> Iterator[PostgresProxy]:
    with postgres_proxy(dsn) as made:
        yield made


@pytest.fixture
async def behind(proxy: PostgresProxy) -> AsyncIterator[Store]:
    """A store that comes to Postgres through the proxy."""
    store = await Store.open(lambda: proxy.through)
    yield store
    await store.close()


async def test_an_engine_that_leads_is_cut_at_every_statement_and_loses_nothing(
    db: Connection, proxy: PostgresProxy, behind: Store
) -> None:
    apply(db, [dataset("out", "1", "2", "3", "4")], [job("load", [], ["out"], parallelism=2)])
    cuts, seen = proxy.cut_all(), Seen()
    leadership = Leadership(behind, Host("operator", "1"), lambda _: None)
    engine = Engine(behind, LauncherOfNothing(there=True), leadership, {"load": Anything()}, seen, parallelism=4)
    working = asyncio.create_task(engine.run())

    await until(lambda: working.done() or (len(seen.ends) == 4 and not cuts.left))
    engine.leave()
    await asyncio.wait_for(working, 240)
    assert value(db, "SELECT count(*) FROM opendataflow.task WHERE state = 'DONE'") == 4
    assert value(db, "SELECT count(*) FROM opendataflow.run") == 4
    assert db.execute("SELECT * FROM opendataflow.verify()").fetchall() == []


async def test_a_local_engine_is_cut_at_every_statement_up_to_its_last_one_and_loses_nothing(
    db: Connection, proxy: PostgresProxy, behind: Store
) -> None:
    apply(db, [dataset("out", "1", "2", "3", "4")], [job("load", [], ["out"], parallelism=2)])
    seen, launcher = Seen(), LauncherOfNothing(there=True)
    authority = LocalClaimAuthority(behind, launcher, seen.note)
    engine = Engine(behind, launcher, authority, {"load": Anything()}, seen, parallelism=4)
    working = asyncio.create_task(engine.run())

    await until(lambda: working.done() or authority.holds())
    cuts = proxy.cut_all()
    await until(lambda: working.done() or (len(seen.ends) == 4 and not cuts.left))
    engine.drain()
    [progress] = await asyncio.wait_for(working, 240)
    assert progress.counts == {TaskState.DONE: 4}
    assert not cuts.left
    assert {"progress", "close_lease"} <= {name for statement in cuts.met for name in FUNCTION.findall(statement)}
    assert value(db, "SELECT count(*) FROM opendataflow.lease") == 0
    assert value(db, "SELECT count(*) FROM opendataflow.run") == 4
    assert db.execute("SELECT * FROM opendataflow.verify()").fetchall() == []


@pytest.mark.parametrize("last", ["close_lease", "job_status"])
def test_a_command_that_has_caught_up_asks_its_last_questions_again(
    proxy: PostgresProxy, tmp_path: Path, last: str
) -> None:
    (tmp_path / "job.yaml").write_text(squares('{list: ["1"]}', command='["true"]'))
    loss = proxy.lose(rf"opendataflow\.{last}\(", times=3)
    output = Program(tmp_path, proxy.through).run("local", "-f", str(tmp_path / "job.yaml"), "--until-caught-up")
    assert loss.met == 3
    assert "does not answer" in output
    assert "1 of 1 done" in output


async def test_an_engine_whose_first_questions_are_never_answered_ends_when_it_is_stopped(
    proxy: PostgresProxy, behind: Store
) -> None:
    loss = proxy.lose(r"opendataflow\.job_facts\(", times=10**9)
    leadership = Leadership(behind, Host("operator", "1"), lambda _: None)
    engine = Engine(behind, LauncherOfNothing(there=True), leadership, {}, Seen(), parallelism=1)
    working = asyncio.create_task(engine.run())
    await until(lambda: loss.met > 2)
    assert not working.done()
    engine.leave()
    await asyncio.wait_for(working, 240)


async def test_a_migration_is_cut_at_every_statement_and_is_done_once(bare_dsn: str, tmp_path: Path) -> None:
    with postgres_proxy(bare_dsn) as proxy:
        cuts = proxy.cut_all(Cut.REPLY_LOST)  # it is one transaction: all other cuts are as one before its commit
        await migrate_database(Settings(home=tmp_path, dsn=proxy.through), wait=240)
    assert not cuts.left
    with open_connection(bare_dsn) as db:
        assert db.execute("SELECT * FROM opendataflow.verify()").fetchall() == []
