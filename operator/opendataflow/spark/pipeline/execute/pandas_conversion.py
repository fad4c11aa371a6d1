"""Convert frames between Spark and pandas, for pandas transformations.

A value without an exact equivalent raises an error with the name of its column.
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
from opendataflow.spark.pipeline.errors.error_report import summarize_error

_CONVERSION_ERRORS = (pyarrow.ArrowException, OverflowError, TypeError, ValueError)

_EXACT = 2**53
"""From this integer on, floating-point numbers skip integers."""


def to_pandas(frame: DataFrame, at: str) -> Any:
    """Return all rows as a frame of pandas.

    Raises StepFailed if an integer would change: pandas stores integers beside NULLs as floating-point numbers.
    """
    converted: Any = frame.toPandas()
    for number, field in enumerate(frame.schema):
        column = converted.iloc[:, number]
        if isinstance(field.dataType, LongType) and column.dtype.kind == "f" and (column.abs() >= _EXACT).any():
            raise StepFailed(
                f"{at}: {field.name} has NULLs and numbers of more than 15 digits, which pandas would round: cast it "
                "to a string or decimal, or fill the NULLs, in a transformation of Spark before"
            )
    return converted


def from_pandas(spark: SparkSession, result: Any, given: Sequence[DataFrame], at: str) -> DataFrame:
    """Return a frame of pandas as a frame of Spark.

    A column without values takes the type of the same column in the `given` frames, else text. So the columns of empty
    chunks match those of other chunks. Raises StepFailed for a named index, as after groupby(): Spark would drop it.
    """
    names = [str(name) for name in result.index.names if name is not None]
    if names:
        raise StepFailed(f"{at}: the result has {', '.join(names)} as its index, which Spark lacks; add .reset_index()")
    check_columns([str(name) for name in result.columns], at)
    if len(result) > 0:
        frame = _convert(spark, result, at)
    else:
        frame = spark.createDataFrame(pyarrow.Table.from_pandas(result, preserve_index=False))
    known = {field.name: field.dataType for before in reversed(given) for field in before.schema}
    typed: dict[str, DataType] = {}
    for field in frame.schema:
        if isinstance(field.dataType, NullType):
            typed[field.name] = known.get(field.name, StringType())
        elif isinstance(field.dataType, TimestampNTZType):
            typed[field.name] = TimestampType()  # the type of the column in frames with rows
    return frame.withColumns({name: F.col(f"`{name}`").cast(kind) for name, kind in typed.items()})


def _convert(spark: SparkSession, result: Any, at: str) -> DataFrame:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # repeats the error
            return spark.createDataFrame(result)
    except _CONVERSION_ERRORS as error:
        name = next((name for name in result.columns if _is_inconvertible(result[name])), None)
        of = "a column" if name is None else f"the column {name}"
        raise StepFailed(f"{at}: {of} of the result has no type of Spark: {summarize_error(error)}") from error


def _is_inconvertible(column: Any) -> bool:
    try:
        pyarrow.Array.from_pandas(column)
    except _CONVERSION_ERRORS:
        return True
    return False
