"""Connections to Postgres, and what its errors mean. It knows no table and no function of the project.

A program that asks for many things at once takes them from a pool (`pool`), one that asks a few times in a row has one.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from opendataflow.errors import (
    DataflowError,
    Deposed,
    IdTaken,
    InvalidInput,
    LeaseLost,
    NoAccess,
    NotShared,
    Refused,
    UnknownThing,
    Unreachable,
)
from opendataflow.names import ExitCode

DsnSource = Callable[[], str]
"""Returns where the database is now. It may take long (an embedded server is started again), so it runs in a thread."""

Row = dict[str, Any]

SETTINGS: dict[str, Any] = {
    "autocommit": True,
    "application_name": "opendataflow",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "tcp_user_timeout": 15000,
}
"""Of every connection: each statement commits by itself, and a server that is away is noticed within seconds."""

_REPEATABLE = ("40001", "40P01", "55P03")
"""Serialization failure, deadlock, lock timeout."""

_REFUSED = re.compile(
    r"failed: \w+:  (.*(?:authentication failed|does not exist|no pg_hba\.conf entry|not permitted to log in"
    r"|permission denied for database|not currently accepting connections).*)"
)
"""What a server says to whom it will not let in tomorrow either. There is no SQLSTATE for what fails while connecting;
where the server says it in another language, it is taken for away."""

_BY_SQLSTATE: dict[str, type[DataflowError]] = {
    "DF001": Refused,
    "DF002": UnknownThing,
    "DF003": LeaseLost,
    "DF004": IdTaken,
    "DF005": NotShared,
    "DF006": Deposed,
}


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


def dsn_of(parameters: Mapping[str, str]) -> str:
    """Return the address out of its parts, named as libpq names them. It may hold a password: it is never printed."""
    return make_conninfo("", **parameters)


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
    except psycopg.Error as error:
        raise _translate(error, where) from error
    future = asyncio.current_task()
    if future is not None and future.cancelling():
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
    refusal = _refusal(error) if unconnected else None
    if refusal or state.startswith(("28", "3D")):
        said = refusal or error.diag.message_primary or one_line(error)
        return NoAccess(f"Postgres at {where} refuses the connection: {said}")
    if unconnected or state == "25006" or state.startswith(("08", "53", "57", "58")):
        return Unreachable(f"Postgres at {where} does not answer: {one_line(error)}")
    # Without the details: they quote rows.
    said = error.diag.message_primary or one_line(error)
    return DataflowError(f"Postgres refused a statement ({state or 'no code'}): {said}")


def _refusal(error: psycopg.Error) -> str | None:
    """What the server has against this user, password or database; None where it is away, or busy."""
    if error.pgconn is not None and error.pgconn.needs_password:
        return "it wants a password, and none is given"
    found = _REFUSED.search(str(error))
    return found[1] if found else None


async def connect(dsn: str) -> AsyncConnection[Row]:
    """Open one connection, outside of a pool; the sentence of Unreachable names the place, never the password."""
    async with translated(place(dsn)):
        connection: AsyncConnection[Row] = await AsyncConnection.connect(dsn, row_factory=dict_row, **SETTINGS)
        return connection


class Connections(Protocol):
    """Where the store has its connections from."""

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection[Row]]:
        """Lend one, waiting for one that is free. Unreachable where none can be made."""

    async def close(self) -> None:
        """Give all of them back."""


class OneConnection:
    """A single connection, lent to one at a time, and made anew after it broke."""

    def __init__(self, connection: AsyncConnection[Row], source: DsnSource) -> None:
        self._connection = connection
        self._source = source
        self._free = asyncio.Lock()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Row]]:
        """Lend it."""
        async with self._free:
            if self._connection.closed:
                self._connection = await connect(await asyncio.to_thread(self._source))
            yield self._connection

    async def close(self) -> None:
        """Give it back."""
        await self._connection.close()


def raise_if_cancelled() -> None:
    """Raise CancelledError where this coroutine was cancelled and has not heard of it: psycopg's pool forgets that
    where a connection comes at the same moment, and so does `asyncio.wait_for` of Python 3.11, by which psycopg
    waits."""
    future = asyncio.current_task()
    if future is not None and future.cancelling():
        raise asyncio.CancelledError
