"""Where the folders of a destination are, and how one takes the place of another: on this machine, or by Hadoop.

Both keep one contract. Rows go to a folder that Spark does not list; at the end of the block it takes the place of what
is there. Killed at any moment, it leaves what the next attempt mends before it begins.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from opendataflow.core.chunks.attempts import Attempt
from opendataflow.spark.pipeline.storage.file_system import LOCAL
from opendataflow.spark.pipeline.storage.writing import staged_folder

MARKER = "_opendataflow.json"
"""In each folder that is whole. Spark does not read files that begin so."""


def is_data(name: str) -> bool:
    """Whether Spark reads a file of this name."""
    return name[0] not in "._"


class Staging(Protocol):
    """The folder of one attempt."""

    rows: str
    """Where Spark writes them; it is not there yet."""

    def marker(self) -> str | None:
        """Return the text of the marker of what is there now; None where there is none."""

    def size(self) -> int:
        """Return the bytes of the rows."""

    def mark(self, text: str) -> None:
        """Say what the marker is to be."""


class Place(Protocol):
    """The folder of a destination."""

    def path(self, chunk: str) -> str:
        """Return the folder of a chunk, or a file in it, as a person names it."""

    def markers(self, chunk: str) -> Iterator[str]:
        """Yield the texts of the markers of other chunks than this one."""

    def staging(self, chunk: str | None, attempt: Attempt) -> AbstractContextManager[Staging]:
        """Give a folder that takes the place of the chunk's, or of the whole destination. If the block fails, what is
        there stays. Raises StepFailed where that can't be, Refused where a newer attempt is at work there."""


class Folder:
    """A folder of this machine."""

    def __init__(self, home: Path, shown: str) -> None:
        """`shown`: as a person names it."""
        self._home = home
        self._shown = shown

    def path(self, chunk: str) -> str:
        """Return it as a person names it."""
        return str(Path(self._shown, chunk))

    def markers(self, chunk: str) -> Iterator[str]:
        """Yield those that can be read."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self._home) as found:
            for folder in found:
                if is_data(folder.name) and folder.name != chunk:
                    with suppress(OSError, ValueError):
                        yield Path(folder.path, MARKER).read_text("utf-8")

    @contextmanager
    def staging(self, chunk: str | None, attempt: Attempt) -> Iterator[Staging]:  # noqa: ARG002 # the lock says who it is
        """Give a folder beside it, with a lock, so that there is only one attempt at a time."""
        target = self._home if chunk is None else self._home / chunk
        with staged_folder(target) as folder:
            yield _Staged(target, folder)


class _Staged:
    def __init__(self, target: Path, folder: Path) -> None:
        self._target = target
        self._folder = folder
        self.rows = f"{LOCAL}{folder}"

    def marker(self) -> str | None:
        try:
            return (self._target / MARKER).read_text("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def size(self) -> int:
        files = (file for file in self._folder.rglob("*") if is_data(file.name) and file.is_file())
        return sum(file.stat().st_size for file in files)

    def mark(self, text: str) -> None:
        (self._folder / MARKER).write_text(text, "utf-8")
