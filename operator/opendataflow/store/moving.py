"""Moves all state to another database: copies every table, verifies the copy, then marks the old database as moved.

Both databases have one transaction. Writes to the old one wait until it is marked, and are then refused. If the program
dies between the commit of the copy and the mark, a repetition finds the same rows and only marks.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from graphlib import TopologicalSorter
from time import monotonic
from typing import Any

from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import DeadlockDetected, InsufficientPrivilege, LockNotAvailable
from psycopg.sql import SQL, Composed, Identifier
from psycopg.types.json import Jsonb

from opendataflow.core.databases.postgres_address import to_uri
from opendataflow.core.text.explain import counted
from opendataflow.errors import Refused
from opendataflow.store.connections.blocking import watch_blockers
from opendataflow.store.connections.connection import (
    Row,
    TryAgainError,
    is_same_database,
    one_line,
    place,
    translated,
)
from opendataflow.store.migrations.schema import LOCK_SECONDS, SchemaState, migrate, read_state, require_current

_SETTINGS = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "lock_timeout": f"{LOCK_SECONDS}s",
    "statement_timeout": "0",
    "transaction_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
}
"""Both servers write values as the same text, and neither ends a long copy."""


_SECONDS_BETWEEN_LINES = 3


@dataclass(frozen=True)
class Table:
    """A table that is copied. `refers_to`: the tables whose rows have to exist before."""

    name: str
    columns: Sequence[str]
    refers_to: Sequence[str]


@dataclass(frozen=True)
class Content:
    """The number of rows of a table, and a digest of them that does not depend on their order."""

    rows: int
    digest: str | None


@dataclass(frozen=True)
class Moved:
    """A completed move. `address`: the new address. `rows`: table -> number of rows.

    `copied`: False if an earlier attempt has copied the rows. `notes`: what is left for a person to do.
    """

    address: str
    rows: Mapping[str, int]
    copied: bool
    notes: Sequence[str]


class _Progress:
    """Reports what a move does: each step and each copied table, and within a long one a line every few seconds."""

    def __init__(self, report: Callable[[str], object]) -> None:
        self._report = report
        self._reported_at = monotonic()

    def report(self, sentence: str) -> None:
        self._report(sentence)
        self._reported_at = monotonic()

    def report_at_times(self, sentence: str) -> None:
        """Report if the last line is some seconds old."""
        if monotonic() - self._reported_at >= _SECONDS_BETWEEN_LINES:
            self.report(sentence)


class _Side:
    """One of the two databases. Its methods translate errors, with the address of this database in the message."""

    def __init__(self, connection: AsyncConnection[Row]) -> None:
        self.connection = connection
        self.where = place(connection.info.dsn)

    async def rows(self, query: str | Composed, *values: Any) -> list[Row]:
        async with translated(self.where):
            cursor = await self.connection.execute(query.encode() if isinstance(query, str) else query, values)
            return await cursor.fetchall() if cursor.description else []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin a transaction, with a new snapshot for each statement, as locks require."""
        async with translated(self.where), self.connection.transaction():
            await self.connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            query = "SELECT set_config(name, v.value, true) FROM jsonb_each_text(%s) v JOIN pg_settings ON name = key"
            await self.rows(query, Jsonb(_SETTINGS))
            yield

    async def lock(self) -> None:
        """Lock all tables against writes. Raise TryAgainError with the session that prevents it."""
        async with watch_blockers(self.connection) as blockers:
            try:
                await self.connection.execute("SELECT opendataflow.lock_tables()")
            except (LockNotAvailable, DeadlockDetected) as error:
                raise TryAgainError(
                    f"{blockers()} writes to {self.where}, and nothing was moved: end it, or wait for its end, and "
                    "move again"
                ) from error

    async def contents(self, tables: Sequence[Table], progress: _Progress) -> dict[str, Content]:
        """Read all rows."""
        query = SQL(
            "SELECT count(*) AS rows, sum(('x' || left(md5(r::text), 16))::bit(64)::bigint)::text AS digest "
            "FROM (SELECT {} FROM {}) r"
        )
        found = {}
        for table in tables:
            progress.report_at_times(f"reading {table.name} of {self.where}")
            (row,) = await self.rows(query.format(_columns(table), Identifier("opendataflow", table.name)))
            found[table.name] = Content(row["rows"], row["digest"])
        return found

    async def read_copy(self, table: Table) -> AsyncGenerator[bytes, None]:
        query = SQL("COPY {} ({}) TO STDOUT").format(Identifier("opendataflow", table.name), _columns(table))
        async with translated(self.where), self.connection.cursor() as cursor, cursor.copy(query) as copy:
            async for block in copy:
                yield bytes(block)


