"""`dataflow history clean`: lets old runs and events go, with the logs that are on this machine."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from opendataflow.cli.app import Panel, app, with_store
from opendataflow.cli.complete import complete_job
from opendataflow.cli.reports.status import job_status
from opendataflow.core.text.explain import counted
from opendataflow.errors import InvalidInput
from opendataflow.launch.process.folder import remove_folder
from opendataflow.launch.process.host import this_host
from opendataflow.names import run_name
from opendataflow.settings import read_settings
from opendataflow.store.store import OldRun, Store

history = typer.Typer(help="The history: let what is old go.", no_args_is_help=True)
app.add_typer(history, name="history", rich_help_panel=Panel.KEEP)

_BATCH = 1000
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1), "y": timedelta(days=365)}


@history.callback()
def _group() -> None:
    """Keep `clean` a command of its own while it is the only one."""


@history.command("clean")
def clean(
    older_than: Annotated[str, typer.Option("--older-than", help="How old: 12h, 90d, 8w or 2y.")] = "90d",
    job: Annotated[
        str | None,
        typer.Option("--job", help="Only this job and the chunks that it writes.", autocompletion=complete_job),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")] = False,
) -> None:
    """Delete old runs, their steps and logs, and old events. What answers for a chunk's current version stays."""
    before = datetime.now(UTC) - age(older_than)

    async def ask(store: Store) -> tuple[int, int, int]:
        if job is not None:
            await job_status(store, job)
        jobs = [job] if job is not None else [row["job"] for row in await store.list_jobs()]
        runs = logs = 0
        for one in jobs:
            gone = await _clean_runs(store, one, before, dry_run=dry_run)
            runs, logs = runs + gone[0], logs + gone[1]
        return runs, logs, await store.clean_events(job, before, _BATCH, dry_run=dry_run)

    runs, logs, events = with_store(ask)
    would = "would go" if dry_run else "gone"
    typer.echo(
        f"older than {older_than}: {counted(runs, 'run')}, {counted(logs, 'log folder')} of this machine and "
        f"{counted(events, 'event')} {would}" + ("; nothing was changed" if dry_run else "")
    )


def age(text: str) -> timedelta:
    """Return how long 12h, 90d, 8w or 2y is; InvalidInput for anything else."""
    match = re.fullmatch(r"([0-9]{1,5})([hdwy])", text)
    if match is None:
        raise InvalidInput(f"--older-than {text}: write a whole number of hours, days, weeks or years, like 12h or 90d")
    return int(match[1]) * _UNITS[match[2]]


async def _clean_runs(store: Store, job: str, before: datetime, *, dry_run: bool) -> tuple[int, int]:
    """Let old runs of a job go, batch by batch; return how many, and how many log folders.

    The folder goes first: where this ends in between, the run is still there and goes the next time.
    """
    settings, host = read_settings(), this_host().name
    runs = logs = 0
    last: OldRun | None = None
    while batch := await store.old_runs(job, before, last, _BATCH):
        last = batch[-1]
        going = [run for run in batch if run.goes]
        for run in going:
            if run.host == host and run.runs_home == str(settings.runs_home):
                logs += remove_folder(settings.runs_home, run_name(run.job, run.run), dry_run=dry_run)
        runs += len(going) if dry_run else await store.clean_runs([run.run for run in going])
    return runs, logs
