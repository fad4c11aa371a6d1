"""Adds the share of flights that were late."""

from pyspark.sql import DataFrame

expected_inputs = [[{"carrier": "UA", "flights": 4, "late": 1}]]
expected_output = [{"carrier": "UA", "flights": 4, "late": 1, "late_share": 0.25}]


def run(df: DataFrame) -> DataFrame:
    return df.selectExpr("*", "late / flights AS late_share")
