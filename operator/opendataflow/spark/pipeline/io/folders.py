"""Write the rows of a chunk to a folder of its own. A marker file in the folder names the attempt."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from opendataflow.core.databases.attempts import Attempt, Result, Seen
from opendataflow.errors import StepFailed
from opendataflow.model.projects.project import Destination
from opendataflow.spark.pipeline.errors.spark_errors import explain_full_disk
from opendataflow.spark.pipeline.io.chunk_folder import AlreadyWritten, ChunkFolder
from opendataflow.spark.pipeline.io.reading_sources import CSV
from opendataflow.spark.pipeline.measure.checks import CountDuplicates, column_named
from opendataflow.spark.pipeline.project.project_folder import OpenProject
from opendataflow.spark.pipeline.storage.remote_staging import RemoteFolder
from opendataflow.spark.pipeline.storage.spark_paths import escape_wildcards
from opendataflow.spark.pipeline.storage.staging import DestinationFolder, LocalFolder

_UNTYPED = ("csv", "json", "text")
_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""By default, Spark drops microseconds."""
_CSV = {"header": "true", "escape": '"', "ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}
"""Matches the options for reading. By default, Spark strips texts and escapes quotes against the standard."""
_WRITE_OPTIONS = {"csv": _CSV | _TIMES, "json": _TIMES}
_READ_OPTIONS = {"csv": CSV | _TIMES, "json": _TIMES}


class FolderWriter:
    """Writes one chunk to the folder of a destination."""

    def __init__(self, project: OpenProject, destination: Destination, attempt: Attempt, place: str) -> None:
        """Set what to write. `place`: of the destination in the project's file."""
        self._project = project
        self._to = destination
        self._attempt = attempt
        self._place = place
        self._folder = ChunkFolder(destination, attempt, place)
        self._chunk = self._folder.name

    def write(self, frame: DataFrame, check: Callable[[CountDuplicates], Seen]) -> Result:
        """Replace the chunk's folder, or the whole destination in mode `replace`.

        `check`: called after Spark has written the rows. It returns their measures, and raises StepFailed if the rows
        may not be committed. Raises StepFailed if writing fails, Refused if a newer attempt has written the chunk.
        """
        if self._to.partition in frame.columns:
            raise StepFailed(
                f"{self._place}: the result has a column {self._to.partition}, which is the name of the chunks' "
                "folders; write another destination.partition, or drop the column"
            )
        self._folder.check_name()
        home = self._open_home(frame.sparkSession)
        replaces_all = self._folder.replaces_all
        columns = dict(frame.dtypes)
        if not replaces_all:
            self._check_columns(home, columns)
        where = home.path(self._chunk)
        try:
            with home.staging(None if replaces_all else self._chunk, self._attempt) as staging:
                self._folder.check_marker(home, staging.read_marker())
                folder = f"{staging.rows}/{self._chunk}" if replaces_all else staging.rows
                with explain_full_disk(where, self._place):
                    self._refuse_lost_rows(frame).write.format(self._to.format).options(
                        **self._options(_WRITE_OPTIONS)
                    ).save(folder)
                seen = check(lambda columns: self._count_duplicates(frame, folder, columns))
                size = staging.size()
                known = self._folder.check_marker(home, staging.read_marker())
                measures = {"rows": seen.rows, "checksum": seen.checksum, "bytes": size, "columns": columns}
                staging.set_marker(self._folder.render_marker(known, measures))
        except AlreadyWritten as earlier:
            known = earlier.known
            return Result(where, known.get("rows"), known.get("checksum"), known.get("bytes"), kept=True)
        return Result(where, seen.rows, seen.checksum, size)

    def _refuse_lost_rows(self, frame: DataFrame) -> DataFrame:
        """Return the frame with an error in place of a NULL that would be an empty line of CSV, which readers skip."""
        if self._to.format != "csv" or len(frame.columns) != 1 or "nullvalue" in map(str.lower, self._to.options):
            return frame
        it = column_named(frame.columns[0])
        lost = F.raise_error(
            F.lit(
                f"a row has NULL in its only column {frame.columns[0]}, and readers of CSV would skip its empty line; "
                "keep another column, or write options: {nullValue: ...}"
            )
        )
        return frame.select(
            F.when(it.isNull(), lost.cast(frame.schema[0].dataType)).otherwise(it).alias(frame.columns[0])
        )

    def _open_home(self, spark: SparkSession) -> DestinationFolder:
        where = self._to.where
        if "://" in where:
            return RemoteFolder(spark, where, self._place, self._to.options)
        home = self._project.home / where
        return LocalFolder(home, self._project.display_path(home))

    def _check_columns(self, home: DestinationFolder, columns: Mapping[str, str]) -> None:
        """Raise StepFailed if another chunk has a column of another type, or CSV columns in another order.

        Otherwise the folder could not be read as a whole.
        """
        other = self._read_other_marker(home)
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

    def _read_other_marker(self, home: DestinationFolder) -> dict[str, Any]:
        """Return the marker of another chunk, or {} if there is none."""
        for text in home.markers(self._chunk):
            with suppress(ValueError):
                marker: dict[str, Any] = json.loads(text)
                return marker
        return {}

    def _count_duplicates(self, frame: DataFrame, folder: str, columns: Sequence[str]) -> int:
        """Count duplicate values in the written files."""
        reader = frame.sparkSession.read.format(self._to.format)
        if self._to.format in _UNTYPED:
            reader = reader.schema(frame.schema)
        names = [column_named(name) for name in columns]
        rows = reader.options(**self._options(_READ_OPTIONS)).load(escape_wildcards(folder))
        rows = rows.where(reduce(and_, (name.isNotNull() for name in names)))
        return rows.groupBy(*names).count().where("count > 1").count()

    def _options(self, usual: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
        return {**usual.get(self._to.format, {}), **self._to.options}
