"""`dataflow scale`, `suspend` and `resume`: change the limits of a job. They never end a run."""

from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer

from opendataflow.cli.app import OutputOption, ReasonOption, actor, app, with_store
from opendataflow.cli.cluster import resources
from opendataflow.cli.cluster.choice import through_cluster
from opendataflow.cli.complete import complete_job
from opendataflow.cli.output.printing import Output, echo, print_document
from opendataflow.core.text.explain import counted
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import UnknownThing
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store

T = TypeVar("T")
JobArgument = Annotated[str, typer.Argument(help="A job.", autocompletion=complete_job)]


@app.command("scale")
def scale(
    job: JobArgument,
    parallelism: Annotated[int, typer.Argument(min=0, help="The number of runs at a time. 0 starts no new run.")],
    reason: ReasonOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Change the number of runs that a job may have at a time. Active runs continue, also if there are more of them."""
    if through_cluster():
        limits = resources.scale(job, parallelism, reason)
    else:
        limits = with_job(job, lambda store: store.scale(job, parallelism, actor(), reason))
    if output.is_document:
        print_document(_document(limits, parallelism=limits["after"]), output)
    else:
        echo(_scaled_sentence(limits))


@app.command("suspend")
def suspend(job: JobArgument, reason: ReasonOption = None, output: OutputOption = Output.TABLE) -> None:
    """Start no new runs of a job. Active runs continue. `dataflow resume` undoes this."""
    limits = _set_suspended(job, reason, suspended=True)
    if output.is_document:
        print_document(_document(limits, suspended=True), output)
        return
    was = "was suspended already" if limits["before"] else "is suspended: nothing new starts"
    echo(f"job {job} {was}; {active_runs(limits['running'])}")


@app.command("resume")
def resume(job: JobArgument, reason: ReasonOption = None, output: OutputOption = Output.TABLE) -> None:
    """Start runs of a suspended job again."""
    limits = _set_suspended(job, reason, suspended=False)
    if output.is_document:
        print_document(_document(limits, suspended=False), output)
        return
    was = "goes on" if limits["before"] else "was not suspended"
    echo(f"job {job} {was}: it may have {counted(limits['parallelism'], 'run')} at a time, {_running(limits)}")


def _set_suspended(job: str, reason: str | None, *, suspended: bool) -> Row:
    if through_cluster():
        return resources.suspend(job, reason, suspended=suspended)
    return with_job(job, lambda store: store.suspend(job, actor(), reason, suspended=suspended))


def _document(limits: Row, **now: object) -> Row:
    """Return the limits of a job for a program. `now`: those that the command has set; `before` is their old value."""
    same: Row = {name: limits[name] for name in ("job", "running", "parallelism", "suspended") if name in limits}
    return {**same, **now, "before": limits["before"]}


def _scaled_sentence(limits: Row) -> str:
    """Return the sentence that reports a change of the parallelism."""
    before, after, running = limits["before"], limits["after"], limits["running"]
    suspended = "; it is suspended, so that nothing starts" if limits["suspended"] else ""
    change = f"job {limits['job']}: parallelism {before} -> {after}"
    if running > after:
        return (
            f"{change}; {active_runs(running)}, nothing new starts while there are {max(after, 1)} or more{suspended}"
        )
    if after == 0:
        return f"{change}; nothing new starts{suspended}"
    return f"{change}; {_running(limits)}{suspended}"


def _running(limits: Row) -> str:
    return f"{limits['running']} {'is' if limits['running'] == 1 else 'are'} running"


def active_runs(running: int) -> str:
    """Return how many runs continue."""
    if not running:
        return "no run is under way"
    return f"{counted(running, 'run')} still {'goes' if running == 1 else 'go'} on"


def with_job(job: str, change: Callable[[Store], Awaitable[T]]) -> T:
    """Call `change` with the store. If the job is unknown, add similar ids to the error."""

    async def ask(store: Store) -> T:
        try:
            return await change(store)
        except UnknownThing as error:
            known = [row["job"] for row in await store.list_jobs()]
            raise UnknownThing(f"{error}{did_you_mean(job, known)}") from error

    return with_store(ask)
