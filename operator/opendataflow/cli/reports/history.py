"""`dataflow history clean`: deletes old runs and events, with their logs on this machine."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from opendataflow.cli.app import OutputOption, app, with_store
from opendataflow.cli.complete import complete_job
from opendataflow.cli.output.printing import Output, echo, print_document
from opendataflow.cli.reports.status import job_status
from opendataflow.core.text.explain import counted
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import InvalidInput, UnknownThing
from opendataflow.keys import bare
from opendataflow.launch.process.folder import remove_folder
from opendataflow.launch.process.host import this_host
from opendataflow.names import run_name
from opendataflow.settings import read_settings
from opendataflow.store.leader import identity
from opendataflow.store.store import OldRun, Store

history = typer.Typer(help="Delete old history.", no_args_is_help=True)
app.add_typer(history, name="history")

_BATCH = 1000
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1), "y": timedelta(days=365)}


@history.callback()
def _group() -> None:
    """Make Typer keep `clean` as a subcommand, although it is the only one."""


@history.command("clean")
def clean(
    older_than: Annotated[
        str, typer.Option("--older-than", help="The minimum age, such as 12h, 90d, 8w or 2y.")
    ] = "90d",
    job: Annotated[
        str | None,
        typer.Option("--job", help="Only this job and its output chunks.", autocompletion=complete_job),
    ] = None,
    pipeline: Annotated[str | None, typer.Option("--pipeline", help="Only jobs that run this pipeline.")] = None,
    days_old: Annotated[
        int | None, typer.Option("--days_old", min=1, help="The same as --older-than with days, as in the Django tool.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Count the rows and logs that would be deleted, and delete nothing.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Delete old runs, their steps and logs, and old events. Keep those that explain a chunk's current version."""
    older_than = older_than if days_old is None else f"{days_old}d"
    before = datetime.now(UTC) - age(older_than)

    async def ask(store: Store) -> tuple[int, int, int]:
        chosen = await _chosen_jobs(store, job, pipeline)
        runs = logs = 0
        for one in [row["job"] for row in await store.list_jobs()] if chosen is None else chosen:
            deleted = await _clean_runs(store, one, before, dry_run=dry_run)
            runs, logs = runs + deleted[0], logs + deleted[1]
        owners: list[str | None] = [None] if chosen is None else list(chosen)
        events = [await store.clean_events(one, before, _BATCH, dry_run=dry_run) for one in owners]
        return runs, logs, sum(events)

    runs, logs, events = with_store(ask)
    if output.is_document:
        counts = {"runs": runs, "logs": logs, "events": events}
        print_document({"job": job, "before": before, "dry_run": dry_run, **counts}, output)
        return
    would = "would go" if dry_run else "gone"
    echo(
        f"older than {older_than}: {counted(runs, 'run')}, {counted(logs, 'log folder')} of this machine and "
        f"{counted(events, 'event')} {would}" + ("; nothing was changed" if dry_run else "")
    )


async def _chosen_jobs(store: Store, job: str | None, pipeline: str | None) -> list[str] | None:
    """Return the jobs that were chosen, or None for all. Raise an error if there is none."""
    if job is not None and pipeline is not None:
        raise InvalidInput("write --job or --pipeline, and not both")
    if job is not None:
        await job_status(store, job)
        return [job]
    if pipeline is None:
        return None
    described = [await store.describe_job(row["job"]) for row in await store.list_jobs()]
    found = [it["job"]["id"] for it in described if it is not None and it["job"]["pipeline"] == pipeline]
    if not found:
        known = sorted({it["job"]["pipeline"] for it in described if it is not None and it["job"]["pipeline"]})
        raise UnknownThing(f"no job runs a pipeline {pipeline}{did_you_mean(pipeline, known)}")
    return found


def age(text: str) -> timedelta:
    """Parse an age such as 12h, 90d, 8w or 2y. Raise InvalidInput for anything else."""
    match = re.fullmatch(r"([0-9]{1,5})([hdwy])", text)
    if match is None:
        raise InvalidInput(f"--older-than {text}: write a whole number of hours, days, weeks or years, like 12h or 90d")
    return int(match[1]) * _UNITS[match[2]]


async def _clean_runs(store: Store, job: str, before: datetime, *, dry_run: bool) -> tuple[int, int]:
    """Delete old runs of a job in batches. Return the numbers of runs and of log folders.

    Delete the folder of a run first. If this process ends then, the next call deletes the run.
    """
    settings, host = read_settings(), this_host().name
    homes = {str(home): home for home in (settings.runs_home(await identity(store)), settings.all_runs)}
    runs = logs = 0
    last: OldRun | None = None
    while batch := await store.old_runs(job, before, last, _BATCH):
        last = batch[-1]
        deletable = [run for run in batch if run.goes]
        for run in deletable:
            if run.host == host and run.runs_home in homes:
                logs += remove_folder(homes[run.runs_home], run_name(bare(run.job), run.run), dry_run=dry_run)
        runs += len(deletable) if dry_run else await store.clean_runs([run.run for run in deletable])
    return runs, logs
