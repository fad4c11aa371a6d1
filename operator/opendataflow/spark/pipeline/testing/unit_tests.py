"""Unit tests of transformations: run() gets `expected_inputs` and has to return `expected_output`.

A module may also define `ordered` (whether the order of rows counts; default: True for pandas, False for Spark),
`input_schemas` (Spark's DDL for each frame) and `stream` (the item, or a list of items). An error in one transformation
is the result of its test, and does not stop other tests.
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from opendataflow.core.pipelines.row_difference import Row, compare_rows, describe_difference
from opendataflow.core.text.explain import counted
from opendataflow.errors import DataflowError, StepFailed
from opendataflow.spark.pipeline.errors.printed_output import MAX_PRINTED, capture_prints
from opendataflow.spark.pipeline.execute.loading import LoadedStep, explain_fault, load_module
from opendataflow.spark.pipeline.execute.running import Item
from opendataflow.spark.pipeline.project.project_folder import OpenProject, ResolvedPipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Session = Callable[[], "SparkSession"]


class Examples(Protocol):
    """The examples of one test, as frames of an engine."""

    ordered: bool
    """Whether the order of rows counts."""

    def run(self, frames: Sequence[Any], items: Sequence[Item | None]) -> tuple[list[Row], list[str]]:
        """Run the transformation once per item. Return the rows and columns of the result.

        The result for one item is the first frame for the next item.
        """

    def rows(self, expected: Any) -> list[Row]:
        """Return the expected rows with comparable values."""

    def explain(self, error: BaseException, project: OpenProject) -> str:
        """Return the report of an error in run()."""


@dataclass(frozen=True)
class UnitTestResult:
    """The result of a test. `sentence`: None if the test has passed. `details`: lines below the sentence.

    `warning`: why a test that has passed may show nothing.
    """

    pipeline: str
    transformation: str
    seconds: float
    sentence: str | None = None
    details: tuple[str, ...] = ()
    stdout: str = ""
    warning: str | None = None


def run_unit_test(resolved: ResolvedPipeline, name: str, session: Session) -> UnitTestResult:
    """Test one transformation. `session`: returns the Spark session, and is called only if Spark is needed."""
    began, warning = time.monotonic(), None
    with capture_prints() as printed:
        try:
            if not _is_marked_pandas(resolved, name) and explain_fault(resolved, name) is None:
                asked = time.monotonic()
                session()  # before the module is loaded, which may need Spark, as @udf("int") does
                began += time.monotonic() - asked  # without the start of Spark
            step = load_module(resolved, name)
            sentence, details = _evaluate(resolved.project, step, session)
            warning = None if sentence else _same_as_input(step)
        except StepFailed as error:
            sentence, *details = str(error).splitlines()
    seconds, stdout = time.monotonic() - began, printed.end()[-MAX_PRINTED:]
    return UnitTestResult(resolved.slug, name, seconds, sentence, tuple(details), stdout, warning)


def _same_as_input(step: LoadedStep) -> str | None:
    """Return a warning if the expected output is the first input: then run() may do nothing."""
    frames, expected = (
        _split_frames(_read_example(step, "expected_inputs", "expected_input")),
        _split_frames(_read_example(step, "expected_output")),
    )
    rows = [frame[0] if isinstance(frame[0], list | tuple) else None for frame in (frames, expected) if frame]
    if len(rows) == 2 and rows[0] and rows[0] == rows[1]:
        return f"{step.location}: expected_output is the same as the input, so the test shows nothing"
    return None


def _is_marked_pandas(resolved: ResolvedPipeline, name: str) -> bool:
    return any(it.name == name and it.engine == "pandas" for it in resolved.pipeline.transformations)


def _evaluate(project: OpenProject, step: LoadedStep, session: Session) -> tuple[str | None, list[str]]:
    expected, inputs = _read_example(step, "expected_output"), _read_example(step, "expected_inputs", "expected_input")
    examples = _open_examples(step, session)
    frames = _split_frames(inputs)
    if step.signature.item:
        _read_example(step, "stream")
    most = step.signature.most
    if len(frames) < step.signature.needed or (most is not None and len(frames) > most):
        taken = counted(step.signature.needed if most != 0 else 0, "frame")
        raise StepFailed(f"{step.location}: run() takes {taken} and expected_inputs has {len(frames)}")
    try:
        wanted = copy.deepcopy(examples.rows(_split_frames(expected)[0] if _split_frames(expected) else []))
        found, columns = examples.run(frames, _list_items(step))
        difference = compare_rows(wanted, found, ordered=examples.ordered, found_columns=columns)
    except DataflowError:
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a transformation may even call exit()
        raise StepFailed(project.shorten_paths(examples.explain(error, project))) from error
    if not difference:
        return None, []
    return f"{step.location}: what run() returns is not expected_output", describe_difference(difference)


def _open_examples(step: LoadedStep, session: Session) -> Examples:
    if step.engine == "pandas":
        from opendataflow.spark.pipeline.testing.pandas_examples import PandasExamples  # pandas is optional

        return PandasExamples(step)
    spark = session()
    from opendataflow.spark.pipeline.testing.spark_examples import SparkExamples  # imports pyspark, which is optional

    return SparkExamples(step, spark)


def _read_example(step: LoadedStep, name: str, other: str = "") -> Any:
    """Return an example of a module. `other`: another name that it may have."""
    if not hasattr(step.module, name) and other and hasattr(step.module, other):
        name = other
    if not hasattr(step.module, name):
        raise StepFailed(f"{step.location}: {name} is missing in it; write it beside run()")
    return getattr(step.module, name)


def _split_frames(example: Any) -> list[Any]:
    """Return a list of frames, each a list of rows or a frame of pandas. An example may be one frame without a list."""
    if not isinstance(example, list | tuple):
        return [example]
    if not example or isinstance(example[0], Mapping):
        return [example]
    return list(example)


def _list_items(step: LoadedStep) -> list[Item | None]:
    """Return the items of `stream`, or one None without items."""
    stream = getattr(step.module, "stream", None) if step.signature.stream else None
    if stream is None:
        return [None]
    if hasattr(stream, "to_dict"):
        stream = stream.to_dict("records")
    return copy.deepcopy([stream] if isinstance(stream, Mapping) else list(stream))
