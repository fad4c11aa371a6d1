"""Expectations about the rows of a chunk: the required measures, and their evaluation. Pure.

Each expectation requires measures, which are aggregates of the rows. `Measure` describes an aggregate independently of
an engine. `evaluate` compares the results.
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
"""Frame name of the written rows. Other frames have the names of sources."""


@dataclass(frozen=True)
class Measure:
    """One aggregate of a frame. `given`: constants of the expectation.

    Most kinds are counts. `newest` is in microseconds since the epoch. `high` and `low` are the sums of the upper and
    lower halves of the rows' hashes. With `NULLS`, the hashes distinguish NULLs in different columns.
    """

    kind: Kind
    columns: tuple[str, ...] = ()
    given: tuple[Any, ...] = ()
    frame: str = RESULT


ROWS = Measure("rows")
HALVES: tuple[Kind, Kind] = ("high", "low")
NULLS = ("nulls",)
TYPE_DEPENDENT: tuple[Kind, ...] = ("outside", "other", "newest", "sum", *HALVES)
"""Kinds that are computed differently, or not at all, for some types of columns."""
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_MAX_AHEAD = 24 * 3600
"""Seconds that the newest time may lie in the future, for time zones. Later times would make rows fresh for ever."""
_SUM_TOLERANCE = 1e-9
"""Relative tolerance of floating-point sums, which depend on the order of the rows."""


@dataclass(frozen=True)
class ExpectationResult:
    """The result of an expectation. `found`: a few words, for people."""

    name: str
    held: bool
    severity: Literal["fail", "warn"]
    found: str

    @property
    def fails(self) -> bool:
        """Whether the run fails and writes nothing."""
        return not self.held and self.severity == "fail"


def required_measures(it: Expectation) -> list[Measure]:
    """Return the required measures. Uniqueness has none: duplicates are counted after the write."""
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
    return [measure for _, pair in _compared_measures(it) for measure in pair]


def _compared_measures(it: Expectation) -> list[tuple[str, tuple[Measure, Measure]]]:
    """Return the compared measures by name: of the result and of a source."""
    if it.same is None:
        return []
    asked = [("rows", ROWS)] if it.same.rows else []
    asked += [(f"sum of {column}", Measure("sum", (column,))) for column in it.same.sums]
    if it.same.checksum:
        asked += [("checksum", Measure(half, it.same.checksum, NULLS)) for half in HALVES]
    return [(what, (measure, replace(measure, frame=it.same.source))) for what, measure in asked]


def explain_unsuitable(measure: Measure, types: Mapping[str, str]) -> str | None:
    """Return why the columns have unsuitable types for a measure, or None. `types`: Spark's names, by column."""
    for column in measure.columns if measure.kind in TYPE_DEPENDENT else ():
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
    """Return the checksum of columns, independent of the order of rows, or None if not measured."""
    high, low = (Measure(half, columns) for half in HALVES)
    if high not in found:
        return None
    return f"xxhash64:{(((found[high] or 0) << 32) + (found[low] or 0)) % 2**64:016x}"


def evaluate(it: Expectation, found: Mapping[Measure, Any], duplicates: int | None, now: datetime) -> ExpectationResult:
    """Return the result of an expectation. `duplicates`: the number of values that occur more than once."""
    held, words = _evaluate(it, found, duplicates, now)
    return ExpectationResult(it.title, held, it.severity, words)


def _evaluate(it: Expectation, found: Mapping[Measure, Any], duplicates: int | None, now: datetime) -> tuple[bool, str]:
    if it.unique is not None:
        return not duplicates, f"{counted(duplicates or 0, 'value')} more than once"
    if it.same is not None:
        return _compare(it, found)
    values = [found[measure] for measure in required_measures(it)]
    if it.fresh is not None:
        return _check_freshness(values[0], duration_seconds(it.fresh.within), now)
    if it.sql is not None:
        return values[0] is True, f"it is {_sql_word(values[0])}"
    if it.not_null is not None:
        null = [
            f"{column} in {counted(value, 'row')}" for column, value in zip(it.not_null, values, strict=True) if value
        ]
        return not null, f"NULL: {', '.join(null)}" if null else "none"
    return not values[0], counted(values[0] or 0, "row") + " with others"


def _check_freshness(newest: int | None, within: float, now: datetime) -> tuple[bool, str]:
    if newest is None:
        return False, "the newest is missing"
    try:
        shown = str(datetime.fromtimestamp(newest / 1e6, UTC))
    except (ValueError, OverflowError):  # such as a database's infinity
        shown = f"{'after' if newest > 0 else 'before'} all days of the calendar"
    age = now.timestamp() - newest / 1e6
    ahead = age < -_MAX_AHEAD
    return age <= within and not ahead, f"the newest is {shown}{', which is to come' if ahead else ''}"


def _compare(it: Expectation, found: Mapping[Measure, Any]) -> tuple[bool, str]:
    assert it.same is not None
    different: dict[str, str] = {}
    for what, (result, source) in _compared_measures(it):
        one, other = found[result] or 0, found[source] or 0
        if not _is_equal(one, other):
            numbers = "" if what == "checksum" else f" {one}, of {it.same.source} {other}"
            different[what] = f"{what}{numbers}"
    if different:
        return False, f"different: {'; '.join(different.values())}"
    return True, ", ".join(dict.fromkeys(what for what, _ in _compared_measures(it)))


def _is_equal(one: Any, other: Any) -> bool:
    if not isinstance(one, float) and not isinstance(other, float):
        return bool(one == other)
    return isclose(one, other, rel_tol=_SUM_TOLERANCE) or (isnan(one) and isnan(other))


def _sql_word(value: Any) -> str:
    return {True: "true", False: "false", None: "NULL"}.get(value, str(value))
