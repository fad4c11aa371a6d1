"""`dataflow status` and `why`: show the progress of jobs, and the blockers of a task."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from opendataflow.cli.app import OutputOption, app, with_store
from opendataflow.cli.cluster import resources
from opendataflow.cli.cluster.choice import through_cluster
from opendataflow.cli.complete import complete_data_id, complete_job
from opendataflow.cli.output.printing import Output, coloured, echo, print_document
from opendataflow.cli.output.screen import Screen, Text, console
from opendataflow.core.text.explain import (
    breaker_sentence,
    counted,
    declaring_sentence,
    duration,
    explain,
    failed_sentence,
    limit_sentence,
    missing_output_sentence,
    resubmit_failed_command,
    shell_command,
    stale_sentence,
    unmanaged_namespace_sentence,
    waiting_sentence,
)
from opendataflow.core.text.locations import gate_sentence, missing_sentence
from opendataflow.core.text.moments import rate
from opendataflow.core.text.project_tests import tests_sentence
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import UnknownThing
from opendataflow.names import ChunkStatus, JobState, TaskState
from opendataflow.store.store import Store

Status = dict[str, Any]
_BAR_COLUMNS = 60
_MOST_GROUPS = 2
"""Groups of failures and of blockers in a live display."""


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


def status_lines(status: Status) -> list[str]:
    """Return the lines below the counts: rate, watermark, running tasks, and problems with a remedy."""
    breaker = (
        [f"breaker    {breaker_sentence(status['breaker']).removeprefix('breaker ')}"] if status["breaker"] else []
    )
    tests = status["tests"]
    tested = [f"tests      {tests_sentence(tests)}"] if tests and tests["failed"] else []
    gate, missing = status["preflight"], status["missing"]
    locations = [f"location   {gate_sentence(gate)}"] if gate else []
    locations += [f"missing    {missing_sentence(missing)}"] if missing else []
    unseen = [f"unseen     {unmanaged_namespace_sentence(found)}" for found in status["unmanaged_namespaces"]]
    sharing = [f"sharing    {status['sharing']}"] if status.get("sharing") else []
    declaring = (
        [f"declaring  {declaring_sentence(status['declaring']).removeprefix('declaring ')}; nothing is complete before"]
        if status.get("declaring")
        else []
    )
    return [
        *unseen,
        *_limits(status),
        *declaring,
        *sharing,
        *breaker,
        *tested,
        *locations,
        *_pace(status),
        *_stale(status),
        *_failed(status),
        *_incomplete(status),
        *_waiting(status),
    ]


def problem_lines(status: Status) -> list[str]:
    """Return what keeps a job from its end, each in one line: gates, failures and blockers, the largest groups only."""
    shortened = {**status, **{name: status[name][:_MOST_GROUPS] for name in ("failed", "waiting")}}
    known = [*_limits(status), *_pace(status), *_stale(status)]
    return [line for line in status_lines(shortened) if line not in known and not line.startswith(" ")]


def _limits(status: Status) -> Iterator[str]:
    for one in status["limits"]:
        sentence = limit_sentence(one["slots"], one["parallelism"], one["host"])
        yield f"limit      {sentence}: dataflow local --parallelism changes that"


def _pace(status: Status) -> Iterator[str]:
    if status["per_minute"]:
        moving = any(status["counts"].get(state) for state in (TaskState.QUEUED, TaskState.RUNNING, TaskState.RETRYING))
        left = f", about {duration(status['eta_seconds'])} left" if moving and status["eta_seconds"] else ""
        yield f"rate       {rate(status['per_minute'])}{left}"
    gaps = _number(status["gaps"], "gap", more=status["gaps"] >= status["sample"])
    gaps = f"{gaps}: {_some(status['gap_examples'], status['gaps'])}"
    if status["watermark"]:
        stale = ", stale ones included" if status["stale"] else ""
        yield f"watermark  all done up to {status['watermark']}{stale}{f'; after it {gaps}' if status['gaps'] else ''}"
    elif status["gaps"]:
        yield f"gaps       {gaps}"
    for run in status["running"]:
        yield f"running    {run['data_id']}, attempt {run['attempt']}, for {duration(run['seconds'])}"
    if status["next_due"] is not None:
        yield f"retry      the next in {duration(status['next_due'])}"


def _stale(status: Status) -> Iterator[str]:
    if status["stale"]:
        yield f"stale      {stale_sentence(status['job'], status['stale'], status['stale_examples'])}"


def _failed(status: Status) -> Iterator[str]:
    total = status["counts"].get(TaskState.FAILED, 0)
    for group in status["failed"]:
        yield f"failed     {failed_sentence(group, status['sample'], total)}"
    if status["failed"]:
        command = resubmit_failed_command(status["job"], status["failed"], total)
        yield f"           when the cause is fixed: {command}"


def _incomplete(status: Status) -> Iterator[str]:
    for group in status["incomplete"]:
        yield missing_output_sentence(status["job"], group)


def _waiting(status: Status) -> Iterator[str]:
    for group in status["waiting"]:
        yield f"waiting    {waiting_sentence(group, status['sample'], status['counts'].get(TaskState.WAITING, 0))}"
        if group["status"] != ChunkStatus.RUNNING:
            yield f"           see: {shell_command('why', status['job'], group['examples'][0])}"


def _number(number: int, word: str, *, more: bool) -> str:
    """Return a number with its noun. `more`: only a sample was counted, so the true number may be higher."""
    return f"{'at least ' if more else ''}{counted(number, word)}"


def _some(examples: Sequence[str], count: int) -> str:
    return ", ".join(examples) + (" …" if count > len(examples) else "")
