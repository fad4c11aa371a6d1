"""A pool of connections, for programs with parallel queries. A separate module, because its import is slow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from opendataflow.errors import DataflowError, Unreachable
from opendataflow.store.connections.connection import SETTINGS, DsnSource, Row, connect, raise_if_cancelled


class Pool:
    """Up to `size` connections, opened when needed.

    `source` is called for every new connection, because the port of an embedded server may change.
    """

    def __init__(self, source: DsnSource, size: int, where: str) -> None:
        self._where = where
        self._source = source

        async def conninfo() -> str:
            try:
                return await asyncio.to_thread(source)
            except DataflowError as error:
                # The pool handles only psycopg's errors. Any other error would end its worker.
                raise psycopg.OperationalError(str(error)) from error

        self._pool: AsyncConnectionPool[AsyncConnection[Row]] = AsyncConnectionPool(
            conninfo,
            connection_class=AsyncConnection[Row],
            kwargs={"row_factory": dict_row, **SETTINGS},
            min_size=1,
            max_size=size,
            open=False,
            timeout=10,
            # The pool doubles its pauses without limit. A short time-out makes the next caller start again.
            reconnect_timeout=5,
        )

    async def open(self) -> None:
        """Begin to open connections, without waiting for them."""
        await self._pool.open(wait=False)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Row]]:
        """Wait for a free connection and lend it. Skip connections that the server has closed."""
        try:
            while True:
                async with self._pool.connection() as connection:
                    raise_if_cancelled()
                    if await _is_open(connection):
                        yield connection
                        return
        except PoolTimeout as error:
            await self._raise_reason()
            raise Unreachable(f"Postgres at {self._where} has no connection to spare: try it once more") from error

    async def _raise_reason(self) -> None:
        """Raise the error that the pool hides: the reason why no connection can be opened."""
        try:
            dsn = await asyncio.to_thread(self._source)
        except DataflowError as error:
            raise Unreachable(str(error)) from error
        await (await connect(dsn)).close()

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()


async def _is_open(connection: AsyncConnection[Row]) -> bool:
    """Return whether an idle connection is still open, from its socket, without a query to the server.

    After a restart of the server all idle connections are closed, and each one would fail a query.
    """
    try:
        for _ in range(2):  # before the end of the connection, the server may have sent an error
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        await connection.close()
    return not connection.closed
