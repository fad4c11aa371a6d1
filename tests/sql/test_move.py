"""Moving all state to another database: everything or nothing, and the old database refuses every later change."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from opendataflow.errors import DataflowError, Refused, SchemaMismatch
from opendataflow.store.connections.connection import TryAgainError, connect, place
from opendataflow.store.migrations.schema import migrate, read_state, require_current
from opendataflow.store.moving import Moved, move
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import apply, ask, claim, dataset, end, job, open_lease, problems, raw, value
from tests.sql.newer import ADDITION, WORKS_FROM, newer_program
from tests.waiting import until

TABLES = """SELECT c.relname AS name FROM pg_class c WHERE c.relnamespace = 'opendataflow'::regnamespace
            AND c.relkind = 'r' AND c.relname NOT IN ('migration', 'installed') ORDER BY 1"""
DAYS = ["2013-01-01", "2013-01-02", "2013-01-03"]


def content(db: Connection) -> dict[str, list[str]]:
    """The rows of all tables, and the next value of each sequence."""
    db.execute("SET timezone = 'UTC'")
    names = [row["name"] for row in db.execute(TABLES)]
    found = {n: [r["t"] for r in db.execute(f"SELECT t::text AS t FROM opendataflow.{n} t ORDER BY 1")] for n in names}
    sequences = (
        "SELECT format('%s %s', sequencename, last_value) AS s FROM pg_sequences WHERE schemaname = 'opendataflow'"
    )
    return {**found, "sequences": sorted(row["s"] for row in db.execute(sequences))}


def fill(db: Connection) -> None:
    """Fill every table that can have rows, with texts of all kinds."""
    load = job("load", ["days"], ["loaded"], env={"colour": "blåu\t\\N\n'ü'"})
    apply(db, [dataset("days", *DAYS), dataset("loaded"), dataset("sums")], [load, job("sum", ["loaded"], ["sums"])])
    lease = open_lease(db)
    first, second, third = claim(db, lease, "load", 3)
    steps = [{"ordinal": 1, "name": "read", "status": "DONE", "rows": 3, "seconds": 0.1}]
    end(db, first, "DONE", metrics={"rows": 3}, steps=steps)
    end(db, second, "FAILED", log_tail="boom\\n\x07")
    end(db, third, "RETRYING")
    ask(db, "hold", "load", DAYS[2])
    db.execute("INSERT INTO opendataflow.request (owner, id, answer) VALUES ('action 1', '1', '{\"a\": [1.50]}')")
    db.execute("INSERT INTO opendataflow.orphan VALUES ('uid', 500, 'load', '2013-01', 'team', 'load-r500-c0ffee')")
    db.execute("INSERT INTO opendataflow.alert VALUES ('command', 'load', 'failed', true, now(), NULL)")
    db.execute("INSERT INTO opendataflow.gate (job, kind, subject, passed) VALUES ('load', 'tests', 's', 'abc')")
    db.execute("SET opendataflow.declaring_batch = 1")
    apply(db, [{"id": "many", "source": {"hash": {"buckets": 2}}}], [])
    raw(db, "UPDATE opendataflow.lease SET expires_at = clock_timestamp() - interval '1 h'")


@pytest.fixture(autouse=True)
def filled(db: Connection) -> None:
    """The old database (`dsn`, `db`) has rows in all tables and no engine."""
    fill(db)


@pytest.fixture
def new(bare_dsn: str) -> Iterator[Connection]:
    """A connection to the new database (`bare_dsn`)."""
    with open_connection(bare_dsn) as connection:
        yield connection


async def moved(source: str, target: str) -> Moved:
    async with await connect(source) as old, await connect(target) as new:
        return await move(old, new, target)


async def refused(source: str, target: str, error: type[DataflowError] = Refused) -> str:
    """The sentence of a move that is refused."""
    with pytest.raises(error) as raised:
        await moved(source, target)
    return str(raised.value)


def has_schema(db: Connection) -> bool:
    return bool(value(db, "SELECT to_regnamespace('opendataflow') IS NOT NULL"))


async def test_every_row_and_every_sequence_is_the_same_in_the_new_database(
    db: Connection, dsn: str, new: Connection, bare_dsn: str
) -> None:
    before = content(db)
    empty = [name for name, rows in before.items() if not rows]
    assert empty == ["breaker", "view_row"] or empty == ["view_row"]
    done = await moved(dsn, bare_dsn)
    assert content(new) == content(db) == before
    assert done.rows == {name: len(rows) for name, rows in before.items() if name != "sequences"}
    assert done.copied
    assert problems(new) == []


async def test_a_move_reports_each_step_and_each_copied_table(dsn: str, bare_dsn: str) -> None:
    lines: list[str] = []
    async with await connect(dsn) as old, await connect(bare_dsn) as new:
        await move(old, new, bare_dsn, report=lines.append)
    assert lines[0] == f"reading all rows of {place(dsn)}"
    assert lines[-1] == f"checking the copy in {place(bare_dsn)}"
    assert {"copied job: 2 rows", "copied run: 3 rows", "copied dataset: 4 rows"} <= set(lines)
    assert not any(line.endswith(": 0 rows") for line in lines)


async def test_a_long_copy_reports_how_far_it_is(dsn: str, bare_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opendataflow.store.moving._SECONDS_BETWEEN_LINES", 0)
    lines: list[str] = []
    async with await connect(dsn) as old, await connect(bare_dsn) as new:
        await move(old, new, bare_dsn, report=lines.append)
    assert f"reading history of {place(dsn)}" in lines
    assert "copying run: 2 of 3 rows" in lines


async def test_work_goes_on_in_the_new_database_with_the_next_run_and_fencing_token(
    db: Connection, dsn: str, new: Connection, bare_dsn: str
) -> None:
    last_run = value(db, "SELECT max(id) FROM opendataflow.run")
    last_fence = value(db, "SELECT last_value FROM opendataflow.fence")
    await moved(dsn, bare_dsn)
    ask(new, "resubmit", "load", DAYS[1])
    (run,) = claim(new, open_lease(new), "load")
    assert (run["data_id"], run["run"]) == (DAYS[1], last_run + 1)
    assert run["fence"] > last_fence
    end(new, run, "DONE")
    assert problems(new) == []
    history = "SELECT count(*) FROM opendataflow.history WHERE event = 'claim' AND run = %s AND kind = 'task'"
    assert value(new, history, run["run"]) == 1


async def test_a_new_database_that_was_migrated_before_is_as_good_as_an_empty_one(
    db: Connection, dsn: str, new: Connection, bare_dsn: str
) -> None:
    async with await connect(bare_dsn) as connection:
        await migrate(connection)
    await moved(dsn, bare_dsn)
    assert content(new) == content(db)


async def test_the_new_database_has_the_views_of_the_old_framework(
    db: Connection, dsn: str, new: Connection, bare_dsn: str
) -> None:
    rows = "SELECT * FROM dataflow.datastatus ORDER BY datasetid, jobid, dataid"
    before = db.execute(rows).fetchall()
    await moved(dsn, bare_dsn)
    assert new.execute(rows).fetchall() == before != []


async def test_tables_of_the_old_framework_in_the_new_database_stay_and_are_named(
    dsn: str, new: Connection, bare_dsn: str
) -> None:
    new.execute("CREATE SCHEMA dataflow CREATE TABLE job (jobid text)")
    (note,) = (await moved(dsn, bare_dsn)).notes
    assert note.startswith("schema dataflow has no views of OpenDataFlow, since there is dataflow.job already")


async def test_an_ordinary_role_may_move_to_a_database_where_it_may_make_a_schema(
    db: Connection, dsn: str, new: Connection, bare_dsn: str
) -> None:
    new.execute("DROP ROLE IF EXISTS mover")
    new.execute("CREATE ROLE mover LOGIN PASSWORD 'sesame'")
    new.execute(f"GRANT CREATE ON DATABASE {new.info.dbname} TO mover")
    await moved(dsn, make_conninfo(bare_dsn, user="mover", password="sesame"))
    assert content(new) == content(db)
    new.execute("DROP OWNED BY mover; DROP ROLE mover")


# The old database afterwards -----------------------------------------------------------------------------------------


async def test_the_old_database_names_the_new_one_without_its_password(
    dsn: str, new: Connection, bare_dsn: str
) -> None:
    await moved(dsn, make_conninfo(bare_dsn, sslmode="prefer"))
    parts = new.info
    address = f"postgresql://{parts.user}@{parts.host}:{parts.port}/{parts.dbname}?sslmode=prefer"
    words = (
        rf"the database \S+ was moved to {address.replace('?', '[?]')} on \d{{4}}-\d\d-\d\d: set DATAFLOW_DSN to that"
    )
    async with await connect(dsn) as connection:
        for refusal in (require_current(connection), migrate(connection)):
            with pytest.raises(SchemaMismatch, match=words):
                await refusal
        assert (await read_state(connection)).moved_to == address
    assert not conninfo_to_dict(address).get("password")


async def test_a_program_that_is_connected_already_can_change_nothing_in_the_old_database(
    db: Connection, dsn: str, bare_dsn: str
) -> None:
    lease = open_lease(db, -1)
    await moved(dsn, bare_dsn)
    before = content(db)
    for statement in (
        f"SELECT opendataflow.renew_lease('{lease}', '1 h')",
        "SELECT opendataflow.open_lease(gen_random_uuid(), 'local', 'host', 'boot', '/runs', '1 h')",
        "SELECT opendataflow.acquire_leadership(gen_random_uuid(), 'host', 'boot', '', '1 h')",
        "SELECT * FROM opendataflow.resubmit('load', ARRAY['2013-01-02'], 'test', NULL)",
        "INSERT INTO dataflow.dataset (datasetid) VALUES ('more')",
    ):
        with pytest.raises(psycopg.Error, match="this database was moved to postgresql://") as raised:
            db.execute(statement)
        assert raised.value.sqlstate == "DF001"
    assert content(db) == before


PAUSE = """
    CREATE FUNCTION pause() RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        WHILE NOT pg_try_advisory_xact_lock_shared(77) LOOP
            PERFORM pg_sleep(0.01);
        END LOOP;
        RETURN true;
    END $$;
    ALTER TABLE opendataflow.step ADD CONSTRAINT paused CHECK (pause());
