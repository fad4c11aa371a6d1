"""Frames of Spark: one run of a pipeline for one chunk.

Spark puts work off until the write, so that the rows of all steps are counted while they pass, in the one pass that
there is, and what fails in it is traced back to its step (`blame`).
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from opendataflow.core.chunks.attempts import Attempt, Result, Seen
from opendataflow.core.chunks.chunk_parts import Chunk
from opendataflow.core.pipelines.expectations import HALVES, ROWS, Checked, Measure, checksum_of
from opendataflow.core.pipelines.pipeline_steps import check_columns
from opendataflow.errors import StepFailed
from opendataflow.model.projects.project import Source
from opendataflow.spark.pipeline.errors.error_report import Told, returned, tell
from opendataflow.spark.pipeline.errors.spark_errors import (
    as_spark,
    full_disk,
    guilty_place,
    is_about_plan,
    sentence_of,
)
from opendataflow.spark.pipeline.execute.loading import Loaded
from opendataflow.spark.pipeline.execute.running import Item, Order
from opendataflow.spark.pipeline.io.folders import Folders
from opendataflow.spark.pipeline.io.reading import read
from opendataflow.spark.pipeline.io.tables import Table
from opendataflow.spark.pipeline.measure.checks import Checks, Doubles, Watched, hashable
from opendataflow.spark.pipeline.measure.scan_coverage import passed_whole
from opendataflow.spark.pipeline.measure.session import end_of_java
from opendataflow.spark.pipeline.measure.worker_output import WorkerOutput

_PATIENCE = 60_000
"""Milliseconds that Spark may take to hand on what was measured."""
_PATIENCE_FOR_END = 10
"""Seconds that its JVM may take to end when it answers no more."""


class SparkFrames:
    """One run for one chunk; the result is a folder of its own in the destination, or rows of a table."""

    def __init__(self, order: Order, spark: SparkSession, attempt: Attempt) -> None:
        """Raises StepFailed where the destination can't be written from here."""
        place = order.at(len(order.sources) + len(order.steps))
        to = order.pipeline.destination
        self._checks = Checks(order.pipeline.expectations, order.expectations())
        self._target = (
            Folders(order.project, to, attempt, place)
            if to.database is None
            else Table(spark, order.pipeline, Chunk(attempt.data_id, order.bounds), attempt, place)
        )
        self._order = order
        self._chunk = Chunk(attempt.data_id, order.bounds)
        self._last_step = len(order.sources) + len(order.steps) - 1 if order.steps else None
        self._spark = spark
        self._frames: dict[int, DataFrame] = {}
        self._watched: dict[int, Watched] = {}
        self._workers = WorkerOutput(spark)
        self._found: dict[int, dict[Measure, Any]] = {}
        self.result: Result | None = None

    @property
    def checked(self) -> list[Checked]:
        """What became of the expectations."""
        return self._checks.checked

    def read(self, source: Source, place: str) -> DataFrame:
        """Read the rows of the chunk."""
        return read(self._spark, self._order.project, source, self._chunk, place)

    def call(self, step: Loaded, frames: Sequence[DataFrame], item: Item | None) -> DataFrame:
        """Call run() with frames of Spark, or with frames of pandas that hold all of their rows."""
        result = self._called(step, frames, item)
        if self._spark.sparkContext._jsc is None:
            raise StepFailed(f"{step.at}: run() stops Spark, which all other steps need: leave out stop()")
        return result

    def _called(self, step: Loaded, frames: Sequence[DataFrame], item: Item | None) -> DataFrame:
        if step.engine == "pandas":
            from opendataflow.spark.pipeline.execute import pandas_frames
            from opendataflow.spark.pipeline.execute.to_and_from_pandas import of_pandas, to_pandas

            whole = []
            for frame in frames:
                unmeasured = self._unmeasured()
                whole.append(to_pandas(frame, step.at))
                self._settle()
                self._learn(unmeasured)
            return of_pandas(self._spark, pandas_frames.call(step, whole, item), frames, step.at)
        with self._workers.of(step.name):
            return call(step, frames, item)

    def _unmeasured(self) -> dict[str, int]:
        """Of which frames nothing was measured. What a step has computed itself, as show() does, may be a part."""
        self._settle()
        return {watched.name: index for index, watched in self._watched.items() if not watched.is_complete}

    def _learn(self, unmeasured: Mapping[str, int], last: str | None = None) -> None:
        """Keep what was measured of those that have passed as a whole."""
        for name in passed_whole(self._spark, unmeasured, last) if unmeasured else ():
            seen = self._watched[unmeasured[name]].seen()
            if seen is not None:
                self._found[unmeasured[name]] = seen

    def counted(self, frame: DataFrame, index: int) -> DataFrame:
        """Let the rows be counted as they pass. A filter does not get past what counts."""
        self._frames[index] = frame
        if index == self._last_step:
            return frame  # its rows are those that are written, and counted there
        of_source = self._checks.wanted(frame, self._order.sources[index]) if index < len(self._order.sources) else []
        if not of_source and self._order.pipeline.measure != "steps":
            return frame
        self._watched[index] = Watched(frame, [ROWS, *of_source])
        return self._watched[index].frame

    def write(self, frame: DataFrame) -> None:
        """Write what is there of the chunk anew, or as the destination's mode says."""
        last = self._order.at(len(self._order.sources) + len(self._order.steps) - 1)
        check_columns(frame.columns, last)
        if not frame.columns:
            raise StepFailed(f"{last}: the result has no columns; keep them, also where there are no rows")
        columns = () if self._order.pipeline.measure == "rows" else hashable(frame)
        halves = [Measure(half, columns) for half in HALVES] if columns else []
        watched = Watched(frame, [ROWS, *halves, *self._checks.wanted(frame)])
        unmeasured = self._unmeasured()

        def passed(doubles: Doubles) -> Seen:
            self._settle()
            self._learn(unmeasured, watched.name)
            found = watched.seen()
            if found is not None and self._last_step is not None:
                self._found[self._last_step] = found
            if self._checks:
                found = watched.measured() if found is None else found
                self._checks.check({**self._of_sources(), **found}, doubles)
            return Seen(None, None) if found is None else Seen(found[ROWS], checksum_of(found, columns))

        self.result = self._target.write(watched.frame, passed)

    def _settle(self) -> None:
        """Let Spark hand on what was measured: it does so a moment after the rows have passed."""
        context: Any = self._spark.sparkContext._jsc
        with suppress(Py4JJavaError):
            context.sc().listenerBus().waitUntilEmpty(_PATIENCE)

    def _of_sources(self) -> dict[Measure, Any]:
        """What expectations have to know of sources, in a pass of its own where it is not known."""
        found: dict[Measure, Any] = {}
        for index, watched in self._watched.items():
            if index < len(self._order.sources) and len(watched.wanted) > 1:
                found |= self._found.get(index) or watched.measured()
        return found

    def rows(self) -> Mapping[int, int]:
        """The rows of the steps whose frames have passed as a whole."""
        found = {index: int(seen[ROWS]) for index, seen in self._found.items()}
        if self.result is not None and self.result.rows is not None:
            found[len(self._order.sources) + len(self._order.steps)] = self.result.rows
        return found

    def printed(self) -> Mapping[int, str]:
        """What the functions of the transformations have printed inside Python workers."""
        found, first = self._workers.by_step(), len(self._order.sources)
        return {first + number: found[step.name] for number, step in enumerate(self._order.steps) if step.name in found}

    def blame(self, error: BaseException, index: int) -> tuple[int, Told]:
        """The step whose code the error names; else the first one whose rows alone fail in the same way."""
        project = self._order.project
        ended = end_of_java(_PATIENCE_FOR_END if _is_cut_off(error) else 0)
        if ended is not None:
            return index, Told(f"{self._order.at(index)}: {ended}")
        known = as_spark(error)
        if known is None or is_about_plan(known):
            return index, tell(error, project, self._order.at(index))
        first = len(self._order.sources)
        for file, line in guilty_place(known):
            for number, step in enumerate(self._order.steps, first):
                if Path(file) == Path(step.file):
                    return number, sentence_of(known, f"{project.shown(file)}, line {line}")
        is_it = partial(_is_alike, known)
        guilty = next((number for number, frame in self._frames.items() if _fails(frame, is_it)), index)
        at = self._measured_at(guilty, is_it) or self._order.at(guilty)
        return guilty, self._scratch_is_full(at) if full_disk(known) == "scratch" else sentence_of(known, at)

    def _measured_at(self, guilty: int, is_it: Callable[[BaseException], bool]) -> str | None:
        """Return the expectation that fails while the rows are written; None where it is none."""
        writing = guilty == len(self._order.sources) + len(self._order.steps)
        return self._checks.guilty(self._frames[max(self._frames)], is_it) if writing and self._frames else None

    def _scratch_is_full(self, at: str) -> Told:
        where = os.environ.get("SPARK_LOCAL_DIRS") or self._spark.conf.get("spark.local.dir", tempfile.gettempdir())
        return Told(
            f"{at}: there is no space left for what Spark can't keep in memory, in {where}: free some, or let "
            "spark.local.dir name another one"
        )


def _is_cut_off(error: BaseException | None) -> bool:
    """Whether an error, or what has led to it, may be that nobody answers in Spark's JVM."""
    while error is not None:
        if isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _fails(frame: DataFrame, is_it: Callable[[BaseException], bool]) -> bool:
    """Whether the rows of a frame alone fail in this way."""
    try:
        frame.write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JJavaError) as error:
        return is_it(error)
    return False


def _is_alike(known: PySparkException, found: BaseException) -> bool:
    same = as_spark(found)
    return same is not None and same.getCondition() == known.getCondition()


def call(step: Loaded, frames: Sequence[DataFrame], item: Item | None) -> DataFrame:
    """Call run() of a Spark transformation; StepFailed where it returns no frame."""
    given = {} if item is None or not step.signature.stream else {"stream": dict(item)}
    result = step.run(*frames, **given)
    if isinstance(result, DataFrame):
        return result
    raise StepFailed(f"{step.at}: run() {returned(result)}; a DataFrame of Spark is wanted")
