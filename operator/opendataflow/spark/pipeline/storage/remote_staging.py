"""Write a folder of a Hadoop file system: each attempt stages its rows, and any attempt can finish a committed move.

These file systems have no locks, and object stores rename file by file. So each attempt has a staging folder:

    .attempts/CHUNK/TOKEN/begun.json    the attempt's fencing token and owner; deleted at the end of the attempt
                          rows/         the files that Spark writes
                          commit.json   written once. The attempt itself writes the list of files and the marker. From
                                        then on any attempt may move the rows. A newer attempt writes an empty file to
                                        reject the attempt for ever.

A move deletes the marker and the old files, renames the rows, and writes the marker last. So a folder with a marker is
complete. The next attempt finishes the move of a killed attempt, or deletes its rows if they are not committed.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from opendataflow.core.databases.attempts import Attempt, check_newest, check_owner
from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.storage.file_system import FileSystem
from opendataflow.spark.pipeline.storage.spark_paths import is_data_file
from opendataflow.spark.pipeline.storage.staging import MARKER, Staging

_ATTEMPTS = ".attempts"
"""Lies in the destination's folder, or beside the folder in mode `replace`. Spark ignores this folder."""
_BEGUN, _COMMIT, _ROWS = "begun.json", "commit.json", "rows"
_MAX_CHUNKS_SEARCHED = 20
"""Maximum number of chunks whose marker is read. Each one costs a request."""


class RemoteFolder:
    """A destination folder whose path has a scheme."""

    def __init__(self, spark: SparkSession, home: str, place: str, options: Mapping[str, str]) -> None:
        """Open the file system. `place`: of the destination in the project's file. Raises StepFailed on failure."""
        self._home = home.rstrip("/")
        self._place = place
        self._files = FileSystem(spark, home, place, options)

    def path(self, chunk: str) -> str:
        """Return the address of a chunk's folder."""
        return f"{self._home}/{chunk}"

    def markers(self, chunk: str) -> Iterator[str]:
        """Yield the markers of the first other chunks."""
        others = (name for name in self._files.list_names(self._home) if is_data_file(name) and name != chunk)
        for name in islice(others, _MAX_CHUNKS_SEARCHED):
            text = self._files.read(f"{self._home}/{name}/{MARKER}")
            if text is not None:
                yield text

    @contextmanager
    def staging(self, chunk: str | None, attempt: Attempt) -> Iterator[Staging]:
        """Yield a staging folder. A running older attempt is rejected. A newer attempt refuses this one."""
        target = self._home if chunk is None else f"{self._home}/{chunk}"
        if not urlsplit(target).path:
            raise StepFailed(f"{self._place}: {target} can't be replaced as a whole; write a folder in it")
        staged = _AttemptFolder(self._files, target, attempt, self._place)
        try:
            staged.begin()
            yield staged
            staged.commit()
        finally:
            staged.clean_up()


class _AttemptFolder:
    """The staging folder of one attempt."""

    def __init__(self, files: FileSystem, target: str, attempt: Attempt, place: str) -> None:
        self._files = files
        self._target = target
        self._attempt = attempt
        self._place = place
        above, _, name = target.rpartition("/")
        self._all = f"{above}/{_ATTEMPTS}/{name}"
        self._own = f"{self._all}/{attempt.token}"
        self._is_committed = False
        self._marker = ""
        self.rows = f"{self._own}/{_ROWS}"

    def read_marker(self) -> str | None:
        return self._files.read(f"{self._target}/{MARKER}")

    def size(self) -> int:
        return sum(self._data_files().values())

    def set_marker(self, text: str) -> None:
        self._marker = text

    def _data_files(self) -> dict[str, int]:
        """Return the sizes of the files of rows. The names are unique to this attempt."""
        found = self._files.file_sizes(self.rows)
        return {name: size for name, size in found.items() if is_data_file(name.rpartition("/")[2])}

    def begin(self) -> None:
        """Record the start, then reject other attempts. Of two concurrent attempts, at least one sees the other."""
        begun = {"fence": self._attempt.fence, "owner": self._attempt.owner}
        self._files.write(f"{self._own}/{_BEGUN}", json.dumps(begun))
        for token in list(self._files.list_names(self._all)):
            if token != self._attempt.token:
                self._supersede(f"{self._all}/{token}")

    def _supersede(self, other: str) -> None:
        """Finish the move of a committed attempt, or prevent the commit of another one. Then delete its folder."""
        begun = self._read_json(f"{other}/{_BEGUN}")
        remedy = f"write to another path, or, if that attempt has ended, delete {other}"
        check_owner(self._attempt, begun.get("owner"), self._place, remedy)
        check_newest(self._attempt, begun.get("fence"), self._place)
        if begun and not self._files.write_once(f"{other}/{_COMMIT}", ""):
            commit = self._read_json(f"{other}/{_COMMIT}")
            if commit:
                self._move(other, commit)  # missing rows are no error: this attempt writes all rows again
        self._remove(other)

    def commit(self) -> None:
        """Replace the target by the staged rows."""
        commit = {"marker": self._marker, "files": sorted(self._data_files())}
        is_accepted = self._files.write_once(f"{self._own}/{_COMMIT}", json.dumps(commit))
        if not is_accepted or self._files.read(f"{self._own}/{_BEGUN}") is None:  # in this order, see _remove
            raise StepFailed(
                f"{self._place}: another attempt of the chunk {self._attempt.data_id} has begun meanwhile: this one "
                "has written nothing"
            )
        self._is_committed = True
        if not self._move(self._own, commit):
            raise StepFailed(f"{self._place}: {self._target}: somebody has taken rows away while they were moved")
        self._remove(self._own)
        self._files.delete_if_empty(self._all)

    def _move(self, folder: str, commit: Mapping[str, Any]) -> bool:
        """Move the rows, or the rest of them, to the target. Return False if any file is missing."""
        present, wanted = self._files.file_sizes(self._target), frozenset(commit["files"])
        if not wanted & present.keys():
            self._files.delete(f"{self._target}/{MARKER}")
            self._files.delete(self._target)
            self._files.rename(f"{folder}/{_ROWS}", self._target)
        elif not wanted <= present.keys():  # the copy of an object store was interrupted
            for name in sorted(wanted - present.keys()):
                self._files.rename(f"{folder}/{_ROWS}/{name}", f"{self._target}/{name}")
        if not wanted <= self._files.file_sizes(self._target).keys():
            return False
        self._files.write(f"{self._target}/{MARKER}", commit["marker"])
        return True

    def clean_up(self) -> None:
        """Delete the folder of a failed attempt. Committed rows stay for the next attempt."""
        if not self._is_committed:
            with suppress(StepFailed):
                self._remove(self._own)
                self._files.delete_if_empty(self._all)

    def _remove(self, folder: str) -> None:
        """Delete an attempt's folder, begun.json first: an attempt that commits at this moment checks that file."""
        self._files.delete(f"{folder}/{_BEGUN}")
        self._files.delete(folder)

    def _read_json(self, file: str) -> dict[str, Any]:
        """Return the content of a file, or {} if the file is missing or incomplete."""
        try:
            content: dict[str, Any] = json.loads(self._files.read(file) or "{}")
        except ValueError:
            return {}
        return content
