"""Read the rows of a chunk from a source. Spark gets the chunk's condition, so it can skip other data."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StructType

from opendataflow.core.chunks.chunk_parts import FILES, Chunk, Part, check_elsewhere, part_of_source
from opendataflow.core.databases.dialect import check_placeholders
from opendataflow.errors import InvalidInput, StepFailed
from opendataflow.model.projects.project import DATA_ID, Source
from opendataflow.spark.pipeline.errors.spark_errors import report_spark_error, to_spark_error
from opendataflow.spark.pipeline.io.exact_values import EXACT_TIMES, convert_texts, schema_of_texts
from opendataflow.spark.pipeline.io.file_checks import (
    SourceFile,
    check_encoding,
    check_file_names,
    check_headers,
    explain_read_errors,
    find_line_end,
    list_files,
)
from opendataflow.spark.pipeline.io.json_keys import check_json_keys
from opendataflow.spark.pipeline.io.reading_tables import read_table
from opendataflow.spark.pipeline.io.row_checks import COLUMN_FORMATS, check_columns, check_json_values
from opendataflow.spark.pipeline.measure.checks import column_named
from opendataflow.spark.pipeline.project.project_folder import OpenProject
from opendataflow.spark.pipeline.storage.file_system import FileSystem, FoundPath
from opendataflow.spark.pipeline.storage.spark_paths import LOCAL_SCHEME, escape_wildcards, is_data_file

_TEXT_FORMATS = ("csv", "json", "text")

CSV = {
    "header": "true",
    "multiLine": "true",
    "escape": '"',
    "mode": "FAILFAST",
    "nullValue": f"NULL-{uuid4()}",
    **EXACT_TIMES,
}
"""Options of the CSV standard: quoted line breaks, doubled quotes. A row that does not fit raises an error.

An empty cell is NULL, and "" is an empty text: Spark gives an empty cell the text of `nullValue`, and reads it as NULL.
"""

_CSV_WITH_SCHEMA = {"enforceSchema": "false", "columnPruning": "false"}
"""Makes Spark check the names of columns and the number of cells of each row."""

_QUOTING = {"quote", "escape", "multiLine"}

_JSON = {"mode": "FAILFAST", **EXACT_TIMES}

_NULL_IN_PATH = "__HIVE_DEFAULT_PARTITION__"
_NO_COLUMNS = "there is nothing in it to infer its columns from: name them in schema"


def read_source(spark: SparkSession, project: OpenProject, source: Source, chunk: Chunk, place: str) -> DataFrame:
    """Return the rows of the chunk. `place`: of the source in the project's file.

    Raises StepFailed if the source is missing, is not UTF-8 text, or lacks the column of the chunk.
    """
    try:
        part = part_of_source(source, chunk)
        if source.database is not None:
            return read_table(spark, source, part, chunk.data_id, place)
        if part is not None:
            check_elsewhere(part, chunk.data_id, FILES)
        frame = _read_files(spark, project, source, part, chunk.data_id, place)
        return _filter_chunk(frame, source, part, chunk.data_id, place)
    except InvalidInput as error:
        raise StepFailed(f"{place}: {error}") from None


def _read_files(
    spark: SparkSession, project: OpenProject, source: Source, part: Part | None, data_id: str, place: str
) -> DataFrame:
    shown = project.display_location(source.where.replace(DATA_ID, data_id))
    reader, given, files = spark.read.format(source.format).options(**_options(source)), None, list[SourceFile]()
    if source.columns is not None:
        with _explain_spark_errors(f"{place}: the schema is not Spark's DDL, such as day DATE, flights INT"):
            reader, declared = reader.schema(source.columns), StructType.fromDDL(source.columns)
        if isinstance(declared, StructType):
            given = declared
    if "://" in source.where:
        paths = [source.where.replace(DATA_ID, escape_wildcards(data_id))]
        matches = FileSystem(spark, paths[0], place, source.options).list_matches(paths[0])
        _check_present(matches, source, shown, place)
    else:
        with explain_read_errors(f"{place}: {shown}"):
            local = {
                project.display_path(path): path for path in find_local(spark, project, source.where, data_id, place)
            }
            found = [FoundPath(str(it), it.stat().st_size, it.is_file()) for it in local.values()]
            _check_present(found, source, shown, place)
            _check_file_names(local)
            files = list(list_files(local)) if source.format in (*_TEXT_FORMATS, *COLUMN_FORMATS) else []
            if given is None:  # Spark reads all files, to infer their columns
                _check_files(files, source, given)
            if source.format == "csv" and (end := find_line_end(files, source.options)) is not None:
                reader = reader.option("lineSep", end)
        paths = [f"{LOCAL_SCHEME}{escape_wildcards(str(path))}" for path in local.values()]
    with _explain_spark_errors(f"{place}: {shown}"):
        frame = _load(reader, paths, given, source)
    if not frame.columns:
        raise StepFailed(f"{place}: {shown}: {_NO_COLUMNS}")
    if given is not None:
        with explain_read_errors(f"{place}: {shown}"):
            _check_files(_select_read(files, frame, part), source, given)
    return frame


def _load(reader: DataFrameReader, paths: list[str], given: StructType | None, source: Source) -> DataFrame:
    """Return the frame of the files. `given`: the source's schema, or None if Spark infers it."""
    schema = reader.load(paths).schema if given is None else given
    texts = schema_of_texts(schema, source)
    if given is None and texts == schema:
        return reader.load(paths)
    return convert_texts(reader.schema(texts).load(paths), schema, source)


