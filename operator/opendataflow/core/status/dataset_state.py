"""From what is known of a data set to the status of its DataSet. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from opendataflow.core.status.conditions import Fault, conditions, fitting
from opendataflow.core.status.job_state import NAME_BYTES, database, kept, observed, ready, stalled
from opendataflow.model.resources.statuses import MOST_GAPS, ChunkCounts, DataSetStatus, Gap
from opendataflow.names import ChunkStatus, ConditionType


@dataclass(frozen=True)
class DataSetFacts:
    """What is known of a data set. `found`: its counts, watermark and gaps, as opendataflow.dataset_counts() and
    dataset_gaps() say them; None where they are not known: the figures stay as they are. The others: as in JobFacts."""

    generation: int
    accepted: int | None = None
    fault: Fault | None = None
    found: Mapping[str, Any] | None = None
    away: str | None = None
    before: Mapping[str, Any] = field(default_factory=dict)


def dataset_status(facts: DataSetFacts, now: datetime) -> DataSetStatus:
    """Return the status; less than 32 KiB whatever the facts."""
    taken_over = facts.accepted == facts.generation and facts.fault is None
    seen = observed(facts.generation, facts.accepted, facts.fault, facts.before)
    said = {
        ConditionType.READY: ready(facts.fault, facts.away, taken_over=taken_over),
        ConditionType.STALLED: stalled(facts.fault),
        ConditionType.DATABASE_REACHABLE: database(facts.away, known=facts.accepted is not None),
    }
    return DataSetStatus(
        observed_generation=seen,
        conditions=conditions(said, facts.before, seen, now),
        **_figures(facts),
    )


def _figures(facts: DataSetFacts) -> dict[str, Any]:
    if facts.found is None:
        return kept(DataSetStatus, facts.before, ("counts", "progress", "watermark", "gaps"))
    by_status = {status.value.lower(): facts.found["counts"].get(status, 0) for status in ChunkStatus}
    total, watermark = sum(by_status.values()), facts.found["watermark"]
    gaps = facts.found["gaps"][:MOST_GAPS]
    return {
        "counts": ChunkCounts(total=total, **by_status),
        "progress": f"{by_status['ready']}/{total}",
        "watermark": None if watermark is None else fitting(watermark, NAME_BYTES),
        "gaps": tuple(
            Gap(start=fitting(gap["from"], NAME_BYTES), end=fitting(gap["to"], NAME_BYTES), chunks=gap["chunks"])
            for gap in gaps
        ),
    }
