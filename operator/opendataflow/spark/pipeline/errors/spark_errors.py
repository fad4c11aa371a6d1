"""What an error of Spark says of itself: the places in people's code that it comes from, and one sentence.

Three kinds say more than Spark's first line: an exception in a function on a Python worker (its traceback is text),
one of an expression (Spark remembers who has called for it), and one whose causes are in its JVM.
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
from opendataflow.spark.pipeline.errors.csv_errors import misfit
from opendataflow.spark.pipeline.errors.error_report import Told, plain, tell
from opendataflow.spark.pipeline.measure.worker_output import without_steps
from opendataflow.spark.pipeline.project.project_folder import OpenProject

_WORKER_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
_CLASS = re.compile(r"^(?:[a-z]\w*\.)+[\w$]+: ")
_LOST_TASK = re.compile(
    r"Job aborted due to stage failure: .*?most recent failure: Lost task \S+ in stage \S+ \(TID \d+\) \([^)]*\): "
)
_UNREAD_FILE = re.compile(r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (?:file://)?(.+)\.")
_PLACE_IN_JSON = re.compile(r" at \[Source: [^\]]*\]")
"""Of one record, which says nothing of the file."""
_JSON_LINES = 'where it is not one object a line, write options: {multiLine: "true"}'
_OF_DATABASE = "[JDBC_EXTERNAL_ENGINE"
"""What Spark says with the whole query, and calls an error of syntax, whatever the database has said."""
_LONGEST = 300
_CALL_SITE = re.compile(r"(?P<file>.+):(?P<line>\d+)")


def is_about_plan(error: PySparkException) -> bool:
    """Whether Spark has refused what a step asks for, before any row was looked at."""
    return isinstance(error, AnalysisException)


def guilty_place(error: PySparkException) -> Iterator[tuple[str, int]]:
    """Yield (file, line) of the code that an error comes from, the nearest first."""
    if isinstance(error, PythonException):
        for frame in reversed(list(_WORKER_FRAME.finditer(str(error)))):
            yield frame["file"], int(frame["line"])
        return
    for context in error.getQueryContext():
        if context.contextType() is QueryContextType.DataFrame:
            site = _CALL_SITE.fullmatch(context.callSite())
            if site is not None:
                yield site["file"], int(site["line"])


def sentence_of(error: PySparkException, at: str) -> Told:
    """Return what a person is told. `at`: file and line."""
    told = _sentence_of(error, at)
    without, number = _PLACE_IN_JSON.subn("", told.sentence)
    return replace(told, sentence=f"{without}; {_JSON_LINES}") if number else told


def _sentence_of(error: PySparkException, at: str) -> Told:
    text = plain(_CLASS.sub("", str(error)))
    if isinstance(error, PythonException):
        lines = without_steps(text).splitlines()
        last = max((index for index, line in enumerate(lines) if _WORKER_FRAME.match(line)), default=0)
        raised = next((line for line in lines[last + 1 :] if line and not line.startswith((" ", "\t"))), lines[0])
        return Told(f"{at}: {raised}", traceback="\n".join(lines[1:]))
    if text.startswith(_OF_DATABASE):
        return Told(f"{at}: {database_says(error)}")
    said = _CLASS.sub("", _LOST_TASK.sub("", text.partition("\n")[0]))
    causes = list(_causes(error))
    below = [cause for cause in dict.fromkeys((*causes[:1], *causes[-1:])) if cause not in said]
    file = _UNREAD_FILE.fullmatch(said)
    row = misfit(file[1], causes) if file is not None else None
    if row is not None:
        return Told(row)
    if file is not None and below:
        return Told(f"{at}: {file[1]}: {': '.join(below)}")
    return Told(f"{at}: {said}" + (f" ({': '.join(below)})" if below else ""))


def as_spark(error: BaseException) -> PySparkException | None:
    """Return an error as one of Spark's; None where it is none. What pyspark has no class for comes as py4j's."""
    if isinstance(error, PySparkException):
        return error
    if isinstance(error, Py4JJavaError):
        found: PySparkException = convert_exception(error.java_exception)
        return found
    return None


def _causes(error: PySparkException) -> Iterator[str]:
    """Yield what each exception that lies below one says, on one line."""
    cause: Any = getattr(error, "_cause", None)
    while cause is not None:
        message = plain(_CLASS.sub("", " ".join(str(cause).split())))
        if message:
            yield message[:_LONGEST]
        cause = getattr(cause, "_cause", None)


_FULL = re.compile("No space left on device|Disk quota exceeded")


def full_disk(error: BaseException) -> Literal["files", "scratch"] | None:
    """Return what could not be written as a disk is full: files that are wanted, or what Spark can't keep in memory."""
    known = as_spark(error)
    _, *traces = _FULL.split(str(getattr(known, "_stackTrace", "")))
    if not traces:
        return None
    frames = traces[-1].partition("Caused by: ")[0]
    kept = "org.apache.hadoop.fs.s3a." in frames  # on a disk of Spark's, until it is sent
    return "files" if "org.apache.hadoop.fs." in frames and not kept else "scratch"


@contextmanager
def disk_of(shown: str, place: str) -> Iterator[None]:
    """Say in one sentence that the disk is full which Spark writes files to."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        if full_disk(error) != "files":
            raise
        raise StepFailed(
            f"{place}: there is no space left on the disk of {shown}; free some, or write to another path"
        ) from error


def tell_of_spark(error: BaseException, project: OpenProject, at: str) -> Told:
    """Return what a person is told of an error of one step, whether Spark or the step's own code has raised it."""
    known = as_spark(error)
    if known is None or is_about_plan(known):
        return tell(error, project, at)
    ours = ((file, line) for file, line in guilty_place(known) if project.is_ours(file))
    file, line = next(ours, (None, 0))
    return sentence_of(known, at if file is None else f"{project.shown(file)}, line {line}")


def texts_of(error: PySparkException | Py4JJavaError) -> list[str]:
    """Return what an error of Spark or of its JVM says: as it is, without its class, and each cause on one line."""
    known = as_spark(error)
    assert known is not None
    return [str(known), plain(_CLASS.sub("", str(known))), *_causes(known)]


_POSITION = re.compile(r" Position: \d+")
_NOISE = re.compile(r"Unable to provision|\bgoogleapis\.com/")
"""How Google's libraries tell the same once more: as a chain of their own, and as an answer by HTTP."""
_NOT_THERE = {
    "DATA_SOURCE_NOT_FOUND": "the connector of Spark for BigQuery",
    "ClassNotFound": "the JDBC driver",
    "No suitable driver": "the JDBC driver",
}
_WHERE_TO = (
    "is not there: put its jar into Spark's folder `jars`, or name it in spark.jars.packages or spark.jars of "
    "spark-defaults.conf in SPARK_CONF_DIR"
)


def database_says(error: PySparkException | Py4JJavaError) -> str:
    """Return in one sentence what a database or its driver says."""
    whole, *texts = texts_of(error)
    for mark, missing in _NOT_THERE.items():
        if any(mark in text for text in (whole, *texts)):
            return f"{missing} {_WHERE_TO}"
    texts = [text for text in texts if not _NOISE.search(text)] or texts
    return _POSITION.sub("", " ".join(texts[:2][-1].split()))[: 2 * _LONGEST]


@contextmanager
def told_by_database(place: str) -> Iterator[None]:
    """Say in one sentence what a database refuses. `place`: in the project's file."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        raise StepFailed(f"{place}: {database_says(error)}") from None
