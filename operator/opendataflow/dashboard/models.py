"""View models: one frozen class for each page, with everything that its template shows. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from opendataflow.core.status.places import place
from opendataflow.core.text.explain import breaker_sentence, duration, failed_sentence, shell_command
from opendataflow.core.text.moments import rate
from opendataflow.core.text.progress import status_lines
from opendataflow.core.text.verbs import VERB
from opendataflow.names import TaskState

Row = Mapping[str, Any]

STATES = (
    TaskState.DONE,
    TaskState.RUNNING,
    TaskState.QUEUED,
    TaskState.RETRYING,
    TaskState.FAILED,
    TaskState.WAITING,
    TaskState.HELD,
    TaskState.SKIPPED,
)
"""States in the order of bars and legends."""
CHOICES = ("DONE", "STALE", *map(str, STATES[1:]))
"""States to filter by. Stale chunks are DONE, and have a colour of their own."""
TASK_VERBS = tuple(name for name, verb in VERB.items() if verb.tasks)
CHUNK_VERBS = tuple(name for name, verb in VERB.items() if verb.chunks)
BAR_WIDTH = 1000
_MOVING = (TaskState.QUEUED, TaskState.RUNNING, TaskState.RETRYING)


@dataclass(frozen=True)
class Segment:
    """One state of a bar, in thousandths of its width."""

    state: str
    count: int
    x: float
    width: float


@dataclass(frozen=True)
class Problem:
    """What keeps a job from its end. `kind`: the first word of its line."""

    kind: str
    sentence: str


@dataclass(frozen=True)
class JobLine:
    """One job of the overview."""

    job: str
    state: str
    done: int
    total: int
    stale: int
    bar: tuple[Segment, ...]
    rate: str | None
    left: str | None
    breaker: str | None
    failures: tuple[str, ...]
    failing_since: datetime | None


@dataclass(frozen=True)
class Paging:
    """A page of a long list. `first`, `last`: the numbers of its entries, from 1."""

    first: int
    last: int
    total: int | None
    previous: int | None
    following: int | None


@dataclass(frozen=True)
class Choice:
    """The chunks of a job that a person wants to see: in one state or all, of a range, with a part of the id.

    An empty text is no limit. `offset`: how many of them are on the pages before.
    """

    state: str = ""
    first: str = ""
    last: str = ""
    part: str = ""
    offset: int = 0
    limit: int = 50

    @property
    def is_some(self) -> bool:
        """Whether something was chosen."""
        return bool(self.state or self.first or self.last or self.part)


@dataclass(frozen=True)
class Page:
    """What the frame of every page shows. `path`: the address of the page, which the live update reads again."""

    template: ClassVar[str]
    title: str
    section: str
    path: str

    @property
    def is_moving(self) -> bool:
        """Whether the page changes although no state does, as the log of an active run."""
        return False


@dataclass(frozen=True)
class Overview(Page):
    """All jobs."""

    template: ClassVar[str] = "overview.html"
    jobs: tuple[JobLine, ...]
    paging: Paging


@dataclass(frozen=True)
class TaskLine:
    """One chunk of a job in the table."""

    data_id: str
    state: str
    attempts: int
    run: int | None
    due_at: datetime | None
    reason: str | None


@dataclass(frozen=True)
class RunLine:
    """One run in a table."""

    run: int
    data_id: str
    state: str
    attempt: int
    claimed_at: str
    took: str
    message: str | None
    forced: bool


@dataclass(frozen=True)
class Event:
    """One change in the history."""

    at: str
    event: str
    change: str
    run: int | None
    actor: str
    reason: str | None


@dataclass(frozen=True)
class Fact:
    """One line of a declaration. `dataset`: the data set that the value describes, if it does."""

    name: str
    value: str
    dataset: str | None = None


@dataclass(frozen=True)
class JobPage(Page):
    """One job: its grid, its chunks as a table, its runs, its history and its settings."""

    template: ClassVar[str] = "job.html"
    line: JobLine
    problems: tuple[Problem, ...]
    choice: Choice
    states: tuple[str, ...]
    tasks: tuple[TaskLine, ...]
    paging: Paging
    runs: tuple[RunLine, ...]
    events: tuple[Event, ...]
    settings: tuple[Fact, ...]
    command: str
    verbs: tuple[str, ...]
    parallelism: int
    descending: bool


@dataclass(frozen=True)
class Failure(Page):
    """A page that can't be shown, and why."""

    template: ClassVar[str] = "failure.html"
    sentence: str
    remedy: str


def bar(counts: Mapping[str, int], stale: int) -> tuple[Segment, ...]:
    """Return the segments of a bar. Stale tasks are separate from the other DONE tasks."""
    known = [(str(state), counts.get(state, 0)) for state in STATES]
    known[0:1] = [(TaskState.DONE.value, counts.get(TaskState.DONE, 0) - stale), ("STALE", stale)]
    total, x, segments = max(sum(counts.values()), 1), 0.0, []
    for state, count in known:
        if count > 0:
            width = BAR_WIDTH * count / total
            segments.append(Segment(state, count, round(x, 2), round(width, 2)))
            x += width
    return tuple(segments)


