"""What the dashboard reads: calls sql/functions/89_dashboard.sql. It makes no decisions."""

from collections.abc import Sequence

from opendataflow.store.connections.connection import Row
from opendataflow.store.database import Database


async def version(database: Database) -> str:
    """Return a text that changes with every change of a state."""
    return str((await database.row("SELECT opendataflow.dashboard_version() AS version"))["version"])


async def jobs(database: Database, offset: int, limit: int) -> Sequence[Row]:
    """Return jobs with their status, those that fail first."""
    return await database.rows("SELECT * FROM opendataflow.dashboard_jobs(%s, %s)", offset, limit)
