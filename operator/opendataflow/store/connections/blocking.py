"""Finds the session that blocks a session of this program, with a second connection. It never ends a session."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo

from opendataflow.errors import DataflowError
from opendataflow.store.connections.connection import Row, connect, translated

FIRST_SECONDS = 1.0
"""Delay before the first query for blockers."""
POLL_SECONDS = 0.5

_BLOCKING = """
    SELECT b.pid, a.usename AS user, nullif(a.application_name, '') AS application,
           to_char(a.xact_start, 'YYYY-MM-DD HH24:MI:SS TZ') AS since
    FROM (SELECT DISTINCT unnest(pg_blocking_pids(%s)) AS pid) b LEFT JOIN pg_stat_activity a ON a.pid = b.pid
    ORDER BY a.xact_start, b.pid"""
"""`since` is NULL without the right to read sessions of other users. Process id 0 means a prepared transaction."""


@asynccontextmanager
async def watch_blockers(connection: AsyncConnection[Row]) -> AsyncIterator[Callable[[], str]]:
    """Poll the blockers of a session while the body runs. Yield a function that describes the last blockers found."""
    found: list[Row] = []
    looking = asyncio.create_task(_poll_blockers(connection, found), name="who blocks")
    try:
        yield lambda: _sentence(found)
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


async def _poll_blockers(connection: AsyncConnection[Row], found: list[Row]) -> None:
    await asyncio.sleep(FIRST_SECONDS)
    info = connection.info
    dsn = make_conninfo(info.dsn, password=info.password) if info.password else info.dsn
    try:
        async with await connect(dsn) as beside, translated(info.host):
            while True:
                rows = await (await beside.execute(_BLOCKING, (info.backend_pid,))).fetchall()
                found[:] = rows or found
                await asyncio.sleep(POLL_SECONDS)
    except DataflowError:  # the blocker stays unknown
        return


def _sentence(found: list[Row]) -> str:
    if not found:
        return "another session"
    first, more = found[0], len(found) - 1
    facts = [f"application {first['application']}"] if first["application"] else []
    facts += [f"user {first['user']}"] if first["user"] else []
    facts += [f"in a transaction since {first['since']}"] if first["since"] else []
    who = f"process {first['pid']}" if first["pid"] else "a prepared transaction"
    described = f"{who} ({', '.join(facts)})" if facts else who
    return f"{described} and {more} more" if more else described
