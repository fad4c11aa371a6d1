"""Whether the chunks of a plan can be added to those that a data set has. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from opendataflow.core.chunks.chunk_plan import PlannedChunk

_DISJOINT = (("value",), ("step", "from"))
"""Chunks that have these can't have rows in common unless they are the same, where what else says how they are made is
the same too: values, and the days, months or years of one calendar."""


def why_not(
    dataset: str, planned: Sequence[PlannedChunk], existing: Mapping[str, Mapping[str, Any] | None]
) -> str | None:
    """Return why the plan would change chunks or have rows twice; None where it only adds."""
    new = {chunk.id: dict(chunk.bounds) for chunk in planned}
    changed = [data_id for data_id, bounds in new.items() if data_id in existing and existing[data_id] != bounds]
    if changed:
        more = f" (and {len(changed) - 1} more)" if len(changed) > 1 else ""
        return (
            f"chunk {changed[0]} of {dataset}{more} is there with other bounds, and a plan only adds: plan as it was "
            "planned before, or plan for another data set"
        )
    beside = [data_id for data_id, bounds in existing.items() if data_id not in new and not _apart(bounds, planned)]
    if beside:
        more = f" (and {len(beside) - 1} more)" if len(beside) > 1 else ""
        return (
            f"{dataset} has chunk {beside[0]}{more}, which is not in this plan, so that rows could be in two chunks: "
            "plan as it was planned before, or plan for another data set"
        )
    return None


def _apart(bounds: Mapping[str, Any] | None, planned: Sequence[PlannedChunk]) -> bool:
    if not bounds:
        return False
    alike = next((c.bounds for c in planned if not (c.is_rest or c.is_null)), {})
    for names in _DISJOINT:
        if all(name in bounds and name in alike for name in names):
            return all(bounds.get(name) == alike.get(name) for name in ("column", "step", "zone"))
    return False
