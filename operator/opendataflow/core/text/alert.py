"""Text and payload of a notification. Pure. It contains no more details than `dataflow status` shows."""

from opendataflow.core.text.explain import counted, shell_command
from opendataflow.model.records.alert import Alert
from opendataflow.names import AlertKind


def text(alert: Alert) -> str:
    """Return one or two sentences for a person."""
    job = alert.job
    match alert.kind, alert.failing:
        case AlertKind.FAILED, True:
            have = "has" if alert.count == 1 else "have"
            first = f"{alert.data_id}" if alert.count == 1 else f"the first is {alert.data_id}"
            return (
                f"job {job}: {counted(alert.count, 'chunk')} {have} failed ({first}): {_reason(alert)}. "
                f"See: {shell_command('status', job)}"
            )
        case AlertKind.FAILED, False:
            return f"job {job}: no chunk is failed any more"
        case AlertKind.BREAKER, True:
            return (
                f"job {job}: {alert.count} chunks failed in a row, the last with: {_reason(alert)}. One probe at a "
                f"time finds out when it is healthy again. See: {shell_command('status', job)}"
            )
        case AlertKind.BREAKER, False:
            return f"job {job}: healthy again, all its runs continue"
        case AlertKind.TESTS, True:
            return f"job {job}: {_reason(alert)}. See: {shell_command('status', job)}"
        case AlertKind.TESTS, False:
            return f"job {job}: healthy again, the tests of its project pass"
        case AlertKind.PREFLIGHT, True:
            where = f"{counted(alert.count, 'chunk')} ({alert.data_id} first): " if alert.count else ""
            return f"job {job} does not find its data: {where}{_reason(alert)}. See: {shell_command('status', job)}"
        case AlertKind.PREFLIGHT, False:
            return f"job {job}: healthy again, the locations of its data are there"
        case _:
            return "a test of the notifications of OpenDataFlow: this target works"


def payload(alert: Alert) -> dict[str, object]:
    """Return the notification as JSON for webhooks. Chat services show its field `text`."""
    return {
        "text": text(alert),
        "job": alert.job,
        "kind": alert.kind.value,
        "event": "failing" if alert.failing else "well",
        "since": alert.since.isoformat(timespec="seconds"),
        "count": alert.count,
        "data_id": alert.data_id,
        "message": alert.message,
    }


def _reason(alert: Alert) -> str:
    return alert.message or "no reason is known"
