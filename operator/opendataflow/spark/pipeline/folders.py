"""Writes the rows of a chunk into a folder of its own, with a file that says which attempt has written it."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opendataflow.core.attempts import Attempt, Result, Seen, check_newest
from opendataflow.core.chunk_bounds import partition_folder
from opendataflow.errors import StepFailed
from opendataflow.model.project import Destination
from opendataflow.spark.pipeline.opened import OpenProject
from opendataflow.spark.pipeline.reading import CSV
from opendataflow.spark.pipeline.writing import staged_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from opendataflow.spark.pipeline.checks import Doubles

MARKER = "_opendataflow.json"
"""In the folder that is swapped. Spark does not read files that begin so."""


_UNTYPED = ("csv", "json", "text")


class _Kept(Exception):
    """The chunk is there already, and is written only once."""


class Folder:
    """The folder of a destination, for one chunk."""

    def __init__(self, project: OpenProject, destination: Destination, attempt: Attempt, place: str) -> None:
        """`place`: of the destination in the project's file. Raises StepFailed where it is no folder here."""
        if "://" in destination.where:
            raise StepFailed(f"{place}: by hand a destination is a folder of this machine; write another path")
        self._to = destination
        self._attempt = attempt
        self._place = place
        self._home = project.home / destination.where
        self._chunk = partition_folder(destination.partition, attempt.data_id)
        self._shown = project.shown(self._home / self._chunk)

    def write(self, frame: "DataFrame", passed: "Callable[[Doubles], Seen]") -> Result:
        """Write the folder of the chunk anew, or the whole destination. `passed`: says what is known of the rows when
        they have passed, and raises where they may not be committed.

        Raises StepFailed where that can't be, Refused where a newer attempt has written it.
        """
        from opendataflow.spark.pipeline.blame import disk_of

        if self._to.partition in frame.columns:
            raise StepFailed(
                f"{self._place}: the result has a column {self._to.partition}, which is the name of the chunks' "
                "folders; write another destination.partition, or drop the column"
            )
        whole = self._to.mode == "replace"
        columns = dict(frame.dtypes)
        if not whole and self._to.format not in _UNTYPED:
            self._check_types(columns)
        target = self._home if whole else self._home / self._chunk
        options = ({"header": "true"} if self._to.format == "csv" else {}) | self._to.options
        known: dict[str, Any] = {}
        try:
            with staged_folder(target) as staging:
                known = self._known(target)
                check_newest(self._attempt, known.get("fence"), self._place)
                if known and self._to.mode == "append":
                    raise _Kept
                folder = staging / self._chunk if whole else staging
                with disk_of(self._shown, self._place):
                    frame.write.format(self._to.format).options(**options).save(str(folder))
                seen = passed(lambda columns: self._doubles(frame.sparkSession, folder, columns))
                size = sum(file.stat().st_size for file in folder.rglob("*") if _is_data(file))
                self._mark(
                    staging, known.get("fence"), rows=seen.rows, checksum=seen.checksum, bytes=size, columns=columns
                )
        except _Kept:
            return Result(self._shown, known.get("rows"), known.get("checksum"), known.get("bytes"), kept=True)
        return Result(self._shown, seen.rows, seen.checksum, size)

    def _check_types(self, columns: Mapping[str, str]) -> None:
        """Raise StepFailed where another chunk has a column with another type: nobody could read the whole folder."""
        other = self._neighbour()
        for name, kind in (other.get("columns") or {}).items():
            if columns.get(name, kind) != kind:
                raise StepFailed(
                    f"{self._place}: the column {name} is {columns[name]}, and {kind} in the chunk {other['dataId']}; "
                    "say its type in the schema of the source, or cast it; to change all chunks, write to another path"
                )

    def _neighbour(self) -> dict[str, Any]:
        """What one of the other chunks says of itself; nothing where there is none."""
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self._home) as found:
            for folder in found:
                if folder.name[0] not in "._" and folder.name != self._chunk:
                    with suppress(OSError, ValueError):
                        told: dict[str, Any] = json.loads(Path(folder.path, MARKER).read_text("utf-8"))
                        return told
        return {}

    def _doubles(self, spark: "SparkSession", folder: Path, columns: Sequence[str]) -> int:
        from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

        reader = spark.read.format(self._to.format)
        options = {**(CSV if self._to.format == "csv" else {}), **self._to.options}
        names = [F.col(f"`{name}`") for name in columns]
        rows = reader.options(**options).load(str(folder)).dropna(subset=list(columns))
        return rows.groupBy(*names).count().where("count > 1").count()

    def _known(self, target: Path) -> dict[str, Any]:
        """What the folder says of this chunk; nothing where it is of another one, or of nobody."""
        try:
            told = json.loads((target / MARKER).read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except ValueError:
            raise StepFailed(
                f"{target / MARKER}: it can't be read; remove the folder to write the chunk anew"
            ) from None
        return told if told.get("dataId") == self._attempt.data_id else {}

    def _mark(self, staging: Path, fence: int | None, **seen: object) -> None:
        """`fence`: the one that is known, which stays where there is none, as by hand."""
        attempt = self._attempt
        fence = fence if attempt.fence is None else attempt.fence
        told = {"dataset": attempt.dataset, "dataId": attempt.data_id, "fence": fence, "attempt": attempt.token, **seen}
        (staging / MARKER).write_text(json.dumps({name: it for name, it in told.items() if it is not None}), "utf-8")


def _is_data(file: Path) -> bool:
    return file.name[0] not in "._" and file.is_file()
