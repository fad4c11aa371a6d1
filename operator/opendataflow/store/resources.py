"""Declarations of custom resources, and their deletion: calls sql/functions/79_jobs.sql and 80_apply.sql."""

from dataclasses import dataclass

from psycopg import AsyncConnection

from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store


@dataclass(frozen=True)
class Declared:
    """The declaration of a resource in the store. `owner`: namespace/name. `as_hash`: a hash of the declared spec."""

    owner: str
    as_hash: str


async def declared_by_resources(store: Store) -> dict[tuple[str, str], Declared]:
    """Return the declarations that are not deleted, by (DataSet or DataFlowJob, id)."""
    rows = await store.rows("SELECT * FROM opendataflow.declared_by_resources()")
    return {(row["kind"], row["id"]): Declared(row["owner"], row["declared_as"]) for row in rows}


async def delete_job(store: Store, job: str, owner: str, actor: str) -> bool:
    """Delete a job that a resource has declared. Return False if another owner declared it, or if it is deleted."""

    async def attempt(connection: AsyncConnection[Row]) -> bool:
        query = "SELECT opendataflow.delete_job(%s, %s, NULL, %s) AS deleted"
        row = await (await connection.execute(query, (job, actor, owner))).fetchone()
        return row is not None and bool(row["deleted"])

    return await store.transaction(attempt)


async def disown_dataset(store: Store, dataset: str, owner: str) -> None:
    """Remove the owner of a data set whose resource was deleted. The next resource that declares it owns it."""

    async def attempt(connection: AsyncConnection[Row]) -> None:
        await connection.execute("SELECT opendataflow.disown_dataset(%s, %s)", (dataset, owner))

    await store.transaction(attempt)
