"""A pool of connections, for programs that ask for many things at once. A module of its own: its import takes time."""

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
    """Connections that are made as they are needed, up to `size`.

    `source` is asked again for every new one: an embedded server may have moved.
    """

    def __init__(self, source: DsnSource, size: int, where: str) -> None:
        self._where = where
        self._source = source

        async def conninfo() -> str:
            try:
                return await asyncio.to_thread(source)
            except DataflowError as error:
                # The pool knows only psycopg's errors: any other one would end its worker.
                raise psycopg.OperationalError(str(error)) from error

        self._pool: AsyncConnectionPool[AsyncConnection[Row]] = AsyncConnectionPool(
            conninfo,
            connection_class=AsyncConnection[Row],
            kwargs={"row_factory": dict_row, **SETTINGS},
            min_size=1,
            max_size=size,
            open=False,
            timeout=10,
            # The pool's own pauses double without an end. It gives up early, and the next one who asks starts anew.
            reconnect_timeout=5,
        )

    async def open(self) -> None:
        """Begin to make connections; nothing is waited for."""
        await self._pool.open(wait=False)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Row]]:
        """Lend a connection; never one that the server has ended since it was used."""
        try:
            while True:
                async with self._pool.connection() as connection:
                    raise_if_cancelled()
                    if await _is_there(connection):
                        yield connection
                        return
        except PoolTimeout as error:
            await self._say_why()
            raise Unreachable(f"Postgres at {self._where} has no connection to spare: try it once more") from error

    async def _say_why(self) -> None:
        """Raise what the pool keeps to itself: why no connection can be made."""
        try:
            dsn = await asyncio.to_thread(self._source)
        except DataflowError as error:
            raise Unreachable(str(error)) from error
        await (await connect(dsn)).close()

    async def close(self) -> None:
        """Give all connections back."""
        await self._pool.close()


async def _is_there(connection: AsyncConnection[Row]) -> bool:
    """Whether a connection that nobody used is still there, as far as its socket tells; the server is not asked. After
    a restart of the server all of them are gone, and each would fail somebody."""
    try:
        for _ in range(2):  # a server that ends a session says why first
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        await connection.close()
    return not connection.closed