def job_line(row: Row) -> JobLine:
    """Return a line of the overview for a row of dashboard_jobs()."""
    status = row["status"]
    counts = status["counts"]
    total = counts.get(TaskState.FAILED, 0)
    moving = any(counts.get(state) for state in _MOVING)
    return JobLine(
        job=row["job"],
        state=row["state"],
        done=counts.get(TaskState.DONE, 0),
        total=sum(counts.values()),
        stale=status["stale"],
        bar=bar(counts, status["stale"]),
        rate=rate(status["per_minute"]) if status["per_minute"] else None,
        left=duration(status["eta_seconds"]) if moving and status["eta_seconds"] else None,
        breaker=breaker_sentence(status["breaker"]) if status["breaker"] else None,
        failures=tuple(failed_sentence(group, status["sample"], total) for group in status["failed"][:2]),
        failing_since=row["failing_since"],
    )


def job_page(found: Row, tasks: Sequence[Row], runs: Sequence[Row], choice: Choice, path: str) -> JobPage:
    """Return the page of a job. `found`: the row of dashboard_job()."""
    status, job = found["status"], found["job"]["id"]
    line = job_line({"job": job, "state": found["state"], "status": status, "failing_since": found["failing_since"]})
    counts = {it.state: it.count for it in line.bar}
    total = (
        None
        if choice.first or choice.last or choice.part
        else counts.get(choice.state, 0)
        if choice.state
        else line.total
    )
    return JobPage(
        job,
        "jobs",
        path,
        line=line,
        problems=tuple(it for it in problems(status) if it.kind not in ("rate", "breaker", "failed", "running")),
        choice=choice,
        states=CHOICES,
        tasks=tuple(map(_task_line, tasks)),
        paging=paging(choice.offset, len(tasks), choice.limit, total),
        runs=tuple(map(run_line, runs)),
        events=events(found["events"]),
        settings=tuple(_settings(found)),
        command=shell_command("status", job),
        verbs=TASK_VERBS,
        parallelism=found["job"]["parallelism"],
        descending=found["job"]["descending"],
    )


def _task_line(row: Row) -> TaskLine:
    state = "STALE" if row["stale"] else row["state"]
    return TaskLine(row["data_id"], state, row["attempts"], row["run"], row["due_at"], row["reason"])


def run_line(row: Row) -> RunLine:
    """Return a line of a table for a row of list_runs()."""
    return RunLine(
        row["run"],
        row["data_id"],
        row["state"],
        row["attempt"],
        row["claimed_at"],
        duration(row["seconds"]),
        row["message"],
        row["forced"],
    )


def events(found: Sequence[Row]) -> tuple[Event, ...]:
    """Return events, the newest first."""
    return tuple(
        Event(it["at"], it["event"], f"{it['from']} → {it['to']}", it.get("run"), it["actor"], it["reason"])
        for it in reversed(found)
    )


def _settings(found: Row) -> Iterator[Fact]:
    job = found["job"]
    yield Fact("Parallelism", f"{job['parallelism']}, priority {job['priority']}")
    yield Fact("Order", "descending" if job["descending"] else "ascending")
    if job["chunk_from"] or job["chunk_to"]:
        yield Fact("Ids", f"from {job['chunk_from'] or 'the first'} to {job['chunk_to'] or 'the last'}")
    yield Fact("Retries", f"{job['retry_limit']}, infrastructure {job['infrastructure_limit']}")
    pauses = f"{duration(job['backoff_initial'])} to {duration(job['backoff_maximum'])}"
    yield Fact("Pauses", pauses)
    if job["run_deadline"]:
        yield Fact("Deadline", f"{duration(job['run_deadline'])} a run")
    for dataset in found["datasets"]:
        yield Fact("Input" if dataset["itemtype"] == "IN" else "Output", place(dataset), dataset["id"])
    for name, value in found["env"].items():
        yield Fact("Variable", f"{name}={value}")


def problems(status: dict[str, Any]) -> tuple[Problem, ...]:
    """Return the lines of `dataflow status` as pairs. A line without a first word continues the one before."""
    found: list[Problem] = []
    for line in status_lines(status):
        kind, _, sentence = line.partition(" ")
        if kind or not found:
            found.append(Problem(kind.rstrip(":"), sentence.strip()))
        else:
            found[-1] = Problem(found[-1].kind, f"{found[-1].sentence}; {sentence.strip()}")
    return tuple(found)


def paging(offset: int, shown: int, limit: int, total: int | None) -> Paging:
    """Return a page of a list. `total`: None if unknown; then a full page has a following one."""
    more = shown == limit if total is None else offset + shown < total
    return Paging(
        first=offset + 1 if shown else 0,
        last=offset + shown,
        total=total,
        previous=max(offset - limit, 0) if offset else None,
        following=offset + limit if more else None,
    )
