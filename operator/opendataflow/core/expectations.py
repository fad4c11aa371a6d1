"""What is to be found out about the rows of a chunk for its expectations, and what that says. Pure.

Each expectation asks for measures: aggregates that are computed while the rows pass. `Measure` says which, without
knowing an engine; `judge` compares what was found.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from opendataflow.core.explain import counted
from opendataflow.model.expectations import Expectation
from opendataflow.model.written import duration_seconds

Kind = Literal["rows", "null", "outside", "other", "newest", "sql", "sum", "high", "low"]
RESULT = ""
"""The rows that are written; other frames have the names of sources."""


@dataclass(frozen=True)
class Measure:
    """One aggregate. `frame`: of which rows. `columns`, `given`: what it is about. Most are counts; `newest` is in
    microseconds since the epoch; `high` and `low` are the sums of the halves of the rows' hashes."""

    kind: Kind
    columns: tuple[str, ...] = ()
    given: tuple[Any, ...] = ()
    frame: str = RESULT


ROWS = Measure("rows")
HALVES: tuple[Kind, Kind] = ("high", "low")


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
    asked: list[tuple[str, Kind, tuple[str, ...]]] = [("rows", "rows", ())] if it.same.rows else []
    asked += [(f"sum of {column}", "sum", (column,)) for column in it.same.sums]
    if it.same.checksum:
        asked += [("checksum", half, it.same.checksum) for half in HALVES]
    return [(what, (Measure(kind, of), Measure(kind, of, frame=it.same.source))) for what, kind, of in asked]


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
        newest = None if values[0] is None else datetime.fromtimestamp(values[0] / 1e6, UTC)
        within = timedelta(seconds=duration_seconds(it.fresh.within))
        return newest is not None and now - newest <= within, f"the newest is {newest or 'missing'}"
    if it.sql is not None:
        return values[0] is True, f"it is {_word(values[0])}"
    if it.not_null is not None:
        null = [
            f"{column} in {counted(value, 'row')}" for column, value in zip(it.not_null, values, strict=True) if value
        ]
        return not null, f"NULL: {', '.join(null)}" if null else "none"
    return not values[0], counted(values[0] or 0, "row") + " with others"


def _same(it: Expectation, found: Mapping[Measure, Any]) -> tuple[bool, str]:
    assert it.same is not None
    different: dict[str, str] = {}
    for what, (result, source) in _compared(it):
        if (found[result] or 0) != (found[source] or 0):
            numbers = "" if what == "checksum" else f" {found[result] or 0}, of {it.same.source} {found[source] or 0}"
            different[what] = f"{what}{numbers}"
    if different:
        return False, f"different: {'; '.join(different.values())}"
    return True, ", ".join(dict.fromkeys(what for what, _ in _compared(it)))


def _word(value: Any) -> str:
    return {True: "true", False: "false", None: "NULL"}.get(value, str(value))
