"""Alerts and their deliveries: calls sql/functions/65_alerts.sql. It makes no decisions."""

from collections.abc import Sequence

from opendataflow.model.records.alert import Alert
from opendataflow.names import AlertKind
from opendataflow.store.store import Store


async def claim_alerts(store: Store, target: str, limit: int, pause: float, ttl: float) -> list[Alert]:
    """Claim up to `limit` alerts to deliver to a target now. For `ttl` seconds nobody else can claim them.

    `pause`: minimum number of seconds since the last message about the same job and kind.
    """
    query = (
        "SELECT * FROM opendataflow.claim_alerts(%s, %s, make_interval(secs => %s), make_interval(secs => %s)) "
        "ORDER BY job, kind"
    )
    rows = await store.rows(query, target, limit, pause, ttl)
    return [Alert(**{**row, "kind": AlertKind(row["kind"])}) for row in rows]


async def record_alert(store: Store, target: str, alert: Alert) -> None:
    """Record that an alert was delivered to a target."""
    query = "SELECT opendataflow.record_alert(%s, %s, %s, %s)"
    await store.row(query, target, alert.job, alert.kind, alert.failing)


async def release_alerts(store: Store, target: str, alerts: Sequence[Alert]) -> None:
    """Release claimed alerts that could not be delivered."""
    query = "SELECT opendataflow.release_alerts(%s, %s, %s)"
    await store.row(query, target, [a.job for a in alerts], [a.kind.value for a in alerts])
