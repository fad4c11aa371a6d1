"""What the dashboard reads: calls sql/functions/89_dashboard.sql. It makes no decisions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from opendataflow.store.connections.connection import Row
from opendataflow.store.database import Database


async def version(database: Database) -> str:
    """Return a text that changes with every change of a state."""
    return str((await database.row("SELECT opendataflow.dashboard_version() AS version"))["version"])


@dataclass(frozen=True)
class TaskFilter:
    """Which tasks of a job are listed. `stale`: None for all. `part`: of the data id."""

    state: str | None = None
    stale: bool | None = None
    part: str | None = None


async def job(database: Database, name: str) -> Row | None:
    """Return a job with its declaration, its state and its status, or None."""
    return await _one(database, "SELECT opendataflow.dashboard_job(%s) AS found", name)


async def cells(database: Database, name: str) -> tuple[str, bytes]:
    """Return the version of the state, and one letter for each task of a job."""
    row = await database.row("SELECT * FROM opendataflow.dashboard_cells(%s)", name)
    return row["version"], row["cells"].encode()


async def ids(database: Database, name: str, offset: int, limit: int) -> list[str]:
    """Return the data ids at positions of a grid."""
    query = "SELECT opendataflow.dashboard_ids(%s, %s, %s) AS ids"
    return list((await database.row(query, name, offset, limit))["ids"])


async def tasks(database: Database, name: str, chosen: TaskFilter, offset: int, limit: int) -> Sequence[Row]:
    """Return tasks of a job in its order."""
    query = "SELECT * FROM opendataflow.dashboard_tasks(%s, %s, %s, %s, %s, %s)"
    return await database.rows(query, name, chosen.state, chosen.stale, chosen.part, offset, limit)


async def runs(database: Database, name: str, data_id: str | None, limit: int) -> Sequence[Row]:
    """Return the newest runs of a job, or of one of its tasks."""
    query = "SELECT dashboard_runs AS run FROM opendataflow.dashboard_runs(%s, %s, %s)"
    return [row["run"] for row in await database.rows(query, name, data_id, limit)]


async def _one(database: Database, query: LiteralString, *values: object) -> Row | None:
    found: Row | None = (await database.row(query, *values))["found"]
    return found


async def jobs(database: Database, offset: int, limit: int) -> Sequence[Row]:
    """Return jobs with their status, those that fail first."""
    return await database.rows("SELECT * FROM opendataflow.dashboard_jobs(%s, %s)", offset, limit)
