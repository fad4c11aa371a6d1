"""Measures the rows of frames while they pass, and looks before anything is committed whether expectations hold."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from opendataflow.core.pipelines.expectations import BY_TYPE, NULLS, RESULT, Checked, Measure, judge, measures, unfit
from opendataflow.errors import StepFailed
from opendataflow.model.projects.expectations import Expectation
from opendataflow.spark.pipeline.errors.error_report import plain

Doubles = Callable[[Sequence[str]], int]
"""Returns how many values of some columns together are there more than once in what is about to be committed."""


_NO_HASH = ("map<", "variant", "void", "geometry", "geography")
"""In the names of types that Spark has no hash of."""
_NESTED = ("array", "struct")
_LONG = 63
"""Bits of Java's whole numbers."""


class Watched:
    """A frame whose rows are measured as they pass."""

    def __init__(self, frame: DataFrame, wanted: Sequence[Measure]) -> None:
        self.wanted = list(dict.fromkeys(wanted))
        self._given = frame
        self.name = uuid4().hex
        self._observation = Observation(self.name)
        self.frame = frame.observe(self._observation, *self._columns())

    def _columns(self) -> list[Column]:
        types = _types(self._given, self.wanted)
        return [_column(measure, types).alias(f"m{number}") for number, measure in enumerate(self.wanted)]

    @property
    def is_complete(self) -> bool:
        """Whether something that Spark has done was measured. Asking for it before would wait, perhaps for ever."""
        return self._observation._jo is not None and bool(self._observation._jo.future().isCompleted())

    def seen(self) -> dict[Measure, Any] | None:
        """What was measured the first time; None where no rows have passed yet, or Spark has left them out."""
        if not self.is_complete:
            return None
        try:
            found = self._observation.get
        except (PySparkException, Py4JJavaError):  # the action has failed, or Spark has left this out of it
            return None
        return {measure: found[f"m{number}"] for number, measure in enumerate(self.wanted)} if found else None

    def measured(self) -> dict[Measure, Any]:
        """The same; in a pass of its own where that is needed."""
        row = self._given.agg(*self._columns()).first()
        assert row is not None
        return dict(zip(self.wanted, row, strict=True))


def hashable(frame: DataFrame) -> tuple[str, ...]:
    """Return the columns that the checksum of a frame is of; none where Spark has no hash of one of them."""
    unknown = any(word in kind for _, kind in frame.dtypes for word in _NO_HASH)
    return () if unknown else tuple(frame.columns)


class Checks:
    """The expectations of one run. `places`: of each in the project's file."""

    def __init__(self, expectations: Sequence[Expectation], places: Sequence[str]) -> None:
        self._all = list(zip(expectations, places, strict=True))
        self._types: dict[str, dict[str, str]] = {}
        self.checked: list[Checked] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def wanted(self, frame: DataFrame, name: str = RESULT) -> list[Measure]:
        """Return what is to be measured of a frame. Raises StepFailed where it lacks a column, or can't be asked."""
        found: list[Measure] = []
        self._types[name] = dict(frame.dtypes) if self._all else {}
        for it, place in self._all:
            asked = [measure for measure in measures(it) if measure.frame == name]
            columns = [*(column for measure in asked for column in measure.columns)]
            columns += it.unique or () if name == RESULT else ()
            missing = [column for column in dict.fromkeys(columns) if column not in frame.columns]
            if missing:
                rows = name or "the result"
                raise StepFailed(
                    f"{place}: {it.title}: {rows} has no column {', '.join(missing)}; it has {', '.join(frame.columns)}"
                )
            types = _types(frame, asked)
            wrong = next(filter(None, (unfit(measure, types) for measure in asked)), None)
            if wrong is not None:
                raise StepFailed(f"{place}: {it.title}: {wrong}")
            try:
                if asked:
                    frame.observe("asked", *(_column(measure, types).alias("it") for measure in asked))
            except AnalysisException as error:
                raise StepFailed(f"{place}: {it.title}: {plain(str(error)).partition(chr(10))[0]}") from None
            found += asked
        return found

    def guilty(self, frame: DataFrame, is_it: Callable[[BaseException], bool]) -> str | None:
        """Return the place and title of the first expectation that fails itself with the rows of the result."""
        for it, place in self._all:
            asked = [measure for measure in measures(it) if measure.frame == RESULT]
            try:
                if asked:
                    frame.agg(*(_column(measure, _types(frame, asked)) for measure in asked)).collect()
            except (PySparkException, Py4JJavaError) as error:
                if is_it(error):
                    return f"{place}: {it.title}"
        return None

    def check(self, found: Mapping[Measure, Any], doubles: Doubles) -> None:
        """Judge. Raises StepFailed where one does not hold that has to."""
        now = datetime.now(UTC)
        self.checked = [
            self._with_types(it, judge(it, found, None if it.unique is None else doubles(it.unique), now))
            for it, _ in self._all
        ]
        failed = [
            f"{place}: {it.name}: {it.found}"
            for (_, place), it in zip(self._all, self.checked, strict=True)
            if it.fails
        ]
        if failed:
            raise StepFailed(f"what is expected is not so, and nothing was written: {'; '.join(failed)}")

    def _with_types(self, it: Expectation, judged: Checked) -> Checked:
        """Equal values have other checksums where their types differ."""
        if it.same is None or judged.held:
            return judged
        ours, theirs = self._types[RESULT], self._types[it.same.source]
        other = [
            f"{name} is {ours[name]}, of {it.same.source} {theirs[name]}"
            for name in it.same.checksum
            if ours[name] != theirs[name]
        ]
        return replace(judged, found=f"{judged.found}; {', '.join(other)}") if other else judged


