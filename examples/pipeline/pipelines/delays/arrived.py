"""Keeps the flights that have arrived. Its unit test is beside it: `dataflow pipeline test`."""

from pyspark.sql import DataFrame

expected_inputs = [
    [
        {"carrier": "AA", "flight": 1, "delay": 12},
        {"carrier": "AA", "flight": 2, "delay": None},
    ]
]
expected_output = [{"carrier": "AA", "flight": 1, "delay": 12}]


def run(df: DataFrame) -> DataFrame:
    return df.where("delay IS NOT NULL")
