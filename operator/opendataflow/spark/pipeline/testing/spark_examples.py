"""Examples of unit tests as frames of Spark. Types are inferred from all rows, or given by a schema."""

import copy
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from opendataflow.core.pipelines.pipeline_steps import check_columns
from opendataflow.core.pipelines.row_difference import Row
from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.errors.spark_errors import report_step_error
from opendataflow.spark.pipeline.execute import spark_frames
from opendataflow.spark.pipeline.execute.loading import LoadedStep
from opendataflow.spark.pipeline.execute.running import Item
from opendataflow.spark.pipeline.project.project_folder import OpenProject
from opendataflow.spark.pipeline.testing.example_rows import check_rows


class SparkExamples:
    """The examples of one transformation that uses Spark. Implements `unit_tests.Examples`."""

    def __init__(self, step: LoadedStep, spark: SparkSession) -> None:
        self._step, self._spark = step, spark
        self.ordered = bool(getattr(step.module, "ordered", False))

    def run(self, frames: Sequence[Any], items: Sequence[Item | None]) -> tuple[list[Row], list[str]]:
        """Run the transformation once per item. Return the rows and columns of the result."""
        schemas = list(getattr(self._step.module, "input_schemas", ()))
        schemas += [None] * (len(frames) - len(schemas))
        given = [
            frame_from_rows(self._spark, self.rows(rows), schema, self._step.location)
            for rows, schema in zip(frames, schemas, strict=False)
        ]
        for item in items:
            given[0] = spark_frames.call_run(self._step, given, item)
        check_columns(given[0].columns, self._step.location)
        return rows_from_frame(given[0]), given[0].columns

    def rows(self, expected: Any) -> list[Row]:
        """Return the expected rows, from a list or a frame of pandas."""
        if hasattr(expected, "to_dict"):
            from opendataflow.spark.pipeline.execute import pandas_frames  # pandas is optional

            return pandas_frames.rows_from_frame(expected)
        check_rows(self._step, expected)
        return [{name: as_returned(value) for name, value in row.items()} for row in expected]

    def explain(self, error: BaseException, project: OpenProject) -> str:
        """Return the report of an error in run(), or in Spark's execution of its result."""
        return str(report_step_error(error, project, self._step.location))


def frame_from_rows(spark: SparkSession, rows: Sequence[Row], schema: str | None, at: str) -> DataFrame:
    """Return a frame with the rows. A column without values becomes text. `at`: file and line.

    Raises StepFailed if neither the rows nor a schema give types.
    """
    given: list[Any] = copy.deepcopy([dict(row) for row in rows])
    if schema is not None:
        return spark.createDataFrame(given, schema)
    columns = dict.fromkeys(column for row in given for column in row)
    known = [column for column in columns if any(row.get(column) is not None for row in given)]
    if not known:
        raise StepFailed(
            f"{at}: a frame of expected_inputs has no values that show its types; write input_schemas, a list with "
            "Spark's DDL for each frame, such as `day DATE, flights INT`"
        )
    frame = spark.createDataFrame([{column: row.get(column) for column in known} for row in given])
    null = F.lit(None).cast("string")
    return frame.select([F.col(f"`{name}`") if name in known else null.alias(name) for name in columns])


def rows_from_frame(frame: DataFrame) -> list[Row]:
    """Return the rows of a frame, with structs as dicts."""
    return [row.asDict(recursive=True) for row in frame.collect()]


def as_returned(value: Any) -> Any:
    """Return a value as Spark would return it: a time with a zone becomes the same moment in UTC without a zone."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, dict):
        return {key: as_returned(item) for key, item in value.items()}
    return [as_returned(item) for item in value] if isinstance(value, list) else value
