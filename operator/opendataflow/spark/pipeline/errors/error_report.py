"""Report errors of a project's code: one sentence with file and line, and the project's part of the traceback."""

import re
import traceback
from dataclasses import dataclass

from opendataflow.errors import DataflowError, NotInstalled
from opendataflow.spark.pipeline.project.project_folder import OpenProject

_SPARK_HINTS = re.compile(
    r"(?<!\s)\s*SQLSTATE: \w{5};?"
    r"| If necessary set \S+ to \S+ to bypass this error\."
    r"| Parse Mode: FAILFAST\. To process malformed records as null result, try setting .*? as 'PERMISSIVE'\."
)

_LONGEST_LINE = 500
_LONGEST = 16 * 1024
"""Maximum length of an exception's message: in a sentence, and below a traceback."""

_EXTRAS = {"pandas": "pandas", "numpy": "pandas", "pyarrow": "pandas", "pyspark": "spark"}


@dataclass(frozen=True)
class ErrorReport:
    """An error, for people. `file`, `line`: the place in the project's code, if known. `traceback`: may be empty."""

    sentence: str
    file: str | None = None
    line: int | None = None
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.sentence}\n{self.traceback}".rstrip()


def report_error(error: BaseException, project: OpenProject, at: str) -> ErrorReport:
    """Return the report of an error. `at`: file and line if the error has none."""
    if isinstance(error, DataflowError):
        return ErrorReport(str(error))
    if isinstance(error, SyntaxError) and error.filename and project.is_project_code(error.filename):
        where = f"{project.display_path(error.filename)}, line {error.lineno}"
        code = (error.text or "").strip()
        return ErrorReport(f"{where}: {error.msg}" + (f": {code}" if code else ""), error.filename, error.lineno)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in _EXTRAS:
        return ErrorReport(str(missing_extra(error)))
    frames = traceback.extract_tb(error.__traceback__)
    ours = [index for index, frame in enumerate(frames) if project.is_project_code(frame.filename)]
    summary, full = summarize_error(error), f"{type(error).__name__}: {_message(error)}"[:_LONGEST]
    if not ours:
        return ErrorReport(f"{at}: {summary}")
    last = frames[ours[-1]]
    lines = traceback.format_list(frames[ours[0] : ours[-1] + 1])
    return ErrorReport(
        f"{project.display_path(last.filename)}, line {last.lineno}: {summary}",
        last.filename,
        last.lineno,
        "".join(lines) + full,
    )


def summarize_error(error: BaseException) -> str:
    """Return "KeyError: 'day'": the class and the first line of the message, shortened."""
    message = _message(error).partition("\n")[0]
    message = message if len(message) <= _LONGEST_LINE else f"{message[:_LONGEST_LINE]}..."
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _message(error: BaseException) -> str:
    try:
        return clean_message(str(error))
    except Exception as failed:  # raised by the project's own code
        return f"(its message can't be shown: {type(failed).__name__} in its __str__)"


def clean_message(text: str) -> str:
    """Return an error's message without Spark's SQLSTATE and its hints to get wrong results instead of an error.

    Lone surrogates are replaced.
    """
    return _SPARK_HINTS.sub("", replace_surrogates(text)).strip()


def replace_surrogates(text: str) -> str:
    """Return a text with its lone surrogates replaced. No file, terminal or table accepts lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def missing_extra(error: ModuleNotFoundError) -> NotInstalled:
    """Return the error that names the extra to install for a missing module."""
    name = (error.name or "").partition(".")[0]
    return NotInstalled(f"{name} is not installed: pip install 'opendataflow[{_EXTRAS[name]}]'")


def describe_returned(result: object) -> str:
    """Describe the result of a run() that is not a frame."""
    if result is None:
        return "returns nothing"
    kind = type(result)
    library = kind.__module__.partition(".")[0]
    return f"returns a DataFrame of {library}" if kind.__name__ == "DataFrame" else f"returns {kind.__name__}"
