"""Compute the status of a DataSet. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from opendataflow.core.status.conditions import Fault, conditions, truncated
from opendataflow.core.status.job_state import (
    NAME_BYTES,
    database_condition,
    kept_fields,
    observed_generation,
    plan_status,
    ready_condition,
    stalled_condition,
)
from opendataflow.model.records.plan import Plan
from opendataflow.model.resources.statuses import MOST_GAPS, ChunkCounts, DataSetStatus, Gap
from opendataflow.names import COUNTED_CHUNKS, ConditionType


@dataclass(frozen=True)
class ObservedDataSet:
    """The known facts of a data set.

    `found`: counts, watermark and gaps from opendataflow.dataset_counts() and dataset_gaps(); None if unknown. In this
    case the figures of the status do not change. The other fields: as in ObservedJob.
    """

    generation: int
    accepted: int | None = None
    fault: Fault | None = None
    found: Mapping[str, Any] | None = None
    unreachable: str | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    plan: Plan | None = None


def dataset_status(facts: ObservedDataSet, now: datetime) -> DataSetStatus:
    """Return the status. It is always smaller than 32 KiB."""
    taken_over = facts.accepted == facts.generation and facts.fault is None
    observed = observed_generation(facts.generation, facts.accepted, facts.fault, facts.before)
    values = {
        ConditionType.READY: ready_condition(facts.fault, facts.unreachable, taken_over=taken_over),
        ConditionType.STALLED: stalled_condition(facts.fault),
        ConditionType.DATABASE_REACHABLE: database_condition(facts.unreachable, known=facts.accepted is not None),
    }
    return DataSetStatus(
        observed_generation=observed,
        conditions=conditions(values, facts.before, observed, now),
        plan=plan_status(facts.plan),
        **_figures(facts),
    )


def _figures(facts: ObservedDataSet) -> dict[str, Any]:
    if facts.found is None:
        return kept_fields(DataSetStatus, facts.before, ("counts", "progress", "watermark", "gaps"))
    by_status = {status.value.lower(): facts.found["counts"].get(status, 0) for status in COUNTED_CHUNKS}
    total, watermark = sum(by_status.values()), facts.found["watermark"]
    gaps = facts.found["gaps"][:MOST_GAPS]
    return {
        "counts": ChunkCounts(total=total, **by_status),
        "progress": f"{by_status['ready']}/{total}",
        "watermark": None if watermark is None else truncated(watermark, NAME_BYTES),
        "gaps": tuple(
            Gap(start=truncated(gap["from"], NAME_BYTES), end=truncated(gap["to"], NAME_BYTES), chunks=gap["chunks"])
            for gap in gaps
        ),
    }
