"""`dataflow describe`: shows one job, data set, chunk or run with its history."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from opendataflow.cli.app import OutputOption, app, with_store
from opendataflow.cli.complete import complete_data_id, complete_dataset, complete_job
from opendataflow.cli.output.printing import Output, echo, print_document
from opendataflow.cli.reports.status import job_status
from opendataflow.core.runs.logs import is_in_pod, pod_of
from opendataflow.core.status.forced_runs import forced_evidence
from opendataflow.core.status.inputs_behind import changes_evidence
from opendataflow.core.status.places import place
from opendataflow.core.text.explain import (
    counted,
    declaring_sentence,
    describe_reported,
    duration,
    meaning,
    shell_command,
)
from opendataflow.core.text.moments import shown
from opendataflow.core.text.progress import status_lines
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import UnknownThing
from opendataflow.names import TaskState
from opendataflow.store.store import Store

_INTERNAL = ("lease", "boot", "nonce", "pod_uid", "declaration", "declared_as")
"""Fields that no output has."""

Facts = Mapping[str, Any]
Line = tuple[str, str]
"""A name and its value. An empty name continues the line before."""

describe = typer.Typer(help="Show all details of one job, data set, chunk or run.", no_args_is_help=True)
app.add_typer(describe, name="describe")

JobArgument = Annotated[str, typer.Argument(help="A job.", autocompletion=complete_job)]
DatasetArgument = Annotated[str, typer.Argument(help="A data set.", autocompletion=complete_dataset)]
DataIdArgument = Annotated[str, typer.Argument(help="A data id.", autocompletion=complete_data_id)]


@describe.command("job")
def describe_job(job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """Describe a job: its declaration, its progress, its last runs and the changes of its limits."""

    async def ask(store: Store) -> Facts:
        return await store.describe_job(job) or await job_status(store, job)

    found = with_store(ask)
    _show(found, output, _job)


@describe.command("dataset")
def describe_dataset(dataset: DatasetArgument, output: OutputOption = Output.TABLE) -> None:
    """Describe a data set: its location, its producer and consumers, its chunks and their manual changes."""

    async def ask(store: Store) -> Facts:
        return await store.describe_dataset(dataset) or await _no_dataset(store, dataset)

    _show(with_store(ask), output, _dataset)


@describe.command("chunk")
def describe_chunk(dataset: DatasetArgument, data_id: DataIdArgument, output: OutputOption = Output.TABLE) -> None:
    """Describe a chunk: its status and version, its producer and consumers, and its history."""

    async def ask(store: Store) -> Facts:
        found = await store.describe_chunk(dataset, data_id)
        if found is None:
            if await store.describe_dataset(dataset) is None:
                await _no_dataset(store, dataset)
            known = did_you_mean(data_id, await store.known_ids(dataset))
            raise UnknownThing(f"data set {dataset} has no chunk {data_id}{known}")
        return found

    _show(with_store(ask), output, _chunk)


@describe.command("run")
def describe_run(
    run: Annotated[int, typer.Argument(help="A run, as `dataflow get runs` shows it.")],
    output: OutputOption = Output.TABLE,
) -> None:
    """Describe a run: the versions and places that it read and wrote, and its outcome."""

    async def ask(store: Store) -> Facts:
        found = await store.describe_run(run)
        if found is None:
            raise UnknownThing(f"there is no run {run}: see `dataflow get runs`")
        return found

    _show(with_store(ask), output, _run)


async def _no_dataset(store: Store, dataset: str) -> Facts:
    known = [row["dataset"] for row in await store.list_datasets()]
    raise UnknownThing(f"there is no data set {dataset}{did_you_mean(dataset, known)}")


def _show(found: Facts, output: Output, lines: Callable[[Facts], Iterator[Line]]) -> None:
    if output.is_document:
        print_document(without_internals(found), output)
        return
    for name, value in lines(found):
        echo(f"{name + ':':<16} {value}" if name else f"  {value}")


def without_internals(value: Any) -> Any:
    """Return a document without what only the program uses."""
    if isinstance(value, Mapping):
        return {name: without_internals(one) for name, one in value.items() if name not in _INTERNAL}
    return [without_internals(one) for one in value] if isinstance(value, list) else value


def _job(found: Facts) -> Iterator[Line]:
    job, status = found["job"], found["status"]
    yield "Job", job["id"]
    state = "deleted" if job["deleted"] else "suspended" if job["suspended"] else "active"
    yield "State", state
    yield "Parallelism", f"{job['parallelism']}, priority {job['priority']}"
    yield "Order", "descending" if job["descending"] else "ascending"
    if job["chunk_from"] or job["chunk_to"]:
        yield "Ids", f"from {job['chunk_from'] or 'the first'} to {job['chunk_to'] or 'the last'}"
    yield (
        "Retries",
        (
            f"{job['retry_limit']}, infrastructure {job['infrastructure_limit']}; pauses from "
            f"{duration(job['backoff_initial'])} to {duration(job['backoff_maximum'])}"
        ),
    )
    if job["run_deadline"]:
        yield "Deadline", f"{duration(job['run_deadline'])} a run"
    yield "Applied", _time(job["modified"])
    for dataset in found["datasets"]:
        yield "Input" if dataset["itemtype"] == "IN" else "Output", f"{dataset['id']}  {place(dataset)}"
    for name, value in found["env"].items():
        yield "Env", f"{name}={value}"
    counts = status["counts"]
    stale = f", {status['stale']} of them stale" if status["stale"] else ""
    yield "Tasks", (", ".join(f"{counts[s]} {s}" for s in TaskState if s in counts) or "none") + stale
    for line in status_lines(status):
        yield "", line
    yield from _runs(found["runs"])
    yield from _events(found["events"])


def _dataset(found: Facts) -> Iterator[Line]:
    dataset = found["dataset"]
    yield "Data set", dataset["id"]
    yield "Place", place(dataset)
    if dataset["username"]:
        yield "User", dataset["username"]
    yield "Password", "encrypted" if found["has_password"] else "none"
    for name, value in dataset["options"].items():
        yield "Option", f"{name}={value}"
    yield "Made by", found["producer"] or "no job: published from outside"
    yield "Read by", ", ".join(found["consumers"]) or "no job"
    declaring = f"; {declaring_sentence(found['declaring'])}" if found["declaring"] else ""
    yield "Chunks", (", ".join(f"{n} {status}" for status, n in sorted(found["counts"].items())) or "none") + declaring
    yield "Applied", _time(dataset["modified"])
    yield from _events(found["events"])


def _chunk(found: Facts) -> Iterator[Line]:
    chunk, publication, producer = found["chunk"], found["publication"], found["producer"]
    yield "Chunk", f"{chunk['data_id']} of {chunk['dataset']}"
    held = f"; it was {chunk['held_status']}" if chunk["held_status"] else ""
    yield "Status", f"{meaning(chunk['status'], chunk['reason'])}{held}"
    yield "Version", str(chunk["fence"] or "none")
    if publication:
        by = f"run {publication['run']}" if publication["event"] == "complete" else publication["actor"]
        yield "Made READY", f"{_time(publication['at'])} by {by} ({publication['event']}){_why(publication)}"
    if chunk["bounds"]:
        yield "Bounds", ", ".join(f"{name} {value}" for name, value in chunk["bounds"].items())
    for name in ("rows", "bytes", "checksum"):
        if chunk[name] is not None:
            yield name.capitalize(), str(chunk[name])
    for it in found["expectations"] or ():
        yield "Expectation", describe_reported(it)
    yield from _forced(found)
    yield "Readers", str(chunk["readers"])
    if producer:
        run = f", run {producer['run']}" if producer["run"] else ""
        yield "Made by", f"{producer['job']}: {producer['state']}{run}{_stale(producer)}"
        yield "", f"see: {shell_command('inspect', producer['job'], chunk['data_id'])}"
    for one in found["consumers"]:
        run = f", run {one['run']}" if one["run"] else ""
        yield "Read by", f"{one['job']}: {one['state']}{run}{_stale(one)}"
    yield from _events(found["events"])


def _stale(task: Facts) -> str:
    return ", stale: made from an older version" if task["stale"] and task["state"] == TaskState.DONE else ""


def _run(found: Facts) -> Iterator[Line]:
    run = found["run"]
    yield "Run", f"{run['id']} of {run['job']} {run['data_id']}, attempt {run['attempt']}"
    asked = ", its end was asked for" if run["cancel_requested"] else ""
    yield "State", f"{run['state']}{', forced' if run['forced'] else ''}{asked}"
    yield "Task", f"{found['task'] or 'gone'}{'' if found['last'] else '; a later run came after this one'}"
    yield "From", _time(run["claimed_at"])
    yield "To", f"{_time(run['finished_at'])} ({duration(found['seconds'])})" if run["finished_at"] else "still running"
    if run["exit_code"] is not None:
        yield "Exit code", str(run["exit_code"])
    if run["failure_class"]:
        yield "Failure", run["failure_class"]
    if run["message"]:
        yield "Message", run["message"]
    yield "Host", run["host"]
    where = run["log_path"] or run["runs_home"]
    if is_in_pod(run):
        where = f"kubectl logs {pod_of({**run, 'run': run['id']})}"
    yield "Log", f"{where}; see: dataflow logs --run {run['id']}"
    where = {d["id"]: place(d) for d in found["datasets"] or ()}
    for dataset, fence in zip(run["reads"], run["read_fences"], strict=True):
        yield "Read", f"{dataset} version {fence}  {where.get(dataset, '')}"
    for dataset in run["writes"]:
        yield "Wrote", f"{dataset} version {run['fence']}  {where.get(dataset, '')}"
    yield from _forced(found)
    yield from _reported(found["steps"], run)
    yield from _events(found["events"])


def _forced(found: Facts) -> Iterator[Line]:
    for one in forced_evidence(found["behind"]):
        yield "Forced", one.sentence
    for one in changes_evidence(found["changes"]) if found.get("changes") else ():
        yield "Changed", one.sentence


def _reported(steps: Sequence[Facts], run: Facts) -> Iterator[Line]:
    for step in steps:
        rows = "" if step["rows"] is None else f", {counted(step['rows'], 'row')}"
        took = "" if step["seconds"] is None else f", {step['seconds']:.2f} s"
        yield "Step", f"{step['ordinal']} {step['name']}: {step['status']}{rows}{took}"
    if steps:
        yield "", f"see: dataflow pipeline history --run {run['id']}"
    metrics = run["metrics"] or {}
    for it in metrics.get("expectations", ()):
        yield "Expectation", describe_reported(it)
    for it in metrics.get("looks", ()):
        yield "Looked at", f"{it['dataset']} at {it['place']}: {it['found']}, {it['sentence']}"
    for name, value in metrics.items():
        if name not in ("expectations", "looks"):
            yield "Metric", f"{name} {value}"


def _runs(runs: Sequence[Facts]) -> Iterator[Line]:
    if runs:
        yield "Last runs", ""
    for run in runs:
        message = f": {run['message']}" if run["message"] else ""
        forced = ", forced" if run["forced"] else ""
        yield "", f"{run['run']}  {run['data_id']}  attempt {run['attempt']}  {run['state']}{forced}{message}"


def _events(events: Sequence[Facts]) -> Iterator[Line]:
    yield "Events", "" if events else "none"
    for event in events:
        which = f"{event['data_id']}  " if event.get("data_id") else ""
        run = f", run {event['run']}" if event.get("run") else ""
        yield (
            "",
            (
                f"{_time(event['at'])}  {which}{event['event']}: {event['from']} -> {event['to']}{run}"
                f"  by {event['actor']}{_why(event)}"
            ),
        )


def _why(event: Facts) -> str:
    return f": {event['reason']}" if event["reason"] else ""


def _time(text: str) -> str:
    return shown(text)
