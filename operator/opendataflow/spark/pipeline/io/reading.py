"""Reads a source with Spark, restricted to the chunk, so that Spark can leave the rest unread."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from opendataflow.core.chunks.chunk_parts import FILES, Chunk, Part, check_elsewhere, part_of_source
from opendataflow.errors import InvalidInput, StepFailed
from opendataflow.model.projects.project import DATA_ID, Source
from opendataflow.spark.pipeline.io.reading_tables import read_table
from opendataflow.spark.pipeline.io.sources import (
    Text,
    check_listed,
    check_names,
    check_text,
    readable,
    texts_in,
)
from opendataflow.spark.pipeline.project.project_folder import OpenProject
from opendataflow.spark.pipeline.storage.file_system import LOCAL, FileSystem, Found, literally
from opendataflow.spark.pipeline.storage.staging import is_data

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_TEXT = ("csv", "json", "text")

CSV = {"header": "true", "multiLine": "true", "escape": '"', "mode": "FAILFAST"}
"""As the standard says: quoted newlines, quotes doubled. A row that does not fit is an error and not NULLs."""

_CSV_WITH_SCHEMA = {"enforceSchema": "false", "columnPruning": "false"}
"""Else Spark notices neither other columns in the file nor rows that have too few of them."""

_QUOTING = {"quote", "escape", "multiLine"}

_JSON = {"mode": "FAILFAST"}

_NULL_IN_PATH = "__HIVE_DEFAULT_PARTITION__"
_NO_COLUMNS = "there is nothing in it to infer its columns from: name them in schema"


def read(spark: "SparkSession", project: OpenProject, source: Source, chunk: Chunk, place: str) -> "DataFrame":
    """Return the rows of the chunk. `place`: of the source in the project's file.

    Raises StepFailed where the source is not there, is no text in UTF-8, or lacks the column.
    """
    try:
        part = part_of_source(source, chunk)
        if source.database is not None:
            return read_table(spark, source, part, chunk.data_id, place)
        if part is not None:
            check_elsewhere(part, chunk.data_id, FILES)
        frame = _files(spark, project, source, part, chunk.data_id, place)
        return _of_chunk(frame, source, part, chunk.data_id, place)
    except InvalidInput as error:
        raise StepFailed(f"{place}: {error}") from None


def _files(
    spark: "SparkSession", project: OpenProject, source: Source, part: Part | None, data_id: str, place: str
) -> "DataFrame":
    from pyspark.sql.types import StructType

    shown = project.named(source.where.replace(DATA_ID, data_id))
    reader, names, texts = spark.read.format(source.format).options(**_options(source)), None, list[Text]()
    if source.columns is not None:
        with _told(f"{place}: the schema is not Spark's DDL, such as day DATE, flights INT"):
            reader, given = reader.schema(source.columns), StructType.fromDDL(source.columns)
        names = given.names if isinstance(given, StructType) else None
    if "://" in source.where:
        paths = [source.where.replace(DATA_ID, literally(data_id))]
        _check_there(FileSystem(spark, paths[0], place, source.options).found(paths[0]), source, shown, place)
    else:
        with readable(f"{place}: {shown}"):
            here = {project.shown(path): path for path in _here(spark, project, source, data_id, place)}
            found = [Found(str(it), it.stat().st_size, it.is_file()) for it in here.values()]
            _check_there(found, source, shown, place)
            _check_listed(here)
            texts = list(texts_in(here)) if source.format in _TEXT else []
            if names is None:  # Spark reads all of them then, to infer their columns
                _check_texts(texts, source, names)
        paths = [f"{LOCAL}{literally(str(path))}" for path in here.values()]
    with _told(f"{place}: {shown}"):
        frame = reader.load(paths)
    if not frame.columns:
        raise StepFailed(f"{place}: {shown}: {_NO_COLUMNS}")
    if names is not None:
        with readable(f"{place}: {shown}"):
            _check_texts(_that_are_read(texts, frame, part), source, names)
    return frame


def _that_are_read(texts: Sequence[Text], frame: "DataFrame", part: Part | None) -> Sequence[Text]:
    """Return those that can have rows of the chunk, where its column is in their paths: Spark reads no others."""
    column = None if part is None else part.column
    values = [*dict.fromkeys(it.in_path[column] for it in texts if column in it.in_path)] if column is not None else []
    if part is None or column is None or column not in frame.columns or not values:
        return texts
    kind = frame.schema[column].dataType.simpleString()
    rows = frame.sparkSession.createDataFrame([(raw, _unescaped(raw)) for raw in values], "raw STRING, value STRING")
    typed = rows.selectExpr("raw", f"try_cast(value AS {kind}) AS it")
    kept = {row["raw"] for row in typed.where(is_of(typed, "it", part.bounds)).collect()}
    return [it for it in texts if column not in it.in_path or it.in_path[column] in kept]


def _unescaped(value: str) -> str | None:
    return None if value == _NULL_IN_PATH else unquote(value)


def _here(spark: "SparkSession", project: OpenProject, source: Source, data_id: str, place: str) -> list[Path]:
    """What has this very name on this machine, else what its wildcards fit."""
    path = project.home / source.where.replace(DATA_ID, data_id)
    if path.exists():
        return [path]
    pattern = f"{LOCAL}{Path(literally(str(project.home)), source.where.replace(DATA_ID, literally(data_id)))}"
    found = (Path(it.path) for it in FileSystem(spark, pattern, place, {}).found(pattern))
    return [path for path in found if is_data(path.name)]


def _check_listed(paths: Mapping[str, Path]) -> None:
    for shown, path in paths.items():
        if ":" in path.name and path.is_file():
            raise StepFailed(f"{shown}: Spark reads no file with a colon in its name: rename it")
    check_listed(paths)


def _check_texts(texts: Sequence[Text], source: Source, names: Sequence[str] | None) -> None:
    """Look through what is on this machine. `names`: of the columns, where the source says them."""
    if not {"encoding", "charset"} & source.options.keys():
        own_quotes = source.format != "csv" or _QUOTING & source.options.keys()
        check_text(texts, None if own_quotes else '"')
    if source.format == "csv":
        check_names(texts, source.options, names)


@contextmanager
def _told(at: str) -> Iterator[None]:
    """Say what Spark refuses, and of what."""
    from opendataflow.spark.pipeline.errors.spark_errors import as_spark, sentence_of

    try:
        yield
    except Exception as error:
        known = as_spark(error)
        if known is None:
            raise
        none = known.getCondition() == "UNABLE_TO_INFER_SCHEMA"
        raise StepFailed(f"{at}: {_NO_COLUMNS}" if none else sentence_of(known, at).sentence) from error


def _check_there(found: Sequence[Found], source: Source, shown: str, place: str) -> None:
    if not found:
        raise StepFailed(f"{place}: there is no {shown}")
    if source.format == "csv" and all(it.is_file and it.size == 0 for it in found):
        raise StepFailed(f"{shown}: the file is empty; its first line names the columns")


def _options(source: Source) -> dict[str, str]:
    if source.format == "csv":
        return CSV | ({"inferSchema": "true"} if source.columns is None else _CSV_WITH_SCHEMA) | source.options
    return (_JSON if source.format == "json" else {}) | source.options


def _of_chunk(frame: "DataFrame", source: Source, part: Part | None, data_id: str, place: str) -> "DataFrame":
    if source.predicate is not None:
        text = data_id.replace("\\", "\\\\").replace("'", "\\'")
        with _told(f"{place}: the predicate can't be asked for"):
            return frame.where(source.predicate.replace(DATA_ID, f"'{text}'"))
    if part is None or part.column is None:
        return frame
    if part.column not in frame.columns:
        raise StepFailed(
            f"{place}: {source.name} has no column {part.column}; it has {', '.join(frame.columns)}; "
            "write another partitioning.column"
        )
    return frame.where(is_of(frame, part.column, part.bounds))


def is_of(frame: "DataFrame", column: str, bounds: Mapping[str, Any]) -> "Column":
    """Return what is true of the rows of a chunk, as `core.chunk_predicates.predicate_of` says it in SQL."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

    from opendataflow.spark.pipeline.measure.checks import column_of

    it, kind = column_of(column), frame.schema[column].dataType
    wanted = {"date": "date", "time": "timestamp"}.get(str(bounds.get("kind")), kind)

    def literal(value: str | int) -> "Column":
        return F.lit(value) if isinstance(value, int) else F.lit(value).cast(wanted)

    parts: list[Column] = []
    if bounds.get("rest"):
        outside = (
            (it < literal(bounds["from"])) | (it >= literal(bounds["to"]))
            if "from" in bounds
            else ~it.isin(*(literal(value) for value in bounds["values"]))
        )
        parts.append(outside)
    else:
        tests = {"from": it.__ge__, "to": it.__lt__, "value": it.__eq__}
        parts += [test(literal(bounds[name])) for name, test in tests.items() if name in bounds]
    if "bucket" in bounds:
        digits = F.substring(F.md5(it.cast("string").cast("binary")), 1, 15)
        bucket = F.pmod(F.conv(digits, 16, 10).cast("bigint"), F.lit(int(bounds["buckets"])))
        parts.append(bucket == F.lit(int(bounds["bucket"])))
    inside = reduce(and_, parts) if parts else F.lit(False)
    return inside | it.isNull() if bounds.get("nulls") else inside
