"""`dataflow notify`: whether the people who are to be told of failures really are."""

import asyncio
from datetime import UTC, datetime

import typer

from opendataflow.cli.app import Panel, app
from opendataflow.errors import InvalidInput, NotDelivered
from opendataflow.model.records.alert import Alert
from opendataflow.names import AlertKind, ExitCode
from opendataflow.notify.configured import Target, targets_of
from opendataflow.settings import read_settings

notify = typer.Typer(help="Notifications: who is told when something fails.", no_args_is_help=True)
app.add_typer(notify, name="notify", rich_help_panel=Panel.KEEP)


@notify.command("test")
def test() -> int:
    """Send a test message to every target that the environment names. Exit code 1 where one does not take it."""
    targets = targets_of(read_settings().notifications)
    if not targets:
        raise InvalidInput(
            "nobody is told of failures: set DATAFLOW_NOTIFY_COMMAND, DATAFLOW_NOTIFY_WEBHOOK or DATAFLOW_NOTIFY_SMTP"
        )
    alert = Alert("test", AlertKind.TEST, failing=False, since=datetime.now(UTC))

    async def try_all() -> list[str | None]:
        return list(await asyncio.gather(*(_tried(target, alert) for target in targets)))

    reasons = asyncio.run(try_all())
    for target, reason in zip(targets, reasons, strict=True):
        typer.echo(f"{target.name}: {f'failed: {reason}' if reason else 'sent'}")
    return ExitCode.FAILED if any(reasons) else ExitCode.OK


async def _tried(target: Target, alert: Alert) -> str | None:
    """Why a target has not taken it; None where it has."""
    try:
        await target.deliver(alert)
    except NotDelivered as error:
        return str(error)
    return None