def _select_read(files: Sequence[SourceFile], frame: DataFrame, part: Part | None) -> Sequence[SourceFile]:
    """Return the files that Spark will read for the chunk. Spark skips files by column values in their paths."""
    column = None if part is None else part.column
    values = [*dict.fromkeys(it.in_path[column] for it in files if column in it.in_path)] if column is not None else []
    if part is None or column is None or column not in frame.columns or not values:
        return files
    kind = frame.schema[column].dataType.simpleString()
    rows = frame.sparkSession.createDataFrame([(raw, _unescaped(raw)) for raw in values], "raw STRING, value STRING")
    typed = rows.selectExpr("raw", f"try_cast(value AS {kind}) AS it")
    kept = {row["raw"] for row in typed.where(chunk_filter(typed, "it", part.bounds)).collect()}
    return [it for it in files if column not in it.in_path or it.in_path[column] in kept]


def _unescaped(value: str) -> str | None:
    return None if value == _NULL_IN_PATH else unquote(value)


def find_local(spark: SparkSession, project: OpenProject, where: str, data_id: str, place: str) -> list[Path]:
    """Return the file or folder with exactly this name on this machine, else the matches of its wildcards.

    `where`: the path of a source in the project's file.
    """
    path = project.home / where.replace(DATA_ID, data_id)
    if path.exists():
        return [path]
    escaped = where.replace(DATA_ID, escape_wildcards(data_id))
    pattern = f"{LOCAL_SCHEME}{Path(escape_wildcards(str(project.home)), escaped)}"
    matches = (Path(it.path) for it in FileSystem(spark, pattern, place, {}).list_matches(pattern))
    return [path for path in matches if is_data_file(path.name)]


def _check_file_names(paths: Mapping[str, Path]) -> None:
    for shown, path in paths.items():
        if ":" in path.name and path.is_file():
            raise StepFailed(f"{shown}: Spark reads no file with a colon in its name: rename it")
    check_file_names(paths)


def _check_files(files: Sequence[SourceFile], source: Source, schema: StructType | None) -> None:
    """Check local files. `schema`: of the source, or None."""
    names = None if schema is None else schema.names
    if source.format in COLUMN_FORMATS:
        check_columns(files, source.format, source.options, names)
        return
    if not {"encoding", "charset"} & source.options.keys():
        own_quotes = source.format != "csv" or _QUOTING & source.options.keys()
        check_encoding(files, None if own_quotes else '"')
    if source.format == "csv":
        check_headers(files, source.options, names)
    if source.format == "json":
        check_json_values(files, source.options)
        if schema is not None:
            check_json_keys(files, source.options, schema)


@contextmanager
def _explain_spark_errors(at: str) -> Iterator[None]:
    """Translate errors of Spark to StepFailed. `at`: the place and the subject of the error."""
    try:
        yield
    except Exception as error:
        known = to_spark_error(error)
        if known is None:
            raise
        is_empty = known.getCondition() == "UNABLE_TO_INFER_SCHEMA"
        raise StepFailed(f"{at}: {_NO_COLUMNS}" if is_empty else report_spark_error(known, at).sentence) from error


def _check_present(found: Sequence[FoundPath], source: Source, shown: str, place: str) -> None:
    if not found:
        raise StepFailed(f"{place}: there is no {shown}")
    if source.format == "csv" and all(it.is_file and it.size == 0 for it in found):
        raise StepFailed(f"{shown}: the file is empty; its first line names the columns")


def _options(source: Source) -> dict[str, str]:
    if source.format == "csv":
        return CSV | ({"inferSchema": "true"} if source.columns is None else _CSV_WITH_SCHEMA) | source.options
    return (_JSON if source.format == "json" else {}) | source.options


def _filter_chunk(frame: DataFrame, source: Source, part: Part | None, data_id: str, place: str) -> DataFrame:
    if source.predicate is not None:
        check_placeholders(source.predicate)
        text = data_id.replace("\\", "\\\\").replace("'", "\\'")
        with _explain_spark_errors(f"{place}: the predicate can't be asked for"):
            return frame.where(source.predicate.replace(DATA_ID, f"'{text}'"))
    if part is None or part.column is None:
        return frame
    if part.column not in frame.columns:
        raise StepFailed(
            f"{place}: {source.name} has no column {part.column}; it has {', '.join(frame.columns)}; "
            "write another partitioning.column"
        )
    return frame.where(chunk_filter(frame, part.column, part.bounds))


def chunk_filter(frame: DataFrame, column: str, bounds: Mapping[str, Any]) -> Column:
    """Return the condition for the rows of a chunk. It equals the SQL of `core.chunks.chunk_predicates`."""
    it, kind = column_named(column), frame.schema[column].dataType
    wanted = {"date": "date", "time": "timestamp"}.get(str(bounds.get("kind")), kind)

    def literal(value: str | int) -> Column:
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
