"""Opens the database: that of DATAFLOW_DSN, else that of `dataflow.properties`, else the embedded one.

The password that it opens goes to libpq inside this process and nowhere else.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from opendataflow.opening.passkey import Passkey
from opendataflow.settings import Settings
from opendataflow.store.connections.connection import DsnSource, connect, dsn_of
from opendataflow.store.store import Store

PROPERTIES = Path("dataflow.properties")
"""The file of the current folder that is read where nothing else is named."""


def is_named(settings: Settings) -> bool:
    """Whether the user has named a database, by DATAFLOW_DSN or a properties file."""
    return settings.dsn is not None or settings.properties is not None or PROPERTIES.is_file()


def named_dsn(settings: Settings, passkey: Passkey) -> str | None:
    """Return the address of the database that the user has named; None: the embedded one is meant.

    InvalidInput and Refused as `properties.parameters` raises them.
    """
    if settings.dsn is not None:
        return settings.dsn
    if not is_named(settings):
        return None
    from opendataflow.opening.properties import parameters  # for those who have such a file

    return dsn_of(parameters((settings.properties or PROPERTIES).absolute(), passkey.get))


def existing_dsn(settings: Settings, passkey: Passkey) -> str | None:
    """Return the address of the named database, else of the embedded one where it runs; None: nothing runs yet."""
    named = named_dsn(settings, passkey)
    if named is not None:
        return named
    from opendataflow.store.connections.peek import running_dsn

    return running_dsn(settings)


def embedded_folders(settings: Settings) -> list[Path]:
    """Return the folders that are deleted to make the embedded database anew: its own, and that of its runs."""
    return [settings.postgres_home, settings.runs_home]


@asynccontextmanager
async def dsn_source(settings: Settings, named: str | None) -> AsyncIterator[DsnSource]:
    """Give the database's address; an embedded one (`named` is None) runs meanwhile, and starts again should it die."""
    if named is not None:
        yield lambda: named
        return
    from opendataflow.store.embedded import EmbeddedPostgres  # RunJob starts without it

    server = EmbeddedPostgres(settings.postgres_home)
    await asyncio.to_thread(server.join)
    try:
        yield server.ensure
    finally:
        await asyncio.to_thread(server.leave)


@asynccontextmanager
async def open_store(settings: Settings, size: int = 4, passkey: Passkey | None = None) -> AsyncIterator[Store]:
    """Open the store. The embedded database is the program's own and is brought to its schema; a named one is not."""
    named = named_dsn(settings, passkey or Passkey())
    async with dsn_source(settings, named) as source:
        if named is None:
            from opendataflow.store.migrations.schema import migrate

            async with await connect(source()) as connection:
                await migrate(connection, folders=embedded_folders(settings))
        store = await Store.open(source, size)
        try:
            yield store
        finally:
            await store.close()
