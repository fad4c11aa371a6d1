"""Adds the number of seats of the plane, if it is known."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

expected_inputs = [
    [{"flight": 1, "tailnum": "N1"}, {"flight": 2, "tailnum": "N2"}, {"flight": 3, "tailnum": None}],
    [{"hour": 1}],
    [{"tailnum": "N1", "year": 1999, "seats": 182}],
]
expected_output = [
    {"flight": 1, "tailnum": "N1", "seats": 182},
    {"flight": 2, "tailnum": "N2", "seats": None},
    {"flight": 3, "tailnum": None, "seats": None},
]


def run(df: DataFrame, _weather: DataFrame, planes: DataFrame) -> DataFrame:
    return df.join(F.broadcast(planes.select("tailnum", "seats")), "tailnum", "left")
