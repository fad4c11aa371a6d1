"""Groups of rows find their chunks: exactly one, none or several. What a database says is played here by `group`."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.core.chunks.chunk_parts import Part
from opendataflow.core.chunks.reconciliation import (
    Chunks,
    Group,
    Spread,
    Strays,
    Tally,
    differences,
    grid_of,
    spread,
    spread_by_id,
)
from opendataflow.errors import InvalidInput

Bounds = dict[str, Any]


def chunks_of(*bounds: Bounds) -> Chunks:
    parts = {f"c{number}": Part("id", one) for number, one in enumerate(bounds)}
    grid = grid_of(parts)
    return Chunks(parts, grid, [1 + sorted(set(grid.edges)).index(edge) for edge in grid.edges])


def group(chunks: Chunks, value: int | None) -> Group:
    """Where a database puts a number; its bucket is the number itself, modulo."""
    grid = chunks.grid
    if value is None:
        return Group(True, None, None, (None,) * len(grid.buckets), 1)
    segment = sum(edge <= value for edge in {*grid.edges} if isinstance(edge, int))
    place = grid.values.index(value) + 1 if value in grid.values else None
    return Group(
        False, segment, place, tuple(value % buckets for buckets in grid.buckets), 1, (), str(value), str(value)
    )


def has(bounds: Bounds, value: int | None) -> bool:
    """What bounds mean."""
    if value is None:
        return bool(bounds.get("nulls"))
    inside = bounds.get("from", value) <= value < bounds.get("to", value + 1)
    if bounds.get("rest"):
        return value not in bounds["values"] if "values" in bounds else not inside
    if "bucket" in bounds:
        return bool(value % bounds["buckets"] == bounds["bucket"])
    if "value" in bounds:
        return bool(value == bounds["value"])
    return inside and bool(bounds.keys() & {"from", "to"})


numbers = st.integers(-9, 9)
one = st.one_of(
    st.tuples(numbers, numbers).filter(lambda it: it[0] < it[1]).map(lambda it: {"from": it[0], "to": it[1]}),
    numbers.map(lambda it: {"from": it}),
    numbers.map(lambda it: {"to": it}),
    numbers.map(lambda it: {"value": it}),
    st.sampled_from([3, 5]).flatmap(lambda n: st.integers(0, n - 1).map(lambda b: {"bucket": b, "buckets": n})),
    st.lists(numbers, min_size=1).map(lambda it: {"rest": True, "values": it}),
    st.just({"rest": True, "from": -3, "to": 3}),
    st.just({"nulls": True}),
)


@given(st.lists(st.tuples(one, st.booleans()), min_size=1, max_size=6), st.none() | st.integers(-12, 12))
def test_rows_are_in_those_chunks_whose_bounds_say_so(drawn: list[tuple[Bounds, bool]], value: int | None) -> None:
    bounds = [{**it, "nulls": True} if nulls else it for it, nulls in drawn]
    chunks = chunks_of(*bounds)
    expected = sorted(f"c{number}" for number, it in enumerate(bounds) if has(it, value))
    assert sorted(chunks.of(group(chunks, value))) == expected


def test_rows_of_no_chunk_and_of_two_are_reported_and_count_once() -> None:
    chunks = chunks_of({"from": 0, "to": 5}, {"from": 4, "to": 9})
    groups = [group(chunks, value) for value in (0, 4, 20, None)]
    assert spread(chunks, groups, "id") == Spread(
        Tally(4),
        {"c0": Tally(2), "c1": Tally(1)},
        [Strays("id is 4", 1, ("c0", "c1")), Strays("id is 20", 1), Strays("id is NULL", 1)],
    )


def test_a_column_of_data_ids_says_the_chunk_too() -> None:
    found = spread_by_id(["a", "b"], {"a": (3, (7,)), "x": (1, (None,)), None: (2, (1,))}, "data_id")
    assert found.total == Tally(6, (8,))
    assert found.chunks == {"a": Tally(3, (7,)), "b": Tally()}
    assert found.strays == [Strays("data_id is x", 1), Strays("data_id is NULL", 2)]


def test_the_sum_of_no_value_is_none_different_from_0() -> None:
    ours = Spread(Tally(), {"a": Tally(3, (None, 5)), "b": Tally(2, (0, 1)), "c": Tally(1, (4, 1))})
    theirs = Spread(Tally(), {"a": Tally(3, (0, 5)), "b": Tally(), "c": Tally(1, (5, 2))})
    found = {it.chunk: it.description for it in differences(ours, theirs, ["sum of n", "checksum of t"])}
    assert found == {"b": "rows 2 and 0; checksum of t", "c": "sum of n 4 and 5; checksum of t"}


def test_all_digits_of_sums_count_and_infinities_are_added() -> None:
    long, more = Decimal("12345678901234567890123456789.0123456789"), Decimal("1E-10")
    ours, theirs = Tally(), Tally()
    for tally, value in ((ours, long), (theirs, Decimal(f"{long}1"))):
        tally.add(1, (value, Decimal("Infinity")))
        tally.add(1, (more, Decimal("-Infinity")))
    found = [
        it.description
        for it in differences(Spread(ours, {"a": ours}), Spread(theirs, {"a": theirs}), ["sum", "of both"])
    ]
    assert found == [f"sum {ours.figures[0]} and {theirs.figures[0]}"]
    assert str(ours.figures[0]) == "12345678901234567890123456789.0123456790"


def test_chunks_by_two_columns_prove_nothing() -> None:
    with pytest.raises(InvalidInput, match="divided by several columns: day, id"):
        grid_of({"a": Part("id", {"from": 1}), "b": Part("day", {"value": "x"})})
