"""One row for each airport and carrier. `late`: 15 minutes or more; `distance`: miles of all flights."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

LATE_MINUTES = 15

_flight = {"origin": "EWR", "carrier": "UA", "distance": 100, "wind_speed": 10.0, "seats": 50}
expected_inputs = [
    [
        {**_flight, "dep_time": 517, "arr_delay": 15},
        {**_flight, "dep_time": 520, "arr_delay": -4, "seats": None},
        {**_flight, "dep_time": None, "arr_delay": None, "wind_speed": None},
    ]
]
expected_output = [
    {
        "origin": "EWR",
        "carrier": "UA",
        "flights": 3,
        "cancelled": 1,
        "late": 1,
        "mean_delay": 5.5,
        "distance": 300,
        "wind_speed": 10.0,
        "seats": 100,
    }
]


def run(df: DataFrame) -> DataFrame:
    return df.groupBy("origin", "carrier").agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("dep_time").isNull()).alias("cancelled"),
        F.count_if(F.col("arr_delay") >= LATE_MINUTES).alias("late"),
        F.mean("arr_delay").alias("mean_delay"),
        F.sum("distance").alias("distance"),
        F.mean("wind_speed").alias("wind_speed"),
        F.sum("seats").alias("seats"),
    )
