"""`dataflow status`, `why` and `logs`: what is going on, on one screen."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.text import Text

from opendataflow.cli.app import OutputOption, app, with_store
from opendataflow.cli.show import Output, coloured, console, document, duration
from opendataflow.core.explain import explain
from opendataflow.errors import InvalidInput, UnknownThing
from opendataflow.names import WorkState
from opendataflow.store.store import Store

Status = dict[str, Any]


@app.command("status")
def status(
    jobs: Annotated[list[str] | None, typer.Argument(help="Jobs; all where none is given.")] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how far jobs are: done, running, failed with reasons, gaps, rate and time left."""

    async def ask(store: Store) -> list[Status]:
        names = jobs or [row["job"] for row in await store.list_jobs()]
        return [await job_status(store, name) for name in names]

    found = with_store(ask)
    if output is not Output.TABLE:
        document(found, output)
        return
    if not found:
        console(stderr=True).print("no jobs: dataflow apply -f FILE")
    for one in found:
        print_status(console(), one)


async def job_status(store: Store, job: str) -> Status:
    """The status of a job; UnknownThing where there is none."""
    found = await store.job_status(job)
    if found is None:
        raise UnknownThing(f"there is no job {job}: see `dataflow get jobs`")
    return found


@app.command("why")
def why(
    job: Annotated[str, typer.Argument(help="A job.")],
    data_id: Annotated[str, typer.Argument(help="A data id.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Say what a chunk's work waits for, with evidence, and what to do about it."""

    async def ask(store: Store) -> Status:
        found = await store.why(job, data_id)
        if found is None:
            await job_status(store, job)
            raise UnknownThing(f"job {job} has no work for {data_id}: see `dataflow status {job}`")
        return found

    found = with_store(ask)
    if output is not Output.TABLE:
        document(found, output)
        return
    for sentence in explain(found):
        typer.echo(sentence)


@app.command("logs")
def logs(
    job: Annotated[str | None, typer.Argument(help="A job.")] = None,
    data_id: Annotated[str | None, typer.Argument(help="A data id: the log of its last run.")] = None,
    run: Annotated[int | None, typer.Option("--run", help="A run, as `dataflow get runs` shows it.")] = None,
) -> None:
    """Print what a run has printed: all of it where its file is on this machine, else the end that is kept."""
    if run is None and (job is None or data_id is None):
        raise InvalidInput("logs needs JOB and DATAID, or --run RUN")
    found = with_store(lambda store: store.run_log(job, data_id, run))
    if found is None:
        raise UnknownThing(f"there is no run {run}" if run is not None else f"{data_id} of job {job} has not run yet")
    typer.echo(
        f"run {found['run']} of {found['job']} {found['data_id']}, attempt {found['attempt']}: {found['state']}",
        err=True,
    )
    path = log_file(found)
    if path is not None and path.is_file():
        typer.echo(path.read_text("utf-8", errors="replace"), nl=False)
    else:
        typer.echo(found["log_tail"] or "", nl=False)


def log_file(found: Status) -> Path | None:
    """Where the whole log of a run is, if it is known: also while it runs."""
    return Path(found["log_path"]) if found["log_path"] else None


def print_status(to: Console, status: Status) -> None:
    """Print one job's status."""
    counts: dict[str, int] = status["counts"]
    total, done = sum(counts.values()), counts.get(WorkState.DONE, 0)
    head = Text(status["job"], style="bold")
    head.append(f"   {done} of {total} done", style="not bold")
    for state in WorkState:
        if counts.get(state) and state is not WorkState.DONE:
            head.append(f", {counts[state]} ", style="not bold").append_text(coloured(state.value))
    head.append(
        f"   parallelism {status['parallelism']}{', suspended' if status['suspended'] else ''}", style="not bold"
    )
    to.print(head)
    if to.is_terminal:
        to.print("  ", ProgressBar(total=max(total, 1), completed=done, width=60), sep="")
    for line in _lines(status):
        to.print(f"  {line}", markup=False)


def _lines(status: Status) -> list[str]:
    lines = []
    if status["per_minute"]:
        left = f", about {duration(status['eta_seconds'])} left" if status["eta_seconds"] is not None else ""
        lines.append(f"rate       {status['per_minute']:.3g} a minute{left}")
    if status["watermark"]:
        gaps = (
            f"; {status['gaps']} gap(s) after it: {_some(status['gap_examples'], status['gaps'])}"
            if status["gaps"]
            else ""
        )
        lines.append(f"watermark  all done up to {status['watermark']}{gaps}")
    elif status["gaps"]:
        lines.append(f"gaps       {status['gaps']}: {_some(status['gap_examples'], status['gaps'])}")
    for run in status["running"]:
        lines += [f"running    {run['data_id']}, attempt {run['attempt']}, for {duration(run['seconds'])}"]
    if status["next_due"] is not None:
        lines.append(f"retry      the next in {duration(status['next_due'])}")
    for group in status["failed"]:
        lines.append(f"failed     {group['chunks']} x {group['reason']}: {_some(group['examples'], group['chunks'])}")
        lines.append(f"           next: dataflow resubmit {status['job']} {' '.join(group['examples'])}")
    for group in status["waiting"]:
        what = "input" if group["itemtype"] == "IN" else "output"
        ids = _some(group["examples"], group["chunks"])
        lines.append(f"waiting    {group['chunks']} x {what} {group['dataset']} is {group['status']}: {ids}")
        if group["status"] not in ("RUNNING", "DECLARED", "RESUBMIT"):
            lines.append(f"           see: dataflow why {status['job']} {group['examples'][0]}")
    return lines


def _some(examples: Sequence[str], count: int) -> str:
    return ", ".join(examples) + (" …" if count > len(examples) else "")
