"""Which operator leads, and which requests of resources are done: sql/functions/52_leader.sql. It decides nothing."""

from collections.abc import Collection

from opendataflow.model.run import Host
from opendataflow.store.store import Store


async def lead(store: Store, lease: str, host: Host, ttl: float) -> int | None:
    """Take or renew the leadership for `ttl` seconds; return its epoch, None while another operator has it.

    All runs of the operator before belong to this lease then.
    """
    query = "SELECT opendataflow.lead(%s::uuid, %s, %s, %s, make_interval(secs => %s)) AS epoch"
    epoch = (await store.row(query, lease, host.name, host.boot, "", ttl))["epoch"]
    return None if epoch is None else int(epoch)


async def identity(store: Store) -> str:
    """What the pods of this database's runs are labelled with."""
    return str((await store.row("SELECT opendataflow.leader_identity() AS identity"))["identity"])


async def ended_runs(store: Store, runs: Collection[int]) -> list[int]:
    """Those of some runs whose outcome is committed."""
    query = "SELECT r.id FROM opendataflow.runs(%s) r WHERE r.state <> 'RUNNING'"
    return [row["id"] for row in await store.rows(query, list(runs))]
