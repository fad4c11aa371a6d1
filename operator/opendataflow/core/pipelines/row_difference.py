"""How two lists of rows differ: which rows are missing, which are there unasked, which cells are not the same. Pure.

Values are compared as people mean them: 1 is 1.0 but not True, numbers may differ in the twelfth digit, a day is the
same as its midnight, nothing is nothing however it is spelled. The order of columns never counts; that of rows where
it is asked for.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from difflib import SequenceMatcher
from typing import Any

Row = Mapping[str, Any]

_DIGITS = 12


@dataclass(frozen=True)
class ChangedRow:
    """A row that is there, with other cells. `number`: of the expected row, from 1.

    `cells`: column -> (expected, found).
    """

    number: int
    row: Row
    cells: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Difference:
    """What is not as expected; the numbers of rows begin with 1."""

    missing_columns: tuple[str, ...] = ()
    extra_columns: tuple[str, ...] = ()
    missing: tuple[tuple[int, Row], ...] = ()
    extra: tuple[tuple[int, Row], ...] = ()
    changed: tuple[ChangedRow, ...] = ()
    reordered: bool = False
    columns: tuple[str, ...] = field(default=(), compare=False)
    """All columns, in the order of the expected rows."""

    def __bool__(self) -> bool:
        return bool(
            self.missing_columns or self.extra_columns or self.missing or self.extra or self.changed or self.reordered
        )


def difference(
    expected: Sequence[Row], found: Sequence[Row], *, ordered: bool, found_columns: Sequence[str] | None = None
) -> Difference:
    """Compare rows. `found_columns`: the columns of the frame, which it has also where it has no rows."""
    wanted = tuple(dict.fromkeys(column for row in expected for column in row))
    there = tuple(found_columns) if found_columns is not None else tuple(dict.fromkeys(c for row in found for c in row))
    missing_columns = tuple(column for column in wanted if column not in there)
    extra_columns = tuple(column for column in there if column not in wanted) if wanted else ()
    both = tuple(column for column in wanted if column in there)
    if wanted and not both:
        return Difference(missing_columns, extra_columns, columns=wanted)
    # Columns that only one side has are told once, and not again for each row.
    left = [_key(row, both) for row in expected]
    right = [_key(row, both) for row in found]
    alone_left, alone_right = _aligned(left, right) if ordered else _matched(left, right)
    reordered = ordered and bool(alone_left or alone_right) and Counter(left) == Counter(right)
    if reordered:
        return Difference(missing_columns, extra_columns, reordered=True, columns=wanted)
    pairs = _pairs(alone_left, alone_right, left, right)
    changed, same = [], set()
    for i, j in pairs:
        cells = {
            c: (expected[i].get(c), found[j].get(c))
            for c in both
            if not same_value(expected[i].get(c), found[j].get(c))
        }
        same |= {(0, i), (1, j)}
        if cells:
            changed.append(ChangedRow(i + 1, expected[i], cells))
    return Difference(
        missing_columns,
        extra_columns,
        tuple((i + 1, expected[i]) for i in alone_left if (0, i) not in same),
        tuple((j + 1, found[j]) for j in alone_right if (1, j) not in same),
        tuple(sorted(changed, key=lambda row: row.number)),
        columns=wanted or there,
    )


def same_value(expected: Any, found: Any) -> bool:
    """Whether two values are the same to people."""
    a, b = _plain(expected), _plain(found)
    if isinstance(a, float | Decimal) or isinstance(b, float | Decimal):
        numbers = all(isinstance(it, float | int | Decimal) and not isinstance(it, bool) for it in (a, b))
        return numbers and math.isclose(a, b, rel_tol=10.0**-_DIGITS, abs_tol=10.0**-_DIGITS)
    return bool(_canonical(a) == _canonical(b))


_MOST_LINES = 20
_MOST_PAIRED = 200
"""Rows of each side that are compared with each other: more than are ever shown, and few enough to take no time."""
_LONGEST_CELL = 60


def in_words(found: Difference) -> list[str]:
    """Return the difference as lines for a person; the first of many."""
    lines = [f"column {column} is missing" for column in found.missing_columns]
    lines += [f"column {column} is not expected" for column in found.extra_columns]
    if found.reordered:
        lines.append("the rows are the expected ones, in another order")
    for row in found.changed:
        cells = (f"{name}: expected {_shown(want)}, found {_shown(there)}" for name, (want, there) in row.cells.items())
        lines.append(f"row {row.number}: {'; '.join(cells)}")
    lines += [f"missing: row {number}: {_row(row, found.columns)}" for number, row in found.missing]
    lines += [f"not expected: row {number}: {_row(row, found.columns)}" for number, row in found.extra]
    left = len(lines) - _MOST_LINES
    return lines if left <= 0 else [*lines[:_MOST_LINES], f"and {left} more"]


def _row(row: Row, columns: Sequence[str]) -> str:
    return ", ".join(f"{column}={_shown(row[column])}" for column in columns if column in row)


def _shown(value: Any) -> str:
    """Return a value so that 1 and "1", or a day and its text, look different."""
    value = None if isinstance(value, float) and math.isnan(value) else value
    text = value.isoformat() if isinstance(value, date) else str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}..."


def _key(row: Row, columns: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_canonical(_plain(row.get(column))) for column in columns)


def _plain(value: Any) -> Any:
    """Return NaN as None, a day as its midnight, and what has numbers of other libraries as Python's."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, time())
    return value