def _columns(table: Table) -> Composed:
    return SQL(", ").join(map(Identifier, table.columns))


def is_moved_to(state: SchemaState, dsn: str) -> bool:
    """Return whether a database was moved to the address of a DSN."""
    return state.moved_to is not None and place(state.moved_to) == place(dsn)


def new_address(dsn: str, connection: AsyncConnection[Row]) -> str:
    """Return the address of a connection as a URI, without a password. `dsn`: as the user has given the address."""
    info = connection.info
    found = {"host": info.host, "port": str(info.port), "user": info.user, "dbname": info.dbname}
    given = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
    return to_uri({name: value for name, value in (found | given).items() if not name.endswith("password")})


async def move(
    source: AsyncConnection[Row],
    target: AsyncConnection[Row],
    target_dsn: str,
    note: Callable[[str], object] = lambda _: None,
    report: Callable[[str], object] = lambda _: None,
) -> Moved:
    """Move all state from one database to another.

    `note`: receives one sentence for each wait. `report`: receives lines about the progress.

    Raise Refused if the source is in use, or the target has content. Raise SchemaMismatch if the source was moved
    elsewhere, or one of the schemas does not fit this program. In each case nothing is changed.
    """
    old, new = _Side(source), _Side(target)
    address, progress = new_address(target_dsn, target), _Progress(report)
    if await is_same_database(source, target_dsn):
        raise Refused(f"{new.where} is the database that is to be moved: name another one")
    async with translated(old.where):
        await require_current(source)
        if newer := (await read_state(source)).newer:
            raise Refused(
                f"the database {old.where} has schema {newer[-1]}, which is newer than this program: move it with the "
                "program that migrated it"
            )
    async with old.transaction():
        await old.lock()
        await _require_idle(old)
        tables = [Table(**row) for row in await old.rows("SELECT * FROM opendataflow.movable_tables()")]
        progress.report(f"reading all rows of {old.where}")
        contents = await old.contents(tables, progress)
        copied, notes = await _fill(old, new, tables, contents, note, progress)
        await old.rows("SELECT opendataflow.mark_moved(%s)", address)
    return Moved(address, {name: content.rows for name, content in contents.items()}, copied, notes)


async def _require_idle(old: _Side) -> None:
    """Raise Refused if a process may claim, or a run is active."""
    (found,) = await old.rows("SELECT opendataflow.health() AS health")
    for engine in found["health"]["engines"]:
        if engine["kind"] == "operator":
            raise Refused(
                f"the operator {engine['host']} works with {old.where}: suspend its jobs, wait for their runs, scale "
                "its Deployment to 0, and move again"
            )
        raise Refused(
            f"an engine on {engine['host']} works with {old.where}: end it by Ctrl-C, and move again (a killed one "
            "counts for 20 more seconds)"
        )
    for run in found["health"]["orphans"]:
        raise Refused(
            f"run {run['run']} of {run['job']} {run['data_id']} is RUNNING, and its engine on {run['host']} does not "
            f"answer: start an engine there, which takes the run over, or run `dataflow lost {run['run']}` if that "
            "machine is gone; then move again"
        )


