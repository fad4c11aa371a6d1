"""The schema: made anew or migrated it is the same, and the program refuses one that it does not work with."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from opendataflow.errors import SchemaMismatch
from opendataflow.store.connections.connection import connect
from opendataflow.store.migrations import sql_files
from opendataflow.store.migrations.schema import migrate, read_state, require_current
from tests.sql import graph
from tests.sql.conftest import Connection
from tests.sql.newer import ADDITION, NEXT_APPLIED, WORKS_FROM, newer_program

CATALOG = """
    SELECT format('%s.%s %s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
                  pg_get_expr(d.adbin, d.adrelid), a.attidentity) AS line
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'opendataflow'::regnamespace
    UNION ALL SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'opendataflow'::regnamespace
    UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'opendataflow'
    UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'opendataflow'::regnamespace
    UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger
    WHERE NOT tgisinternal AND tgrelid::regclass::text ~ '^(opendataflow|dataflow)[.]'
    UNION ALL SELECT pg_get_viewdef(oid) FROM pg_class
    WHERE relkind = 'v' AND relnamespace::regnamespace::text IN ('opendataflow', 'dataflow')
    UNION ALL SELECT format('%s %s %s', sequencename, increment_by, cache_size) FROM pg_sequences
    WHERE schemaname = 'opendataflow'
    ORDER BY line
