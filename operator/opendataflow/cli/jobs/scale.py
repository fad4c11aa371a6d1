"""`dataflow scale`, `suspend` and `resume`: what whole jobs may do. They drain: what runs goes on to its end."""

from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from opendataflow.cli.app import Panel, actor, app, with_store
from opendataflow.cli.cluster import resources
from opendataflow.cli.cluster.where import through_cluster
from opendataflow.cli.complete import complete_job
from opendataflow.core.text.explain import counted
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import UnknownThing
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store

JobArgument = Annotated[str, typer.Argument(help="A job.", autocompletion=complete_job)]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Why; goes into the history.")]


@app.command("scale", rich_help_panel=Panel.ASK)
def scale(
    job: JobArgument,
    parallelism: Annotated[int, typer.Argument(min=0, help="How many runs at a time; 0 starts nothing new.")],
    reason: ReasonOption = None,
) -> None:
    """Change how many runs of a job there are at a time. Fewer: what runs goes on, and nothing new starts meanwhile."""
    if through_cluster():
        limits = resources.scale(job, parallelism, reason)
    else:
        limits = _asked(job, lambda store: store.scale(job, parallelism, actor(), reason))
    typer.echo(scaled(limits))


@app.command("suspend", rich_help_panel=Panel.ASK)
def suspend(job: JobArgument, reason: ReasonOption = None) -> None:
    """Start nothing new of a job; what runs goes on. `dataflow resume` undoes it."""
    limits = _set_suspended(job, reason, suspended=True)
    was = "was suspended already" if limits["before"] else "is suspended: nothing new starts"
    typer.echo(f"job {job} {was}; {_go_on(limits['running'])}")


@app.command("resume", rich_help_panel=Panel.ASK)
def resume(job: JobArgument, reason: ReasonOption = None) -> None:
    """Let a suspended job go on."""
    limits = _set_suspended(job, reason, suspended=False)
    was = "goes on" if limits["before"] else "was not suspended"
    typer.echo(f"job {job} {was}: it may have {counted(limits['parallelism'], 'run')} at a time, {_running(limits)}")


def _set_suspended(job: str, reason: str | None, *, suspended: bool) -> Row:
    if through_cluster():
        return resources.suspend(job, reason, suspended=suspended)
    return _asked(job, lambda store: store.suspend(job, actor(), reason, suspended=suspended))


def scaled(limits: Row) -> str:
    """What a change of the parallelism does, in one sentence."""
    before, after, running = limits["before"], limits["after"], limits["running"]
    suspended = "; it is suspended, so that nothing starts" if limits["suspended"] else ""
    change = f"job {limits['job']}: parallelism {before} -> {after}"
    if running > after:
        return f"{change}; {_go_on(running)}, nothing new starts while there are {max(after, 1)} or more{suspended}"
    if after == 0:
        return f"{change}; nothing new starts{suspended}"
    return f"{change}; {_running(limits)}{suspended}"


def _running(limits: Row) -> str:
    return f"{limits['running']} {'is' if limits['running'] == 1 else 'are'} running"


def _go_on(running: int) -> str:
    if not running:
        return "no run is under way"
    return f"{counted(running, 'run')} still {'goes' if running == 1 else 'go'} on"


def _asked(job: str, change: Callable[[Store], Awaitable[Row]]) -> Row:
    async def ask(store: Store) -> Row:
        try:
            return await change(store)
        except UnknownThing as error:
            known = [row["job"] for row in await store.list_jobs()]
            raise UnknownThing(f"{error}{did_you_mean(job, known)}") from error

    return with_store(ask)
