"""Connects to Postgres and translates its errors. It uses no table and no function of the project.

A program with parallel queries uses a pool (module `pool`). A program with sequential queries uses one connection.
"""

import asyncio
import os
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
    HistoryLost,
    IdTaken,
    InvalidInput,
    LeadershipLost,
    LeaseLost,
    LimitReached,
    NoAccess,
    NotShared,
    PlanRefused,
    Refused,
    UnknownThing,
    Unreachable,
)
from opendataflow.names import ExitCode

DsnSource = Callable[[], str]
"""Returns the current address of the database. It may start an embedded server again, so it runs in a thread."""

Row = dict[str, Any]

SETTINGS: dict[str, Any] = {
    "autocommit": True,
    "client_encoding": "utf8",
    "application_name": "opendataflow",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "tcp_user_timeout": 15000,
    "prepare_threshold": None,
}
"""Settings of every connection: autocommit, and time-outs that detect an unreachable server within seconds.

Nothing is prepared: behind a pooler, the next transaction may meet a server session that does not know it. Almost every
statement calls one function, whose own plans Postgres keeps.
"""

_NOT_ALLOWED = {
    "chunk_has_id": "a data id has 1 to 253 characters, and no blank at its ends",
    "dataset_key": "the id of a data set is a text without `/`, or namespace/id",
    "job_key": "the id of a job is a text without `/`, or namespace/id",
}
"""Constraint -> what people may write. Other constraints are broken by the program only."""

_REPEATABLE = ("40001", "40P01", "55P03")
"""Serialization failure, deadlock, lock timeout."""

_REFUSED = re.compile(
    r"^(?>.*?failed: \w+:  )(.*(?:authentication failed|does not exist|no pg_hba\.conf entry|not permitted to log in"
    r"|permission denied for database|not currently accepting connections).*)",
    re.MULTILINE,
)
"""Messages of a server that refuses a connection permanently. libpq gives no SQLSTATE while connecting.

With a server whose messages are not English, the refusal is treated as unreachable.
"""

_BY_SQLSTATE: dict[str, type[DataflowError]] = {
    "DF001": Refused,
    "DF002": UnknownThing,
    "DF003": LeaseLost,
    "DF004": IdTaken,
    "DF005": NotShared,
    "DF006": LeadershipLost,
    "DF008": LimitReached,
    "DF009": HistoryLost,
}


class TryAgainError(DataflowError):
    """The transaction conflicted with another one and can be repeated unchanged."""

    retryable = True
    exit_code = ExitCode.UNREACHABLE


def place(dsn: str) -> str:
    """Return the host, port and database of a DSN, without its password."""
    _check_address(dsn)
    try:
        parts = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # libpq's message may quote the password.
        raise InvalidInput(
            "DATAFLOW_DSN is not a Postgres address: one looks like postgresql://user@host:5432/database"
        ) from None
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


def _check_address(dsn: str) -> None:
    """Raise InvalidInput for addresses that libpq reads in another way than they are meant.

    An unescaped `@`, `/` or `#` of a password would become a part of the host, and would be printed.
    """
    scheme, _, rest = dsn.strip().partition("://")
    if scheme.startswith("jdbc:"):
        raise InvalidInput(
            "DATAFLOW_DSN is an address of JDBC: leave `jdbc:` out, and write the user before the host, as in "
            "postgresql://user@host:5432/database; a `url=jdbc:…` belongs into dataflow.properties"
        )
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    query = rest.partition("?")[0]
    if scheme in ("postgresql", "postgres") and (authority.count("@") > 1 or query.count("@") > authority.count("@")):
        raise InvalidInput(
            "DATAFLOW_DSN has characters in its password that an address can't hold: write @ as %40, / as %2F, # as "
            "%23, ? as %3F and % as %25, or leave the password out and use PGPASSWORD"
        )


def dsn_of(parameters: Mapping[str, str]) -> str:
    """Return the DSN for parameters with libpq's names. It may contain a password, so it must never be printed."""
    return make_conninfo("", **parameters)


def has_password(dsn: str) -> bool:
    """Return whether a DSN contains a password. Raise InvalidInput if the text is no DSN."""
    try:
        return not conninfo_to_dict(dsn).keys().isdisjoint(("password", "sslpassword"))
    except psycopg.ProgrammingError:  # the text of this error may quote the password
        raise InvalidInput("DSN is no Postgres address: one looks like postgresql://user@host:5432/database") from None


def one_line(error: BaseException) -> str:
    """Return the text of a database error in one line."""
    return " ".join(str(error).split())


@asynccontextmanager
async def translated(where: str) -> AsyncIterator[None]:
    """Translate psycopg's errors into those of errors.py, and raise a cancellation that psycopg has dropped.

    `where`: the address of the database, for the message.
    """
    try:
        yield
    except psycopg.Error as error:
        raise _translate(error, where) from error
    future = asyncio.current_task()
    if future is not None and future.cancelling():
        # An answer and a cancellation arrived together, and psycopg has dropped the cancellation.
        raise asyncio.CancelledError


