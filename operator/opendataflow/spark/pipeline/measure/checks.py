"""Measure the rows of frames while Spark reads them, and evaluate expectations before anything is committed."""

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

from opendataflow.core.pipelines.expectations import (
    NULLS,
    RESULT,
    TYPE_DEPENDENT,
    ExpectationResult,
    Measure,
    evaluate,
    explain_unsuitable,
    required_measures,
)
from opendataflow.errors import StepFailed
from opendataflow.model.projects.expectations import Expectation
from opendataflow.spark.pipeline.errors.error_report import clean_message

CountDuplicates = Callable[[Sequence[str]], int]
"""Returns how many combined values of some columns occur more than once in the rows to commit."""

_NO_HASH = ("map<", "variant", "void", "geometry", "geography")
"""Parts of the names of types that Spark can't hash."""
_NESTED = ("array", "struct")
_LONG = 63
"""Bits of Java's largest integer type."""


class MeasuredFrame:
    """A frame whose rows are measured while Spark reads them."""

    def __init__(self, frame: DataFrame, wanted: Sequence[Measure]) -> None:
        self.wanted = list(dict.fromkeys(wanted))
        self._given = frame
        self.name = uuid4().hex
        self._observation = Observation(self.name)
        self.frame = frame.observe(self._observation, *self._columns())

    def _columns(self) -> list[Column]:
        types = _column_types(self._given, self.wanted)
        return [_measure_column(measure, types).alias(f"m{number}") for number, measure in enumerate(self.wanted)]

    @property
    def is_complete(self) -> bool:
        """Whether an execution was measured. Reading the measures before could block for ever."""
        return self._observation._jo is not None and bool(self._observation._jo.future().isCompleted())

    def observed(self) -> dict[Measure, Any] | None:
        """Return the measures of the first execution, or None if there was no execution or Spark skipped the frame."""
        if not self.is_complete:
            return None
        try:
            found = self._observation.get
        except (PySparkException, Py4JJavaError):  # the execution failed, or did not include this frame
            return None
        return {measure: found[f"m{number}"] for number, measure in enumerate(self.wanted)} if found else None

    def compute(self) -> dict[Measure, Any]:
        """Compute the measures in an execution of their own."""
        row = self._given.agg(*self._columns()).first()
        assert row is not None
        return dict(zip(self.wanted, row, strict=True))


def hashable_columns(frame: DataFrame) -> tuple[str, ...]:
    """Return the columns for the checksum of a frame: all, or none if Spark can't hash one of them."""
    unknown = any(word in kind for _, kind in frame.dtypes for word in _NO_HASH)
    return () if unknown else tuple(frame.columns)


class ExpectationChecks:
    """The expectations of one run. `places`: of each one in the project's file."""

    def __init__(self, expectations: Sequence[Expectation], places: Sequence[str]) -> None:
        self._all = list(zip(expectations, places, strict=True))
        self._types: dict[str, dict[str, str]] = {}
        self.results: list[ExpectationResult] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def required_measures(self, frame: DataFrame, name: str = RESULT) -> list[Measure]:
        """Return the measures to take of a frame. Raises StepFailed if a column is missing or unsuitable."""
        found: list[Measure] = []
        self._types[name] = dict(frame.dtypes) if self._all else {}
        for it, place in self._all:
            asked = [measure for measure in required_measures(it) if measure.frame == name]
            columns = [*(column for measure in asked for column in measure.columns)]
            columns += it.unique or () if name == RESULT else ()
            missing = [column for column in dict.fromkeys(columns) if column not in frame.columns]
            if missing:
                rows = name or "the result"
                raise StepFailed(
                    f"{place}: {it.title}: {rows} has no column {', '.join(missing)}; it has {', '.join(frame.columns)}"
                )
            types = _column_types(frame, asked)
            wrong = next(filter(None, (explain_unsuitable(measure, types) for measure in asked)), None)
            if wrong is not None:
                raise StepFailed(f"{place}: {it.title}: {wrong}")
            try:
                if asked:
                    frame.observe("asked", *(_measure_column(measure, types).alias("it") for measure in asked))
            except AnalysisException as error:
                raise StepFailed(f"{place}: {it.title}: {clean_message(str(error)).partition(chr(10))[0]}") from None
            found += asked
        return found

    def find_failing(self, frame: DataFrame, is_same: Callable[[BaseException], bool]) -> str | None:
        """Return place and title of the first expectation whose measures raise the same error, or None."""
        for it, place in self._all:
            asked = [measure for measure in required_measures(it) if measure.frame == RESULT]
            try:
                if asked:
                    types = _column_types(frame, asked)
                    frame.agg(*(_measure_column(measure, types) for measure in asked)).collect()
            except (PySparkException, Py4JJavaError) as error:
                if is_same(error):
                    return f"{place}: {it.title}"
        return None

    def check(self, found: Mapping[Measure, Any], count_duplicates: CountDuplicates) -> None:
        """Evaluate all expectations. Raises StepFailed if one of severity `fail` does not hold."""
        now = datetime.now(UTC)
        self.results = [
            self._add_types(it, evaluate(it, found, None if it.unique is None else count_duplicates(it.unique), now))
            for it, _ in self._all
        ]
        failed = [
            f"{place}: {it.name}: {it.found}"
            for (_, place), it in zip(self._all, self.results, strict=True)
            if it.fails
        ]
        if failed:
            raise StepFailed(f"what is expected is not so, and nothing was written: {'; '.join(failed)}")

    def _add_types(self, it: Expectation, result: ExpectationResult) -> ExpectationResult:
        """Add differing column types to a failed comparison: equal values of different types have other checksums."""
        if it.same is None or result.held:
            return result
        ours, theirs = self._types[RESULT], self._types[it.same.source]
        other = [
            f"{name} is {ours[name]}, of {it.same.source} {theirs[name]}"
            for name in it.same.checksum
            if ours[name] != theirs[name]
        ]
        return replace(result, found=f"{result.found}; {', '.join(other)}") if other else result


def _column_types(frame: DataFrame, asked: Sequence[Measure]) -> dict[str, str]:
    """Return the types of all columns, or {} if no measure depends on types."""
    return dict(frame.dtypes) if any(measure.kind in TYPE_DEPENDENT for measure in asked) else {}


def column_named(name: str) -> Column:
    """Return the column of this name, with any characters."""
    return F.col(f"`{name.replace('`', '``')}`")


def _measure_column(measure: Measure, types: Mapping[str, str]) -> Column:
    """Return the aggregate of a measure."""
    columns = [column_named(name) for name in measure.columns]
    if measure.kind in ("high", "low"):
        row = F.xxhash64(*columns)
        if measure.given == NULLS:  # xxhash64 skips NULLs, also nested ones
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
    """Return a value in the type of a column: 0.1 of 32 bits differs from 0.1 of 64 bits. Java bounds its integers."""
    if kind == "float":
        return F.lit(value).cast("float")
    return F.lit(Decimal(value) if isinstance(value, int) and value.bit_length() > _LONG else value)


def _count_wrong(wrong: Column, column: Column) -> Column:
    """Count wrong values, without NULLs. Incomparable values, which ANSI mode would reject, count as wrong."""
    return F.count_if(F.coalesce(wrong, column.isNotNull()))
