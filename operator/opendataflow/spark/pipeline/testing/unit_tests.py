"""The unit tests of transformations: run() is given `expected_inputs` and has to return `expected_output`.

Beside them a module may say `ordered` (whether the order of rows counts: by default it does for pandas, and not for
Spark), `input_schemas` (Spark's DDL for each frame) and `stream` (the item, or a list of them). Whatever is wrong with
one transformation is its result, and the others are tested too.
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opendataflow.core.pipelines.pipeline_steps import check_columns
from opendataflow.core.pipelines.row_difference import Row, difference, in_words
from opendataflow.core.text.explain import counted
from opendataflow.errors import DataflowError, StepFailed
from opendataflow.model.projects.project import Pipeline
from opendataflow.spark.pipeline.errors.error_report import tell
from opendataflow.spark.pipeline.execute.loading import Loaded, fault_of, load
from opendataflow.spark.pipeline.execute.running import MOST_PRINTED, Item, captured
from opendataflow.spark.pipeline.project.project_folder import OpenProject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Session = Callable[[], "SparkSession"]


@dataclass(frozen=True)
class Tested:
    """What became of a test. `sentence`: None where it has passed. `details`: lines below it."""

    pipeline: str
    transformation: str
    seconds: float
    sentence: str | None = None
    details: tuple[str, ...] = ()
    stdout: str = ""


def run_unit_test(project: OpenProject, pipeline: Pipeline, name: str, session: Session) -> Tested:
    """Test one transformation. `session`: gives Spark, and is asked for it only where it is needed."""
    began = time.monotonic()
    with captured() as printed:
        try:
            if not _is_marked_pandas(pipeline, name) and fault_of(project, pipeline.slug, name) is None:
                asked = time.monotonic()
                session()  # before the module is loaded, which may ask Spark, as @udf("int") does
                began += time.monotonic() - asked  # the start of Spark is no test's time
            step = load(project, pipeline.slug, name)
            sentence, details = _judged(project, step, session)
        except StepFailed as error:
            sentence, *details = str(error).splitlines()
    return Tested(
        pipeline.slug, name, time.monotonic() - began, sentence, tuple(details), printed.end()[-MOST_PRINTED:]
    )


def _is_marked_pandas(pipeline: Pipeline, name: str) -> bool:
    return any(it.name == name and it.engine == "pandas" for it in pipeline.transformations)


def _judged(project: OpenProject, step: Loaded, session: Session) -> tuple[str | None, list[str]]:
    expected, inputs = _example(step, "expected_output"), _example(step, "expected_inputs")
    kit = _Pandas(step) if step.engine == "pandas" else _Spark(step, session())
    frames = _frames(inputs)
    if step.signature.item:
        _example(step, "stream")
    most = step.signature.most
    if len(frames) < step.signature.needed or (most is not None and len(frames) > most):
        taken = counted(step.signature.needed if most != 0 else 0, "frame")
        raise StepFailed(f"{step.at}: run() takes {taken} and expected_inputs has {len(frames)}")
    try:
        wanted = copy.deepcopy(kit.rows(_frames(expected)[0] if _frames(expected) else []))  # run() may change its own
        found, columns = kit.run(frames)
        unlike = difference(wanted, found, ordered=kit.ordered, found_columns=columns)
    except DataflowError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a transformation may even call exit()
        raise StepFailed(project.in_words(kit.told(error, project))) from error
    return (f"{step.at}: what run() returns is not expected_output", in_words(unlike)) if unlike else (None, [])


def _example(step: Loaded, name: str) -> Any:
    if not hasattr(step.module, name):
        raise StepFailed(f"{step.at}: {name} is missing in it; write it beside run()")
    return getattr(step.module, name)


def _frames(example: Any) -> list[Any]:
    """Return a list of frames, each a list of rows or a frame of pandas. One of them may stand alone."""
    if not isinstance(example, list | tuple):
        return [example]
    if not example or isinstance(example[0], Mapping):
        return [example]
    return list(example)


class _Pandas:
    """Tests with frames of pandas."""

    def __init__(self, step: Loaded) -> None:
        from opendataflow.spark.pipeline.execute import pandas_frames

        self._step, self._kit = step, pandas_frames
        self.ordered = bool(getattr(step.module, "ordered", True))

    def run(self, frames: Sequence[Any]) -> tuple[list[Row], list[str]]:
        """Run the transformation, once for each item; what it has returned is the first frame of the next time."""
        given = [self._frame(frame) for frame in copy.deepcopy(frames)]
        for item in _items(self._step):
            given[0] = self._kit.call(self._step, [frame.copy() for frame in given], item)
        columns = list(given[0].columns)
        check_columns(columns, self._step.at, by_case=True)  # rows as dicts would have one of two
        return self._kit.rows_of(given[0]), columns

    def rows(self, expected: Any) -> list[Row]:
        """The expected rows, with values of Python."""
        if self._kit.is_frame(expected):
            return self._kit.rows_of(expected)
        _check_rows(self._step, expected, False)
        return [{name: self._kit.plain(value) for name, value in row.items()} for row in expected]

    def told(self, error: BaseException, project: OpenProject) -> str:
        """What a person is told of an exception of run()."""
        return str(tell(error, project, self._step.at))

    def _frame(self, rows: Any) -> Any:
        _check_rows(self._step, rows, self._kit.is_frame(rows))
        return self._kit.frame_of(rows)


class _Spark:
    """Tests with frames of Spark."""

    def __init__(self, step: Loaded, spark: "SparkSession") -> None:
        self._step, self._spark = step, spark
        self.ordered = bool(getattr(step.module, "ordered", False))

    def run(self, frames: Sequence[Any]) -> tuple[list[Row], list[str]]:
        """Run the transformation, once for each item; what it has returned is the first frame of the next time."""
        from opendataflow.spark.pipeline.execute import spark_frames
        from opendataflow.spark.pipeline.testing import spark_examples

        schemas = list(getattr(self._step.module, "input_schemas", ()))
        schemas += [None] * (len(frames) - len(schemas))
        given = [
            spark_examples.frame_of(self._spark, self.rows(rows), schema, self._step.at)
            for rows, schema in zip(frames, schemas, strict=False)
        ]
        for item in _items(self._step):
            given[0] = spark_frames.call(self._step, given, item)
        check_columns(given[0].columns, self._step.at)
        return spark_examples.rows_of(given[0]), given[0].columns

    def rows(self, expected: Any) -> list[Row]:
        """The expected rows; a frame of pandas may hold them too."""
        if hasattr(expected, "to_dict"):
            from opendataflow.spark.pipeline.execute import pandas_frames

            return pandas_frames.rows_of(expected)
        from opendataflow.spark.pipeline.testing.spark_examples import as_given

        _check_rows(self._step, expected, False)
        return [{name: as_given(value) for name, value in row.items()} for row in expected]

    def told(self, error: BaseException, project: OpenProject) -> str:
        """What a person is told of an exception of run(), or of Spark when it works."""
        from opendataflow.spark.pipeline.errors.spark_errors import tell_of_spark

        return str(tell_of_spark(error, project, self._step.at))


def _check_rows(step: Loaded, rows: Any, is_frame: bool) -> None:
    if not is_frame and not (isinstance(rows, list | tuple) and all(isinstance(row, Mapping) for row in rows)):
        raise StepFailed(
            f"{step.at}: expected_inputs is a list of rows for each frame, expected_output a list of rows, "
            "and a row is a dict of column and value"
        )


def _items(step: Loaded) -> list[Item | None]:
    """Return the items of `stream`; one run without any where there is none."""
    stream = getattr(step.module, "stream", None) if step.signature.stream else None
    if stream is None:
        return [None]
    if hasattr(stream, "to_dict"):
        stream = stream.to_dict("records")
    return copy.deepcopy([stream] if isinstance(stream, Mapping) else list(stream))
