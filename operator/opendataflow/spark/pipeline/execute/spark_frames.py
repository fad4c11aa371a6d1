"""Frames of Spark: one run of a pipeline for one chunk.

Spark defers all computation until the write. So the rows of all steps are counted in that single execution, and an
error in the execution is attributed to its step.
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

from opendataflow.core.chunks.chunk_parts import Chunk
from opendataflow.core.databases.attempts import Attempt, Result, Seen
from opendataflow.core.pipelines.expectations import HALVES, ROWS, ExpectationResult, Measure, checksum_of
from opendataflow.core.pipelines.pipeline_steps import check_columns
from opendataflow.errors import StepFailed
from opendataflow.model.projects.project import Source
from opendataflow.spark.pipeline.errors.error_report import ErrorReport, describe_returned, report_error
from opendataflow.spark.pipeline.errors.spark_errors import (
    find_full_disk,
    is_analysis_error,
    list_error_locations,
    report_spark_error,
    to_spark_error,
)
from opendataflow.spark.pipeline.execute.loading import LoadedStep
from opendataflow.spark.pipeline.execute.running import ChunkRun, Item
from opendataflow.spark.pipeline.io.folders import FolderWriter
from opendataflow.spark.pipeline.io.reading_sources import read_source
from opendataflow.spark.pipeline.io.tables import TableWriter
from opendataflow.spark.pipeline.measure.checks import (
    CountDuplicates,
    ExpectationChecks,
    MeasuredFrame,
    hashable_columns,
)
from opendataflow.spark.pipeline.measure.scan_coverage import find_complete
from opendataflow.spark.pipeline.measure.session import explain_java_exit
from opendataflow.spark.pipeline.measure.worker_output import WorkerOutput

_MEASURES_TIMEOUT = 60_000
"""Milliseconds to wait for Spark to report measures."""
_JAVA_EXIT_TIMEOUT = 10
"""Seconds to wait for the end of a JVM that does not answer."""


class SparkFrames:
    """One run for one chunk. The result is a folder of its own in the destination, or rows of a table."""

    def __init__(self, run: ChunkRun, spark: SparkSession, attempt: Attempt) -> None:
        """Prepare the run. Raises StepFailed if the destination can't be written."""
        place = run.step_place(run.write_index)
        to = run.pipeline.destination
        self._checks = ExpectationChecks(run.pipeline.expectations, run.expectation_places())
        self._chunk = Chunk(attempt.data_id, run.bounds)
        self._writer = (
            FolderWriter(run.project, to, attempt, place)
            if to.database is None
            else TableWriter(spark, run.pipeline, self._chunk, attempt, place)
        )
        self._run = run
        self._last_step = run.write_index - 1 if run.steps else None
        self._spark = spark
        self._frames: dict[int, DataFrame] = {}
        self._measured: dict[int, MeasuredFrame] = {}
        self._workers = WorkerOutput(spark)
        self._found: dict[int, dict[Measure, Any]] = {}
        self.result: Result | None = None

    @property
    def expectations(self) -> list[ExpectationResult]:
        """The results of the expectations."""
        return self._checks.results

    def read(self, source: Source, place: str) -> DataFrame:
        """Read the rows of the chunk."""
        return read_source(self._spark, self._run.project, source, self._chunk, place)

    def call(self, step: LoadedStep, frames: Sequence[DataFrame], item: Item | None) -> DataFrame:
        """Call run() with frames of Spark, or with frames of pandas that contain all rows."""
        result = self._call(step, frames, item)
        if self._spark.sparkContext._jsc is None:
            raise StepFailed(f"{step.location}: run() stops Spark, which all other steps need: leave out stop()")
        return result

    def _call(self, step: LoadedStep, frames: Sequence[DataFrame], item: Item | None) -> DataFrame:
        if step.engine == "pandas":
            from opendataflow.spark.pipeline.execute import pandas_frames  # optional; raises NotInstalled
            from opendataflow.spark.pipeline.execute.pandas_conversion import from_pandas, to_pandas  # see above

            converted = []
            for frame in frames:
                unmeasured = self._list_unmeasured()
                converted.append(to_pandas(frame, step.location))
                self._wait_for_measures()
                self._keep_measures(unmeasured)
            result = pandas_frames.call_run(step, converted, item)
            return from_pandas(self._spark, result, frames, step.location)
        with self._workers.label(step.name):
            return call_run(step, frames, item)

    def _list_unmeasured(self) -> dict[str, int]:
        """Return the frames without measures so far. A step that computes rows, such as by show(), takes some."""
        self._wait_for_measures()
        return {frame.name: index for index, frame in self._measured.items() if not frame.is_complete}

    def _keep_measures(self, unmeasured: Mapping[str, int], last: str | None = None) -> None:
        """Keep the measures of the frames that the last execution read completely."""
        for name in find_complete(self._spark, unmeasured, last) if unmeasured else ():
            observed = self._measured[unmeasured[name]].observed()
            if observed is not None:
                self._found[unmeasured[name]] = observed

    def count_rows(self, frame: DataFrame, index: int) -> DataFrame:
        """Return a frame whose rows are counted during the write. Filters are not pushed below the count."""
        self._frames[index] = frame
        if index == self._last_step:
            return frame  # these rows are written, and counted by the write
        names = self._run.source_names
        required = self._checks.required_measures(frame, names[index]) if index < len(names) else []
        if not required and self._run.pipeline.measure != "steps":
            return frame
        self._measured[index] = MeasuredFrame(frame, [ROWS, *required])
        return self._measured[index].frame

    def write(self, frame: DataFrame) -> None:
        """Replace the chunk in the destination, or write as the destination's mode requires."""
        last = self._run.step_place(self._run.write_index - 1)
        check_columns(frame.columns, last)
        if not frame.columns:
            raise StepFailed(f"{last}: the result has no columns; keep them, also where there are no rows")
        columns = () if self._run.pipeline.measure == "rows" else hashable_columns(frame)
        halves = [Measure(half, columns) for half in HALVES] if columns else []
        measured = MeasuredFrame(frame, [ROWS, *halves, *self._checks.required_measures(frame)])
        unmeasured = self._list_unmeasured()

        def check(count_duplicates: CountDuplicates) -> Seen:
            self._wait_for_measures()
            self._keep_measures(unmeasured, measured.name)
            found = measured.observed()
            if found is not None and self._last_step is not None:
                self._found[self._last_step] = found
            if self._checks:
                found = measured.compute() if found is None else found
                self._checks.check({**self._source_measures(), **found}, count_duplicates)
            return Seen(None, None) if found is None else Seen(found[ROWS], checksum_of(found, columns))

        self.result = self._writer.write(measured.frame, check)

    def _wait_for_measures(self) -> None:
        """Wait until Spark has reported the measures of finished executions."""
        context: Any = self._spark.sparkContext._jsc
        with suppress(Py4JJavaError):
            context.sc().listenerBus().waitUntilEmpty(_MEASURES_TIMEOUT)

    def _source_measures(self) -> dict[Measure, Any]:
        """Return the measures of sources for expectations. Compute missing ones in executions of their own."""
        found: dict[Measure, Any] = {}
        for index, measured in self._measured.items():
            if index < len(self._run.source_names) and len(measured.wanted) > 1:
                found |= self._found.get(index) or measured.compute()
        return found

    def row_counts(self) -> Mapping[int, int]:
        """Return the row counts of steps whose frames were read completely."""
        found = {index: int(measures[ROWS]) for index, measures in self._found.items()}
        if self.result is not None and self.result.rows is not None:
            found[self._run.write_index] = self.result.rows
        return found

    def worker_prints(self) -> Mapping[int, str]:
        """Return the output of transformations on Python workers."""
        found, first = self._workers.by_step(), len(self._run.source_names)
        return {first + number: found[step.name] for number, step in enumerate(self._run.steps) if step.name in found}

    def attribute_error(self, error: BaseException, index: int) -> tuple[int, ErrorReport]:
        """Attribute the error to the step whose code it names, else to the first step whose frame fails alike."""
        project, place = self._run.project, self._run.step_place(index)
        java_exit = explain_java_exit(_JAVA_EXIT_TIMEOUT if _is_connection_lost(error) else 0)
        if java_exit is not None:
            return index, ErrorReport(f"{place}: {java_exit}")
        known = to_spark_error(error)
        if known is None or is_analysis_error(known):
            return index, report_error(error, project, place)
        first = len(self._run.source_names)
        for file, line in list_error_locations(known):
            for number, step in enumerate(self._run.steps, first):
                if Path(file) == Path(step.file):
                    return number, report_spark_error(known, f"{project.display_path(file)}, line {line}")
        is_same = partial(_has_same_condition, known)
        failed = next((number for number, frame in self._frames.items() if _fails(frame, is_same)), index)
        at = self._find_failing_expectation(failed, is_same) or self._run.step_place(failed)
        is_scratch_full = find_full_disk(known) == "scratch"
        return failed, self._explain_full_scratch(at) if is_scratch_full else report_spark_error(known, at)

    def _find_failing_expectation(self, failed: int, is_same: Callable[[BaseException], bool]) -> str | None:
        """Return the place of an expectation that fails during the write, or None."""
        if failed != self._run.write_index or not self._frames:
            return None
        return self._checks.find_failing(self._frames[max(self._frames)], is_same)

    def _explain_full_scratch(self, at: str) -> ErrorReport:
        where = os.environ.get("SPARK_LOCAL_DIRS") or self._spark.conf.get("spark.local.dir", tempfile.gettempdir())
        return ErrorReport(
            f"{at}: there is no space left for what Spark can't keep in memory, in {where}: free some, or let "
            "spark.local.dir name another one"
        )


def _is_connection_lost(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes may be a lost connection to Spark's JVM."""
    while error is not None:
        if isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _fails(frame: DataFrame, is_same: Callable[[BaseException], bool]) -> bool:
    """Return whether computing a frame raises the same error."""
    try:
        frame.write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JJavaError) as error:
        return is_same(error)
    return False


def _has_same_condition(known: PySparkException, found: BaseException) -> bool:
    other = to_spark_error(found)
    return other is not None and other.getCondition() == known.getCondition()


def call_run(step: LoadedStep, frames: Sequence[DataFrame], item: Item | None) -> DataFrame:
    """Call run() of a Spark transformation. Raises StepFailed if the result is no frame."""
    given = {} if item is None or not step.signature.stream else {"stream": dict(item)}
    result = step.run(*frames, **given)
    if isinstance(result, DataFrame):
        return result
    raise StepFailed(f"{step.location}: run() {describe_returned(result)}; a DataFrame of Spark is wanted")
