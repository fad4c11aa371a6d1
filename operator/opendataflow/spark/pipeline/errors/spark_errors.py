"""Explain errors of Spark: the lines of a project's code that caused them, and one sentence.

Three kinds of errors need more than Spark's first line. Exceptions on Python workers carry a traceback as text.
Errors of an expression carry their call site. Errors of the JVM carry a chain of causes.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.errors.exceptions.base import QueryContextType
from pyspark.errors.exceptions.captured import convert_exception

from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.errors.csv_errors import explain_bad_row, explain_unfit
from opendataflow.spark.pipeline.errors.error_report import ErrorReport, clean_message, report_error
from opendataflow.spark.pipeline.errors.printed_output import remove_step_names
from opendataflow.spark.pipeline.errors.unfit_values import find_unfit
from opendataflow.spark.pipeline.project.project_folder import OpenProject

_WORKER_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[\w$]+: ")
_LOST_TASK = re.compile(
    r"Job aborted due to stage failure: .{0,500}?most recent failure: "
    r"Lost task \S+ in stage \S+ \(TID \d+\) \([^)]*\): "
)
_UNREAD_FILE = re.compile(r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (?:file://)?(.+)\.")
_POSITION_IN_RECORD = re.compile(r" at \[Source: [^\]]*\]")
"""A position inside one JSON record, meaningless for the file."""
_JSON_LINES = 'where it is not one object a line, write options: {multiLine: "true"}'
_DATABASE_ERROR = "[JDBC_EXTERNAL_ENGINE"
"""Spark's prefix for any error of a database. Spark adds the whole query and calls the error one of syntax."""
_LONGEST = 300
_CALL_SITE = re.compile(r"(?P<file>.+):(?P<line>\d+)")


def is_analysis_error(error: PySparkException) -> bool:
    """Return whether Spark rejected the plan of a step before reading any row."""
    return isinstance(error, AnalysisException)


def list_error_locations(error: PySparkException) -> Iterator[tuple[str, int]]:
    """Yield (file, line) of the code that caused an error, the nearest first."""
    if isinstance(error, PythonException):
        for frame in reversed(list(_WORKER_FRAME.finditer(str(error)))):
            yield frame["file"], int(frame["line"])
        return
    for context in error.getQueryContext():
        if context.contextType() is QueryContextType.DataFrame:
            site = _CALL_SITE.fullmatch(context.callSite())
            if site is not None:
                yield site["file"], int(site["line"])


def report_spark_error(error: PySparkException, at: str) -> ErrorReport:
    """Return the report of an error. `at`: file and line."""
    report = _report_spark_error(error, at)
    without, count = _POSITION_IN_RECORD.subn("", report.sentence)
    return replace(report, sentence=f"{without}; {_JSON_LINES}") if count else report


def _report_spark_error(error: PySparkException, at: str) -> ErrorReport:
    unfit = find_unfit(str(error))
    if unfit is not None:
        return ErrorReport(explain_unfit(unfit, at))
    text = clean_message(_CLASS.sub("", str(error)))
    if isinstance(error, PythonException):
        lines = remove_step_names(text).splitlines()
        last = max((index for index, line in enumerate(lines) if _WORKER_FRAME.match(line)), default=0)
        raised = next((line for line in lines[last + 1 :] if line and not line.startswith((" ", "\t"))), lines[0])
        return ErrorReport(f"{at}: {raised}", traceback="\n".join(lines[1:]))
    if text.startswith(_DATABASE_ERROR):
        return ErrorReport(f"{at}: {describe_database_error(error)}")
    message = _CLASS.sub("", _LOST_TASK.sub("", text.partition("\n")[0]))
    causes = list(_list_causes(error))
    below = [cause for cause in dict.fromkeys((*causes[:1], *causes[-1:])) if cause not in message]
    file = _UNREAD_FILE.fullmatch(message)
    row = explain_bad_row(file[1], causes) if file is not None else None
    if row is not None:
        return ErrorReport(row)
    if file is not None and below:
        return ErrorReport(f"{at}: {file[1]}: {': '.join(below)}")
    return ErrorReport(f"{at}: {message}" + (f" ({': '.join(below)})" if below else ""))


