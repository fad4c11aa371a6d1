"""One Postgres database: connections, queries and transactions.

A transaction is repeated after a conflict with another one. It is not repeated after a lost connection: the caller has
to find out whether it was committed. This module knows no function of the schema but `require_leader`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import LiteralString, Self, TypeVar

import psycopg
from psycopg import AsyncConnection

from opendataflow.names import QUEUED_CHANNEL
from opendataflow.store.connections.connection import (
    Connections,
    DsnSource,
    OneConnection,
    Row,
    TryAgainError,
    connect,
    place,
    raise_if_cancelled,
    translated,
)
from opendataflow.store.migrations import schema

T = TypeVar("T")

LISTEN_SECONDS = 1.0
"""Maximum delay of a cancellation that psycopg has swallowed while no notification arrives."""


class Database:
    """A database with this program's schema."""

    def __init__(self, pool: Connections, where: str) -> None:
        self._pool = pool
        self.where = where
        self.leader: str | None = None
        """The lease of an operator: its transactions are refused (LeadershipLost) once another one leads."""

    @classmethod
    async def open(cls, source: DsnSource, size: int = 4) -> Self:
        """Connect. Raise SchemaMismatch if this program can't work with the schema.

        `size`: the number of connections.
        """
        dsn = source()
        connection = await connect(dsn)
        try:
            async with translated(place(dsn)):
                await schema.require_current(connection)
        except BaseException:
            await connection.close()
            raise
        if size == 1:
            return cls(OneConnection(connection, source), place(dsn))
        await connection.close()
        from opendataflow.store.connections.pool import Pool  # RunJob starts without it

        pool = Pool(source, size, place(dsn))
        await pool.open()
        return cls(pool, place(dsn))

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[AsyncIterator[str]]:
        """Listen for jobs that may have QUEUED tasks. Raise Unreachable if the connection ends."""
        async with translated(self.where), self._pool.connection() as connection:
            await connection.execute(f"LISTEN {QUEUED_CHANNEL}")
            try:
                yield _payloads(connection)
            finally:
                if not connection.closed:
                    await connection.close()

    async def transaction(
        self, attempt: Callable[[AsyncConnection[Row]], Awaitable[T]], undo: Callable[[T], bool] = lambda _: False
    ) -> T:
        """Run `attempt` in a transaction and return its result. Repeat it after a conflict with another transaction.

        `undo`: called with the result. If it returns True, the transaction is rolled back.
        """
        results: list[T] = []

        async def once() -> None:
            async with (
                translated(self.where),
                self._pool.connection() as connection,
                connection.transaction() as transaction,
            ):
                if self.leader is not None:
                    await connection.execute("SELECT opendataflow.require_leader(%s::uuid)", (self.leader,))
                results.append(await attempt(connection))
                if undo(results[-1]):
                    raise psycopg.Rollback(transaction)

        await _repeated(once)
        return results[-1]

    async def rows(self, query: LiteralString, *values: object) -> list[Row]:
        """Run one query and return its rows. Repeat it after a conflict with another transaction."""

        async def once() -> list[Row]:
            async with translated(self.where), self._pool.connection() as connection:
                return await (await connection.execute(query, values)).fetchall()

        return await _repeated(once)

    async def row(self, query: LiteralString, *values: object) -> Row:
        """Run one query that returns exactly one row, and return this row."""
        return (await self.rows(query, *values))[0]


async def _repeated(attempt: Callable[[], Awaitable[T]]) -> T:
    """Run `attempt`. Repeat it with growing pauses after conflicts with other transactions."""
    try:
        return await attempt()
    except TryAgainError:
        from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential  # rare

        again = AsyncRetrying(
            retry=retry_if_exception_type(TryAgainError),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            stop=stop_after_attempt(8),
            reraise=True,
        )
        return await again(attempt)


async def _payloads(connection: AsyncConnection[Row]) -> AsyncIterator[str]:
    while True:
        async for notification in connection.notifies(timeout=LISTEN_SECONDS):
            yield notification.payload
        raise_if_cancelled()
