"""Read the rows of a chunk from a table by JDBC. The database filters the rows. Several connections are optional."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DecimalType, StringType, StructField, StructType

from opendataflow.core.chunks.chunk_parts import Part
from opendataflow.core.databases.bigquery import BigQuery
from opendataflow.core.databases.dialect import Dialect
from opendataflow.model.projects.project import Source
from opendataflow.spark.pipeline.errors.spark_errors import explain_database_errors
from opendataflow.spark.pipeline.io.exact_values import convert_columns
from opendataflow.spark.pipeline.storage import bigquery
from opendataflow.spark.pipeline.storage.database_login import Login, resolve_login

_LONGEST_DECIMAL = 38
"""Digits. Columns with more digits, or any number of them, get this type too, and Spark rounds their values."""


def read_table(spark: SparkSession, source: Source, part: Part | None, data_id: str, place: str) -> DataFrame:
    """Return the rows of the chunk, by its `part` or by the source's own predicate.

    Raises StepFailed if the database refuses the query, InvalidInput if the dialect can't express the chunk's bounds.
    """
    assert source.database is not None
    login = resolve_login(source.database, place)
    if isinstance(login.dialect, BigQuery):
        return bigquery.read_table(spark, login, source, part, data_id, place)
    rows = _select_chunk(login.dialect, source, part, data_id)
    options = {**login.spark_options(login.dialect.read_options), **source.options, "dbtable": rows}
    if source.connections > 1:
        options |= _partition_options(spark, login, source, part, rows, place)
    return _read_exactly(spark, options, source, place)


def check_table(spark: SparkSession, login: Login, source: Source, place: str) -> None:
    """Ask the database for the columns of a source's table, as Spark does before it reads.

    Raises StepFailed if the database does not answer or has no such table.
    """
    options = {**login.spark_options(login.dialect.read_options), **source.options, "dbtable": str(source.table)}
    with explain_database_errors(place):
        spark.read.format("jdbc").options(**options).load()


def _select_chunk(dialect: Dialect, source: Source, part: Part | None, data_id: str) -> str:
    """Return the table or query, restricted to the chunk."""
    rows = source.table or source.subquery
    if source.predicate is not None:
        return dialect.select_rows(rows, dialect.fill_data_id(source.predicate, data_id))
    if part is None:
        return rows if source.table else dialect.select_rows(rows, None)
    if part.predicate is not None:
        return dialect.select_rows(rows, part.predicate)
    assert part.column is not None  # without a column, a part has a predicate
    return dialect.select_rows(rows, dialect.condition(part.column, part.bounds))


def _partition_options(
    spark: SparkSession, login: Login, source: Source, part: Part | None, rows: str, place: str
) -> dict[str, str]:
    """Return Spark's options that divide the chunk among connections, or {} if there is nothing to divide."""
    column = source.split_column
    assert column is not None
    bounds = part.bounds if part is not None and part.column == column else {}
    if bounds.keys() <= {"column", "nulls", "predicate"} and bounds.get("nulls"):
        return {}
    if all(isinstance(bounds.get(end), int) for end in ("from", "to")):
        first, last = str(bounds["from"]), str(bounds["to"])
    else:
        name = login.dialect.name(column)
        ends = f"(SELECT min({name}) AS first, max({name}) AS last FROM {rows}) ends"
        options = {**login.spark_options(login.dialect.read_options), "dbtable": ends}
        found = _read_ends(_load(spark, options, source.columns, place))
        if found is None:
            return {}
        first, last = found
    return {
        "partitionColumn": column,
        "lowerBound": first,
        "upperBound": last,
        "numPartitions": str(source.connections),
    }


def _read_ends(frame: DataFrame) -> tuple[str, str] | None:
    """Return the lowest and the highest value for Spark's options, or None without rows.

    Spark accepts integers only, so fractions are truncated. The first and the last part are unbounded anyway.
    """
    fractions = dict(frame.dtypes)["first"].startswith(("decimal", "float", "double"))
    whole = "string(try_cast({} AS bigint))" if fractions else "string({})"
    row = frame.selectExpr(whole.format("first"), whole.format("last")).first()
    return None if row is None or None in tuple(row) else (row[0], row[1])


def _read_exactly(spark: SparkSession, options: dict[str, str], source: Source, place: str) -> DataFrame:
    """Read the rows. Numbers that Spark may round are read as texts and converted; times of a day stay texts."""
    frame = _load(spark, options, source.columns, place)
    given = {it.name.lower(): it for it in _parse(source.columns)}
    times = [it.name for it in frame.schema if it.metadata.get("logical_time_type") and it.name.lower() not in given]
    decimals = {
        it.name: it.dataType
        for it in frame.schema
        if isinstance(it.dataType, DecimalType)
        and (it.dataType.precision == _LONGEST_DECIMAL or it.name.lower() in given)
        and it.name != source.split_column
    }
    if not times and not decimals:
        return frame
    texts = [StructField(name, StringType()) for name in (*times, *decimals)]
    others = [it for name, it in given.items() if name not in {text.name.lower() for text in texts}]
    return convert_columns(_load(spark, options, StructType([*texts, *others]).toDDL(), place), decimals)


def _parse(columns: str | None) -> StructType:
    """Return the columns that a project names, in Spark's DDL."""
    given = StructType.fromDDL(columns) if columns else StructType()
    return given if isinstance(given, StructType) else StructType()


def _load(spark: SparkSession, options: dict[str, str], columns: str | None, place: str) -> DataFrame:
    if columns is not None:
        options = {**options, "customSchema": columns}
    with explain_database_errors(place):
        return spark.read.format("jdbc").options(**options).load()
