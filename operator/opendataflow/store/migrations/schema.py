"""Reads the schema of a database and migrates it to the schema of this program.

The base creates the tables, and numbered migrations change them. Functions, views and triggers belong to the program
and are replaced as a whole. An older program can therefore use newer tables, if their migrations allow it.
It then installs its own functions again. This module never changes rows of users.
It never runs without a command on a database that the user named.
"""

import asyncio
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from psycopg import AsyncConnection
from psycopg.errors import (
    DeadlockDetected,
    InsufficientPrivilege,
    InvalidSchemaName,
    LockNotAvailable,
    UndefinedTable,
)

from opendataflow.errors import Refused, SchemaMismatch
from opendataflow.store.connections.blocking import watch_blockers
from opendataflow.store.connections.connection import Row, TryAgainError, one_line, place, require_utf8, translated
from opendataflow.store.migrations import sql_files

OLDEST_SERVER = 150000
LOCK_SECONDS = 3
"""How long a migration waits for a lock. Later queries of the same table wait behind the migration."""
PAUSE_SECONDS = 5.0
"""The pause between two attempts, in which other sessions can continue."""
RETRY_SECONDS = 60.0
"""How long a migration retries if another session holds a lock."""
_REMEDY = "run `dataflow db migrate`, or in the operator's image `opendataflow migrate`"
_MIGRATION_LOCK = (20133, 0)

_STATE = """
    SELECT (SELECT coalesce(jsonb_agg(to_jsonb(m) ORDER BY m.number), '[]') FROM opendataflow.migration m) AS applied,
           (SELECT to_jsonb(i) FROM opendataflow.installed i) AS installed"""
"""Reads whole rows, because the tables of an unreleased schema may lack a column."""


@dataclass(frozen=True)
class SchemaState:
    """The schema of one database.

    `applied`: the applied migrations, number -> digest. `functions`: the digest of the installed functions.
    A digest is None if an unreleased schema has no digest.
    `works_from`: the number of the oldest program that can use the tables. `moved_to`: the address of the database that
    has replaced this one, without a password. `moved_on`: the day of that move.
    """

    applied: Mapping[int, str | None]
    functions: str | None
    works_from: int = 0
    moved_to: str | None = None
    moved_on: str = ""

    @property
    def unreleased(self) -> bool:
        """Whether an unreleased version created the tables: a digest differs from this program's file."""
        return any(self.applied.get(m.number, m.digest) != m.digest for m in sql_files.migrations())

    @property
    def pending(self) -> list[sql_files.Migration]:
        """The migrations of this program that are not applied yet."""
        return [m for m in sql_files.migrations() if m.number not in self.applied]

    @property
    def too_new(self) -> bool:
        """Whether a newer program changed the tables in a way that this program can't use."""
        return self.works_from > sql_files.newest()

    @property
    def newer(self) -> list[int]:
        """The numbers of applied migrations that this program does not know."""
        return [number for number in self.applied if number > sql_files.newest()]

    @property
    def current(self) -> bool:
        """Whether this program can use the database without a migration."""
        tables = not self.unreleased and not self.pending and not self.too_new
        return tables and self.functions == sql_files.functions_digest()


async def read_state(connection: AsyncConnection[Row]) -> SchemaState:
    """Read the schema of the database. An empty database has no migrations."""
    found = await (await connection.execute("SELECT to_regclass('opendataflow.installed') AS found")).fetchone()
    if found is None or found["found"] is None:
        return SchemaState({}, None)
    row = await (await connection.execute(_STATE)).fetchone()
    assert row is not None
    return _state(row)


def _state(row: Row) -> SchemaState:
    applied = {migration["number"]: migration.get("digest") for migration in row["applied"]}
    works_from = max((migration.get("works_from", 0) for migration in row["applied"]), default=0)
    installed = row["installed"] or {}
    moved_on = (installed.get("moved_at") or "")[:10]
    return SchemaState(applied, installed.get("functions"), works_from, installed.get("moved_to"), moved_on)


