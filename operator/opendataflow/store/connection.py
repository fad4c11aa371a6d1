"""Connections to Postgres: the pool, and what its errors mean. It knows no table and no function of the project."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from opendataflow.errors import DataflowError, InvalidInput, LeaseLost, Refused, UnknownThing, Unreachable
from opendataflow.names import ExitCode

DsnSource = Callable[[], str]
"""Returns where the database is now. It may take long (an embedded server is started again), so it runs in a thread."""

Row = dict[str, Any]
Pool = AsyncConnectionPool[AsyncConnection[Row]]

_REPEATABLE = ("40001", "40P01", "55P03")
"""Serialization failure, deadlock, lock timeout."""

_BY_SQLSTATE: dict[str, type[DataflowError]] = {"DF001": Refused, "DF002": UnknownThing, "DF003": LeaseLost}


class TryAgainError(DataflowError):
    """The transaction lost against another one and can be repeated as it was."""

    retryable = True
    exit_code = ExitCode.UNREACHABLE


def place(dsn: str) -> str:
    """Say where a DSN points to, without its password."""
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # What libpq says may quote the password.
        raise InvalidInput(
            "DATAFLOW_DSN is not a Postgres address: one looks like postgresql://user@host:5432/database"
        ) from None
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


def one_line(error: BaseException) -> str:
    """The text of a database error in one line."""
    return " ".join(str(error).split())


@asynccontextmanager
async def translated(where: str) -> AsyncIterator[None]:
    """Turn psycopg's errors into those of errors.py, and let no cancellation get lost.

    `where` is the database's place, for the sentence.
    """
    try:
        yield
    except PoolTimeout as error:
        raise Unreachable(f"Postgres at {where} does not answer: is it running, and is DATAFLOW_DSN right?") from error
    except psycopg.Error as error:
        raise _translate(error, where) from error
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        # An answer and a cancellation have come together, and psycopg has dropped the cancellation.
        raise asyncio.CancelledError


def _translate(error: psycopg.Error, where: str) -> DataflowError:
    state = error.sqlstate or ""
    if state in _BY_SQLSTATE:
        return _BY_SQLSTATE[state](error.diag.message_primary or one_line(error))
    if state in _REPEATABLE:
        return TryAgainError("others change the same rows at this moment, again and again: try it once more")
    # Away, or not able to work now: no connection, shut down, a statement's time, resources, disk, a standby.
    unconnected = isinstance(error, psycopg.OperationalError) and not state
    if unconnected or state == "25006" or state.startswith(("08", "53", "57", "58")):
        return Unreachable(f"Postgres at {where} does not answer: {one_line(error)}")
    if state.startswith(("28", "3D")):
        return Unreachable(
            f"Postgres at {where} refuses the connection: {error.diag.message_primary or one_line(error)}"
        )
    # Without the details: they quote rows.
    said = error.diag.message_primary or one_line(error)
    return DataflowError(f"Postgres refused a statement ({state or 'no code'}): {said}")


async def connect(dsn: str) -> AsyncConnection[Row]:
    """Open one connection, outside of a pool; the sentence of Unreachable names the place, never the password."""
    async with translated(place(dsn)):
        return await AsyncConnection.connect(
            dsn,
            autocommit=True,
            row_factory=dict_row,
            connect_timeout=10,
            application_name="opendataflow",
        )


async def open_pool(source: DsnSource, size: int) -> Pool:
    """Open a pool that asks `source` again for every new connection: an embedded server may have moved."""

    async def conninfo() -> str:
        try:
            return await asyncio.to_thread(source)
        except DataflowError as error:
            # The pool knows only psycopg's errors: any other one would end its worker.
            raise psycopg.OperationalError(str(error)) from error

    pool: Pool = AsyncConnectionPool(
        conninfo,
        connection_class=AsyncConnection[Row],
        kwargs={
            "autocommit": True,
            "row_factory": dict_row,
            "application_name": "opendataflow",
            "connect_timeout": 5,
            "keepalives_idle": 10,
            "tcp_user_timeout": 15000,
        },
        min_size=1,
        max_size=size,
        open=False,
        timeout=10,
        # The pool's own pauses double without an end. It gives up early, and the next one who asks starts anew.
        reconnect_timeout=5,
    )
    await pool.open(wait=False)
    return pool
