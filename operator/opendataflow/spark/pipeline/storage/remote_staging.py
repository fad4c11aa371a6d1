"""Folders of Hadoop's file systems: written beside by each attempt, and moved by steps that anybody can finish.

Nothing can be locked there, and object stores rename file by file. So an attempt has a folder of its own:

    .attempts/CHUNK/TOKEN/begun.json    whose it is; it ends with the attempt
                          rows/         what Spark writes
                          commit.json   written once: by the attempt, with the files and the marker, and from then on
                                        its rows are to be moved, whoever does it; or by a newer one, empty, and never

Moving is: marker and old files away, rows in, marker last. So a folder with a marker is whole, and what a killed
attempt has left is finished by the next one, or deleted where it has no commit.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from opendataflow.core.chunks.attempts import Attempt, check_newest
from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.storage.file_system import FileSystem
from opendataflow.spark.pipeline.storage.staging import MARKER, Staging, is_data

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ATTEMPTS = ".attempts"
"""In the folder of the destination, or beside it where it is replaced as a whole. Spark reads nothing in it."""
_BEGUN, _COMMIT, _ROWS = "begun.json", "commit.json", "rows"
_MOST_LOOKED_AT = 20
"""How many chunks may be without a marker before nobody looks for one any more: each is a request."""


class RemoteFolder:
    """A folder whose path has a scheme."""

    def __init__(self, spark: "SparkSession", home: str, place: str, options: Mapping[str, str]) -> None:
        """`place`: of the destination in the project's file. Raises StepFailed where nothing there can be used."""
        self._home = home.rstrip("/")
        self._place = place
        self._files = FileSystem(spark, home, place, options)

    def path(self, chunk: str) -> str:
        """Return the whole path."""
        return f"{self._home}/{chunk}"

    def markers(self, chunk: str) -> Iterator[str]:
        """Yield those of the first chunks."""
        others = (name for name in self._files.names(self._home) if is_data(name) and name != chunk)
        for name in islice(others, _MOST_LOOKED_AT):
            text = self._files.read(f"{self._home}/{name}/{MARKER}")
            if text is not None:
                yield text

    @contextmanager
    def staging(self, chunk: str | None, attempt: Attempt) -> Iterator[Staging]:
        """Give a folder beside it. An older attempt that is at work will write nothing; a newer one refuses this."""
        target = self._home if chunk is None else f"{self._home}/{chunk}"
        if not urlsplit(target).path:
            raise StepFailed(f"{self._place}: {target} can't be replaced as a whole; write a folder in it")
        staged = _Attempt(self._files, target, attempt, self._place)
        try:
            staged.begin()
            yield staged
            staged.commit()
        finally:
            staged.end()


class _Attempt:
    def __init__(self, files: FileSystem, target: str, attempt: Attempt, place: str) -> None:
        self._files = files
        self._target = target
        self._attempt = attempt
        self._place = place
        above, _, name = target.rpartition("/")
        self._all = f"{above}/{_ATTEMPTS}/{name}"
        self._own = f"{self._all}/{attempt.token}"
        self._committed = False
        self._text = ""
        self.rows = f"{self._own}/{_ROWS}"

    def marker(self) -> str | None:
        return self._files.read(f"{self._target}/{MARKER}")

    def size(self) -> int:
        return sum(self._data().values())

    def mark(self, text: str) -> None:
        self._text = text

    def _data(self) -> dict[str, int]:
        """The files of rows, whose names no other attempt has."""
        found = self._files.sizes(self.rows)
        return {name: size for name, size in found.items() if is_data(name.rpartition("/")[2])}

    def begin(self) -> None:
        """Say that this attempt has begun, then look for others: of two at one time at least one sees the other."""
        self._files.write(f"{self._own}/{_BEGUN}", json.dumps({"fence": self._attempt.fence}))
        for token in list(self._files.names(self._all)):
            if token != self._attempt.token:
                self._supersede(f"{self._all}/{token}")

    def _supersede(self, other: str) -> None:
        """Finish what another attempt has committed; of one that has not, see to it that it never does."""
        begun = self._read(f"{other}/{_BEGUN}")
        check_newest(self._attempt, begun.get("fence"), self._place)
        if begun and not self._files.write_once(f"{other}/{_COMMIT}", ""):
            commit = self._read(f"{other}/{_COMMIT}")
            if commit:
                self._move(other, commit)  # what of it is gone is not missed: this attempt writes all of it anew
        self._remove(other)

    def commit(self) -> None:
        """Let the rows take the place of what is there."""
        commit = {"marker": self._text, "files": sorted(self._data())}
        mine = self._files.write_once(f"{self._own}/{_COMMIT}", json.dumps(commit))
        if not mine or self._files.read(f"{self._own}/{_BEGUN}") is None:  # in this order, see _remove
            raise StepFailed(
                f"{self._place}: another attempt of the chunk {self._attempt.data_id} has begun meanwhile: this one "
                "has written nothing"
            )
        self._committed = True
        if not self._move(self._own, commit):
            raise StepFailed(f"{self._place}: {self._target}: somebody has taken rows away while they were moved")
        self._remove(self._own)
        self._files.tidy(self._all)

    def _move(self, folder: str, commit: Mapping[str, Any]) -> bool:
        """Move rows to the target, or the rest of them; False where some are nowhere."""
        there, wanted = self._files.sizes(self._target), frozenset(commit["files"])
        if not wanted & there.keys():
            self._files.delete(f"{self._target}/{MARKER}")
            self._files.delete(self._target)
            self._files.rename(f"{folder}/{_ROWS}", self._target)
        elif not wanted <= there.keys():  # an object store was interrupted while it copied
            for name in sorted(wanted - there.keys()):
                self._files.rename(f"{folder}/{_ROWS}/{name}", f"{self._target}/{name}")
        if not wanted <= self._files.sizes(self._target).keys():
            return False
        self._files.write(f"{self._target}/{MARKER}", commit["marker"])
        return True

    def end(self) -> None:
        """Leave nothing of an attempt that has failed; what is committed stays for the next one."""
        if not self._committed:
            with suppress(StepFailed):
                self._remove(self._own)
                self._files.tidy(self._all)

    def _remove(self, folder: str) -> None:
        """Take away first what says that it has begun: an attempt that commits meanwhile sees that it is gone."""
        self._files.delete(f"{folder}/{_BEGUN}")
        self._files.delete(folder)

    def _read(self, file: str) -> dict[str, Any]:
        """What a file says; nothing where it is not there, or was killed while it was written."""
        try:
            told: dict[str, Any] = json.loads(self._files.read(file) or "{}")
        except ValueError:
            return {}
        return told
