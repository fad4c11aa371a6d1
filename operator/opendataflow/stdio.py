"""This program's own standard streams, whatever its caller has made of them. What they can't show is no error."""

import os
import sys
from contextlib import suppress
from typing import TextIO

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare_streams() -> None:
    """Make all three usable; to be called before anything is opened.

    A closed one becomes /dev/null: the next connection would get its number, and then what is printed. Characters that
    the locale does not have are shown by their numbers.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it gets the lowest number that is free
            setattr(sys, name, open(number, mode, encoding="utf-8", errors="replace", closefd=False))  # noqa: SIM115
    if sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # nobody has replaced it yet


def write_line(stream: TextIO, line: str) -> None:
    """Print a line at once; where the reader has gone, do nothing."""
    with suppress(OSError):
        stream.write(f"{line}\n")
        stream.flush()
