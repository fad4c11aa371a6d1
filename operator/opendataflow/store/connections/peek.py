"""Queries a running database without starting an embedded one, for shell completion and `dataflow doctor`."""

from psycopg import AsyncConnection

from opendataflow.settings import Settings
from opendataflow.store.connections.connection import Row, connect
from opendataflow.store.embedded.client import Answer, dsn, probe
from opendataflow.store.embedded.home import Home


def running_dsn(settings: Settings) -> str | None:
    """Return the address of the embedded database, or None if it is not running."""
    home = Home(settings.postgres_home.resolve())
    return dsn(home) if probe(home) is Answer.OURS else None


def embedded_exists(settings: Settings) -> bool:
    """Return whether the embedded database has been created."""
    return Home(settings.postgres_home.resolve()).data.exists()


async def health(connection: AsyncConnection[Row]) -> Row:
    """Return active engines and everything that waits for a person (opendataflow.health()). Needs a current schema."""
    row = await (await connection.execute("SELECT opendataflow.health() AS health")).fetchone()
    assert row is not None
    found: Row = row["health"]
    return found


async def ids_starting_with(address: str, kind: str, owner: str | None, start: str, limit: int) -> list[str]:
    """Return ids that start with `start`.

    `kind`: job, dataset or data_id. `owner`: the job or data set of the data ids.
    """
    async with await connect(address) as connection:
        query = "SELECT ids_starting_with AS id FROM opendataflow.ids_starting_with(%s, %s, %s, %s)"
        rows = await (await connection.execute(query, (kind, owner, start, limit))).fetchall()
    return [row["id"] for row in rows]