"""


async def _catalog(dsn: str) -> list[str]:
    async with await connect(dsn) as connection:
        await migrate(connection)
        return [row["line"] for row in await (await connection.execute(CATALOG)).fetchall()]


async def test_a_migrated_schema_is_the_same_as_a_fresh_one(empty_dsn: str, dsn: str) -> None:
    before = await _catalog(dsn)
    with newer_program(ADDITION, WORKS_FROM):
        migrated, fresh = await _catalog(dsn), await _catalog(empty_dsn)
    assert len(fresh) > 100
    assert migrated == fresh
    assert set(before) < set(migrated)


async def test_migrating_twice_does_nothing_the_second_time(empty_dsn: str) -> None:
    async with await connect(empty_dsn) as connection:
        assert await migrate(connection) == ["tables created", "functions, views and triggers replaced"]
        assert await migrate(connection) == []
        await require_current(connection)


async def test_a_database_without_the_schema_is_refused_with_the_command_that_helps(empty_dsn: str) -> None:
    async with await connect(empty_dsn) as connection:
        with pytest.raises(SchemaMismatch, match="no OpenDataFlow schema yet: run `dataflow db migrate`"):
            await require_current(connection)


async def test_an_older_schema_is_refused_with_the_command_that_helps(dsn: str) -> None:
    with newer_program(ADDITION):
        async with await connect(dsn) as connection:
            with pytest.raises(SchemaMismatch, match="older schema than this program: run `dataflow db migrate`"):
                await require_current(connection)


UNRELEASED = {
    "numbered migrations": """ALTER TABLE opendataflow.migration DROP digest;
        INSERT INTO opendataflow.migration (number, name, works_from) VALUES (2, '0002_daily_work', 2)""",
    "the first of all": "ALTER TABLE opendataflow.migration DROP digest, DROP works_from",
    "an earlier edit of the base": "UPDATE opendataflow.migration SET digest = '0123456789abcdef'",
}


@pytest.mark.parametrize("change", UNRELEASED.values(), ids=UNRELEASED)
async def test_a_database_of_an_unreleased_version_is_refused_with_the_remedy_and_stays_as_it_is(
    dsn: str, change: str
) -> None:
    async with await connect(dsn) as connection:
        await connection.execute(change.encode())
        before = [row["line"] for row in await (await connection.execute(CATALOG)).fetchall()]
        parts = connection.info
        words = (
            rf"the database {parts.host}:{parts.port}/{parts.dbname} was made by an unreleased version of this program "
            r"and can't be migrated: use a new database, or delete all state in it by "
            r"`DROP SCHEMA opendataflow CASCADE`; then run `dataflow db migrate`, or in the operator's image "
            r"`opendataflow migrate`$"
        )
        for refused in (require_current(connection), migrate(connection)):
            with pytest.raises(SchemaMismatch, match=words):
                await refused
        assert [row["line"] for row in await (await connection.execute(CATALOG)).fetchall()] == before
        await connection.execute("DROP SCHEMA opendataflow CASCADE")
        await migrate(connection)
        await require_current(connection)


def test_a_line_of_comment_makes_no_other_base() -> None:
    base = sql_files.migrations()[0]
    commented = replace(base, text=f"-- New words.\n\n{base.text}".replace("\n-- ", "\n-- Other words. "))
    assert commented.digest == base.digest
    assert replace(base, text=base.text.replace("infrastructure_limit", "other")).digest != base.digest


async def test_a_newer_schema_that_this_program_can_not_work_with_is_refused_and_not_migrated(dsn: str) -> None:
    with newer_program("DROP TABLE opendataflow.alert CASCADE;"):
        async with await connect(dsn) as connection:
            assert await migrate(connection) == [NEXT_APPLIED, "functions, views and triggers replaced"]
    async with await connect(dsn) as connection:
        with pytest.raises(SchemaMismatch, match=r"which is newer than this program \(\d+\) can work with: install"):
            await migrate(connection)
        with pytest.raises(SchemaMismatch, match="another one of schema 9999 or newer, or restore a backup"):
            await require_current(connection)


async def test_an_older_program_brings_back_its_functions_on_newer_tables_that_it_can_work_with(dsn: str) -> None:
    with newer_program(ADDITION, WORKS_FROM):
        async with await connect(dsn) as connection:
            assert await migrate(connection) == [NEXT_APPLIED, "functions, views and triggers replaced"]
            assert await connection.execute("SELECT opendataflow.of_the_newer_program()")
    async with await connect(dsn) as connection:
        with pytest.raises(SchemaMismatch, match="functions of another version of this program"):
            await require_current(connection)
        stays = "functions, views and triggers replaced; the tables of schema 9999, which is newer, stay"
        assert await migrate(connection) == [stays]
        await require_current(connection)
        assert await migrate(connection) == []
        with pytest.raises(psycopg.errors.UndefinedFunction):
            await connection.execute("SELECT opendataflow.of_the_newer_program()")
        await connection.execute("SELECT a_new_column FROM opendataflow.run")


async def test_the_newer_program_goes_on_with_its_own_tables_after_the_older_one(dsn: str) -> None:
    with newer_program(ADDITION, WORKS_FROM):
        async with await connect(dsn) as connection:
            await migrate(connection)
    async with await connect(dsn) as connection:
        await migrate(connection)
    with newer_program(ADDITION, WORKS_FROM):
        async with await connect(dsn) as connection:
            assert await migrate(connection) == ["functions, views and triggers replaced"]
            await require_current(connection)


async def test_runs_that_were_claimed_before_both_migrations_complete_after_them(dsn: str, db: Connection) -> None:
    graph.apply(db, [graph.dataset("in", "1", "2"), graph.dataset("out")], [graph.job("load", ["in"], ["out"])])
    lease = graph.open_lease(db)
    (before,) = graph.claim(db, lease, "load")
    with newer_program(ADDITION, WORKS_FROM):
        async with await connect(dsn) as connection:
            await migrate(connection)
    (between,) = graph.claim(db, lease, "load")
    async with await connect(dsn) as connection:
        await migrate(connection)
    for run in (before, between):
        graph.end(db, run, "DONE")
    assert graph.tasks(db) == {"load/1": "DONE", "load/2": "DONE"}
    assert graph.problems(db) == []


async def test_functions_of_an_older_program_are_replaced(dsn: str) -> None:
    async with await connect(dsn) as connection:
        await connection.execute("UPDATE opendataflow.installed SET functions = 'older'")
        with pytest.raises(SchemaMismatch):
            await require_current(connection)
        assert await migrate(connection) == ["functions, views and triggers replaced"]
        assert (await read_state(connection)).current


def test_every_sql_file_is_carried_by_the_program() -> None:
    tracked = Path(__file__).parents[2] / "sql"
    base, *later = sql_files.migrations()
    assert [path.read_text() for path in (tracked / "schema").glob("*.sql")] == [base.text]
    assert {m.name for m in later} == {p.stem for p in (tracked / "migrations").glob("*.sql")}
    assert all(p.read_text() in sql_files.functions_text() for p in (tracked / "functions").glob("*.sql"))


def test_every_sql_file_has_a_number_of_its_own() -> None:
    tracked = Path(__file__).parents[2] / "sql"
    for folder in ("functions", "migrations"):
        numbers = Counter(path.name.split("_")[0] for path in (tracked / folder).glob("*.sql"))
        assert [number for number, files in numbers.items() if files > 1] == []
