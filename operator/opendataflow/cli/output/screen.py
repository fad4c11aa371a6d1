"""Texts with styles, and the streams that show them. It decides on colours, and knows the width of a terminal.

Texts come from anybody, so that their control characters are made visible.
"""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TextIO

from opendataflow.stdio import visible

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36"}


class Text:
    """A text whose parts have styles. Its control characters are visible."""

    def __init__(self, text: str = "", style: str = "") -> None:
        self._parts = [(visible(text), style)]

    def append(self, text: "Text | str", style: str = "") -> Self:
        """Append a text."""
        self._parts += text._parts if isinstance(text, Text) else [(visible(text), style)]
        return self

    @property
    def plain(self) -> str:
        """Return the text without styles."""
        return "".join(part for part, _ in self._parts)

    def on_one_line(self) -> "Text":
        """Return the text with a space for each end of a line, as a cell of a table needs it."""
        made = Text()
        made._parts = [(" ".join(part.split("\n")), style) for part, style in self._parts]
        return made

    def coded(self, *, colours: bool) -> str:
        """Return the text for a terminal, with its styles as escape sequences if `colours`."""
        if not colours:
            return self.plain
        return "".join(f"\x1b[{_CODES[style]}m{part}\x1b[0m" if style and part else part for part, style in self._parts)


@dataclass(frozen=True)
class Screen:
    """A stream for people. `width`: the columns of a terminal; None for a file or a pipe, where nothing is cut."""

    stream: Callable[[], TextIO]
    width: int | None = None
    colours: bool = False

    @property
    def is_terminal(self) -> bool:
        """Return whether a person looks at it."""
        return self.width is not None

    def print(self, text: Text | str = "", end: str = "\n") -> None:
        """Print a line as it is. A terminal wraps a long line, so that a command in it can be copied."""
        text = Text(text) if isinstance(text, str) else text
        stream = self.stream()
        stream.write(text.coded(colours=self.colours) + end)
        stream.flush()


def console(*, stderr: bool = False) -> Screen:
    """Return the screen of stdout or stderr. Colours need a terminal, and the variable NO_COLOR must not be set."""

    def stream() -> TextIO:
        return sys.stderr if stderr else sys.stdout

    if not stream().isatty():
        return Screen(stream)
    width = _width_of(stream())
    return Screen(stream, width, colours=not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")


def _width_of(stream: TextIO) -> int:
    """Return the columns of a terminal: the variable COLUMNS, else what the terminal answers, else 80."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return shutil.get_terminal_size().columns


def silence_stdout() -> None:
    """Redirect stdout to /dev/null, also for the flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