def to_spark_error(error: BaseException) -> PySparkException | None:
    """Convert an error of Spark or py4j to a PySparkException. Return None for all other errors."""
    if isinstance(error, PySparkException):
        return error
    if isinstance(error, Py4JJavaError):
        found: PySparkException = convert_exception(error.java_exception)
        return found
    return None


def _list_causes(error: PySparkException) -> Iterator[str]:
    """Yield the message of each cause of an error, on one line."""
    cause: Any = getattr(error, "_cause", None)
    while cause is not None:
        message = clean_message(_CLASS.sub("", " ".join(str(cause).split())))
        if message:
            yield message[:_LONGEST]
        cause = getattr(cause, "_cause", None)


_FULL = re.compile("No space left on device|Disk quota exceeded")


def find_full_disk(error: BaseException) -> Literal["files", "scratch"] | None:
    """Return which disk is full, or None: that of the result's files, or Spark's scratch disk."""
    known = to_spark_error(error)
    _, *traces = _FULL.split(str(getattr(known, "_stackTrace", "")))
    if not traces:
        return None
    frames = traces[-1].partition("Caused by: ")[0]
    kept = "org.apache.hadoop.fs.s3a." in frames  # buffered on Spark's scratch disk until the upload
    return "files" if "org.apache.hadoop.fs." in frames and not kept else "scratch"


@contextmanager
def explain_full_disk(folder: str, place: str) -> Iterator[None]:
    """Raise StepFailed with one sentence if the disk of the written files is full. `place`: in the project's file."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if find_full_disk(error) != "files":
            raise
        raise StepFailed(
            f"{place}: there is no space left on the disk of {folder}; free some, or write to another path"
        ) from error


def report_step_error(error: BaseException, project: OpenProject, at: str) -> ErrorReport:
    """Return the report of an error in one step, raised by Spark or by the step's own code."""
    known = to_spark_error(error)
    if known is None or is_analysis_error(known):
        return report_error(error, project, at)
    ours = ((file, line) for file, line in list_error_locations(known) if project.is_project_code(file))
    file, line = next(ours, (None, 0))
    return report_spark_error(known, at if file is None else f"{project.display_path(file)}, line {line}")


def list_error_texts(error: PySparkException | Py4JJavaError) -> list[str]:
    """Return the texts of an error of Spark or its JVM: the raw text, the text without its class, each cause."""
    known = to_spark_error(error)
    assert known is not None
    return [str(known), clean_message(_CLASS.sub("", str(known))), *_list_causes(known)]


_POSITION = re.compile(r" Position: \d+")
_NOISE = re.compile(r"Unable to provision|\bgoogleapis\.com/")
"""Marks of Google's libraries that repeat an error: a second chain of causes, and an HTTP response."""
_MISSING_DRIVERS = {
    "DATA_SOURCE_NOT_FOUND": "the connector of Spark for BigQuery",
    "ClassNotFound": "the JDBC driver",
    "No suitable driver": "the JDBC driver",
}
_REMEDY = (
    "is not there: put its jar into Spark's folder `jars`, or name it in spark.jars.packages or spark.jars of "
    "spark-defaults.conf in SPARK_CONF_DIR"
)


def describe_database_error(error: PySparkException | Py4JJavaError) -> str:
    """Return the message of a database or its driver in one sentence."""
    raw, *texts = list_error_texts(error)
    for mark, missing in _MISSING_DRIVERS.items():
        if any(mark in text for text in (raw, *texts)):
            return f"{missing} {_REMEDY}"
    texts = [text for text in texts if not _NOISE.search(text)] or texts
    return _POSITION.sub("", " ".join(texts[:2][-1].split()))[: 2 * _LONGEST]


@contextmanager
def explain_database_errors(place: str) -> Iterator[None]:
    """Raise StepFailed with one sentence for an error of the database. `place`: in the project's file."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise StepFailed(f"{place}: {describe_database_error(error)}") from None
