"""Where statistics say that a column is to be cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.core.chunks.quantiles import Entry, Statistics, cuts_of, fine_enough


def histogram(*bounds: int | str) -> Statistics:
    return Statistics([Entry(bound, None) for bound in bounds], 0.0)


@st.composite
def statistics(draw: st.DrawFn) -> Statistics:
    """Whole numbers in order, some of them common, with frequencies whose sum is at most 1."""
    values = sorted(draw(st.sets(st.integers(-1000, 1000), min_size=1, max_size=30)))
    common = draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    weights = [draw(st.integers(1, 100)) for _ in values]
    total = sum(weights) + draw(st.integers(0, 100))
    entries = [
        Entry(value, weight / total if is_common else None)
        for value, is_common, weight in zip(values, common, weights, strict=True)
    ]
    return Statistics(entries, 0.0)


@given(statistics(), st.integers(1, 50))
def test_cuts_rise_leave_no_part_without_a_seen_value_at_its_ends_and_shares_add_up(
    known: Statistics, parts: int
) -> None:
    cuts = cuts_of(known, parts)
    assert len(cuts.at) < parts
    assert len(cuts.shares) == len(cuts.at) + 1
    assert sum(cuts.shares) == pytest.approx(1)
    numbers = [int(cut) for cut in cuts.at]
    assert all(one < two for one, two in pairwise(numbers))
    assert all(known.entries[0].value < number <= known.entries[-1].value for number in numbers)  # type: ignore[operator]  # ints


def test_between_bounds_of_a_histogram_whole_numbers_are_computed() -> None:
    cuts = cuts_of(histogram(0, 100, 1000), 4)
    assert cuts.at == [51, 101, 551]
    assert cuts.shares == pytest.approx([0.25] * 4)


def test_texts_are_cut_at_bounds_of_the_histogram() -> None:
    cuts = cuts_of(histogram(*"abcdefghi"), 4)
    assert cuts.at == ["c", "e", "g"]
    assert cuts.shares == pytest.approx([0.25] * 4)


def test_a_common_value_stays_in_one_part() -> None:
    known = Statistics([Entry(0, None), Entry(7, 0.8), Entry(100, None)], 0.0)
    cuts = cuts_of(known, 4)
    assert cuts.at == [7, 8]
    assert cuts.shares == pytest.approx([0.0, 0.8, 0.2])


def test_frequencies_are_shares_of_all_rows_and_parts_of_those_with_a_value() -> None:
    known = Statistics([Entry(0, None), Entry(7, 0.25), Entry(100, None)], 0.5)
    cuts = cuts_of(known, 2)
    assert cuts.at == [8]
    assert cuts.shares == pytest.approx([0.5, 0.5])


def test_numbers_can_be_computed_and_texts_need_many_bounds() -> None:
    assert fine_enough(histogram(0, 100), 4)
    assert not fine_enough(histogram(0, 100), 5)
    assert not fine_enough(histogram("a", "b", "c"), 2)
    assert fine_enough(histogram(*(f"{n:03}" for n in range(101))), 12)
    assert not fine_enough(Statistics([], 1.0), 2)
