"""Compute the status of a DataSet. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from opendataflow.core.status.conditions import ConditionValue, Fault, conditions, truncated
from opendataflow.core.status.job_state import (
    NAME_BYTES,
    database_condition,
    kept_fields,
    observed_generation,
    plan_status,
    ready_condition,
    stalled_condition,
)
from opendataflow.core.text.explain import declaring_sentence
from opendataflow.model.records.plan import Plan
from opendataflow.model.resources.statuses import MOST_GAPS, ChunkCounts, DataSetStatus, Gap
from opendataflow.names import COUNTED_CHUNKS, ConditionType, Reason


@dataclass(frozen=True)
class ObservedDataSet:
    """The known facts of a data set.

    `found`: counts, watermark and gaps from opendataflow.dataset_counts() and dataset_gaps(); None if unknown. In this
    case the figures of the status do not change. `declaring`: whether chunks are being declared; None if unknown. The
    other fields: as in ObservedJob.
    """

    generation: int
    accepted: int | None = None
    fault: Fault | None = None
    found: Mapping[str, Any] | None = None
    declaring: bool | None = False
    unreachable: str | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    plan: Plan | None = None


def dataset_status(facts: ObservedDataSet, now: datetime) -> DataSetStatus:
    """Return the status. It is always smaller than 32 KiB."""
    taken_over = facts.accepted == facts.generation and facts.fault is None
    observed = observed_generation(facts.generation, facts.accepted, facts.fault, facts.before)
    values: dict[ConditionType, ConditionValue | None] = {
        ConditionType.READY: _ready(facts, taken_over=taken_over),
        ConditionType.PROGRESSING: _progressing(facts),
        ConditionType.STALLED: stalled_condition(facts.fault),
        ConditionType.DATABASE_REACHABLE: database_condition(facts.unreachable, known=facts.accepted is not None),
    }
    return DataSetStatus(
        observed_generation=observed,
        conditions=conditions(values, facts.before, observed, now),
        plan=plan_status(facts.plan),
        **_figures(facts),
    )


def _declaring(facts: ObservedDataSet) -> ConditionValue | None:
    found = None if facts.found is None else facts.found.get("declaring")
    if found is not None:
        return ConditionValue(True, Reason.DECLARING, declaring_sentence(found))
    return ConditionValue(True, Reason.DECLARING, "declaring its chunks") if facts.declaring else None


def _ready(facts: ObservedDataSet, *, taken_over: bool) -> ConditionValue | None:
    """Return the value of Ready. A data set is not ready before all its chunks are declared."""
    value = ready_condition(facts.fault, facts.unreachable, taken_over=taken_over)
    if not value.holds:
        return value
    declaring = _declaring(facts)
    if declaring is not None:
        return ConditionValue(False, declaring.reason, declaring.message)
    return value if facts.declaring is not None else _unknown(facts)


def _progressing(facts: ObservedDataSet) -> ConditionValue | None:
    """Return whether chunks are being declared."""
    if facts.accepted is None or facts.declaring is None:
        return _unknown(facts)
    return _declaring(facts) or ConditionValue(False, Reason.DECLARED)


def _unknown(facts: ObservedDataSet) -> ConditionValue | None:
    """Return the value while Postgres was not asked: None, to keep the value, or unknown at first."""
    return None if facts.before.get("conditions") else ConditionValue(None, Reason.NOT_TAKEN_OVER)


def _figures(facts: ObservedDataSet) -> dict[str, Any]:
    if facts.found is None:
        return kept_fields(DataSetStatus, facts.before, ("counts", "progress", "watermark", "gaps"))
    by_status = {status.value.lower(): facts.found["counts"].get(status, 0) for status in COUNTED_CHUNKS}
    total, watermark = sum(by_status.values()), facts.found["watermark"]
    gaps = facts.found["gaps"][:MOST_GAPS]
    return {
        "counts": ChunkCounts(total=total, **by_status),
        "progress": f"{by_status['ready']}/{total}{', declaring' if facts.found.get('declaring') else ''}",
        "watermark": None if watermark is None else truncated(watermark, NAME_BYTES),
        "gaps": tuple(
            Gap(start=truncated(gap["from"], NAME_BYTES), end=truncated(gap["to"], NAME_BYTES), chunks=gap["chunks"])
            for gap in gaps
        ),
    }
