"""Check whether the chunks of a plan can be added to the existing chunks of a data set. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from opendataflow.core.chunks.chunk_plan import PlannedChunk

_DISJOINT = (("value",), ("step", "from"))
"""Fields that make chunks disjoint: single values, and the days, months or years of one calendar.

Two chunks with different values of these fields have no rows in common, if they share column, step and zone. A rest has
rows in common with each chunk that its plan did not know.
"""


def find_conflict(
    dataset: str, planned: Sequence[PlannedChunk], existing: Mapping[str, Mapping[str, Any] | None]
) -> str | None:
    """Return why the plan would change chunks or contain rows twice; None if it only adds chunks."""
    new = {chunk.id: dict(chunk.bounds) for chunk in planned}
    changed = [data_id for data_id, bounds in new.items() if data_id in existing and existing[data_id] != bounds]
    if changed:
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        return (
            f"chunk {changed[0]} of {dataset}{more} is there with other bounds, and a plan only adds: plan as it was "
            "planned before, or plan for another data set"
        )
    others = [data_id for data_id, bounds in existing.items() if data_id not in new and not _disjoint(bounds, planned)]
    if others:
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        return (
            f"{dataset} has chunk {others[0]}{more}, which is not in this plan, so that rows could be in two chunks: "
            "plan as it was planned before, or plan for another data set"
        )
    return None


def _disjoint(bounds: Mapping[str, Any] | None, planned: Sequence[PlannedChunk]) -> bool:
    if not bounds or bounds.get("rest") or any(chunk.is_rest for chunk in planned):
        return False
    alike = next((c.bounds for c in planned if not (c.is_rest or c.is_null)), {})
    for names in _DISJOINT:
        if all(name in bounds and name in alike for name in names):
            return all(bounds.get(name) == alike.get(name) for name in ("column", "step", "zone"))
    return False
