"""Reads the tables of an old framework's database, and renames them on request.

Reading never changes that database.
"""

import os

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier

from opendataflow.core.status.legacy_import import OldRows
from opendataflow.errors import InvalidInput, Refused, UnknownThing
from opendataflow.store.connections.connection import Row, connect, place, translated

_COLUMNS: dict[str, tuple[str, ...]] = {
    "job": ("jobid", "itemtype", "datasetid", "itemvalue"),
    "dataset": ("datasetid", "hostname", "database", "schemaname", "tablename", "username", "encryptedpass"),
    "datastatus": ("datasetid", "jobid", "dataid", "locktype", "status", "modified"),
}
SCHEMA = "dataflow"


def has_password(dsn: str) -> bool:
    """Return whether a DSN contains a password. Raise InvalidInput if the text is no DSN."""
    try:
        return "password" in conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:  # the text of this error may quote the password
        raise InvalidInput("DSN is no Postgres address: one looks like postgresql://user@host:5432/database") from None


async def read_old(dsn: str, schema: str) -> OldRows:
    """Read all rows of the three tables in one snapshot. Raise UnknownThing if a table does not exist."""
    async with await connect(dsn) as connection, translated(place(dsn)), connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        await _check(connection, place(dsn), schema)
        return await _read(connection, schema)


async def _read(connection: AsyncConnection[Row], schema: str) -> OldRows:
    """Read all rows of the three tables."""
    found = {}
    for table, columns in _COLUMNS.items():
        names = SQL(", ").join(
            SQL("modified::timestamptz") if column == "modified" else Identifier(column) for column in columns
        )
        query = SQL("SELECT {} FROM {}").format(names, Identifier(schema, table))
        found[table] = tuple(await (await connection.execute(query)).fetchall())
    return OldRows(found["job"], found["dataset"], found["datastatus"])


async def _check(connection: AsyncConnection[Row], where: str, schema: str) -> None:
    query = """SELECT c.relname AS name, array_agg(a.attname::text) AS columns,
                      coalesce(obj_description(c.oid, 'pg_class') LIKE 'OpenDataFlow:%%', false) AS ours
               FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
               WHERE n.nspname = %s AND c.relkind IN ('r', 'v', 'm', 'f', 'p') AND c.relname = ANY (%s)
               GROUP BY c.oid"""
    rows = await (await connection.execute(query, (schema, list(_COLUMNS)))).fetchall()
    found = {row["name"]: row for row in rows}
    for table, columns in _COLUMNS.items():
        if table not in found:
            raise UnknownThing(f"{where} has no table {schema}.{table}: name the schema of the old tables by --schema")
        if found[table]["ours"]:
            raise InvalidInput(
                f"{schema}.{table} of {where} is a view of OpenDataFlow itself: there is nothing to import"
            )
        lacking = [column for column in columns if column not in found[table]["columns"]]
        if lacking:
            raise InvalidInput(f"{schema}.{table} of {where} has no column {lacking[0]}: it is not the old framework's")


async def make_room(connection: AsyncConnection[Row], dsn: str, read: OldRows) -> None:
    """Rename the old tables in the database of a connection to *_old, so that the views can have their names.

    Raise Refused if `dsn` is another database, the tables have changed since they were read, or a new name is taken.
    """
    if not await _is_same(connection, dsn):
        raise Refused(
            f"the tables of {place(dsn)} do not conflict with the views: it is another database than DATAFLOW_DSN's"
        )
    await connection.execute("LOCK TABLE dataflow.job, dataflow.dataset, dataflow.datastatus")
    if await _read(connection, SCHEMA) != read:
        raise Refused("the old tables have changed at this moment: stop what still writes them, and try again")
    for table in _COLUMNS:
        query = SQL("ALTER TABLE dataflow.{} RENAME TO {}")
        try:
            await connection.execute(query.format(Identifier(table), Identifier(f"{table}_old")))
        except psycopg.errors.DuplicateTable:
            raise Refused(f"dataflow.{table} can't be renamed to {table}_old: there is one already") from None


async def _is_same(connection: AsyncConnection[Row], dsn: str) -> bool:
    """Return whether a DSN is the database of a connection: an advisory lock that is taken there is visible here."""
    key = int.from_bytes(os.urandom(4), "big") >> 1
    async with await connect(dsn) as other, translated(place(dsn)):
        await other.execute("SELECT pg_advisory_lock(20134, %s)", (key,))
        query = """SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
                   WHERE l.locktype = 'advisory' AND l.classid = 20134 AND l.objid = %s"""
        return bool(await (await connection.execute(query, (key,))).fetchall())
