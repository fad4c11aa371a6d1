"""The words of a notification. Pure; it never says more than the reason that `dataflow status` shows."""

from opendataflow.core.text.explain import counted, shell_command
from opendataflow.model.records.alert import Alert
from opendataflow.names import AlertKind


def text(alert: Alert) -> str:
    """One or two sentences for a person."""
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
                f"time finds out when it is well again. See: {shell_command('status', job)}"
            )
        case AlertKind.BREAKER, False:
            return f"job {job}: well again, it goes on with all its runs"
        case AlertKind.TESTS, True:
            return f"job {job}: {_reason(alert)}. See: {shell_command('status', job)}"
        case AlertKind.TESTS, False:
            return f"job {job}: well again, the tests of its project pass"
        case _:
            return "a test of the notifications of OpenDataFlow: this target works"


def payload(alert: Alert) -> dict[str, object]:
    """The message as programs get it; chat services show its `text`."""
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
