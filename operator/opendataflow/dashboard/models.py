"""View models: one frozen class for each page, with everything that its template shows. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from opendataflow.core.text.explain import breaker_sentence, duration, failed_sentence
from opendataflow.core.text.moments import rate
from opendataflow.core.text.progress import status_lines
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
class Page:
    """What the frame of every page shows. `path`: the address of the page, which the live update reads again."""

    title: str
    section: str
    path: str


@dataclass(frozen=True)
class Overview(Page):
    """All jobs."""

    jobs: tuple[JobLine, ...]
    paging: Paging


@dataclass(frozen=True)
class Failure(Page):
    """A page that can't be shown, and why."""

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
