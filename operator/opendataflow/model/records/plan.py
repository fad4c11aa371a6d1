"""The plan of an apply: what it changes, and which consents it needs. Values only."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

from opendataflow.keys import seen_from
from opendataflow.names import Backfill, PlanNeed

Examples = Mapping[str, tuple[str, ...]]
"""At most five data ids for each count, by its name."""


@dataclass(frozen=True)
class Consent:
    """What a person allows. `change`: the hash of a plan, which allows to retire and to overlap."""

    change: str | None = None
    retire: bool = False
    overlap: bool = False
    backfill: Backfill | None = None

    def body(self) -> dict[str, str | bool]:
        """Return the JSON for the store."""
        given = {"change": self.change, "retire": self.retire, "overlap": self.overlap, "backfill": self.backfill}
        return {name: value for name, value in given.items() if value}


NO_CONSENT = Consent()


@dataclass(frozen=True)
class DataSetChange:
    """The changed chunks of one data set.

    `returned`: chunks whose id was withdrawn before. They get back what they were.
    `changed`: chunks with other bounds. `retired_finished`, `changed_finished`: how many of these are finished.
    `overlapping`: added chunks, or chunks with other bounds, that would process rows again: their bounds overlap those
    of a finished chunk, or of another chunk that stays.
    """

    dataset: str
    added: int = 0
    returned: int = 0
    retired: int = 0
    retired_finished: int = 0
    changed: int = 0
    changed_finished: int = 0
    overlapping: int = 0
    examples: Examples = field(default_factory=dict)

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the changes from the JSON of opendataflow.plan_of()."""
        return cls(**_with_tuples(row))


@dataclass(frozen=True)
class JobChange:
    """The changed tasks of one job.

    `removed`: tasks that are still to do. `retired`, `incomplete`, `changed`, `stale`: finished or running tasks that
    lose their id, lack an added output, have other bounds, or have other inputs. `outputs`: the added outputs.
    `fresh`: tasks that were stale until now, because the inputs are again those that their runs read.
    `returned_done`, `returned_held`, `returned_skipped`: tasks whose id was withdrawn before, and that are again in
    this state. `added`: None in the plan of an applied change, because counting added and returned tasks is slow.
    `removed_outputs`: the outputs that the job makes no more. Their chunks stay.
    """

    job: str
    added: int | None = None
    removed: int = 0
    retired: int = 0
    incomplete: int = 0
    changed: int = 0
    stale: int = 0
    fresh: int = 0
    returned_done: int = 0
    returned_held: int = 0
    returned_skipped: int = 0
    outputs: tuple[str, ...] = ()
    removed_outputs: tuple[str, ...] = ()
    examples: Examples = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The plan of an apply. `needs`: the needed consents. `missing`: those that were not given."""

    hash: str
    needs: tuple[PlanNeed, ...]
    missing: tuple[PlanNeed, ...]
    datasets: tuple[DataSetChange, ...]
    jobs: tuple[JobChange, ...]

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Self:
        """Return the plan from the JSON of opendataflow.plan_of()."""
        return cls(
            hash=row["hash"],
            needs=tuple(map(PlanNeed, row["needs"])),
            missing=tuple(map(PlanNeed, row.get("missing", ()))),
            datasets=tuple(map(DataSetChange.of_row, row["datasets"])),
            jobs=tuple(JobChange(**_with_tuples(one)) for one in row["jobs"]),
        )

    def seen_from(self, namespace: str) -> Self:
        """Return the plan with ids as people of a namespace write them."""
        names = partial(map, partial(seen_from, namespace))
        datasets = (replace(change, dataset=seen_from(namespace, change.dataset)) for change in self.datasets)
        jobs = (
            replace(
                change,
                job=seen_from(namespace, change.job),
                outputs=tuple(names(change.outputs)),
                removed_outputs=tuple(names(change.removed_outputs)),
            )
            for change in self.jobs
        )
        return replace(self, datasets=tuple(datasets), jobs=tuple(jobs))

    @classmethod
    def of_json(cls, text: str) -> Self:
        """Return the plan from the text of a refusal."""
        return cls.of_row(json.loads(text))


@dataclass(frozen=True)
class Applied:
    """The result of an apply. `woken`: the jobs that have newly QUEUED tasks. `declaring`: whether chunks follow."""

    plan: Plan
    woken: tuple[str, ...]
    declaring: bool = False


@dataclass(frozen=True)
class NamespaceLimits:
    """The most chunks of chunk sources, jobs and data sets of one namespace. None for no limit.

    `rows`: the most chunks and tasks that one apply may write in its transaction.
    """

    chunks: int | None = None
    jobs: int | None = None
    data_sets: int | None = None
    rows: int | None = None

    def body(self) -> dict[str, int]:
        """Return the JSON for the store."""
        given = {"chunks": self.chunks, "jobs": self.jobs, "data_sets": self.data_sets, "rows": self.rows}
        return {name: value for name, value in given.items() if value is not None}


NO_LIMITS = NamespaceLimits()


@dataclass(frozen=True)
class Batch:
    """A written batch of a declaration. `kind`: dataset or job; empty if another engine was faster.

    `declared` of `total` chunks are written now.
    """

    namespace: str
    kind: str = ""
    id: str = ""
    declared: int = 0
    total: int = 0


def _with_tuples(row: Mapping[str, Any]) -> dict[str, Any]:
    examples = {name: tuple(ids) for name, ids in row["examples"].items()}
    outputs = {name: tuple(row[name] or ()) for name in ("outputs", "removed_outputs") if name in row}
    return {**row, **outputs, "examples": examples}
