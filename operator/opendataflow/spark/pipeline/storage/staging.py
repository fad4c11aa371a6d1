"""Staging of a destination's folders: the common protocol, and the implementation for this machine.

Spark writes rows to a staging folder that Spark itself does not list. At the end of the block, the staging folder
replaces the target. After a kill at any moment, the next attempt repairs the target before it begins.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from opendataflow.core.databases.attempts import Attempt
from opendataflow.spark.pipeline.storage.atomic_replace import staged_folder
from opendataflow.spark.pipeline.storage.spark_paths import LOCAL_SCHEME, is_data_file

MARKER = "_opendataflow.json"
"""File in each complete folder. Spark ignores files with a leading underscore."""


class Staging(Protocol):
    """The staging folder of one attempt."""

    rows: str
    """The folder that Spark has to create and write."""

    def read_marker(self) -> str | None:
        """Return the text of the target's current marker, or None."""

    def size(self) -> int:
        """Return the size of the staged rows in bytes."""

    def set_marker(self, text: str) -> None:
        """Set the text of the new marker."""


class DestinationFolder(Protocol):
    """The folder of a destination."""

    def path(self, chunk: str) -> str:
        """Return the folder of a chunk, or a file in the folder, as the user would write the path."""

    def markers(self, chunk: str) -> Iterator[str]:
        """Yield the texts of the markers of other chunks."""

    def staging(self, chunk: str | None, attempt: Attempt) -> AbstractContextManager[Staging]:
        """Yield a staging folder that replaces the chunk's folder, or the whole destination, at the end of the block.

        If the block fails, the target is unchanged. Raises StepFailed if the target can't be written, Refused if a
        newer attempt is writing.
        """


class LocalFolder:
    """A destination folder on this machine."""

    def __init__(self, home: Path, display_path: str) -> None:
        """Set the folder. `display_path`: as the user would write the path."""
        self._home = home
        self._display_path = display_path

    def path(self, chunk: str) -> str:
        """Return the folder of a chunk as the user would write the path."""
        return str(Path(self._display_path, chunk))

    def markers(self, chunk: str) -> Iterator[str]:
        """Yield the readable markers of other chunks."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self._home) as found:
            for folder in found:
                if is_data_file(folder.name) and folder.name != chunk:
                    with suppress(OSError, ValueError):
                        yield Path(folder.path, MARKER).read_text("utf-8")

    @contextmanager
    def staging(self, chunk: str | None, attempt: Attempt) -> Iterator[Staging]:  # noqa: ARG002 # a lock replaces it
        """Yield a staging folder beside the target, under a lock: only one attempt writes at a time."""
        target = self._home if chunk is None else self._home / chunk
        with staged_folder(target) as folder:
            yield _LocalStaging(target, folder)


class _LocalStaging:
    def __init__(self, target: Path, folder: Path) -> None:
        self._target = target
        self._folder = folder
        self.rows = f"{LOCAL_SCHEME}{folder}"

    def read_marker(self) -> str | None:
        try:
            return (self._target / MARKER).read_text("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def size(self) -> int:
        files = (file for file in self._folder.rglob("*") if is_data_file(file.name) and file.is_file())
        return sum(file.stat().st_size for file in files)

    def set_marker(self, text: str) -> None:
        (self._folder / MARKER).write_text(text, "utf-8")
