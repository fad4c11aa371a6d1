"""Reads a source with Spark, restricted to the chunk, so that Spark can leave the rest unread."""

from datetime import date
from typing import TYPE_CHECKING

from opendataflow.core.chunk_bounds import bounds_of
from opendataflow.errors import InvalidInput, StepFailed
from opendataflow.model.datasets import Partitioning
from opendataflow.model.project import DATA_ID, Source
from opendataflow.spark.pipeline.opened import OpenProject
from opendataflow.spark.pipeline.reading_tables import read_table
from opendataflow.spark.pipeline.sources import check_header, check_text, existing

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TEXT = ("csv", "json", "text")

CSV = {"header": "true", "multiLine": "true", "escape": '"', "mode": "FAILFAST"}
"""As the standard says: quoted newlines, quotes doubled. A row that does not fit is an error and not NULLs."""

_CSV_WITH_SCHEMA = {"enforceSchema": "false", "columnPruning": "false"}
"""Else Spark notices neither other columns in the file nor rows that have too few of them."""

_QUOTING = {"quote", "escape", "multiLine"}

_JSON = {"mode": "FAILFAST"}


def read(spark: "SparkSession", project: OpenProject, source: Source, data_id: str, place: str) -> "DataFrame":
    """Return the rows of the chunk. `place`: of the source in the project's file.

    Raises StepFailed where the source is not there, is no text in UTF-8, or lacks the column.
    """
    try:
        if source.database is not None:
            return read_table(spark, source, data_id, place)
        return _of_chunk(_files(spark, project, source, data_id, place), source, data_id, place)
    except InvalidInput as error:
        raise StepFailed(f"{place}: {error}") from None


def _files(spark: "SparkSession", project: OpenProject, source: Source, data_id: str, place: str) -> "DataFrame":
    where = source.where.replace(DATA_ID, data_id)
    if "://" not in where:
        shown = str(project.folder / where)
        path = existing(project.home / where, shown, place)
        if source.format in _TEXT and not {"encoding", "charset"} & source.options.keys():
            own_quotes = source.format != "csv" or _QUOTING & source.options.keys()
            check_text(path, shown, None if own_quotes else '"')
        if source.format == "csv" and path.is_file() and path.stat().st_size == 0:
            raise StepFailed(f"{shown}: the file is empty; its first line names the columns")
        where = str(path)
    reader = spark.read.format(source.format).options(**_options(source))
    if source.columns is not None:
        reader = reader.schema(source.columns)
    frame = reader.load(where)
    if source.format == "csv" and source.columns is not None and "://" not in source.where:
        check_header(path, shown, frame.columns, source.options)
    return frame


def _options(source: Source) -> dict[str, str]:
    if source.format == "csv":
        return CSV | ({"inferSchema": "true"} if source.columns is None else _CSV_WITH_SCHEMA) | source.options
    return (_JSON if source.format == "json" else {}) | source.options


def _of_chunk(frame: "DataFrame", source: Source, data_id: str, place: str) -> "DataFrame":
    if source.predicate is not None:
        text = data_id.replace("\\", "\\\\").replace("'", "\\'")
        return frame.where(source.predicate.replace(DATA_ID, f"'{text}'"))
    if source.partitioning is None:
        return frame
    column = source.partitioning.column
    if column not in frame.columns:
        raise StepFailed(
            f"{place}: {source.name} has no column {column}; it has {', '.join(frame.columns)}; "
            "write another partitioning.column"
        )
    return frame.where(_bounds(source.partitioning, data_id))


def _bounds(partitioning: Partitioning, data_id: str) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

    bounds, column = bounds_of(data_id, partitioning.type), F.col(partitioning.column)
    if "nulls" in bounds:
        return column.isNull()
    if partitioning.type == "date":
        first, following = (date.fromisoformat(str(bounds[end])) for end in ("from", "to"))
        return (column >= F.lit(first)) & (column < F.lit(following))
    if partitioning.type == "range":
        begins = column >= F.lit(bounds["from"]) if "from" in bounds else F.lit(True)
        return begins & (column < F.lit(bounds["to"])) if "to" in bounds else begins
    if partitioning.type == "hash":
        return F.pmod(F.xxhash64(column), F.lit(bounds["buckets"])) == F.lit(bounds["bucket"])
    return column == F.lit(bounds["value"])
