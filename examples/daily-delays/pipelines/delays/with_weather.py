"""Adds the wind speed at the hour and place of departure.

An hour that occurs twice, because clocks were set back, counts as one hour.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

HOUR = ["origin", "year", "month", "day", "hour"]

_hour = {"origin": "EWR", "year": 2013, "month": 11, "day": 3}
expected_inputs = [
    [{**_hour, "hour": 1, "flight": 1}, {**_hour, "hour": 5, "flight": 2}],
    [{**_hour, "hour": 1, "wind_speed": 10.0}, {**_hour, "hour": 1, "wind_speed": 14.0}],
]
expected_output = [
    {**_hour, "hour": 1, "flight": 1, "wind_speed": 12.0},
    {**_hour, "hour": 5, "flight": 2, "wind_speed": None},
]


def run(df: DataFrame, weather: DataFrame) -> DataFrame:
    hours = weather.groupBy(*HOUR).agg(F.mean("wind_speed").alias("wind_speed"))
    return df.join(F.broadcast(hours), HOUR, "left")