def _canonical(value: Any) -> Any:
    """Return something that can be a key, and is the same for values that are; it names the kind of the value."""
    value = _plain(value)
    if value is None or isinstance(value, bool | str | bytes):
        return (type(value).__name__, value)
    if isinstance(value, int | float | Decimal):
        return ("number", _rounded(value))
    if isinstance(value, Mapping):
        return ("map", frozenset((str(key), _canonical(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return ("list", tuple(_canonical(item) for item in value))
    if isinstance(value, set | frozenset):
        return ("set", frozenset(_canonical(item) for item in value))
    if isinstance(value, datetime):
        return ("time", value)
    return (type(value).__name__, repr(value))


def _rounded(value: int | float | Decimal) -> int | float:
    if isinstance(value, int):
        return value
    number = float(f"{value:.{_DIGITS}g}")
    return int(number) if number.is_integer() else number


def _matched(left: Sequence[Any], right: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Return the indices of rows that have no equal one on the other side, in whatever order."""
    return _unmatched(left, Counter(right)), _unmatched(right, Counter(left))


def _unmatched(rows: Sequence[Any], others: Counter[Any]) -> list[int]:
    alone = []
    for index, row in enumerate(rows):
        if others[row] > 0:
            others[row] -= 1
        else:
            alone.append(index)
    return alone


def _aligned(left: Sequence[Any], right: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Return the indices of rows that are not in place."""
    alone_left: list[int] = []
    alone_right: list[int] = []
    for tag, i, i_end, j, j_end in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag != "equal":
            alone_left += range(i, i_end)
            alone_right += range(j, j_end)
    return alone_left, alone_right


def _pairs(
    alone_left: Sequence[int], alone_right: Sequence[int], left: Sequence[Any], right: Sequence[Any]
) -> list[tuple[int, int]]:
    """Return which rows are meant to be the same: those that share most cells, at least half of them."""
    shared = [
        (sum(a == b for a, b in zip(left[i], right[j], strict=True)), i, j)
        for i in alone_left[:_MOST_PAIRED]
        for j in alone_right[:_MOST_PAIRED]
    ]
    pairs: list[tuple[int, int]] = []
    taken: set[tuple[int, int]] = set()
    for cells, i, j in sorted(shared, key=lambda it: (-it[0], abs(it[1] - it[2]), it[1], it[2])):
        if cells * 2 >= len(left[i]) > 0 and not {(0, i), (1, j)} & taken:
            taken |= {(0, i), (1, j)}
            pairs.append((i, j))
    return pairs