def _translate(error: psycopg.Error, where: str) -> DataflowError:
    state = error.sqlstate or ""
    if state == "DF007":
        return _plan_refused(error.diag.message_detail or "")
    if state in _BY_SQLSTATE:
        return _BY_SQLSTATE[state](error.diag.message_primary or one_line(error))
    if state in _REPEATABLE:
        return TryAgainError("others change the same rows at this moment, again and again: try it once more")
    if state == "23514" and error.diag.constraint_name in _NOT_ALLOWED:
        return InvalidInput(f"{_NOT_ALLOWED[error.diag.constraint_name]}; nothing was changed")
    if state == "25006":
        return Unreachable(
            f"Postgres at {where} is read-only: it is a standby, or default_transaction_read_only is on. Name the "
            "primary server in the address"
        )
    if state == "53100":
        reason = error.diag.message_primary or one_line(error)
        return Unreachable(f"the disk of Postgres at {where} is full: {reason}. Work waits until there is room.")
    # Unreachable or unavailable: no connection, shutdown, statement time-out, resources, disk, a standby.
    unconnected = isinstance(error, psycopg.OperationalError) and not state
    refusal = _refusal(error) if unconnected else None
    if refusal or state.startswith(("28", "3D")):
        reason = refusal or error.diag.message_primary or one_line(error)
        return NoAccess(f"Postgres at {where} refuses the connection: {reason}")
    if unconnected or state.startswith(("08", "53", "57", "58")):
        reason = one_line(error) if unconnected else error.diag.message_primary or one_line(error)
        return Unreachable(f"Postgres at {where} does not answer: {reason}")
    # Without the details, because they quote rows.
    message = error.diag.message_primary or one_line(error)
    return DataflowError(f"Postgres refused a statement ({state or 'no code'}): {message}")


def _plan_refused(plan: str) -> DataflowError:
    from opendataflow.core.text.plan import refused_sentence  # rare
    from opendataflow.model.records.plan import Plan

    return PlanRefused(refused_sentence(Plan.of_json(plan)), plan)


def _refusal(error: psycopg.Error) -> str | None:
    """Return why the server refuses this user, password or database. Return None if it is unreachable or busy."""
    if error.pgconn is not None and error.pgconn.needs_password:
        return "it wants a password, and none is given"
    found = _REFUSED.search(str(error))
    return found[1] if found else None


async def connect(dsn: str) -> AsyncConnection[Row]:
    """Open one connection. The message of Unreachable names the address, never the password."""
    async with translated(place(dsn)):
        connection: AsyncConnection[Row] = await AsyncConnection.connect(dsn, row_factory=dict_row, **SETTINGS)
        return connection


def require_utf8(connection: AsyncConnection[Row]) -> None:
    """Raise InvalidInput for a database with another encoding, which can't hold every text."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise InvalidInput(
            f"the database {place(connection.info.dsn)} has the encoding {encoding}, and UTF8 is needed: create one by "
            "`createdb --template=template0 --encoding=UTF8 NAME`, and name it in the address"
        )


async def is_same_database(connection: AsyncConnection[Row], dsn: str) -> bool:
    """Return whether a DSN is the database of a connection: an advisory lock that is taken there is visible here."""
    key = int.from_bytes(os.urandom(4), "big") >> 1
    async with await connect(dsn) as other, translated(place(dsn)):
        await other.execute("SELECT pg_advisory_lock(20134, %s)", (key,))
        query = """SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
                   WHERE l.locktype = 'advisory' AND l.classid = 20134 AND l.objid = %s"""
        return bool(await (await connection.execute(query, (key,))).fetchall())


class Connections(Protocol):
    """The source of the store's connections."""

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection[Row]]:
        """Wait for a free connection and lend it. Raise Unreachable if none can be opened."""

    async def close(self) -> None:
        """Close all connections."""


class OneConnection:
    """A single connection, lent to one caller at a time, and opened again after an error."""

    def __init__(self, connection: AsyncConnection[Row], source: DsnSource) -> None:
        self._connection = connection
        self._source = source
        self._free = asyncio.Lock()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Row]]:
        """Wait until the connection is free and lend it."""
        async with self._free:
            if self._connection.closed:
                self._connection = await connect(await asyncio.to_thread(self._source))
            yield self._connection

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()


def raise_if_cancelled() -> None:
    """Raise CancelledError if this coroutine was cancelled and the cancellation was lost.

    psycopg's pool loses a cancellation that arrives together with a connection. `asyncio.wait_for` of Python 3.11,
    which psycopg uses, loses one that arrives together with a result.
    """
    future = asyncio.current_task()
    if future is not None and future.cancelling():
        raise asyncio.CancelledError
