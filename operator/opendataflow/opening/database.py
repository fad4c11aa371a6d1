"""Open the database: that of DATAFLOW_DSN, else that of `dataflow.properties`, else the embedded one.

A decrypted password goes only to libpq in this process.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from opendataflow.opening.passkey import Passkey
from opendataflow.settings import PROPERTIES, Settings, has_named_database
from opendataflow.store.connections.connection import DsnSource, connect, dsn_of
from opendataflow.store.store import Store


def named_dsn(settings: Settings, passkey: Passkey) -> str | None:
    """Return the address of the database that the user has named, or None for the embedded one.

    Raises the errors of `properties.read_connection_parameters`.
    """
    if settings.dsn is not None:
        return settings.dsn
    if not has_named_database(settings):
        return None
    from opendataflow.opening.properties import read_connection_parameters  # slow, and rare

    return dsn_of(read_connection_parameters((settings.properties or PROPERTIES).absolute(), passkey.get))


def database_name(settings: Settings, where: str) -> str:
    """Return what people call the database of a command. `where`: its host, port and name."""
    if has_named_database(settings):
        return f"the database {where}"
    return (
        f"the embedded database in {settings.postgres_home} (DATAFLOW_DSN is not set, and there is no {PROPERTIES} in "
        f"{Path.cwd()})"
    )


def existing_dsn(settings: Settings, passkey: Passkey) -> str | None:
    """Return the address of the named database, else of a running embedded one, else None."""
    named = named_dsn(settings, passkey)
    if named is not None:
        return named
    from opendataflow.store.connections.peek import running_dsn  # RunJob starts without this module

    return running_dsn(settings)


def embedded_folders(settings: Settings) -> list[Path]:
    """Return the folders that are deleted to make the embedded database anew.

    The logs of its runs may stay: a new database has another identity, and puts its runs elsewhere.
    """
    return [settings.postgres_home]


@asynccontextmanager
async def dsn_source(settings: Settings, named: str | None) -> AsyncIterator[DsnSource]:
    """Yield a source of the database's address. An embedded database (`named` is None) runs during the block.

    The source restarts an embedded database that has died.
    """
    if named is not None:
        yield lambda: named
        return
    from opendataflow.store.embedded import EmbeddedPostgres  # RunJob starts without this package

    server = EmbeddedPostgres(settings.postgres_home)
    await asyncio.to_thread(server.join)
    try:
        yield server.ensure
    finally:
        await asyncio.to_thread(server.leave)


@asynccontextmanager
async def open_store(settings: Settings, size: int = 4, passkey: Passkey | None = None) -> AsyncIterator[Store]:
    """Open the store. Migrate the schema of an embedded database, and not of a named one."""
    named = named_dsn(settings, passkey or Passkey())
    async with dsn_source(settings, named) as source:
        if named is None:
            from opendataflow.store.migrations.schema import migrate  # RunJob starts without this module

            async with await connect(source()) as connection:
                await migrate(connection, folders=embedded_folders(settings))
        store = await Store.open(source, size)
        try:
            yield store
        finally:
            await store.close()