"""
"""Rows enter the table only while nobody holds the advisory lock 77."""
SLEEPS = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')"
WAITS = """SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                          WHERE d.datname = current_database() AND NOT l.granted)"""


async def wait_for(db: Connection, condition: str, moving: "asyncio.Task[Moved]") -> None:
    """Wait until a query returns true, while the move goes on."""

    def holds() -> bool:
        assert not moving.done(), moving
        return bool(value(db, condition))

    await until(holds, condition)


async def test_who_writes_during_the_move_waits_and_is_then_refused(
    db: Connection, dsn: str, new: Connection, bare_dsn: str
) -> None:
    async with await connect(bare_dsn) as connection:
        await migrate(connection)
    new.execute(PAUSE.encode())
    new.execute("SELECT pg_advisory_lock(77)")
    moving = asyncio.create_task(moved(dsn, bare_dsn))
    await wait_for(new, SLEEPS, moving)
    resubmitting = asyncio.create_task(asyncio.to_thread(ask, db, "resubmit", "load", DAYS[1]))
    with open_connection(dsn) as beside:
        await wait_for(beside, WAITS, moving)
    new.execute("SELECT pg_advisory_unlock(77)")
    await moving
    with pytest.raises(psycopg.Error, match="this database was moved to"):
        await resubmitting
    assert content(new) == content(db)


# Refusals: nothing is changed ----------------------------------------------------------------------------------------


async def test_a_live_engine_prevents_the_move_and_is_named(
    db: Connection, dsn: str, new: Connection, bare_dsn: str
) -> None:
    open_lease(db)
    where = place(dsn)
    assert f"an engine on host works with {where}: end it by Ctrl-C" in await refused(dsn, bare_dsn)
    assert not has_schema(new)


async def test_a_live_operator_prevents_the_move_and_is_named(
    db: Connection, dsn: str, new: Connection, bare_dsn: str
) -> None:
    db.execute("SELECT opendataflow.acquire_leadership(gen_random_uuid(), 'pod-1', 'boot', '', '1 h')")
    error = await refused(dsn, bare_dsn)
    assert error.startswith("the operator pod-1 works with")
    assert "scale its Deployment to 0" in error
    assert not has_schema(new)


async def test_a_run_without_an_engine_prevents_the_move_and_is_named(
    db: Connection, dsn: str, new: Connection, bare_dsn: str
) -> None:
    ask(db, "resubmit", "load", DAYS[1])
    (run,) = claim(db, open_lease(db), "load")
    raw(db, "UPDATE opendataflow.lease SET expires_at = clock_timestamp() - interval '1 h'")
    error = await refused(dsn, bare_dsn)
    assert error.startswith(f"run {run['run']} of load {DAYS[1]} is RUNNING, and its engine on host does not answer")
    assert f"`dataflow lost {run['run']}`" in error
    assert not has_schema(new)


async def test_a_new_database_with_other_state_is_refused_and_stays_as_it_is(
    dsn: str, new: Connection, bare_dsn: str
) -> None:
    async with await connect(bare_dsn) as connection:
        await migrate(connection)
    apply(new, [dataset("theirs", "1")], [])
    before = content(new)
    error = await refused(dsn, bare_dsn)
    assert error.startswith(f"{place(bare_dsn)} has state of OpenDataFlow already (rows: 1 in chunk, 1 in dataset")
    assert content(new) == before
    async with await connect(dsn) as connection:
        await require_current(connection)


async def test_the_same_database_is_refused(dsn: str) -> None:
    assert f"{place(dsn)} is the database that is to be moved: name another one" == await refused(dsn, dsn)


async def test_a_database_that_was_moved_is_neither_source_nor_target_again(
    dsn: str, bare_dsn: str, empty_dsn: str
) -> None:
    await moved(dsn, bare_dsn)
    assert "was moved to" in await refused(dsn, empty_dsn, SchemaMismatch)
    assert "was moved to" in await refused(bare_dsn, dsn, SchemaMismatch)


async def test_a_source_of_a_newer_program_is_refused(dsn: str, bare_dsn: str) -> None:
    with newer_program(ADDITION, WORKS_FROM):
        async with await connect(dsn) as connection:
            await migrate(connection)
    async with await connect(dsn) as connection:
        await migrate(connection)
    assert "has schema 9999, which is newer than this program" in await refused(dsn, bare_dsn)


async def test_a_role_without_rights_in_the_new_database_is_refused(dsn: str, new: Connection, bare_dsn: str) -> None:
    new.execute("DROP ROLE IF EXISTS guest")
    new.execute("CREATE ROLE guest LOGIN PASSWORD 'sesame'")
    error = await refused(dsn, make_conninfo(bare_dsn, user="guest", password="sesame"))
    assert "the user guest may not make or change the schema opendataflow" in error
    assert "sesame" not in error
    new.execute("DROP ROLE guest")


async def test_a_source_that_is_inconsistent_is_not_moved(
    db: Connection, dsn: str, new: Connection, bare_dsn: str
) -> None:
    raw(db, "UPDATE opendataflow.chunk SET readers = 5 WHERE dataset = 'days' AND data_id = %s", DAYS[0])
    error = await refused(dsn, bare_dsn)
    assert error.startswith(f"chunk days/{DAYS[0]} has 5 readers, but 0 running runs read it, and nothing was moved")
    assert not has_schema(new)


async def test_a_transaction_that_writes_to_the_old_database_is_waited_for_only_briefly(
    dsn: str, new: Connection, bare_dsn: str
) -> None:
    with open_connection(dsn) as other, other.transaction():
        other.execute("LOCK TABLE opendataflow.task IN ROW EXCLUSIVE MODE")
        error = await refused(dsn, bare_dsn, TryAgainError)
    assert error.endswith(f"writes to {place(dsn)}, and nothing was moved: end it, or wait for its end, and move again")
    assert not has_schema(new)


# Crashes -------------------------------------------------------------------------------------------------------------


async def test_a_move_that_ends_before_its_mark_is_completed_by_a_repetition(
    db: Connection, dsn: str, new: Connection, bare_dsn: str
) -> None:
    db.execute("ALTER TABLE opendataflow.installed ADD CONSTRAINT no_mark CHECK (moved_to IS NULL)")
    await refused(dsn, bare_dsn, DataflowError)
    assert content(new) == content(db)
    db.execute("ALTER TABLE opendataflow.installed DROP CONSTRAINT no_mark")
    async with await connect(dsn) as connection:
        await require_current(connection)
    assert not (await moved(dsn, bare_dsn)).copied
    assert content(new) == content(db)
    with pytest.raises(psycopg.Error, match="this database was moved to"):
        open_lease(db)


async def test_a_move_that_ends_in_its_middle_leaves_the_new_database_as_it_was(
    db: Connection, dsn: str, new: Connection, bare_dsn: str
) -> None:
    async with await connect(bare_dsn) as connection:
        await migrate(connection)
    before = content(new)
    new.execute("ALTER TABLE opendataflow.step ADD CONSTRAINT full_disk CHECK (false)")
    await refused(dsn, bare_dsn, DataflowError)
    assert {**content(new), "sequences": []} == {**before, "sequences": []}
    ask(db, "resubmit", "load", DAYS[1])
    new.execute("ALTER TABLE opendataflow.step DROP CONSTRAINT full_disk")
    await moved(dsn, bare_dsn)
    assert content(new) == content(db)
    enabled = "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'O'"
    assert value(new, enabled) == 0


async def test_a_copy_that_has_changed_since_a_crash_is_refused_with_the_choice(
    db: Connection, dsn: str, new: Connection, bare_dsn: str
) -> None:
    db.execute("ALTER TABLE opendataflow.installed ADD CONSTRAINT no_mark CHECK (moved_to IS NULL)")
    await refused(dsn, bare_dsn, DataflowError)
    db.execute("ALTER TABLE opendataflow.installed DROP CONSTRAINT no_mark")
    ask(db, "resubmit", "load", DAYS[1])
    before = content(new)
    error = await refused(dsn, bare_dsn)
    assert f"{place(bare_dsn)} is a copy of {place(dsn)}, and one of them has changed since" in error
    assert content(new) == before
