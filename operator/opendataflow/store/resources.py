"""What custom resources have declared, and what becomes of it when they go: sql/functions/79_jobs.sql, 80_apply.sql."""

from dataclasses import dataclass

from psycopg import AsyncConnection

from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store


@dataclass(frozen=True)
class Declared:
    """What the store has taken over of a resource. `owner`: namespace/name. `as_hash`: of what it said then."""

    owner: str
    as_hash: str


async def declared_by_resources(store: Store) -> dict[tuple[str, str], Declared]:
    """Everything that resources have declared and that is not deleted, by (DataSet or DataFlowJob, id)."""
    rows = await store.rows("SELECT * FROM opendataflow.declared_by_resources()")
    return {(row["kind"], row["id"]): Declared(row["owner"], row["declared_as"]) for row in rows}


async def delete_job(store: Store, job: str, owner: str, actor: str) -> bool:
    """Delete a job that a resource has declared; False where it is not that one's, or is deleted already."""

    async def attempt(connection: AsyncConnection[Row]) -> bool:
        query = "SELECT opendataflow.delete_job(%s, %s, NULL, %s) AS deleted"
        row = await (await connection.execute(query, (job, actor, owner))).fetchone()
        return row is not None and bool(row["deleted"])

    return await store.transaction(attempt)


async def disown_dataset(store: Store, dataset: str, owner: str) -> None:
    """Keep a data set whose resource is gone; whoever declares it next owns it."""

    async def attempt(connection: AsyncConnection[Row]) -> None:
        await connection.execute("SELECT opendataflow.disown_dataset(%s, %s)", (dataset, owner))

    await store.transaction(attempt)