async def _read_existing(connection: AsyncConnection[Row]) -> SchemaState:
    """Read the schema with one statement, if there is a schema."""
    try:
        row = await (await connection.execute(_STATE)).fetchone()
    except (UndefinedTable, InvalidSchemaName):
        return await read_state(connection)
    assert row is not None
    return _state(row)


async def require_current(connection: AsyncConnection[Row]) -> None:
    """Raise SchemaMismatch if this program can't use the schema. The message names the command that fixes it."""
    require_utf8(connection)
    state = await _read_existing(connection)
    if state.moved_to is not None:
        raise moved(place(connection.info.dsn), state)
    if state.current:
        return
    if state.unreleased:
        raise unreleased(place(connection.info.dsn))
    if state.too_new:
        raise _too_new(state)
    if not state.applied:
        raise SchemaMismatch(f"the database has no OpenDataFlow schema yet: {_REMEDY}")
    if state.pending:
        raise SchemaMismatch(f"the database has an older schema than this program: {_REMEDY}")
    raise SchemaMismatch(
        "the database has the functions of another version of this program; with the version that is to work with it "
        f"{_REMEDY}"
    )


def moved(where: str, state: SchemaState) -> SchemaMismatch:
    """Return the error for a database that was moved to another address. `where`: the old address."""
    return SchemaMismatch(
        f"the database {where} was moved to {state.moved_to} on {state.moved_on}: set DATAFLOW_DSN to that address, or "
        "url and user in dataflow.properties"
    )


def unreleased(where: str, folders: Sequence[Path] = ()) -> SchemaMismatch:
    """Return the error for a database that an unreleased version created.

    `where`: the address of the database. `folders`: the folders of an embedded database, see `migrate`.
    """
    name = f"the embedded database in {folders[0]}" if folders else f"the database {where}"
    return SchemaMismatch(
        f"{name} was made by an unreleased version of this program and can't be migrated: {new_database(folders)}"
    )


def new_database(folders: Sequence[Path] = ()) -> str:
    """Return the remedy for a database that an unreleased version created."""
    if folders:
        return f"end what uses it and delete all of it by `rm -rf {shlex.join(str(folder) for folder in folders)}`"
    return f"use a new database, or delete all state in it by `DROP SCHEMA opendataflow CASCADE`; then {_REMEDY}"


def _too_new(state: SchemaState) -> SchemaMismatch:
    return SchemaMismatch(
        f"the database has schema {max(state.applied)}, which is newer than this program ({sql_files.newest()}) can "
        f"work with: install the program that migrated it or another one of schema {state.works_from} or newer, or "
        "restore a backup of the time before"
    )


async def migrate(
    connection: AsyncConnection[Row],
    retry_seconds: float = RETRY_SECONDS,
    note: Callable[[str], object] = lambda _: None,
    folders: Sequence[Path] = (),
) -> list[str]:
    """Migrate the database to this program's schema in one transaction, and return one line for each change.

    Newer tables stay unchanged if this program can use them. If another session holds a required lock, the migration
    retries for `retry_seconds` and passes the name of that session to `note`.
    `folders`: the folders of an embedded database, which a user deletes to start with an empty database.
    Raises SchemaMismatch if the schema is too new or unreleased, TryAgainError after that time, and Refused if the
    role lacks a privilege or the server is too old.
    """
    async with translated(place(connection.info.dsn)):
        try:
            return await _migrate_with_retries(connection, retry_seconds, note, folders)
        except InsufficientPrivilege as error:
            user, database = connection.info.user, connection.info.dbname
            raise Refused(
                f"the user {user} may not make or change the schema opendataflow ({one_line(error)}): migrate as the "
                f"role that owns it, or for a new one `GRANT CREATE ON DATABASE {database} TO {user}`"
            ) from error


