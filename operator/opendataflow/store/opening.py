"""Opens the database that the environment names, or the embedded one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from opendataflow.settings import Settings
from opendataflow.store.connection import DsnSource, connect
from opendataflow.store.embedded import EmbeddedPostgres
from opendataflow.store.schema import migrate
from opendataflow.store.store import Store


@asynccontextmanager
async def dsn_source(settings: Settings) -> AsyncIterator[DsnSource]:
    """Give the database's address; an embedded one runs meanwhile, and starts again should it die."""
    if settings.dsn is not None:
        dsn = settings.dsn
        yield lambda: dsn
        return
    server = EmbeddedPostgres(settings.postgres_home)
    await asyncio.to_thread(server.join)
    try:
        yield server.ensure
    finally:
        await asyncio.to_thread(server.leave)


@asynccontextmanager
async def open_store(settings: Settings, size: int = 4) -> AsyncIterator[Store]:
    """Open the store. The embedded database is the program's own and is brought to its schema; a named one is not."""
    async with dsn_source(settings) as source:
        if settings.dsn is None:
            async with await connect(source()) as connection:
                await migrate(connection)
        store = await Store.open(source, size)
        try:
            yield store
        finally:
            await store.close()
