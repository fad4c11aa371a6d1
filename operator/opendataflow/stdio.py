"""The standard streams of this program, in any state that its caller left them in. A failed write is not an error."""

import os
import re
import sys
from contextlib import suppress
from typing import TextIO

from opendataflow.names import CONTROLS

_HIDDEN = re.compile(rf"(?!\r?\n|\t)[{CONTROLS}]")
_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare_streams() -> None:
    """Make all three streams usable. Call it before the program opens any file or connection.

    A closed stream becomes /dev/null. Otherwise the next connection would get its number, and printed text would go
    into that connection. Characters that the locale does not have are printed as escape sequences.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # open() returns the lowest free number
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="replace", closefd=False))  # noqa: SIM115
    if sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # still a TextIOWrapper


def visible(text: str) -> str:
    """Return a text that no terminal obeys: escapes are written out, as in Python. Ends of lines and tabs stay."""
    return _HIDDEN.sub(
        lambda found: f"\\x{ord(found[0]):02x}" if found[0] < "\u0100" else f"\\u{ord(found[0]):04x}", text
    )


def write_line(stream: TextIO, line: str) -> None:
    """Print a line with its escapes visible, and flush it. Do nothing if the reader has closed the stream."""
    with suppress(OSError):
        stream.write(f"{visible(line)}\n")
        stream.flush()
