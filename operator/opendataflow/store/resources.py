"""Declarations of custom resources, and their deletion: calls sql/functions/79_jobs.sql and 80_apply.sql."""

from dataclasses import dataclass

from psycopg import AsyncConnection

from opendataflow.errors import Refused, UnknownThing
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


async def require_shared(store: Store, job: str) -> None:
    """Raise NotShared if the job may not use one of its data sets now: its owner may have ended the sharing."""
    await store.rows("SELECT opendataflow.require_shared(ARRAY[%s])", job)


async def delete_job(store: Store, job: str, owner: str, actor: str) -> bool:
    """Delete a job that a resource has declared. Return False if another owner declared it, or if it is deleted."""

    async def attempt(connection: AsyncConnection[Row]) -> bool:
        query = "SELECT opendataflow.delete_job(%s, %s, NULL, %s) AS deleted"
        row = await (await connection.execute(query, (job, actor, owner))).fetchone()
        return row is not None and bool(row["deleted"])

    return await store.transaction(attempt)


@dataclass(frozen=True)
class Deleted:
    """What a deleted job leaves. `running`: active runs, which continue. `stale`: finished tasks that are stale."""

    running: int
    stale: int


async def delete_declared_job(store: Store, job: str, actor: str, reason: str | None) -> Deleted:
    """Delete a job that a file has declared, and return what it leaves.

    Raise UnknownThing if the job does not exist, Refused if a resource has declared it or if it is deleted already.
    """

    async def attempt(connection: AsyncConnection[Row]) -> Deleted:
        query = "SELECT opendataflow.delete_job(%s, %s, %s) AS deleted"
        row = await (await connection.execute(query, (job, actor, reason))).fetchone()
        query = (
            "SELECT j.owner, opendataflow.stale_of(j.id) AS stale, "
            "(SELECT count(*) FROM opendataflow.task t WHERE t.job = j.id AND t.state = 'RUNNING') AS running "
            "FROM opendataflow.job j WHERE j.id = %s"
        )
        found = await (await connection.execute(query, (job,))).fetchone()
        if found is None:
            raise UnknownThing(f"there is no job {job}")
        if found["owner"] is not None:
            name = found["owner"].partition("/")
            raise Refused(
                f"job {job} belongs to the DataFlowJob {found['owner']}: nothing was changed; to delete it: "
                f"kubectl delete dataflowjob --namespace {name[0]} {name[2]}"
            )
        if row is None or not row["deleted"]:
            raise Refused(f"job {job} is deleted already: nothing was changed")
        return Deleted(int(found["running"]), int(found["stale"]))

    return await store.transaction(attempt)


async def disown_dataset(store: Store, dataset: str, owner: str) -> None:
    """Remove the owner of a data set whose resource was deleted. The next resource that declares it owns it."""

    async def attempt(connection: AsyncConnection[Row]) -> None:
        await connection.execute("SELECT opendataflow.disown_dataset(%s, %s)", (dataset, owner))

    await store.transaction(attempt)
