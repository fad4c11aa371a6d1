"""Rows of unit tests as frames of Spark, and back. Types are inferred from all rows, or said by a schema."""

import copy
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from opendataflow.core.pipelines.row_difference import Row
from opendataflow.errors import StepFailed


def frame_of(spark: SparkSession, rows: Sequence[Row], schema: str | None, at: str) -> DataFrame:
    """Return a frame; a column without any value is text. `at`: file and line.

    Raises StepFailed where nothing tells the types.
    """
    given: list[Any] = copy.deepcopy([dict(row) for row in rows])
    if schema is not None:
        return spark.createDataFrame(given, schema)
    columns = dict.fromkeys(column for row in given for column in row)
    known = [column for column in columns if any(row.get(column) is not None for row in given)]
    if not known:
        raise StepFailed(
            f"{at}: a frame of expected_inputs has no values that tell its types; write input_schemas, a list with "
            "Spark's DDL for each frame, such as `day DATE, flights INT`"
        )
    frame = spark.createDataFrame([{column: row.get(column) for column in known} for row in given])
    nothing = F.lit(None).cast("string")
    return frame.select([F.col(f"`{name}`") if name in known else nothing.alias(name) for name in columns])


def rows_of(frame: DataFrame) -> list[Row]:
    """Return the rows of a frame, with structs as dicts."""
    return [row.asDict(recursive=True) for row in frame.collect()]


def as_given(value: Any) -> Any:
    """Return a value as Spark gives it back: a time with a zone is the same moment without any, in UTC."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, dict):
        return {key: as_given(item) for key, item in value.items()}
    return [as_given(item) for item in value] if isinstance(value, list) else value
