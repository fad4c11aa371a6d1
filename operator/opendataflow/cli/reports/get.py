"""`dataflow get`: lists jobs, tasks, data sets, chunks and runs."""

from typing import Annotated

import typer

from opendataflow.cli.app import OutputOption, app, with_store
from opendataflow.cli.cluster import resources
from opendataflow.cli.cluster.choice import through_cluster
from opendataflow.cli.complete import complete_data_id, complete_dataset, complete_job
from opendataflow.cli.output.printing import Output, print_rows
from opendataflow.cli.reports.status import job_status
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import UnknownThing
from opendataflow.names import ChunkStatus, TaskState
from opendataflow.store.connections.connection import Row
from opendataflow.store.store import Store

get = typer.Typer(help="List jobs, tasks, data sets, chunks or runs.", no_args_is_help=True)
app.add_typer(get, name="get")

LimitOption = Annotated[int, typer.Option("--limit", min=1, help="Maximum number of rows.")]
StaleOption = Annotated[
    bool, typer.Option("--stale", help="Only what was made from an older version of an input or of its job.")
]


@get.command("jobs")
def jobs(output: OutputOption = Output.TABLE) -> None:
    """List all jobs with their progress.

    A column for stale, running, retrying or failed tasks appears only if there are any.
    """
    found = resources.list_jobs() if through_cluster() else with_store(lambda store: store.list_jobs())
    counts = ("stale", "running", "retrying", "failed")
    columns = ("job", "state", "done", "total", *counts, "parallelism", "inputs", "outputs")
    print_rows(found, output, columns, "no jobs: dataflow apply -f FILE", optional=counts)


@get.command("tasks")
def tasks(
    job: Annotated[str | None, typer.Argument(help="A job. Default: all.", autocompletion=complete_job)] = None,
    state: Annotated[TaskState | None, typer.Option("--state", help="Only tasks in this state.")] = None,
    stale: StaleOption = False,
    limit: LimitOption = 1000,
    output: OutputOption = Output.TABLE,
) -> None:
    """List tasks in the order of their job."""

    async def ask(store: Store) -> list[Row]:
        found = await store.list_tasks(job, state, limit, stale=stale)
        if not found and job is not None:
            await job_status(store, job)
        return found

    found = with_store(ask)
    columns = ("job", "data_id", "state", "stale", "attempts", "run", "due_at", "reason")
    print_rows(found, output, columns, "no tasks")


@get.command("datasets")
def datasets(output: OutputOption = Output.TABLE) -> None:
    """List all data sets with the numbers of their chunks.

    The column `declaring` appears only while the chunks of a long chunk source are being written.
    """
    found = resources.list_datasets() if through_cluster() else with_store(lambda store: store.list_datasets())
    columns = ("dataset", "kind", "place", "producer", "consumers", "ready", "failed", "chunks", "declaring")
    print_rows(found, output, columns, "no data sets: dataflow apply -f FILE", optional=("declaring",))


@get.command("chunks")
def chunks(
    dataset: Annotated[
        str | None, typer.Argument(help="A data set. Default: all.", autocompletion=complete_dataset)
    ] = None,
    status: Annotated[ChunkStatus | None, typer.Option("--status", help="Only chunks with this status.")] = None,
    stale: StaleOption = False,
    limit: LimitOption = 1000,
    output: OutputOption = Output.TABLE,
) -> None:
    """List chunks in natural order."""

    async def ask(store: Store) -> list[Row]:
        found = await store.list_chunks(dataset, status, limit, stale=stale)
        if not found and dataset is not None:
            known = [row["dataset"] for row in await store.list_datasets()]
            if dataset not in known:
                raise UnknownThing(f"there is no data set {dataset}{did_you_mean(dataset, known)}")
        return found

    found = with_store(ask)
    columns = ("dataset", "data_id", "status", "stale", "run", "published_at", "reason")
    print_rows(found, output, columns, "no chunks")


@get.command("runs")
def runs(
    job: Annotated[str | None, typer.Argument(help="A job. Default: all.", autocompletion=complete_job)] = None,
    data_id: Annotated[
        str | None, typer.Argument(help="A data id. Default: all.", autocompletion=complete_data_id)
    ] = None,
    limit: LimitOption = 50,
    output: OutputOption = Output.TABLE,
) -> None:
    """List runs, newest first."""

    async def ask(store: Store) -> list[Row]:
        found = await store.list_runs(job, data_id, limit)
        if not found and job is not None:
            await job_status(store, job)
        return found

    found = with_store(ask)
    columns = ("run", "job", "data_id", "attempt", "state", "claimed_at", "seconds", "message")
    print_rows(found, output, columns, "no runs")
