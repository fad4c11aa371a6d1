"""`dataflow notify`: tests the targets of notifications about failures."""

import asyncio
from datetime import UTC, datetime

import typer

from opendataflow.cli.app import app
from opendataflow.cli.output.printing import echo
from opendataflow.errors import InvalidInput, NotDelivered
from opendataflow.model.records.alert import Alert
from opendataflow.names import AlertKind, ExitCode
from opendataflow.notify.targets import Target, configured_targets
from opendataflow.settings import read_settings

notify = typer.Typer(help="Test notifications about failures.", no_args_is_help=True)
app.add_typer(notify, name="notify")


@notify.command("test")
def test() -> int:
    """Send a test message to every target that the environment names. Exit code 1 if a delivery fails."""
    targets = configured_targets(read_settings().notifications)
    if not targets:
        raise InvalidInput(
            "failures are reported to nobody: set DATAFLOW_NOTIFY_COMMAND, DATAFLOW_NOTIFY_WEBHOOK or "
            "DATAFLOW_NOTIFY_SMTP"
        )
    alert = Alert("test", AlertKind.TEST, failing=False, since=datetime.now(UTC))

    async def try_all() -> list[str | None]:
        return list(await asyncio.gather(*(_delivery_error(target, alert) for target in targets)))

    reasons = asyncio.run(try_all())
    for target, reason in zip(targets, reasons, strict=True):
        echo(f"{target.name}: {f'failed: {reason}' if reason else 'sent'}")
    return ExitCode.FAILED if any(reasons) else ExitCode.OK


async def _delivery_error(target: Target, alert: Alert) -> str | None:
    """Deliver an alert to a target. Return the error, or None after a successful delivery."""
    try:
        await target.deliver(alert)
    except NotDelivered as error:
        return str(error)
    return None
