"""What has gone wrong in a project's own code: one sentence with file and line, and the traceback as far as it is the
project's. It knows nothing of Spark."""

import re
import traceback
from dataclasses import dataclass

from opendataflow.errors import DataflowError, NotInstalled
from opendataflow.spark.pipeline.project.project_folder import OpenProject

_BESIDE = re.compile(
    r"\s*SQLSTATE: \w{5};?"
    r"| If necessary set \S+ to \S+ to bypass this error\."
    r"| Parse Mode: FAILFAST\. To process malformed records as null result, try setting .*? as 'PERMISSIVE'\."
)

_LONGEST_LINE = 500
_LONGEST = 16 * 1024
"""How many characters of what an exception says are told: in a sentence, and below its traceback."""

_EXTRAS = {"pandas": "pandas", "numpy": "pandas", "pyarrow": "pandas", "pyspark": "spark"}


@dataclass(frozen=True)
class Told:
    """An error for a person. `file`, `line`: where in the project's code, if it is there. `traceback`: text, or ""."""

    sentence: str
    file: str | None = None
    line: int | None = None
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.sentence}\n{self.traceback}".rstrip()


def tell(error: BaseException, project: OpenProject, at: str) -> Told:
    """Return what a person is told. `at`: file and line for an error that has none of its own."""
    if isinstance(error, DataflowError):
        return Told(str(error))
    if isinstance(error, SyntaxError) and error.filename and project.is_ours(error.filename):
        where = f"{project.shown(error.filename)}, line {error.lineno}"
        code = (error.text or "").strip()
        return Told(f"{where}: {error.msg}" + (f": {code}" if code else ""), error.filename, error.lineno)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _EXTRAS:
        return Told(str(missing_extra(error)))
    frames = traceback.extract_tb(error.__traceback__)
    ours = [index for index, frame in enumerate(frames) if project.is_ours(frame.filename)]
    what, whole = said(error), f"{type(error).__name__}: {_message(error)}"[:_LONGEST]
    if not ours:
        return Told(f"{at}: {what}")
    last = frames[ours[-1]]
    lines = traceback.format_list(frames[ours[0] : ours[-1] + 1])
    return Told(
        f"{project.shown(last.filename)}, line {last.lineno}: {what}",
        last.filename,
        last.lineno,
        "".join(lines) + whole,
    )


def said(error: BaseException) -> str:
    """Return "KeyError: 'day'"; of a long message the beginning, and of many lines the first."""
    message = _message(error).partition("\n")[0]
    message = message if len(message) <= _LONGEST_LINE else f"{message[:_LONGEST_LINE]}..."
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _message(error: BaseException) -> str:
    try:
        return plain(str(error))
    except Exception as failed:  # it is the project's own code
        return f"(its message can't be told: {type(failed).__name__} in its __str__)"


def plain(text: str) -> str:
    """Return an error's text without what Spark says beside: a number that tells nobody anything, and how to get wrong
    results instead of an error; and without halves of letters, which nobody can print."""
    return _BESIDE.sub("", writable(text)).strip()


def writable(text: str) -> str:
    """Return a text with halves of letters (surrogates) replaced, which no file, terminal or table takes."""
    return text.encode("utf-8", "replace").decode()


def missing_extra(error: ModuleNotFoundError) -> NotInstalled:
    """Return what to install for a module that is an extra of this package."""
    name = (error.name or "").partition(".")[0]
    return NotInstalled(f"{name} is not installed: pip install 'opendataflow[{_EXTRAS[name]}]'")


def returned(result: object) -> str:
    """Return what a run() has done that returned no frame."""
    if result is None:
        return "returns nothing"
    kind = type(result)
    library = kind.__module__.partition(".")[0]
    return f"returns a DataFrame of {library}" if kind.__name__ == "DataFrame" else f"returns {kind.__name__}"