async def _fill(
    old: _Side,
    new: _Side,
    tables: Sequence[Table],
    contents: Mapping[str, Content],
    note: Callable[[str], object],
    progress: _Progress,
) -> tuple[bool, list[str]]:
    """Copy all rows in one transaction, unless they are there. Return whether they were copied, and remarks."""
    async with new.transaction():
        done = await migrate(new.connection, note=note)
        await new.lock()
        found = await new.contents(tables, progress)
        copied = found != contents
        if copied:
            await _require_empty(old, new, found)
            await _copy(old, new, tables, contents, progress)
            progress.report(f"checking the copy in {new.where}")
            found = await new.contents(tables, progress)
        values = await old.rows("SELECT * FROM opendataflow.sequence_values()")
        await new.rows("SELECT opendataflow.raise_sequences(%s)", Jsonb(values))
        await _require_equal(new, contents, found)
    return copied, [line for line in done if line.startswith("schema dataflow")]


async def _require_empty(old: _Side, new: _Side, found: Mapping[str, Content]) -> None:
    filled = [f"{content.rows} in {name}" for name, content in found.items() if content.rows and name != "leader"]
    if not filled:
        return
    identity = "SELECT opendataflow.leader_identity() AS identity"
    if await old.rows(identity) == await new.rows(identity):
        raise Refused(
            f"{new.where} is a copy of {old.where}, and one of them has changed since: if nothing was done in the "
            "copy, delete it by `DROP SCHEMA opendataflow CASCADE` there, and move again"
        )
    raise Refused(
        f"{new.where} has state of OpenDataFlow already (rows: {', '.join(filled[:3])}): name a database without it"
    )


async def _copy(
    old: _Side, new: _Side, tables: Sequence[Table], contents: Mapping[str, Content], progress: _Progress
) -> None:
    """Copy all tables, those that others refer to first."""
    by_name = {table.name: table for table in tables}
    order = TopologicalSorter({table.name: table.refers_to for table in tables}).static_order()
    async with _without_triggers(new):
        await new.rows("DELETE FROM opendataflow.leader")
        for table in map(by_name.__getitem__, order):
            total, copied = counted(contents[table.name].rows, "row"), 0
            query = SQL("COPY {} ({}) FROM STDIN").format(Identifier("opendataflow", table.name), _columns(table))
            async with (
                translated(new.where),
                aclosing(old.read_copy(table)) as blocks,
                new.connection.cursor() as cursor,
                cursor.copy(query) as copy,
            ):
                async for block in blocks:
                    await copy.write(block)
                    copied += block.count(b"\n")
                    progress.report_at_times(f"copying {table.name}: {copied} of {total}")
            if contents[table.name].rows:
                progress.report(f"copied {table.name}: {total}")


@asynccontextmanager
async def _without_triggers(new: _Side) -> AsyncIterator[None]:
    """Disable triggers, as the owner of the tables. `session_replication_role` would require a superuser."""
    try:
        await new.connection.execute("SELECT opendataflow.set_triggers(false)")
    except InsufficientPrivilege as error:
        raise Refused(
            f"the user {new.connection.info.user} does not own the tables of {new.where} ({one_line(error)}): move as "
            "the role that made them"
        ) from error
    yield
    await new.rows("SELECT opendataflow.set_triggers(true)")


async def _require_equal(new: _Side, contents: Mapping[str, Content], found: Mapping[str, Content]) -> None:
    """Compare the copy with its original, and check all invariants in it."""
    for name, content in contents.items():
        if found[name] != content:
            raise Refused(
                f"the copy of {name} differs ({found[name].rows} of {content.rows} rows), and nothing was moved: move "
                "again, and report this if it repeats"
            )
    if problems := await new.rows("SELECT * FROM opendataflow.verify()"):
        raise Refused(
            f"{problems[0]['verify']}, and nothing was moved: `dataflow db verify` shows all {len(problems)} problems"
        )
