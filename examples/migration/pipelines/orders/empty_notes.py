"""Replaces empty notes by NULL."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

expected_inputs = [[{"id": 1, "note": ""}, {"id": 2, "note": "by mail"}, {"id": 3, "note": None}]]
expected_output = [{"id": 1, "note": None}, {"id": 2, "note": "by mail"}, {"id": 3, "note": None}]


def run(df: DataFrame) -> DataFrame:
    """Return all rows."""
    return df.withColumn("note", F.nullif("note", F.lit("")))
