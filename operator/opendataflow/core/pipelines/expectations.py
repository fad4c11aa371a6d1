"""What is to be found out about the rows of a chunk for its expectations, and what that says. Pure.

Each expectation asks for measures: aggregates that are computed while the rows pass. `Measure` says which, without
knowing an engine; `judge` compares what was found.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isclose, isnan
from typing import Any, Literal

from opendataflow.core.text.explain import counted
from opendataflow.model.fields.field_types import duration_seconds
from opendataflow.model.projects.expectations import Expectation

Kind = Literal["rows", "null", "outside", "other", "newest", "sql", "sum", "high", "low"]
RESULT = ""
"""The rows that are written; other frames have the names of sources."""


@dataclass(frozen=True)
class Measure:
    """One aggregate. `frame`: of which rows. `columns`, `given`: what it is about. Most are counts; `newest` is in
    microseconds since the epoch; `high` and `low` are the sums of the halves of the rows' hashes, and with `NULLS`
    these tell which of the columns are NULL."""

    kind: Kind
    columns: tuple[str, ...] = ()
    given: tuple[Any, ...] = ()
    frame: str = RESULT


ROWS = Measure("rows")
HALVES: tuple[Kind, Kind] = ("high", "low")
NULLS = ("nulls",)
BY_TYPE: tuple[Kind, ...] = ("outside", "other", "newest", "sum", *HALVES)
"""What is measured in another way, or not at all, of some types of columns."""
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_AHEAD = 24 * 3600
"""Seconds that the newest may lie in the future: a day begins earlier elsewhere. One wrong value would be fresh for
ever."""
_AS_EQUAL = 1e-9
"""Sums of floating numbers differ by less, relatively, where only the order of the rows is another one."""


@dataclass(frozen=True)
class Checked:
    """What became of an expectation. `found`: a few words, for people."""

    name: str
    held: bool
    severity: Literal["fail", "warn"]
    found: str

    @property
    def fails(self) -> bool:
        """Whether nothing may be written."""
        return not self.held and self.severity == "fail"


def told(it: Mapping[str, Any]) -> str:
    """Return a sentence of an expectation as a run has reported it."""
    said = f"{it['name']}: {'holds' if it['held'] else 'does not hold'}"
    warns = " (a warning)" if not it["held"] and it["severity"] == "warn" else ""
    return f"{said}{warns}{': ' + it['found'] if it['found'] else ''}"


def measures(it: Expectation) -> list[Measure]:
    """Return what has to be measured. Of unique nothing: no aggregate that passes by can tell it."""
    if it.not_null is not None:
        return [Measure("null", (column,)) for column in it.not_null]
    if it.range is not None:
        return [Measure("outside", (it.range.column,), (it.range.lowest, it.range.highest))]
    if it.values is not None:
        return [Measure("other", (it.values.column,), it.values.accepted)]
    if it.fresh is not None:
        return [Measure("newest", (it.fresh.column,))]
    if it.sql is not None:
        return [Measure("sql", given=(it.sql,))]
    return [measure for _, pair in _compared(it) for measure in pair]


def _compared(it: Expectation) -> list[tuple[str, tuple[Measure, Measure]]]:
    """Return what of the result is compared with what of a source."""
    if it.same is None:
        return []
    asked = [("rows", ROWS)] if it.same.rows else []
    asked += [(f"sum of {column}", Measure("sum", (column,))) for column in it.same.sums]
    if it.same.checksum:
        asked += [("checksum", Measure(half, it.same.checksum, NULLS)) for half in HALVES]
    return [(what, (measure, replace(measure, frame=it.same.source))) for what, measure in asked]


def unfit(measure: Measure, types: Mapping[str, str]) -> str | None:
    """Return why a measure can't be of these columns, of which Spark names the types; None where it can."""
    for column in measure.columns if measure.kind in BY_TYPE else ():
        kind = types[column]
        number = next((value for value in measure.given if isinstance(value, int | float)), None)
        if measure.kind in ("outside", "other") and kind == "string" and number is not None:
            return f"{column} has texts, and {number} is a number: write '{number}', or cast the column"
        if measure.kind == "newest" and not kind.startswith(("date", "timestamp")):
            return f"{column} has the type {kind}, which is no day or time: cast it"
        if measure.kind == "sum" and kind.partition("(")[0] not in _NUMBERS:
            return f"{column} has the type {kind}, which has no sum: cast it"
    return None


def checksum_of(found: Mapping[Measure, Any], columns: tuple[str, ...]) -> str | None:
    """Return the checksum of columns in any order of the rows; None where it was not measured."""
    high, low = (Measure(half, columns) for half in HALVES)
    if high not in found:
        return None
    return f"xxhash64:{(((found[high] or 0) << 32) + (found[low] or 0)) % 2**64:016x}"


def judge(it: Expectation, found: Mapping[Measure, Any], doubles: int | None, now: datetime) -> Checked:
    """Return whether it holds. `doubles`: how many values of unique columns are there more than once."""
    held, words = _judged(it, found, doubles, now)
    return Checked(it.title, held, it.severity, words)


def _judged(it: Expectation, found: Mapping[Measure, Any], doubles: int | None, now: datetime) -> tuple[bool, str]:
    if it.unique is not None:
        return not doubles, f"{counted(doubles or 0, 'value')} more than once"
    if it.same is not None:
        return _same(it, found)
    values = [found[measure] for measure in measures(it)]
    if it.fresh is not None:
        return _fresh(values[0], duration_seconds(it.fresh.within), now)
    if it.sql is not None:
        return values[0] is True, f"it is {_word(values[0])}"
    if it.not_null is not None:
        null = [
            f"{column} in {counted(value, 'row')}" for column, value in zip(it.not_null, values, strict=True) if value
        ]
        return not null, f"NULL: {', '.join(null)}" if null else "none"
    return not values[0], counted(values[0] or 0, "row") + " with others"


def _fresh(newest: int | None, within: float, now: datetime) -> tuple[bool, str]:
    if newest is None:
        return False, "the newest is missing"
    try:
        shown = str(datetime.fromtimestamp(newest / 1e6, UTC))
    except (ValueError, OverflowError):  # such as the infinity of a database
        shown = f"{'after' if newest > 0 else 'before'} all days of the calendar"
    age = now.timestamp() - newest / 1e6
    ahead = age < -_AHEAD
    return age <= within and not ahead, f"the newest is {shown}{', which is to come' if ahead else ''}"


def _same(it: Expectation, found: Mapping[Measure, Any]) -> tuple[bool, str]:
    assert it.same is not None
    different: dict[str, str] = {}
    for what, (result, source) in _compared(it):
        one, other = found[result] or 0, found[source] or 0
        if not _equal(one, other):
            numbers = "" if what == "checksum" else f" {one}, of {it.same.source} {other}"
            different[what] = f"{what}{numbers}"
    if different:
        return False, f"different: {'; '.join(different.values())}"
    return True, ", ".join(dict.fromkeys(what for what, _ in _compared(it)))


def _equal(one: Any, other: Any) -> bool:
    if not isinstance(one, float) and not isinstance(other, float):
        return bool(one == other)
    return isclose(one, other, rel_tol=_AS_EQUAL) or (isnan(one) and isnan(other))


def _word(value: Any) -> str:
    return {True: "true", False: "false", None: "NULL"}.get(value, str(value))
