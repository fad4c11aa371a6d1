"""What people are told of trouble, and what they were told: sql/functions/65_alerts.sql. It decides nothing."""

from collections.abc import Sequence

from opendataflow.model.records.alert import Alert
from opendataflow.names import AlertKind
from opendataflow.store.store import Store


async def claim_alerts(store: Store, target: str, limit: int, pause: float, ttl: float) -> list[Alert]:
    """Take on what a target is to be told now; for `ttl` seconds nobody else gets it. `pause`: seconds that must
    have passed since the last message about the same."""
    query = (
        "SELECT * FROM opendataflow.claim_alerts(%s, %s, make_interval(secs => %s), make_interval(secs => %s)) "
        "ORDER BY job, kind"
    )
    rows = await store.rows(query, target, limit, pause, ttl)
    return [Alert(**{**row, "kind": AlertKind(row["kind"])}) for row in rows]


async def record_alert(store: Store, target: str, alert: Alert) -> None:
    """Remember that a target has been told."""
    query = "SELECT opendataflow.record_alert(%s, %s, %s, %s)"
    await store.row(query, target, alert.job, alert.kind, alert.failing)


async def release_alerts(store: Store, target: str, alerts: Sequence[Alert]) -> None:
    """Give back what could not be told."""
    query = "SELECT opendataflow.release_alerts(%s, %s, %s)"
    await store.row(query, target, [a.job for a in alerts], [a.kind.value for a in alerts])
