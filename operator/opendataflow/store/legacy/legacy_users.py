"""Runs SQL of the old framework's users on the views, and imports the old database."""

from collections.abc import Sequence

import psycopg
from psycopg import AsyncConnection, AsyncCursor
from psycopg.errors import ReadOnlySqlTransaction
from psycopg.types.json import Jsonb

from opendataflow.core.status.legacy_import import OldChunk, OldRows, OldState
from opendataflow.errors import InvalidInput, Refused
from opendataflow.store.connections.connection import Row, one_line
from opendataflow.store.legacy import legacy_tables
from opendataflow.store.migrations import schema
from opendataflow.store.store import Store


async def read_sql(store: Store, query: str) -> tuple[list[str], list[Row]]:
    """Run one read-only statement and return its columns and rows. Names without a schema mean the views first."""

    async def attempt(connection: AsyncConnection[Row]) -> tuple[list[str], list[Row]]:
        await connection.execute("SET TRANSACTION READ ONLY")
        cursor = await _users_statement(connection, query, None)
        columns = [column.name for column in cursor.description or ()]
        duplicates = [name for name in columns if columns.count(name) > 1]
        if duplicates:
            raise InvalidInput(f"two columns of the query are named {duplicates[0]}: name them by AS")
        return columns, await cursor.fetchall() if columns else []

    return await store.transaction(attempt)


async def write_sql(
    store: Store, statements: Sequence[str], actor: str, values: Sequence[object] | None = None
) -> list[int]:
    """Run changing statements in one transaction. Return the number of changed rows for each.

    Raise InvalidInput for other statements.
    """

    async def attempt(connection: AsyncConnection[Row]) -> list[int]:
        if (sentence := await schema.view_conflict(connection)) is not None:
            raise Refused(sentence)
        await connection.execute("SELECT set_config('opendataflow.writer', %s, true)", (actor,))
        counts = []
        for statement in statements:
            # Check before the statement, because COMMIT would end the transaction. Check again after it, because a
            # statement that begins with WITH can be any statement.
            _require_change(statement, "WITH")
            cursor = await _users_statement(connection, statement, values)
            _require_change(cursor.statusmessage or "nothing")
            counts.append(cursor.rowcount)
        return counts

    return await store.transaction(attempt)


async def _users_statement(
    connection: AsyncConnection[Row], statement: str, values: Sequence[object] | None
) -> AsyncCursor[Row]:
    await connection.execute("SELECT set_config('search_path', 'dataflow, ' || current_setting('search_path'), true)")
    try:
        async with connection.pipeline():  # its protocol takes no several statements in one text
            return await connection.execute(statement, values)
    except ReadOnlySqlTransaction as error:
        raise InvalidInput("this statement would change something: use `dataflow dml`") from error
    except psycopg.Error as error:
        if (error.sqlstate or "")[:2] not in ("0A", "22", "42"):
            raise
        message = error.diag.message_primary or one_line(error)
        raise InvalidInput(f"Postgres does not take the statement: {message}") from error


async def import_old(
    store: Store,
    state: OldState,
    chunks: Sequence[OldChunk],
    actor: str,
    replacing: tuple[str, OldRows] | None = None,
    *,
    dry_run: bool = False,
) -> Row:
    """Import the contents of an old database in one transaction. Return the counts and the conflicts.

    `replacing`: the DSN and the rows that were read there, if the views replace the old tables. Raise Refused if it is
    not this database.
    """
    query = "SELECT opendataflow.import_old(%s, %s, %s, %s, %s, %s, %s::timestamptz[], %s) AS counts"
    datasets = [{"id": name, "columns": columns} for name, columns in state.datasets]
    columns = [[getattr(c, name) for c in chunks] for name in ("dataset", "data_id", "status", "maker", "modified")]

    async def attempt(connection: AsyncConnection[Row]) -> Row:
        if replacing is not None:
            await legacy_tables.make_room(connection, *replacing)
        values = (Jsonb(datasets), Jsonb(list(state.jobs)), *columns, actor)
        row = await (await connection.execute(query, values)).fetchone()
        assert row is not None
        if replacing is not None:
            await schema.make_views(connection)
        return dict(row["counts"])

    return await store.transaction(attempt, lambda _: dry_run)


def _require_change(statement: str, *others: str) -> None:
    word = statement.split(None, 1)[0].upper() if statement.strip() else "nothing"
    if word not in ("INSERT", "UPDATE", "DELETE", "MERGE", *others):
        raise InvalidInput(f"only INSERT, UPDATE, DELETE and MERGE are done here, not {word}; nothing was changed")
