"""Open the database: that of DATAFLOW_DSN or DATAFLOW_DSN_FILE, else of `dataflow.properties`, else the embedded one.

A decrypted password goes only to libpq in this process.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from opendataflow.errors import InvalidInput, Unreachable
from opendataflow.opening.passkey import Passkey
from opendataflow.settings import PROPERTIES, Settings, has_named_database
from opendataflow.store.connections.connection import DsnSource, connect, dsn_of
from opendataflow.store.connections.passfile import with_readable_passfile
from opendataflow.store.store import Store

_LONGEST_DSN = 16 * 1024


def named_source(settings: Settings, passkey: Passkey) -> DsnSource | None:
    """Return the source of the address that the user has named, or None for the embedded database.

    Raises the errors of `properties.read_connection_parameters`.
    """
    if not has_named_database(settings):
        return None
    if settings.dsn_file is not None:
        file = settings.dsn_file
        return lambda: with_readable_passfile(_read_dsn(file))
    if settings.dsn is not None:
        dsn = settings.dsn
    else:
        from opendataflow.opening.properties import read_connection_parameters  # slow, and rare

        dsn = dsn_of(read_connection_parameters((settings.properties or PROPERTIES).absolute(), passkey.get))
    return lambda: with_readable_passfile(dsn)


def _read_dsn(path: Path) -> str:
    """Return the address in a file. It may hold a short-lived password, so it is read for every connection.

    Raises Unreachable if the file can't be read: the Secret of a volume may be mounted later.
    """
    try:
        text = path.read_text().strip()
    except OSError as error:
        raise Unreachable(f"{path}, with the address of the database, can't be read: {error.strerror}") from None
    except ValueError:
        text = ""
    if not text or len(text) > _LONGEST_DSN or "\n" in text:
        raise InvalidInput(f"{path} is one line with the address of the database: postgresql://user@host:5432/database")
    return text


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
    named = named_source(settings, passkey)
    if named is not None:
        return named()
    from opendataflow.store.connections.peek import running_dsn  # RunJob starts without this module

    return running_dsn(settings)


def embedded_folders(settings: Settings) -> list[Path]:
    """Return the folders that are deleted to make the embedded database anew.

    The logs of its runs may stay: a new database has another identity, and puts its runs elsewhere.
    """
    return [settings.postgres_home]


@asynccontextmanager
async def dsn_source(settings: Settings, named: DsnSource | None) -> AsyncIterator[DsnSource]:
    """Yield a source of the database's address. An embedded database (`named` is None) runs during the block.

    The source restarts an embedded database that has died.
    """
    if named is not None:
        yield named
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
    named = named_source(settings, passkey or Passkey())
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