async def _migrate_with_retries(
    connection: AsyncConnection[Row], retry_seconds: float, note: Callable[[str], object], folders: Sequence[Path]
) -> list[str]:
    deadline = time.monotonic() + retry_seconds
    while True:
        async with watch_blockers(connection) as blockers:
            try:
                return await _migrate(connection, folders)
            except (LockNotAvailable, DeadlockDetected) as error:
                message = f"{blockers()} holds what the change of the schema needs, and nothing was changed"
                if time.monotonic() >= deadline:
                    remedy = "wait for its end, or end it, and migrate again"
                    raise TryAgainError(f"{message}: {remedy}") from error
        note(message)
        await asyncio.sleep(PAUSE_SECONDS)


async def _migrate(connection: AsyncConnection[Row], folders: Sequence[Path]) -> list[str]:
    if connection.info.server_version < OLDEST_SERVER:
        version = connection.info.server_version // 10000
        raise Refused(f"the server is Postgres {version}; OpenDataFlow needs 15 or newer")
    require_utf8(connection)
    async with connection.transaction():
        await connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{LOCK_SECONDS}s",))
        await connection.execute("SELECT pg_advisory_xact_lock(%s, %s)", _MIGRATION_LOCK)
        state = await read_state(connection)
        if state.moved_to is not None:
            raise moved(place(connection.info.dsn), state)
        if state.unreleased:
            raise unreleased(place(connection.info.dsn), folders)
        if state.too_new:
            raise _too_new(state)
        done = await _migrate_tables(connection, state)
        if done or state.functions != sql_files.functions_digest():
            await _replace_functions(connection)
            kept = f"; the tables of schema {max(state.newer)}, which is newer, stay" if state.newer else ""
            done.append(f"functions, views and triggers replaced{kept}")
        if await make_views(connection):
            done = done or ["views of schema dataflow made"]
        elif (conflict := await view_conflict(connection)) is not None:
            done.append(conflict)
    return done


async def make_views(connection: AsyncConnection[Row]) -> bool:
    """Create the views of schema dataflow. Return False if they exist or if a relation conflicts."""
    row = await (await connection.execute("SELECT opendataflow.make_views() AS made")).fetchone()
    return row is not None and bool(row["made"])


async def view_conflict(connection: AsyncConnection[Row]) -> str | None:
    """Return one sentence about the relations that prevent the views of schema dataflow, with the remedy, or None."""
    rows = await (
        await connection.execute("SELECT conflicting_relations AS name FROM opendataflow.conflicting_relations()")
    ).fetchall()
    if not rows:
        return None
    found = " and ".join(f"dataflow.{row['name']}" for row in rows)
    is_ = "is" if len(rows) == 1 else "are"
    return (
        f"schema dataflow has no views of OpenDataFlow, since there {is_} {found} already: import the old framework's "
        "tables and put the views in their place by `dataflow import-legacy DSN --take-over`, or rename what is there "
        "and run `dataflow db migrate` again"
    )


async def _migrate_tables(connection: AsyncConnection[Row], state: SchemaState) -> list[str]:
    for migration in state.pending:
        await connection.execute(migration.text)
    for migration in state.pending:  # after all of them: a migration may change this table
        await connection.execute(
            "INSERT INTO opendataflow.migration (number, name, works_from, digest) VALUES (%s, %s, %s, %s)",
            (migration.number, migration.name, migration.works_from, migration.digest),
        )
    return [
        "tables created" if migration.number == sql_files.BASE else f"migration {migration.name} applied"
        for migration in state.pending
    ]


async def _replace_functions(connection: AsyncConnection[Row]) -> None:
    # Functions call each other in both directions. The first call and the tests check each function.
    await connection.execute("SET LOCAL check_function_bodies = off")
    await connection.execute(sql_files.functions_text())
    await connection.execute(
        "INSERT INTO opendataflow.installed (functions) VALUES (%s) "
        "ON CONFLICT (one_row) DO UPDATE SET functions = excluded.functions, applied_at = now()",
        (sql_files.functions_digest(),),
    )
