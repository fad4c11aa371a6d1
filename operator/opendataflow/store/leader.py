"""The leadership of operators: calls sql/functions/52_leader.sql. It makes no decisions."""

from collections.abc import Collection

from opendataflow.keys import bare
from opendataflow.model.records.pod import RunIdentity, StoredRun
from opendataflow.model.records.run import Host
from opendataflow.names import pod_name
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store


async def acquire_leadership(
    store: Store, lease: str, host: Host, ttl: float, namespaces: Collection[str] | None = None
) -> int | None:
    """Acquire or renew the leadership for `ttl` seconds. Return its epoch, or None while another operator leads.

    The runs of the earlier leader then belong to this lease. `namespaces`: the namespaces that the operator manages,
    empty for all. None: the caller manages none, and leads for a clean-up only.
    """
    query = "SELECT opendataflow.acquire_leadership(%s::uuid, %s, %s, %s, make_interval(secs => %s), %s) AS epoch"
    places = None if namespaces is None else list(namespaces)
    epoch = (await store.row(query, lease, host.name, host.boot, "", ttl, places))["epoch"]
    return None if epoch is None else int(epoch)


async def identity(store: Store) -> str:
    """Return the label value of this database's run pods."""
    return str((await store.row("SELECT opendataflow.leader_identity() AS identity"))["identity"])


async def stored_runs(store: Store, runs: Collection[int]) -> dict[int, StoredRun]:
    """Return those of the given runs that exist, by id, with what identifies their pods."""
    rows = await store.rows("SELECT * FROM opendataflow.pods_of_runs(%s)", list(runs))
    return {row["run"]: _stored_run(row) for row in rows}


def _stored_run(row: Row) -> StoredRun:
    nonce = str(row["nonce"])
    name = pod_name(bare(row["job"]), row["run"], nonce)
    identity = RunIdentity(row["run"], row["namespace"], name, row["fence"], nonce)
    return StoredRun(identity, row["ended"], row["pod_uid"])


async def unmanaged_namespaces(store: Store) -> list[Row]:
    """Return namespaces that the leader does not manage but that have jobs or runs, with these jobs and runs."""
    return await store.rows("SELECT * FROM opendataflow.unmanaged_namespaces()")
