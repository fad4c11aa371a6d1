"""Open text files that may be compressed."""

import bz2
import gzip
from collections.abc import Callable
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Any, TextIO

_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}


def open_unpacked(file: Path) -> IO[bytes]:
    """Open a file for reading bytes. Unpack the file if its suffix names a known compression."""
    opened: IO[bytes] = _OPENERS.get(file.suffix, Path.open)(file, "rb")
    return opened


def open_text(file: Path) -> TextIO:
    """Open a file for reading text. Bytes that are not UTF-8 are replaced."""
    return TextIOWrapper(open_unpacked(file), "utf-8-sig", "replace", newline="")
