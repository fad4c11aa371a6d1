"""The schema of the database: which one it has, and bringing it to the one that this program works with.

Tables change by numbered migrations; functions, views and triggers are replaced as a whole. It never touches rows
of users, and never runs by itself on a database that the user named.
"""

from dataclasses import dataclass

from psycopg import AsyncConnection
from psycopg.errors import InvalidSchemaName, UndefinedTable

from opendataflow.errors import Refused, SchemaMismatch
from opendataflow.store import sql_files
from opendataflow.store.connection import Row

OLDEST_SERVER = 150000
_MIGRATION_LOCK = (20133, 0)


@dataclass(frozen=True)
class SchemaState:
    """`applied`: numbers of the migrations that the database has; `functions`: the digest of its functions."""

    applied: tuple[int, ...]
    functions: str | None

    @property
    def pending(self) -> list[sql_files.Migration]:
        """The migrations that the database lacks."""
        return [m for m in sql_files.migrations() if m.number not in self.applied]

    @property
    def newer(self) -> bool:
        """Whether the database was migrated by a newer program."""
        return max(self.applied, default=0) > max(m.number for m in sql_files.migrations())

    @property
    def current(self) -> bool:
        """Whether this program can work with the database."""
        return not self.pending and not self.newer and self.functions == sql_files.functions_digest()


async def read_state(connection: AsyncConnection[Row]) -> SchemaState:
    """Read which schema the database has; an empty one has none."""
    found = await (await connection.execute("SELECT to_regclass('opendataflow.installed') AS found")).fetchone()
    if found is None or found["found"] is None:
        return SchemaState((), None)
    rows = await (await connection.execute("SELECT number FROM opendataflow.migration ORDER BY number")).fetchall()
    digest = await (await connection.execute("SELECT functions FROM opendataflow.installed")).fetchone()
    return SchemaState(tuple(row["number"] for row in rows), digest["functions"] if digest else None)


async def _usual_state(connection: AsyncConnection[Row]) -> SchemaState:
    """The same in one statement, for a database that has a schema."""
    query = """SELECT i.functions, ARRAY(SELECT m.number FROM opendataflow.migration m ORDER BY 1) AS applied
               FROM opendataflow.installed i"""
    try:
        row = await (await connection.execute(query)).fetchone()
    except (UndefinedTable, InvalidSchemaName):
        return await read_state(connection)
    return SchemaState(tuple(row["applied"]), row["functions"]) if row else await read_state(connection)


async def require_current(connection: AsyncConnection[Row]) -> None:
    """Refuse a database whose schema this program does not work with, naming the command that helps."""
    state = await _usual_state(connection)
    if state.newer:
        raise _newer(state)
    if not state.applied:
        raise SchemaMismatch("the database has no OpenDataFlow schema yet: run `dataflow db migrate`")
    if not state.current:
        raise SchemaMismatch("the database has an older schema than this program: run `dataflow db migrate`")


def _newer(state: SchemaState) -> SchemaMismatch:
    return SchemaMismatch(
        f"the database has schema {max(state.applied)}, which is newer than this program: install the program "
        "that migrated it, or a newer one"
    )


async def migrate(connection: AsyncConnection[Row]) -> list[str]:
    """Bring the database to this program's schema, all in one transaction; return what was done, a line each."""
    if connection.info.server_version < OLDEST_SERVER:
        version = connection.info.server_version // 10000
        raise Refused(f"the server is Postgres {version}; OpenDataFlow needs 15 or newer")
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", _MIGRATION_LOCK)
        state = await read_state(connection)
        if state.newer:
            raise _newer(state)
        done = await _bring_tables(connection, state)
        if done or state.functions != sql_files.functions_digest():
            await _replace_functions(connection)
            done.append("functions, views and triggers replaced")
        if await make_views(connection):
            done = done or ["views of schema dataflow made"]
        elif (sentence := await in_the_way(connection)) is not None:
            done.append(sentence)
    return done


async def make_views(connection: AsyncConnection[Row]) -> bool:
    """Make the views of schema dataflow; False where they are there, or something is in their way."""
    row = await (await connection.execute("SELECT opendataflow.make_views() AS made")).fetchone()
    return row is not None and bool(row["made"])


async def in_the_way(connection: AsyncConnection[Row]) -> str | None:
    """Say in one sentence what keeps the views of schema dataflow from being made, and how to go on."""
    rows = await (await connection.execute("SELECT in_the_way AS name FROM opendataflow.in_the_way()")).fetchall()
    if not rows:
        return None
    found = " and ".join(f"dataflow.{row['name']}" for row in rows)
    is_ = "is" if len(rows) == 1 else "are"
    return (
        f"schema dataflow has no views of OpenDataFlow, since there {is_} {found} already: import the old framework's "
        "tables and put the views in their place by `dataflow import-legacy DSN --take-over`, or rename what is there "
        "and run `dataflow db migrate` again"
    )


async def _bring_tables(connection: AsyncConnection[Row], state: SchemaState) -> list[str]:
    if not state.applied:
        await connection.execute(sql_files.schema_text())
        for migration in sql_files.migrations():
            await _record(connection, migration)
        return ["tables created"]
    for migration in state.pending:
        await connection.execute(migration.text)
        await _record(connection, migration)
    return [f"migration {migration.name} applied" for migration in state.pending]


async def migrate_step_by_step(connection: AsyncConnection[Row]) -> None:
    """Make the schema by applying every migration from the first; what `migrate` does for old databases."""
    async with connection.transaction():
        for migration in sql_files.migrations():
            await connection.execute(migration.text)
            await _record(connection, migration)
        await _replace_functions(connection)
        await make_views(connection)


async def _replace_functions(connection: AsyncConnection[Row]) -> None:
    # Functions call each other in both directions; each one is checked when it is first called, and by the tests.
    await connection.execute("SET LOCAL check_function_bodies = off")
    await connection.execute(sql_files.functions_text())
    await connection.execute(
        "INSERT INTO opendataflow.installed (functions) VALUES (%s) "
        "ON CONFLICT (one_row) DO UPDATE SET functions = excluded.functions, applied_at = now()",
        (sql_files.functions_digest(),),
    )


async def _record(connection: AsyncConnection[Row], migration: sql_files.Migration) -> None:
    await connection.execute(
        "INSERT INTO opendataflow.migration (number, name) VALUES (%s, %s)",
        (migration.number, migration.name),
    )
