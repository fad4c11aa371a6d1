"""Comparison of rows, and descriptions of differences."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from opendataflow.core.pipelines.row_difference import Row, compare_rows, describe_difference, same_value

NAN = float("nan")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (0.1 + 0.2, 0.3),
        (Decimal("1.50"), 1.5),
        (NAN, None),
        (date(2013, 1, 1), datetime(2013, 1, 1)),  # noqa: DTZ001 # as pandas says a day
        ([1, NAN], (1.0, None)),
        ({"a": 1, "b": None}, {"b": NAN, "a": 1.0}),
    ],
)
def test_values_that_mean_the_same_are_the_same(one: Any, other: Any) -> None:
    assert same_value(one, other)
    assert same_value(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1.0, True),
        (1, "1"),
        (0, None),
        ("", None),
        (1.0, 1.0001),
        (date(2013, 1, 1), "2013-01-01"),
        (datetime(2013, 1, 1, tzinfo=UTC), datetime(2013, 1, 1)),  # noqa: DTZ001 # that one has a zone and one has none
        (10**20, 10**20 + 1),
    ],
)
def test_values_that_mean_something_else_differ(one: Any, other: Any) -> None:
    assert not same_value(one, other)
    assert not same_value(other, one)


def difference(expected: list[Row], found: list[Row], *, ordered: bool = False) -> list[str]:
    return describe_difference(compare_rows(expected, found, ordered=ordered))


A, B, C = {"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "c", "n": 3}


def test_the_order_of_columns_never_counts() -> None:
    assert not compare_rows([A], [{"n": 1, "k": "a"}], ordered=True)


def test_the_order_of_rows_counts_only_on_request() -> None:
    assert not compare_rows([A, B], [B, A], ordered=False)
    assert difference([A, B], [B, A], ordered=True) == ["the rows are the expected ones, in another order"]


@pytest.mark.parametrize("ordered", [True, False])
def test_missing_rows_and_rows_that_are_too_many_are_listed(ordered: bool) -> None:
    assert difference([A, B], [A], ordered=ordered) == ["missing: row 2: k='b', n=2"]
    assert difference([A], [A, C], ordered=ordered) == ["not expected: row 2: k='c', n=3"]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_changed_cell_is_reported_as_that_cell(ordered: bool) -> None:
    assert difference([A, B, C], [A, {"k": "b", "n": "2"}, C], ordered=ordered) == ["row 2: n: expected 2, found '2'"]


def test_a_row_that_is_there_too_often_is_not_expected() -> None:
    assert difference([A, B], [A, A, B]) == ["not expected: row 2: k='a', n=1"]


def test_a_column_of_one_side_is_reported_once() -> None:
    assert difference([A, B], [{"k": "a"}, {"k": "b"}]) == ["column n is missing"]
    assert difference([{"k": "a"}], [A]) == ["column n is not expected"]


def test_a_key_that_an_expected_row_lacks_is_a_cell_without_a_value() -> None:
    assert not compare_rows([A, {"k": "b"}], [A, {"k": "b", "n": NAN}], ordered=True)


def test_an_empty_frame_with_any_columns_equals_an_empty_list() -> None:
    assert not compare_rows([], [], ordered=True, found_columns=["k", "n"])
    assert difference([A], [], ordered=True) == ["column k is missing", "column n is missing"]


def test_no_row_of_a_frame_with_the_columns_is_a_missing_row() -> None:
    assert describe_difference(compare_rows([A], [], ordered=True, found_columns=["k", "n"])) == [
        "missing: row 1: k='a', n=1"
    ]


def test_very_many_rows_that_differ_are_not_all_compared_with_each_other() -> None:
    expected, found = ([{"k": "a", "n": number} for number in range(first, first + 10_000)] for first in (0, -10_000))
    lines = describe_difference(compare_rows(expected, found, ordered=False))
    assert lines[0] == "row 1: n: expected 0, found -10000"


def test_only_the_first_of_many_differences_are_reported() -> None:
    lines = difference([{"n": number} for number in range(100)], [])
    assert lines == ["column n is missing"]
    lines = describe_difference(
        compare_rows([{"n": number} for number in range(100)], [], ordered=False, found_columns=["n"])
    )
    assert len(lines) == 21
    assert lines[-1] == "and 80 more"
