"""Compare two lists of rows: missing rows, unexpected rows, changed cells. Pure.

1 equals 1.0 but not True. Numbers may differ from the twelfth digit on. A day equals its midnight. NaN equals None. The
order of columns is ignored. The order of rows counts on request.
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
    """A row with changed cells. `number`: of the expected row, from 1. `cells`: (expected, found) by column."""

    number: int
    row: Row
    cells: Mapping[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Difference:
    """The difference between expected and found rows. Row numbers begin with 1."""

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


def compare_rows(
    expected: Sequence[Row], found: Sequence[Row], *, ordered: bool, found_columns: Sequence[str] | None = None
) -> Difference:
    """Compare rows. `found_columns`: the columns of the found frame, known even without rows."""
    wanted = tuple(dict.fromkeys(column for row in expected for column in row))
    present = (
        tuple(found_columns) if found_columns is not None else tuple(dict.fromkeys(c for row in found for c in row))
    )
    missing_columns = tuple(column for column in wanted if column not in present)
    extra_columns = tuple(column for column in present if column not in wanted) if wanted else ()
    both = tuple(column for column in wanted if column in present)
    if wanted and not both:
        return Difference(missing_columns, extra_columns, columns=wanted)
    # A column of only one side is reported once, and not for each row.
    left = [_key(row, both) for row in expected]
    right = [_key(row, both) for row in found]
    alone_left, alone_right = _align(left, right) if ordered else _match(left, right)
    reordered = ordered and bool(alone_left or alone_right) and Counter(left) == Counter(right)
    if reordered:
        return Difference(missing_columns, extra_columns, reordered=True, columns=wanted)
    pairs = _pair_similar(alone_left, alone_right, left, right)
    changed, paired = [], set()
    for i, j in pairs:
        cells = {
            c: (expected[i].get(c), found[j].get(c))
            for c in both
            if not same_value(expected[i].get(c), found[j].get(c))
        }
        paired |= {(0, i), (1, j)}
        if cells:
            changed.append(ChangedRow(i + 1, expected[i], cells))
    return Difference(
        missing_columns,
        extra_columns,
        tuple((i + 1, expected[i]) for i in alone_left if (0, i) not in paired),
        tuple((j + 1, found[j]) for j in alone_right if (1, j) not in paired),
        tuple(sorted(changed, key=lambda row: row.number)),
        columns=wanted or present,
    )


def same_value(expected: Any, found: Any) -> bool:
    """Return whether two values are equal by the rules of this module."""
    a, b = _normalize(expected), _normalize(found)
    if isinstance(a, float | Decimal) or isinstance(b, float | Decimal):
        numbers = all(isinstance(it, float | int | Decimal) and not isinstance(it, bool) for it in (a, b))
        return numbers and math.isclose(a, b, rel_tol=10.0**-_DIGITS, abs_tol=10.0**-_DIGITS)
    return bool(_canonical(a) == _canonical(b))


_MOST_LINES = 20
_MOST_PAIRED = 200
"""Maximum number of rows per side for pairwise comparison: more than are shown, and few enough to be fast."""
_LONGEST_CELL = 60


def describe_difference(found: Difference) -> list[str]:
    """Return the difference as lines for people, up to a maximum number."""
    lines = [f"column {column} is missing" for column in found.missing_columns]
    lines += [f"column {column} is not expected" for column in found.extra_columns]
    if found.reordered:
        lines.append("the rows are the expected ones, in another order")
    for row in found.changed:
        cells = (f"{name}: expected {_show(want)}, found {_show(value)}" for name, (want, value) in row.cells.items())
        lines.append(f"row {row.number}: {'; '.join(cells)}")
    lines += [f"missing: row {number}: {_show_row(row, found.columns)}" for number, row in found.missing]
    lines += [f"not expected: row {number}: {_show_row(row, found.columns)}" for number, row in found.extra]
    left = len(lines) - _MOST_LINES
    return lines if left <= 0 else [*lines[:_MOST_LINES], f"and {left} more"]


def _show_row(row: Row, columns: Sequence[str]) -> str:
    return ", ".join(f"{column}={_show(row[column])}" for column in columns if column in row)


def _show(value: Any) -> str:
    """Return a value as text. 1 and "1", or a day and its text, look different."""
    value = None if isinstance(value, float) and math.isnan(value) else value
    text = value.isoformat() if isinstance(value, date) else str(value) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}..."


def _key(row: Row, columns: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_canonical(_normalize(row.get(column))) for column in columns)


def _normalize(value: Any) -> Any:
    """Return None for NaN, midnight for a day, and other values unchanged."""
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, time())
    return value


def _canonical(value: Any) -> Any:
    """Return a hashable key with the kind of the value. Equal values have equal keys."""
    value = _normalize(value)
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


def _match(left: Sequence[Any], right: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Return the indices of rows without an equal row on the other side, in any order."""
    return _find_unmatched(left, Counter(right)), _find_unmatched(right, Counter(left))


def _find_unmatched(rows: Sequence[Any], others: Counter[Any]) -> list[int]:
    alone = []
    for index, row in enumerate(rows):
        if others[row] > 0:
            others[row] -= 1
        else:
            alone.append(index)
    return alone


def _align(left: Sequence[Any], right: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Return the indices of rows that are missing or out of order on the other side."""
    alone_left: list[int] = []
    alone_right: list[int] = []
    for tag, i, i_end, j, j_end in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag != "equal":
            alone_left += range(i, i_end)
            alone_right += range(j, j_end)
    return alone_left, alone_right


def _pair_similar(
    alone_left: Sequence[int], alone_right: Sequence[int], left: Sequence[Any], right: Sequence[Any]
) -> list[tuple[int, int]]:
    """Return pairs of rows that share most cells, and at least half of them."""
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
