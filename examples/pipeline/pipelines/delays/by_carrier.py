"""Counts flights and late flights of each carrier."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

expected_inputs = [
    [
        {"carrier": "AA", "delay": 12},
        {"carrier": "AA", "delay": 15},
        {"carrier": "UA", "delay": -3},
    ]
]
expected_output = [
    {"carrier": "AA", "flights": 2, "late": 1, "mean_delay": 13.5},
    {"carrier": "UA", "flights": 1, "late": 0, "mean_delay": -3.0},
]


def run(df: DataFrame) -> DataFrame:
    return df.groupBy("carrier").agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("delay") >= 15).alias("late"),
        F.mean("delay").alias("mean_delay"),
    )
