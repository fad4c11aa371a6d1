"""Output of transformations: capture in this process, whole lines and step names on Python workers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import RawIOBase, TextIOBase
from typing import Any

from opendataflow.spark.pipeline.errors.error_report import replace_surrogates

MAX_PRINTED = 64 * 1024
"""Maximum number of characters kept per step. The end of the output is kept."""

STEP_MARK = ", of step "
"""Separates the name of a function from the name of its step."""

LineListener = Callable[[str], None]


class PrintedOutput(TextIOBase):
    """A text stream that keeps the end of its text. `on_line` receives each line when the line is complete."""

    encoding = "utf-8"

    def __init__(self, on_line: LineListener | None = None) -> None:
        self.buffer = _ByteStream(self)
        self._on_line = on_line
        self._kept = ""
        self._line = ""

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Keep a text and report its complete lines."""
        text = replace_surrogates(text)
        self._kept += text
        if len(self._kept) > 2 * MAX_PRINTED:
            self._kept = self._kept[-MAX_PRINTED:]
        if self._on_line is not None:
            *lines, self._line = (self._line + text).split("\n")
            for line in lines:
                self._on_line(line)
        return len(text)

    def end(self) -> str:
        """Report a last line without a line break. Return the kept text."""
        if self._on_line is not None and self._line:
            self._on_line(self._line)
            self._line = ""
        return self._kept[-MAX_PRINTED:]


class _ByteStream(RawIOBase):
    """A byte stream that decodes UTF-8 and writes to a `PrintedOutput`."""

    def __init__(self, to: PrintedOutput) -> None:
        self._to = to

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, given: Any) -> int:
        """Write bytes as text."""
        self._to.write(bytes(given).decode("utf-8", "replace"))
        return len(given)


@contextmanager
def capture_prints(on_line: LineListener | None = None) -> Iterator[PrintedOutput]:
    """Capture standard output during the block. `on_line` receives each complete line."""
    kept = PrintedOutput(on_line)
    with redirect_stdout(kept):
        yield kept


def remove_step_names(traceback: str) -> str:
    """Return a worker's traceback with the original names of its functions."""
    lines = traceback.split("\n")
    return "\n".join(line.partition(STEP_MARK)[0] if line.startswith('  File "') else line for line in lines)


def make_line_print() -> Callable[..., None]:
    """Return a `print` that writes its text at once. Spark logs each write as lines of its own.

    The function is pickled with its code. Workers need no module of this package for it.
    """

    def line_print(
        *values: object, sep: str | None = " ", end: str | None = "\n", file: Any = None, flush: bool = False
    ) -> None:
        import io  # on a worker, where the globals of this module are missing
        import sys  # see above

        text = io.StringIO()
        print(*values, sep=sep, end=end, file=text)
        to = sys.stdout if file is None else file
        to.write(text.getvalue())
        if flush:
            to.flush()

    return line_print
