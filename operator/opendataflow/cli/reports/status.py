"""`dataflow status` and `why`: show the progress of jobs, and the blockers of a task."""

from collections.abc import Sequence
from typing import Annotated

import typer

from opendataflow.cli.app import OutputOption, app, with_store
from opendataflow.cli.cluster import resources
from opendataflow.cli.cluster.choice import through_cluster
from opendataflow.cli.complete import complete_data_id, complete_job
from opendataflow.cli.output.printing import Output, coloured, echo, print_document
from opendataflow.cli.output.screen import Screen, Text, console
from opendataflow.core.text.explain import declaring_sentence, explain
from opendataflow.core.text.progress import Status, status_lines
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import UnknownThing
from opendataflow.names import JobState, TaskState
from opendataflow.store.store import Store

_BAR_COLUMNS = 60


@app.command("status")
def status(
    jobs: Annotated[list[str] | None, typer.Argument(help="Jobs. Default: all.", autocompletion=complete_job)] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the progress of jobs: done, stale, running, failed with reasons, gaps, rate and time left."""

    if through_cluster():
        _through_cluster(jobs or [], output)
        return

    async def ask(store: Store) -> list[Status]:
        names = jobs or [row["job"] for row in await store.list_jobs()]
        return [await job_status(store, name) for name in names]

    found = with_store(ask)
    if output.is_document:
        print_document(found, output)
        return
    if not found:
        echo("no jobs: dataflow apply -f FILE", err=True)
    for one in found:
        print_status(console(), one)


def _through_cluster(jobs: Sequence[str], output: Output) -> None:
    found = resources.statuses(jobs)
    if output.is_document:
        print_document(found, output)
        return
    if not found:
        echo("no jobs in this namespace: kubectl apply -f FILE", err=True)
    for one in found:
        to, counts = console(), resources.task_counts(one)
        incomplete = one.get("state") == JobState.INCOMPLETE
        _print_head(to, {**one, "counts": counts, "stale": resources.stale_count(one), "incomplete": incomplete})
        for line in resources.lines(one):
            to.print(f"  {line}")


async def job_status(store: Store, job: str) -> Status:
    """Return the status of a job. Raise UnknownThing if the job does not exist."""
    found = await store.job_status(job)
    if found is None:
        known = [row["job"] for row in await store.list_jobs()]
        raise UnknownThing(f"there is no job {job}{did_you_mean(job, known)}")
    return found


async def task_status(store: Store, job: str, data_id: str) -> Status:
    """Return the blockers of a task, with evidence. Raise UnknownThing if the job or the task does not exist."""
    found = await store.why(job, data_id)
    if found is None:
        declaring = (await job_status(store, job))["declaring"]
        more = f"; {declaring_sentence(declaring)}, and its task may follow" if declaring else ""
        raise UnknownThing(
            f"job {job} has no task for {data_id}{did_you_mean(data_id, await store.known_ids(job))}{more}"
        )
    return found


@app.command("why")
def why(
    job: Annotated[str, typer.Argument(help="A job.", autocompletion=complete_job)],
    data_id: Annotated[str, typer.Argument(help="A data id.", autocompletion=complete_data_id)],
    output: OutputOption = Output.TABLE,
) -> None:
    """Explain why a chunk's task does not run, with evidence, and what to do about it."""
    found = with_store(lambda store: task_status(store, job, data_id))
    if output.is_document:
        print_document(found, output)
        return
    for sentence in explain(found):
        echo(sentence)


def print_status(to: Screen, status: Status) -> None:
    """Print the status of one job."""
    _print_head(to, status)
    for line in status_lines(status):
        to.print(f"  {line}")


def _print_head(to: Screen, status: Status) -> None:
    counts = status["counts"]
    total, done = sum(counts.values()), counts.get(TaskState.DONE, 0)
    head = Text(status["job"], "bold")
    incomplete = ", but incomplete" if status["incomplete"] else ""
    incomplete += ", more follow" if status.get("declaring") else ""
    head.append(f"   {done} of {total} done{incomplete}")
    if status["stale"]:
        head.append(f", {status['stale']} ").append("stale", "yellow")
    for state in TaskState:
        if counts.get(state) and state is not TaskState.DONE:
            head.append(f", {counts[state]} ").append(coloured(state.value))
    suspended = ", suspended" if status["suspended"] else ""
    head.append(f"   parallelism {status['parallelism']}{suspended}")
    to.print(head)
    if to.width is not None:
        columns = min(to.width - 4, _BAR_COLUMNS)
        full = columns * done // max(total, 1)
        to.print(Text("  ").append("━" * full, "green").append("─" * (columns - full), "dim"))
