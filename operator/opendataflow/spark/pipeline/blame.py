"""What an error of Spark says of itself: the places in people's code that it comes from, and one sentence.

Three kinds say more than Spark's first line: an exception in a function on a Python worker (its traceback is text),
one of an expression (Spark remembers who has called for it), and one whose causes are in its JVM.
"""

import re
from collections.abc import Iterator

from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.errors.exceptions.base import QueryContextType

from opendataflow.spark.pipeline.opened import OpenProject
from opendataflow.spark.pipeline.told import Told, tell

_WORKER_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+)', re.MULTILINE)
_CALL_SITE = re.compile(r"(?P<file>.+):(?P<line>\d+)")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}")


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
    text = _SQLSTATE.sub("", str(error)).strip()
    if isinstance(error, PythonException):
        lines = text.splitlines()
        raised = next((line for line in reversed(lines) if line and not line.startswith((" ", "\t"))), lines[0])
        return Told(f"{at}: {raised}", traceback="\n".join(lines[1:]))
    causes = [line.removeprefix("Caused by: ") for line in text.splitlines() if line.startswith("Caused by: ")]
    first = text.partition("\n")[0]
    return Told(f"{at}: {first}" + (f" ({causes[-1]})" if causes else ""))


def tell_of_spark(error: BaseException, project: OpenProject, at: str) -> Told:
    """Return what a person is told of an error of one step, whether Spark or the step's own code has raised it."""
    if not isinstance(error, PySparkException) or is_about_plan(error):
        return tell(error, project, at)
    ours = ((file, line) for file, line in guilty_place(error) if project.is_ours(file))
    file, line = next(ours, (None, 0))
    return sentence_of(error, at if file is None else f"{project.shown(file)}, line {line}")
