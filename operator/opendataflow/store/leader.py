"""The leadership of operators: calls sql/functions/52_leader.sql. It makes no decisions."""

from collections.abc import Collection

from psycopg.types.json import Jsonb

from opendataflow.keys import bare
from opendataflow.model.records.leader import NOTHING_SEEN, Home, Seen
from opendataflow.model.records.pod import Orphan, RunIdentity, StoredRun
from opendataflow.model.records.run import Host
from opendataflow.names import pod_name
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store


async def acquire_leadership(
    store: Store,
    lease: str,
    host: Host,
    ttl: float,
    namespaces: Collection[str] | None = None,
    *,
    seen: Seen = NOTHING_SEEN,
    home: Home | None = None,
) -> int | None:
    """Acquire or renew the leadership for `ttl` seconds. Return its epoch, or None while another operator leads.

    The runs of the earlier leader then belong to this lease. `namespaces`: the namespaces that the operator manages,
    empty for all. None: the caller manages none, and leads for a clean-up only. `seen`: what this process knows from
    the database. Raises HistoryLost if the database lacks that. `home`: of the operator, if it is known. Raises Refused
    if the database has another one.
    """
    query = (
        "SELECT opendataflow.acquire_leadership(%s::uuid, %s, %s, %s, make_interval(secs => %s), %s, "
        "%s, %s, %s, %s, %s) AS epoch"
    )
    places = None if namespaces is None else list(namespaces)
    known = (seen.epoch, seen.run, seen.fence, *((None, None) if home is None else (home.uid, str(home))))
    epoch = (await store.row(query, lease, host.name, host.boot, "", ttl, places, *known))["epoch"]
    return None if epoch is None else int(epoch)


async def resign(store: Store, lease: str, reason: str | None) -> None:
    """Give up the leadership. Its runs continue. `reason`: the error that ends the operator; None: it was stopped."""
    await store.row("SELECT opendataflow.resign(%s::uuid, %s)", lease, reason)


async def identity(store: Store) -> str:
    """Return the label value of this database's run pods."""
    return str((await store.row("SELECT opendataflow.leader_identity() AS identity"))["identity"])


async def home_namespace(store: Store) -> str | None:
    """Return the namespace of the operators that this database belongs to; None if it has no home yet."""
    name = (await store.row("SELECT home_name AS name FROM opendataflow.leader"))["name"]
    return None if name is None else str(name).partition("/")[0]


async def record_restore(store: Store) -> None:
    """Record that the database was restored: see `ClaimedRun.before_restore`."""
    await store.rows("SELECT opendataflow.record_restore()")


async def forget_home(store: Store) -> None:
    """Forget the home. The next operator that leads becomes the home."""
    await store.rows("SELECT opendataflow.forget_home()")


async def become_copy(store: Store, actor: str) -> int:
    """Make a database a copy, whose jobs are suspended. Return their number."""
    return int((await store.row("SELECT opendataflow.become_copy(%s) AS jobs", actor))["jobs"])


async def require_no_engine(store: Store) -> None:
    """Raise Refused if an engine or an operator works with the database."""
    await store.rows("SELECT opendataflow.require_no_engine()")


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


async def record_orphans(store: Store, lease: str, orphans: Collection[Orphan], *, complete: bool) -> None:
    """Record all orphans, so that nothing of their chunks is claimed. `complete`: all namespaces were listed.

    Later runs get ids and fencing tokens above those of the orphans.
    """
    rows = [
        {
            "uid": each.uid,
            "run": each.identity.run,
            "fence": each.identity.fence,
            "job": each.job,
            "data_id": each.data_id,
            "namespace": each.identity.namespace,
            "name": each.identity.name,
        }
        for each in orphans
    ]
    await store.rows("SELECT opendataflow.record_orphans(%s::uuid, %s, %s)", lease, Jsonb(rows), complete)


async def forget_orphans(store: Store, lease: str, orphans: Collection[Orphan]) -> None:
    """Forget orphans that have ended. Their chunks may be claimed."""
    await store.rows("SELECT opendataflow.forget_orphans(%s::uuid, %s)", lease, [each.uid for each in orphans])
