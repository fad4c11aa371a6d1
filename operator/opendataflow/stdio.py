"""The standard streams of this program, in any state that its caller left them in. A failed write is not an error."""

import os
import sys
from contextlib import suppress
from typing import TextIO

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


def write_line(stream: TextIO, line: str) -> None:
    """Print a line and flush it. Do nothing if the reader has closed the stream."""
    with suppress(OSError):
        stream.write(f"{line}\n")
        stream.flush()
