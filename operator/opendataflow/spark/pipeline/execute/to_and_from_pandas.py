"""Frames of Spark as those of pandas, for pandas transformations, and what these return as frames of Spark.

What one of the two can't have as the other has it is refused with its column.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import DataType, LongType, NullType, StringType, TimestampNTZType, TimestampType

from opendataflow.core.pipelines.pipeline_steps import check_columns
from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.errors.error_report import said

_UNFIT = (pyarrow.ArrowException, OverflowError, TypeError, ValueError)

_EXACT = 2**53
"""From here on floating numbers leave whole ones out."""


def to_pandas(frame: DataFrame, at: str) -> Any:
    """Return all rows as a frame of pandas. StepFailed where whole numbers would be others: beside NULLs, pandas has
    floating ones."""
    made: Any = frame.toPandas()
    for number, field in enumerate(frame.schema):
        column = made.iloc[:, number]
        if isinstance(field.dataType, LongType) and column.dtype.kind == "f" and (column.abs() >= _EXACT).any():
            raise StepFailed(
                f"{at}: {field.name} has NULLs and numbers of more than 15 digits, which pandas would round: cast it "
                "to a string or decimal, or fill the NULLs, in a transformation of Spark before"
            )
    return made


def of_pandas(spark: SparkSession, made: Any, given: Sequence[DataFrame], at: str) -> DataFrame:
    """Return a frame of pandas as one of Spark, with a type for columns without any value, which pandas knows none of:
    that of the column of this name in the frames before, else text. So an empty chunk has the columns of the others.
    StepFailed where its index has a name, as after groupby(): Spark has none, and its values would be gone."""
    names = [str(name) for name in made.index.names if name is not None]
    if names:
        raise StepFailed(f"{at}: the result has {', '.join(names)} as its index, which Spark lacks; add .reset_index()")
    check_columns([str(name) for name in made.columns], at)
    if len(made) > 0:
        frame = _converted(spark, made, at)
    else:
        frame = spark.createDataFrame(pyarrow.Table.from_pandas(made, preserve_index=False))
    known = {field.name: field.dataType for before in reversed(given) for field in before.schema}
    typed: dict[str, DataType] = {}
    for field in frame.schema:
        if isinstance(field.dataType, NullType):
            typed[field.name] = known.get(field.name, StringType())
        elif isinstance(field.dataType, TimestampNTZType):
            typed[field.name] = TimestampType()  # as where there are rows
    return frame.withColumns({name: F.col(f"`{name}`").cast(kind) for name, kind in typed.items()})


def _converted(spark: SparkSession, made: Any, at: str) -> DataFrame:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # it says at length what the error says
            return spark.createDataFrame(made)
    except _UNFIT as error:
        name = next((name for name in made.columns if _is_unfit(made[name])), None)
        of = "a column" if name is None else f"the column {name}"
        raise StepFailed(f"{at}: {of} of the result has no type of Spark: {said(error)}") from error


def _is_unfit(column: Any) -> bool:
    try:
        pyarrow.Array.from_pandas(column)
    except _UNFIT:
        return True
    return False
