"""Writes the rows of a chunk into a folder of its own, with a file that says which attempt has written it."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from opendataflow.core.chunks.attempts import Attempt, Result, Seen, check_newest
from opendataflow.core.chunks.chunk_bounds import partition_folder
from opendataflow.errors import StepFailed
from opendataflow.model.projects.project import Destination
from opendataflow.spark.pipeline.io.reading import CSV
from opendataflow.spark.pipeline.project.project_folder import OpenProject
from opendataflow.spark.pipeline.storage.file_system import literally
from opendataflow.spark.pipeline.storage.remote_staging import RemoteFolder
from opendataflow.spark.pipeline.storage.staging import MARKER, Folder, Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from opendataflow.spark.pipeline.measure.checks import Doubles

_LONGEST_NAME, _SHOWN = 240, 40
"""Bytes of the name of a folder, which gets longer while it is staged, and letters of it in a sentence."""
_UNTYPED = ("csv", "json", "text")
_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Spark by itself leaves microseconds out."""
_CSV = {"header": "true", "escape": '"', "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
"""As sources are read. Spark by itself strips texts, and writes a quote in them as no standard says."""
_WRITTEN = {"csv": _CSV | _TIMES, "json": _TIMES}
_READ_AGAIN = {"csv": CSV | _TIMES, "json": _TIMES}


class _Kept(Exception):
    """The chunk is there already, and is written only once."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        self.known = known


class Folders:
    """The folder of a destination, for one chunk."""

    def __init__(self, project: OpenProject, destination: Destination, attempt: Attempt, place: str) -> None:
        """`place`: of the destination in the project's file."""
        self._project = project
        self._to = destination
        self._attempt = attempt
        self._place = place
        self._chunk = partition_folder(destination.partition, attempt.data_id)

    def write(self, frame: "DataFrame", passed: "Callable[[Doubles], Seen]") -> Result:
        """Write the folder of the chunk anew, or the whole destination. `passed`: says what is known of the rows when
        they have passed, and raises where they may not be committed.

        Raises StepFailed where that can't be, Refused where a newer attempt has written it.
        """
        from opendataflow.spark.pipeline.errors.spark_errors import disk_of

        if self._to.partition in frame.columns:
            raise StepFailed(
                f"{self._place}: the result has a column {self._to.partition}, which is the name of the chunks' "
                "folders; write another destination.partition, or drop the column"
            )
        self._check_name()
        home = self._home(frame.sparkSession)
        whole = self._to.mode == "replace"
        columns = dict(frame.dtypes)
        if not whole:
            self._check_columns(home, columns)
        try:
            with home.staging(None if whole else self._chunk, self._attempt) as staging:
                self._checked(home, staging.marker())
                folder = f"{staging.rows}/{self._chunk}" if whole else staging.rows
                with disk_of(self._shown(home), self._place):
                    frame.write.format(self._to.format).options(**self._options(_WRITTEN)).save(folder)
                seen = passed(lambda columns: self._doubles(frame, folder, columns))
                size = staging.size()
                fence = self._checked(home, staging.marker())
                told = {"rows": seen.rows, "checksum": seen.checksum, "bytes": size, "columns": columns}
                staging.mark(self._marker(fence, told))
        except _Kept as kept:
            known = kept.known
            return Result(self._shown(home), known.get("rows"), known.get("checksum"), known.get("bytes"), kept=True)
        return Result(self._shown(home), seen.rows, seen.checksum, size)

    def _check_name(self) -> None:
        size = len(self._chunk.encode())
        if size > _LONGEST_NAME and "://" not in self._to.where:
            raise StepFailed(
                f"{self._place}: the folder of the chunk would have a name of {size} bytes, and {_LONGEST_NAME} are "
                f"allowed: {self._chunk[:_SHOWN]}...; give the chunk a shorter data id, or write to a table"
            )

    def _home(self, spark: "SparkSession") -> Place:
        where = self._to.where
        if "://" in where:
            return RemoteFolder(spark, where, self._place, self._to.options)
        home = self._project.home / where
        return Folder(home, self._project.shown(home))

    def _shown(self, home: Place) -> str:
        return home.path(self._chunk)

    def _check_columns(self, home: Place, columns: Mapping[str, str]) -> None:
        """Raise StepFailed where another chunk has a column with another type, or in CSV at another place: nobody could
        read the whole folder."""
        other = self._neighbour(home)
        known: Mapping[str, str] = other.get("columns") or {}
        if self._to.format == "csv" and known and list(known) != list(columns):
            raise StepFailed(
                f"{self._place}: the columns are {', '.join(columns)}, and {', '.join(known)} in the chunk "
                f"{other['dataId']}; who reads CSV goes by their place: select the same ones in one order; to change "
                "all chunks, write to another path"
            )
        for name, kind in () if self._to.format in _UNTYPED else known.items():
            if columns.get(name, kind) != kind:
                raise StepFailed(
                    f"{self._place}: the column {name} is {columns[name]}, and {kind} in the chunk {other['dataId']}; "
                    "say its type in the schema of the source, or cast it; to change all chunks, write to another path"
                )

    def _neighbour(self, home: Place) -> dict[str, Any]:
        """What one of the other chunks says of itself; nothing where there is none."""
        for text in home.markers(self._chunk):
            with suppress(ValueError):
                told: dict[str, Any] = json.loads(text)
                return told
        return {}

    def _doubles(self, frame: "DataFrame", folder: str, columns: Sequence[str]) -> int:
        """Read what was written of a frame, as it was written."""
        from opendataflow.spark.pipeline.measure.checks import column_of

        reader = frame.sparkSession.read.format(self._to.format)
        if self._to.format in _UNTYPED:
            reader = reader.schema(frame.schema)
        names = [column_of(name) for name in columns]
        rows = reader.options(**self._options(_READ_AGAIN)).load(literally(folder))
        rows = rows.where(reduce(and_, (name.isNotNull() for name in names)))
        return rows.groupBy(*names).count().where("count > 1").count()

    def _options(self, usual: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        return {**usual.get(self._to.format, {}), **self._to.options}

    def _checked(self, home: Place, marker: str | None) -> int | None:
        """Return the fence that is known. Raises Refused where that is a newer one, _Kept where nothing is to be done.
        `marker`: its text, which counts for nothing where it is of another chunk."""
        whole = self._to.mode == "replace"
        try:
            told: dict[str, Any] = {} if marker is None else json.loads(marker)
        except ValueError:
            raise StepFailed(
                f"{home.path(MARKER if whole else f'{self._chunk}/{MARKER}')}: it can't be read; remove the folder to "
                "write the chunk anew"
            ) from None
        known = told if told.get("dataId") == self._attempt.data_id else {}
        fence: int | None = known.get("fence")
        check_newest(self._attempt, fence, self._place)
        if known and self._to.mode == "append":
            raise _Kept(known)
        return fence

    def _marker(self, known: int | None, told: Mapping[str, Any]) -> str:
        """`known`: the fence that stays where the attempt has none, as by hand."""
        attempt = self._attempt
        fence = known if attempt.fence is None else attempt.fence
        said = {"dataset": attempt.dataset, "dataId": attempt.data_id, "fence": fence, "attempt": attempt.token, **told}
        return json.dumps({name: it for name, it in said.items() if it is not None})
