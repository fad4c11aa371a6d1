"""Measures the rows of frames while they pass, and looks before anything is committed whether expectations hold."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from opendataflow.core.expectations import RESULT, Checked, Measure, judge, measures
from opendataflow.errors import StepFailed
from opendataflow.model.expectations import Expectation
from opendataflow.spark.pipeline.told import plain

Doubles = Callable[[Sequence[str]], int]
"""Returns how many values of some columns together are there more than once in what is about to be committed."""


class Watched:
    """A frame whose rows are measured as they pass."""

    def __init__(self, frame: DataFrame, wanted: Sequence[Measure]) -> None:
        self.wanted = list(dict.fromkeys(wanted))
        self._given = frame
        self.observation = Observation()
        self.frame = frame.observe(self.observation, *self._columns())

    def _columns(self) -> list[Column]:
        return [_column(measure).alias(f"m{number}") for number, measure in enumerate(self.wanted)]

    def seen(self) -> dict[Measure, Any] | None:
        """What was measured; None where no rows have passed yet, or Spark has left them out."""
        if not is_complete(self.observation):
            return None
        try:
            found = self.observation.get
        except (PySparkException, Py4JJavaError):  # the action has failed, or Spark has left this out of it
            return None
        return {measure: found[f"m{number}"] for number, measure in enumerate(self.wanted)} if found else None

    def measured(self) -> dict[Measure, Any]:
        """The same; in a pass of its own where that is needed."""
        row = self._given.agg(*self._columns()).first()
        assert row is not None
        return dict(zip(self.wanted, row, strict=True))


def is_complete(observation: Observation) -> bool:
    """Whether an action has passed it. Asking for its rows before would wait, perhaps for ever."""
    return observation._jo is not None and bool(observation._jo.future().isCompleted())


def hashable(frame: DataFrame) -> tuple[str, ...]:
    """Return the columns that the checksum of a frame is of; none where Spark has no hash of one of them."""
    unknown = any(word in kind for _, kind in frame.dtypes for word in ("map<", "variant", "void"))
    return () if unknown else tuple(frame.columns)


class Checks:
    """The expectations of one run. `places`: of each in the project's file."""

    def __init__(self, expectations: Sequence[Expectation], places: Sequence[str]) -> None:
        self._all = list(zip(expectations, places, strict=True))
        self.checked: list[Checked] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def wanted(self, frame: DataFrame, name: str = RESULT) -> list[Measure]:
        """Return what is to be measured of a frame. Raises StepFailed where it lacks a column, or can't be asked."""
        found = []
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
            try:
                if asked:
                    frame.agg(*(_column(measure) for measure in asked))
            except AnalysisException as error:
                raise StepFailed(f"{place}: {it.title}: {plain(str(error)).partition(chr(10))[0]}") from None
            found += asked
        return found

    def check(self, found: Mapping[Measure, Any], doubles: Doubles) -> None:
        """Judge. Raises StepFailed where one does not hold that has to."""
        now = datetime.now(UTC)
        self.checked = [judge(it, found, None if it.unique is None else doubles(it.unique), now) for it, _ in self._all]
        failed = [
            f"{place}: {it.name}: {it.found}"
            for (_, place), it in zip(self._all, self.checked, strict=True)
            if it.fails
        ]
        if failed:
            raise StepFailed(f"what is expected is not so, and nothing was written: {'; '.join(failed)}")


def _column(measure: Measure) -> Column:
    columns = [F.col(f"`{name.replace('`', '``')}`") for name in measure.columns]
    if measure.kind in ("high", "low"):
        row = F.xxhash64(*columns)
        return F.sum(F.shiftright(row, 32) if measure.kind == "high" else row.bitwiseAND(F.lit(0xFFFFFFFF)))
    if measure.kind == "rows":
        return F.count(F.lit(1))
    if measure.kind == "sql":
        return F.expr(measure.given[0])
    (column,) = columns
    if measure.kind == "outside":
        lowest, highest = measure.given
        low = F.lit(False) if lowest is None else column < F.lit(lowest)
        return F.count_if(low if highest is None else low | (column > F.lit(highest)))
    if measure.kind == "newest":
        return F.unix_micros(F.max(column).cast("timestamp"))
    if measure.kind == "sum":
        return F.sum(column)
    return F.count_if(column.isNull() if measure.kind == "null" else ~column.isin(*measure.given))
