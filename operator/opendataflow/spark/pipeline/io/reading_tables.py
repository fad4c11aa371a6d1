"""Reads a table with Spark by JDBC, restricted to the chunk in the database, with several connections where that is
wanted."""

from typing import TYPE_CHECKING

from opendataflow.core.chunks.chunk_parts import Part
from opendataflow.core.chunks.dialects import BigQuery, Dialect
from opendataflow.model.projects.project import Source
from opendataflow.spark.pipeline.storage import bigquery
from opendataflow.spark.pipeline.storage.databases import Login, login

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(spark: "SparkSession", source: Source, part: Part | None, data_id: str, place: str) -> "DataFrame":
    """Return the rows of the chunk: of the `part`, or those that the source's own predicate says. Raises StepFailed
    where the database does not give them, InvalidInput where it can't say which they are."""
    assert source.database is not None
    given = login(source.database, place)
    if isinstance(given.dialect, BigQuery):
        return bigquery.read_table(spark, given, source, part, data_id, place)
    chosen = _chosen(given.dialect, source, part, data_id)
    options = {**given.for_spark(given.dialect.read_options), **source.options, "dbtable": chosen}
    if source.connections > 1:
        options |= _division(spark, given, source, part, chosen, place)
    return _loaded(spark, options, source, place)


def _chosen(dialect: Dialect, source: Source, part: Part | None, data_id: str) -> str:
    """Return the table or query, restricted to the chunk."""
    rows = source.table or source.subquery
    if source.predicate is not None:
        return dialect.chosen(rows, dialect.with_data_id(source.predicate, data_id))
    if part is None:
        return rows if source.table else dialect.chosen(rows, None)
    if part.predicate is not None:
        return dialect.chosen(rows, part.predicate)
    assert part.column is not None  # it has a predicate otherwise
    return dialect.chosen(rows, dialect.condition(part.column, part.bounds))


def _division(
    spark: "SparkSession", given: Login, source: Source, part: Part | None, chosen: str, place: str
) -> dict[str, str]:
    """Return how Spark divides the chunk among its connections; nothing where there is nothing to divide."""
    column = source.split_column
    assert column is not None
    bounds = part.bounds if part is not None and part.column == column else {}
    if bounds.keys() <= {"column", "nulls", "predicate"} and bounds.get("nulls"):
        return {}
    if all(isinstance(bounds.get(end), int) for end in ("from", "to")):
        first, last = str(bounds["from"]), str(bounds["to"])
    else:
        name = given.dialect.name(column)
        ends = f"(SELECT min({name}) AS first, max({name}) AS last FROM {chosen}) ends"
        options = {**given.for_spark(given.dialect.read_options), "dbtable": ends}
        found = _ends(_loaded(spark, options, source, place))
        if found is None:
            return {}
        first, last = found
    return {
        "partitionColumn": column,
        "lowerBound": first,
        "upperBound": last,
        "numPartitions": str(source.connections),
    }


def _ends(frame: "DataFrame") -> tuple[str, str] | None:
    """Return the lowest and the highest value as Spark takes them; None where there are none. Of fractions and what is
    beyond it takes whole numbers: the first and the last part are open anyway."""
    fractions = dict(frame.dtypes)["first"].startswith(("decimal", "float", "double"))
    whole = "string(try_cast({} AS bigint))" if fractions else "string({})"
    row = frame.selectExpr(whole.format("first"), whole.format("last")).first()
    return None if row is None or None in tuple(row) else (row[0], row[1])


def _loaded(spark: "SparkSession", options: dict[str, str], source: Source, place: str) -> "DataFrame":
    from opendataflow.spark.pipeline.errors.spark_errors import told_by_database

    if source.columns is not None:
        options = {**options, "customSchema": source.columns}
    with told_by_database(place):
        return spark.read.format("jdbc").options(**options).load()