def _types(frame: DataFrame, asked: Sequence[Measure]) -> dict[str, str]:
    """Return the types of all columns; Spark is asked only where one of the measures depends on them."""
    return dict(frame.dtypes) if any(measure.kind in BY_TYPE for measure in asked) else {}


def column_of(name: str) -> Column:
    """Return the column that has this name, whatever it consists of."""
    return F.col(f"`{name.replace('`', '``')}`")


def _column(measure: Measure, types: Mapping[str, str]) -> Column:
    columns = [column_of(name) for name in measure.columns]
    if measure.kind in ("high", "low"):
        row = F.xxhash64(*columns)
        if measure.given == NULLS:  # which xxhash64 passes by, also inside of others
            nested = [it for it, name in zip(columns, measure.columns, strict=True) if types[name].startswith(_NESTED)]
            row = F.xxhash64(*columns, *(it.isNull() for it in columns), *(_as_json(it) for it in nested))
        return F.sum(F.shiftright(row, 32) if measure.kind == "high" else row.bitwiseAND(F.lit(0xFFFFFFFF)))
    if measure.kind == "rows":
        return F.count(F.lit(1))
    if measure.kind == "sql":
        return F.expr(measure.given[0])
    (column,) = columns
    kind = types.get(measure.columns[0], "")
    given = [_literal(value, kind) for value in measure.given]
    if measure.kind == "outside":
        tests = [column.__lt__, column.__gt__]
        outside = [test(end) for test, end, it in zip(tests, given, measure.given, strict=True) if it is not None]
        nan = [F.isnan(column)] if kind in ("float", "double") else []
        return _count_wrong(reduce(or_, [*outside, *nan]), column)
    if measure.kind == "newest":
        return F.unix_micros(F.max(column).cast("timestamp"))
    if measure.kind == "sum":
        return F.sum(column.cast("decimal(20,0)") if kind == "bigint" else column)
    return F.count_if(column.isNull()) if measure.kind == "null" else _count_wrong(~column.isin(*given), column)


def _as_json(column: Column) -> Column:
    return F.to_json(F.struct(column), {"ignoreNullFields": "false"})


def _literal(value: Any, kind: str) -> Column:
    """Return a value as one of a column: 0.1 of 32 bits is not that of 64, and Java's whole numbers have an end."""
    if kind == "float":
        return F.lit(value).cast("float")
    return F.lit(Decimal(value) if isinstance(value, int) and value.bit_length() > _LONG else value)


def _count_wrong(wrong: Column, column: Column) -> Column:
    """Count what is wrong, but NULLs. What can't be compared, which is no error with ANSI turned off, is wrong."""
    return F.count_if(F.coalesce(wrong, column.isNotNull()))
