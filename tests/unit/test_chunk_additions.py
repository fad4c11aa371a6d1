"""A plan is only ever added to the existing chunks."""

from opendataflow.core.chunks.chunk_additions import find_conflict
from opendataflow.core.chunks.chunk_plan import Column, Draft, PlannedChunk
from opendataflow.core.databases.postgres import Postgres

DRAFT = Draft(Column("c", "integer", nullable=True), Postgres())
DAYS = ["2013-01-01", "2013-01-02", "2013-01-03", "2013-01-04"]


def remembered(chunks: list[PlannedChunk]) -> dict[str, dict[str, object]]:
    return {chunk.id: dict(chunk.bounds) for chunk in chunks}


def test_the_same_plan_can_be_written_again_and_a_part_of_it_completed() -> None:
    chunks = DRAFT.by_range([5, 9])
    assert find_conflict("a", chunks, {}) is None
    assert find_conflict("a", chunks, remembered(chunks)) is None
    assert find_conflict("a", chunks, remembered(chunks[:2])) is None


def test_another_plan_of_ranges_is_refused() -> None:
    conflict = find_conflict("a", DRAFT.by_range([5, 9]), remembered(DRAFT.by_range([6, 9])))
    assert conflict is not None
    assert conflict.startswith(
        "a has chunk ..5 (and 1 more), which is not in this plan, so that rows could be in two chunks"
    )


def test_a_chunk_with_other_bounds_is_refused() -> None:
    conflict = find_conflict("a", DRAFT.by_range([5]), {"..4": {"to": 5}})
    assert conflict is not None
    assert conflict.startswith("chunk ..4 of a is there with other bounds, and a plan only adds")
    assert find_conflict("a", DRAFT.by_range([5]), {"..4": None}) == conflict


def test_later_days_and_further_values_are_added() -> None:
    assert (
        find_conflict("a", DRAFT.by_date(DAYS[1:], "day", None), remembered(DRAFT.by_date(DAYS[:3], "day", None)))
        is None
    )
    assert find_conflict("a", DRAFT.by_list(["b", "c"]), remembered(DRAFT.by_list(["a", "b"]))) is None


def test_days_beside_months_or_of_another_zone_and_chunks_without_bounds_are_refused() -> None:
    days = DRAFT.by_date(DAYS, "day", None)
    assert find_conflict("a", days, remembered(DRAFT.by_date(["2013-01-01", "2013-02-01"], "month", None)))
    assert find_conflict("a", days, remembered(DRAFT.by_date(["2012-12-30", "2012-12-31"], "day", "Asia/Tokyo")))
    assert find_conflict("a", days, {"x": None})


def test_days_beside_a_rest_of_another_plan_are_refused() -> None:
    with_rest = Draft(Column("c", "date", nullable=False), Postgres(), rest=True)
    without = Draft(Column("c", "date", nullable=False), Postgres())
    early, late = DAYS[:3], DAYS[1:]
    for first, second in ((with_rest, without), (without, with_rest)):
        known = remembered(first.by_date(early, "day", None))
        conflict = find_conflict("a", second.by_date(late, "day", None), known)
        assert conflict is not None
        assert "which is not in this plan, so that rows could be in two chunks" in conflict
