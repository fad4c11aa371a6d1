"""Reads the tables of an old framework's database, and renames them on request.

Reading never changes that database.
"""

import psycopg
from psycopg import AsyncConnection
from psycopg.sql import SQL, Identifier

from opendataflow.core.status.legacy_import import OldRows
from opendataflow.errors import InvalidInput, Refused, UnknownThing
from opendataflow.store.connections.connection import Row, connect, is_same_database, place, translated

_COLUMNS: dict[str, tuple[str, ...]] = {
    "job": ("jobid", "itemtype", "datasetid", "itemvalue"),
    "dataset": ("datasetid", "hostname", "database", "schemaname", "tablename", "username", "encryptedpass"),
    "datastatus": ("datasetid", "jobid", "dataid", "locktype", "status", "modified"),
}
SCHEMA = "dataflow"


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
    if not await is_same_database(connection, dsn):
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
