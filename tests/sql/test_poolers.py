"""Postgres behind PgBouncer, as companies run it, in the mode that keeps a session and in the one that does not.

Seen at others: prepared statements that another session knows, locks that outlive their owner, and notifications that
never come.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from opendataflow.engine.claim_authority import Leadership
from opendataflow.engine.engine import Engine
from opendataflow.model.records.run import Host
from opendataflow.store.store import Store
from tests.e2e.conftest import Program
from tests.e2e.jobs import squares
from tests.e2e.test_outage import Anything
from tests.e2e.test_outage import Database as LauncherOfNothing
from tests.pooler import pooler
from tests.seen import Seen
from tests.sql.conftest import Connection
from tests.sql.graph import apply, dataset, job, value
from tests.waiting import until

MODES = ("session", "transaction")
CHUNKS = [str(number) for number in range(12)]


@pytest.fixture(params=MODES)
def through(request: pytest.FixtureRequest, dsn: str, open_folder: Path) -> Iterator[str]:
    with pooler(dsn, request.param, open_folder) as address:
        yield address


@pytest.fixture
async def behind(through: str) -> AsyncIterator[Store]:
    store = await Store.open(lambda: through, size=8)
    yield store
    await store.close()


async def test_a_leader_behind_a_pooler_claims_and_commits_everything(db: Connection, behind: Store) -> None:
    chunks = [str(number) for number in range(60)]
    apply(db, [dataset("out", *chunks)], [job("load", [], ["out"], parallelism=8)])
    seen = Seen()
    leadership = Leadership(behind, Host("operator", "1"), lambda _: None)
    engine = Engine(behind, LauncherOfNothing(there=True), leadership, {"load": Anything()}, seen, parallelism=8)
    working = asyncio.create_task(engine.run())
    await until(lambda: working.done() or len(seen.ends) == len(chunks))
    engine.leave()
    await asyncio.wait_for(working, 240)
    assert value(db, "SELECT count(*) FROM opendataflow.task WHERE state = 'DONE'") == len(chunks)
    assert value(db, "SELECT count(*) FROM opendataflow.run") == len(chunks)
    assert seen.notes == []
    assert db.execute("SELECT * FROM opendataflow.verify()").fetchall() == []


@pytest.mark.parametrize("mode", MODES)
def test_commands_work_through_a_pooler_from_the_first_migration_on(
    mode: str, bare_dsn: str, open_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(squares(f"{{list: {json.dumps(CHUNKS)}}}", command='["true"]'))
    with pooler(bare_dsn, mode, open_folder) as through:
        program = Program(tmp_path, through)
        program.run("db", "migrate")
        assert "12 of 12 done" in program.run("local", "-f", str(tmp_path / "job.yaml"), "--until-caught-up")
        program.run("resubmit", "square", "--status", "DONE")
        assert "12 of 12 done" in program.run("local", "-f", str(tmp_path / "job.yaml"), "--until-caught-up")
        program.run("db", "verify")
        assert len(json.loads(program.run("get", "runs", "-o", "json"))) == 24
