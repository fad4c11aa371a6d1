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
class Part:
    """Which tasks of a job are meant: from an id to another in natural order, with a part of the id. None: all."""

    first: str | None = None
    last: str | None = None
    text: str | None = None


async def job(database: Database, name: str) -> Row | None:
    """Return a job with its declaration, its state and its status, or None."""
    return await _one(database, "SELECT opendataflow.dashboard_job(%s) AS found", name)


async def cells(database: Database, name: str, part: Part) -> tuple[str, bytes]:
    """Return the version of the state, and one letter for each task of a job."""
    query = "SELECT * FROM opendataflow.dashboard_cells(%s, %s, %s, %s)"
    row = await database.row(query, name, part.first, part.last, part.text)
    return row["version"], row["cells"].encode()


async def ids(database: Database, name: str, part: Part, offset: int, limit: int) -> list[str]:
    """Return the data ids at positions of a grid."""
    query = "SELECT opendataflow.dashboard_ids(%s, %s, %s, %s, %s, %s) AS ids"
    return list((await database.row(query, name, part.first, part.last, part.text, offset, limit))["ids"])


async def tasks(
    database: Database, name: str, state: str | None, stale: bool | None, part: Part, offset: int, limit: int
) -> Sequence[Row]:
    """Return tasks of a job in its order. `stale`: None for all."""
    query = "SELECT * FROM opendataflow.dashboard_tasks(%s, %s, %s, %s, %s, %s, %s, %s)"
    return await database.rows(query, name, state, stale, part.first, part.last, part.text, offset, limit)


async def runs(database: Database, name: str, data_id: str | None, limit: int) -> Sequence[Row]:
    """Return the newest runs of a job, or of one of its tasks."""
    query = "SELECT dashboard_runs AS run FROM opendataflow.dashboard_runs(%s, %s, %s)"
    return [row["run"] for row in await database.rows(query, name, data_id, limit)]


async def chunk(database: Database, name: str, data_id: str) -> Row | None:
    """Return the chunk of a task: `why`, `inspection` and `events`, or None."""
    return await _one(database, "SELECT opendataflow.dashboard_chunk(%s, %s) AS found", name, data_id)


async def run(database: Database, number: int) -> Row | None:
    """Return a run with its steps and the end of its log, or None."""
    return await _one(database, "SELECT opendataflow.dashboard_run(%s) AS found", number)


async def dataset(database: Database, name: str) -> Row | None:
    """Return a data set with its places, its producer and its consumers, or None."""
    return await _one(database, "SELECT opendataflow.dashboard_dataset(%s) AS found", name)


async def chunks(
    database: Database, name: str, status: str | None, part: str | None, offset: int, limit: int
) -> Sequence[Row]:
    """Return chunks of a data set in natural order. `part`: of their ids."""
    query = "SELECT * FROM opendataflow.dashboard_chunks(%s, %s, %s, %s, %s)"
    return await database.rows(query, name, status, part, offset, limit)


async def graph(database: Database) -> Row:
    """Return all jobs and data sets: `jobs` with their links, and `datasets`."""
    found: Row = (await database.row("SELECT opendataflow.dashboard_graph() AS found"))["found"]
    return found


async def pipelines(database: Database) -> Sequence[Row]:
    """Return the pipelines of all jobs, with their tests and their newest run that has steps."""
    return await database.rows("SELECT * FROM opendataflow.dashboard_pipelines()")


async def search(database: Database, part: str, limit: int) -> Sequence[Row]:
    """Return what has a part in its id, at most so many of each kind."""
    return await database.rows("SELECT * FROM opendataflow.dashboard_search(%s, %s)", part, limit)


async def _one(database: Database, query: LiteralString, *values: object) -> Row | None:
    found: Row | None = (await database.row(query, *values))["found"]
    return found


async def jobs(database: Database, offset: int, limit: int) -> Sequence[Row]:
    """Return jobs with their status, those that fail first."""
    return await database.rows("SELECT * FROM opendataflow.dashboard_jobs(%s, %s)", offset, limit)
