"""View models of the pages about one chunk, one run and one data set. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from opendataflow.core.runs.logs import is_in_pod, pod_of
from opendataflow.core.status.inspection import InspectionAnswer, inspection_answers
from opendataflow.core.status.places import place
from opendataflow.core.text.explain import counted, describe_reported, duration, explain, shell_command
from opendataflow.dashboard.models import (
    CHUNK_VERBS,
    TASK_VERBS,
    Choice,
    Event,
    Fact,
    Page,
    Paging,
    Row,
    RunLine,
    events,
    paging,
    run_line,
)
from opendataflow.names import RunState, TaskState

_OPEN = (TaskState.WAITING, TaskState.QUEUED, TaskState.RETRYING, TaskState.HELD, TaskState.SKIPPED)


@dataclass(frozen=True)
class Log:
    """The end of a log. `note`: where the whole log is, if this is a part of it."""

    text: str
    note: str


@dataclass(frozen=True)
class Step:
    """One step of a pipeline in a run."""

    ordinal: int
    name: str
    status: str
    rows: int | None
    took: str
    stdout: str | None
    error: str | None


@dataclass(frozen=True)
class Version:
    """A chunk that a task reads or writes. `used`: the version that its last run read or wrote."""

    role: str
    dataset: str
    status: str
    version: int | None
    used: int | None
    run: int | None
    published_at: str | None
    size: str


@dataclass(frozen=True)
class ChunkPage(Page):
    """The chunk of one task: why it does not run, the five answers, its versions and its attempts."""

    template: ClassVar[str] = "chunk.html"
    job: str
    data_id: str
    state: str
    sentences: tuple[str, ...]
    answers: tuple[InspectionAnswer, ...]
    versions: tuple[Version, ...]
    runs: tuple[RunLine, ...]
    steps: tuple[Step, ...]
    log: Log | None
    log_run: int | None
    events: tuple[Event, ...]
    commands: tuple[str, ...]
    verbs: tuple[str, ...] = TASK_VERBS

    @property
    def is_moving(self) -> bool:
        """Whether a run writes its log now."""
        return self.state == TaskState.RUNNING


@dataclass(frozen=True)
class RunPage(Page):
    """One run: how it ended, what it read and wrote, its steps and its log."""

    template: ClassVar[str] = "run.html"
    run: int
    job: str
    data_id: str
    state: str
    message: str | None
    started: str
    finished: str | None
    facts: tuple[Fact, ...]
    steps: tuple[Step, ...]
    log: Log
    events: tuple[Event, ...]
    command: str

    @property
    def is_moving(self) -> bool:
        """Whether the run writes its log now."""
        return self.state == RunState.RUNNING


@dataclass(frozen=True)
class ChunkLine:
    """One chunk of a data set in a table."""

    data_id: str
    status: str
    stale: bool
    version: int | None
    run: int | None
    published_at: datetime | None
    reason: str | None


@dataclass(frozen=True)
class DatasetPage(Page):
    """One data set: its place, its producer, its consumers and its chunks."""

    template: ClassVar[str] = "dataset.html"
    dataset: str
    facts: tuple[Fact, ...]
    producer: str | None
    consumers: tuple[str, ...]
    counts: tuple[tuple[str, int], ...]
    chosen_status: str
    part: str
    chunks: tuple[ChunkLine, ...]
    paging: Paging
    events: tuple[Event, ...]
    command: str
    verbs: tuple[str, ...] = CHUNK_VERBS


def chunk_page(found: Row, runs: Sequence[Row], last: Row | None, log: Log | None, path: str) -> ChunkPage:
    """Return the page of a chunk. `found`: the row of dashboard_chunk(). `last`: that of its last run."""
    why, inspection = found["why"], found["inspection"]
    job, data_id, sentences = why["job"], why["data_id"], explain(why)
    blocked = sentences if why["state"] in _OPEN else ()
    return ChunkPage(
        f"{data_id} of {job}",
        "jobs",
        path,
        job=job,
        data_id=data_id,
        state="STALE" if why["stale"] and why["state"] == TaskState.DONE else why["state"],
        sentences=tuple(sentences),
        answers=tuple(inspection_answers(inspection, blocked)),
        versions=tuple(map(_version, inspection["datasets"])),
        runs=tuple(map(run_line, runs)),
        steps=tuple(map(step_line, last["steps"])) if last else (),
        log=log,
        log_run=last["run"]["id"] if last else None,
        events=events(found["events"]),
        commands=(shell_command("why", job, data_id), shell_command("inspect", job, data_id)),
    )


def _version(row: Row) -> Version:
    sizes = [counted(row["rows"], "row")] if row["rows"] is not None else []
    sizes += [f"{row['bytes']} bytes"] if row["bytes"] is not None else []
    role = "Input" if row["itemtype"] == "IN" else "Output"
    return Version(
        role,
        row["dataset"],
        row["status"],
        row["fence"],
        row["used_fence"],
        row["run"],
        row["published_at"],
        ", ".join(sizes),
    )


def step_line(row: Row) -> Step:
    """Return one step for a row of steps_of()."""
    took = "" if row["seconds"] is None else duration(row["seconds"])
    return Step(row["ordinal"], row["name"], row["status"], row["rows"], took, row["stdout"], row["error"])


def run_page(found: Row, log: Log, path: str) -> RunPage:
    """Return the page of a run. `found`: the row of dashboard_run()."""
    run = found["run"]
    return RunPage(
        f"Run {run['id']}",
        "jobs",
        path,
        run=run["id"],
        job=run["job"],
        data_id=run["data_id"],
        state=run["state"],
        message=run["message"],
        started=run["claimed_at"],
        finished=run["finished_at"],
        facts=tuple(_run_facts(found)),
        steps=tuple(map(step_line, found["steps"])),
        log=log,
        events=events(found["events"]),
        command=f"dataflow logs --run {run['id']}",
    )


def _run_facts(found: Row) -> Iterator[Fact]:
    run = found["run"]
    yield Fact("Attempt", f"{run['attempt']}{', forced' if run['forced'] else ''}")
    yield Fact("Took", duration(found["seconds"]))
    if run["exit_code"] is not None:
        yield Fact("Exit code", str(run["exit_code"]))
    if run["failure_class"]:
        yield Fact("Class", run["failure_class"])
    yield Fact("Host", run["host"])
    places = {it["id"]: place(it) for it in found["datasets"] or ()}
    for dataset, fence in zip(run["reads"], run["read_fences"], strict=True):
        yield Fact("Read", f"version {fence}  {places.get(dataset, '')}", dataset)
    for dataset in run["writes"]:
        yield Fact("Wrote", f"version {run['fence']}  {places.get(dataset, '')}", dataset)
    metrics = run["metrics"] or {}
    for it in metrics.get("expectations", ()):
        yield Fact("Expectation", describe_reported(it))
    for name, value in metrics.items():
        if name not in ("expectations", "looks"):
            yield Fact("Metric", f"{name} {value}")


def log_note(run: Row, *, cut: bool, on_this_machine: bool) -> str:
    """Return where the rest of a log is. `run`: the row of run_log()."""
    if on_this_machine:
        return "Only the end is shown." if cut else ""
    if is_in_pod(run):
        return f"The whole log, while the pod is there: kubectl logs {pod_of(run)}"
    return "The file of the log is not on this machine. The end that is kept follows." if run["log_tail"] else ""


def dataset_page(found: Row, chunks: Sequence[Row], choice: Choice, path: str) -> DatasetPage:
    """Return the page of a data set. `found`: the row of dashboard_dataset()."""
    dataset, counts, status = found["dataset"], found["counts"], choice.state
    total = None if choice.part else counts.get(status, 0) if status else sum(counts.values())
    return DatasetPage(
        dataset["id"],
        "jobs",
        path,
        dataset=dataset["id"],
        facts=(
            Fact("Place", place(dataset)),
            *([Fact("User", dataset["username"])] if dataset["username"] else []),
            Fact("Password", "encrypted" if found["has_password"] else "none"),
            *(Fact("Option", f"{name}={value}") for name, value in dataset["options"].items()),
        ),
        producer=found["producer"],
        consumers=tuple(found["consumers"]),
        counts=tuple(sorted(counts.items())),
        chosen_status=status,
        part=choice.part,
        chunks=tuple(
            ChunkLine(
                it["data_id"], it["status"], it["stale"], it["fence"], it["run"], it["published_at"], it["reason"]
            )
            for it in chunks
        ),
        paging=paging(choice.offset, len(chunks), choice.limit, total),
        events=events(found["events"]),
        command=shell_command("describe dataset", dataset["id"]),
    )
