"""View models of the search and of the pipelines. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from opendataflow.core.text.explain import describe_reported
from opendataflow.core.text.project_tests import tests_sentence
from opendataflow.dashboard.details import Step, step_line
from opendataflow.dashboard.models import Page, Row

_COMMIT = 12
"""How many characters of a commit are shown."""


@dataclass(frozen=True)
class Hit:
    """One thing that was found. `page` and `values`: its address."""

    kind: str
    name: str
    of: str
    state: str | None
    page: str
    values: dict[str, str]


@dataclass(frozen=True)
class FoundPage(Page):
    """What a search has found. `is_part`: there is more of a kind than is shown."""

    template: ClassVar[str] = "search.html"
    text: str
    hits: tuple[Hit, ...]
    is_part: bool


@dataclass(frozen=True)
class PipelineLine:
    """A pipeline of a job: the result of its tests, and the steps of its newest run that has steps."""

    pipeline: str
    job: str
    state: str
    tests: str
    tests_failed: bool
    commit: str | None
    run: int | None
    run_state: str | None
    data_id: str | None
    claimed_at: datetime | None
    steps: tuple[Step, ...]
    expectations: tuple[str, ...]


@dataclass(frozen=True)
class PipelinesPage(Page):
    """The pipelines of all jobs."""

    template: ClassVar[str] = "pipelines.html"
    pipelines: tuple[PipelineLine, ...]


def found_page(rows: Sequence[Row], text: str, most: int, path: str) -> FoundPage:
    """Return what was found. `rows`: of dashboard_search(), more than `most` of a kind if there are more."""
    kinds: dict[str, list[Hit]] = {}
    for row in rows:
        hit = _hit(row, text)
        hits = kinds.setdefault(hit.kind, [])
        if hit not in hits:
            hits.append(hit)
    for hits in kinds.values():
        hits.sort(key=lambda hit: (hit.name != text, hit.name, hit.of))
    shown = tuple(hit for hits in kinds.values() for hit in hits[:most])
    return FoundPage(
        f"Search for {text}" if text else "Search",
        "search",
        path,
        text=text,
        hits=shown,
        is_part=any(len(hits) > most for hits in kinds.values()),
    )


def _hit(row: Row, text: str) -> Hit:
    owner, data_id, state = row["owner"], row["data_id"], row["state"]
    match row["kind"]:
        case "job":
            return Hit("Job", owner, "", state, "job", {"id": owner})
        case "dataset":
            return Hit("Data set", owner, "", state, "dataset", {"id": owner})
        case "run":
            return Hit("Run", text, f"{owner} {data_id}", state, "run", {"id": text})
        case "chunk":
            return Hit("Chunk", data_id, owner, state, "chunk", {"job": owner, "id": data_id})
        case _:
            return Hit("Chunk", data_id, owner, state, "dataset", {"id": owner, "part": data_id})


def pipelines_page(rows: Sequence[Row], path: str) -> PipelinesPage:
    """Return the page of all pipelines. `rows`: of dashboard_pipelines()."""
    return PipelinesPage("Pipelines", "pipelines", path, pipelines=tuple(map(_pipeline, rows)))


def _pipeline(row: Row) -> PipelineLine:
    tests, metrics = row["tests"], row["metrics"] or {}
    commit = metrics.get("commit")
    return PipelineLine(
        pipeline=row["pipeline"],
        job=row["job"],
        state=row["state"],
        tests=tests_sentence(tests) if tests else "not required",
        tests_failed=tests is not None and tests["failed"] is not None,
        commit=str(commit)[:_COMMIT] if commit else None,
        run=row["run"],
        run_state=row["run_state"],
        data_id=row["data_id"],
        claimed_at=row["claimed_at"],
        steps=tuple(map(step_line, row["steps"])),
        expectations=tuple(_expectations(metrics)),
    )


def _expectations(metrics: Row) -> Iterator[str]:
    for it in metrics.get("expectations", ()):
        yield describe_reported(it)
