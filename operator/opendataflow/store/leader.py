"""Which operator leads, and which requests of resources are done: sql/functions/52_leader.sql. It decides nothing."""

from collections.abc import Collection

from opendataflow.model.records.run import Host
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store


async def acquire_leadership(
    store: Store, lease: str, host: Host, ttl: float, namespaces: Collection[str] | None = None
) -> int | None:
    """Take or renew the leadership for `ttl` seconds; return its epoch, None while another operator has it.

    All runs of the operator before belong to this lease then. `namespaces`: the only ones that it works in, empty for
    all; None for who leads without any work.
    """
    query = "SELECT opendataflow.acquire_leadership(%s::uuid, %s, %s, %s, make_interval(secs => %s), %s) AS epoch"
    places = None if namespaces is None else list(namespaces)
    epoch = (await store.row(query, lease, host.name, host.boot, "", ttl, places))["epoch"]
    return None if epoch is None else int(epoch)


async def identity(store: Store) -> str:
    """What the pods of this database's runs are labelled with."""
    return str((await store.row("SELECT opendataflow.leader_identity() AS identity"))["identity"])


async def ended_runs(store: Store, runs: Collection[int]) -> list[int]:
    """Those of some runs whose outcome is committed."""
    query = "SELECT r.id FROM opendataflow.runs(%s) r WHERE r.state <> 'RUNNING'"
    return [row["id"] for row in await store.rows(query, list(runs))]


async def unmanaged_namespaces(store: Store) -> list[Row]:
    """Namespaces that the operator does not work in, with the jobs and the runs that are there all the same."""
    return await store.rows("SELECT * FROM opendataflow.unmanaged_namespaces()")
