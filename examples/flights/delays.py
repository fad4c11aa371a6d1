"""Job `delays`: computes delay statistics for each carrier and day from the flights of one month, as Parquet.

It is started once for each chunk, as `python delays.py`, with Spark's settings in SPARK_CONF_DIR and the chunk in
DATAFLOW_CONTEXT. A torn file or a bad row fails the chunk. The job never uses a part of a file.
"""

import csv
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from context import Chunk, ChunkError, run_chunk
from staging import staged

SCHEMA = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
    sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
    air_time INT, distance INT, hour INT, minute INT, time_hour STRING
"""
STATISTICS = """
    day DATE, carrier STRING, flights BIGINT, cancelled BIGINT, arrived BIGINT, late BIGINT,
    mean_dep_delay DOUBLE, max_dep_delay INT, mean_arr_delay DOUBLE, max_arr_delay INT
"""
TYPES = dict(column.split() for column in SCHEMA.split(","))
MISSING = "NA"
LATE_MINUTES = 15


def run(flights: DataFrame) -> DataFrame:
    """Return one row for each day and carrier, sorted by both, with the columns of STATISTICS.

    Delays are in minutes, negative if a flight was early. `cancelled`: flights that never departed.
    `arrived`: flights with a known arrival delay, the weight of `mean_arr_delay`. `late`: 15 minutes or more.
    """
    statistics = flights.groupBy(F.make_date("year", "month", "day").alias("day"), "carrier").agg(
        F.count("*").alias("flights"),
        F.count_if(F.col("dep_time").isNull()).alias("cancelled"),
        F.count("arr_delay").alias("arrived"),
        F.count_if(F.col("arr_delay") >= LATE_MINUTES).alias("late"),
        F.mean("dep_delay").alias("mean_dep_delay"),
        F.max("dep_delay").alias("max_dep_delay"),
        F.mean("arr_delay").alias("mean_arr_delay"),
        F.max("arr_delay").alias("max_arr_delay"),
    )
    return statistics.orderBy("day", "carrier")


def read(spark: SparkSession, source: Path) -> DataFrame:
    """Return the flights of a CSV file. A row that does not match the schema fails the action that reads it.

    Without `columnPruning=False` Spark would not notice a row with too few columns.
    """
    return (
        spark.read.format("csv")
        .schema(SCHEMA)
        .load(
            str(source),
            header=True,
            mode="FAILFAST",
            nullValue=MISSING,
            enforceSchema=False,
            columnPruning=False,
        )
    )


def cut_off(source: Path) -> bool:
    """Return whether the file ends in the middle of a line, because its writer has not finished.

    A file that ends exactly between two lines can't be distinguished from a complete one.
    """
    with source.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def first_bad_row(source: Path) -> str | None:
    """Return the error of the first invalid row, with its line number. Return None if all rows are valid."""
    with source.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        header = next(rows, [])
        if header != list(TYPES):
            return f"line 1: the columns are {','.join(header)}, expected {','.join(TYPES)}"
        for row in rows:
            problem = _problem(row)
            if problem is not None:
                return f"line {rows.line_num}: {problem}"
    return None


def _problem(row: list[str]) -> str | None:
    if len(row) != len(TYPES):
        return f"{len(row)} columns instead of {len(TYPES)}"
    for (column, kind), value in zip(TYPES.items(), row, strict=True):
        if kind == "INT" and value != MISSING and not value.removeprefix("-").isdecimal():
            return f"{column} is {value!r}, not a number"
    return None


def _root_cause(error: Exception) -> str:
    causes = [line for line in str(error).splitlines() if line.startswith("Caused by: ")]
    return causes[-1].removeprefix("Caused by: ") if causes else str(error).partition("\n")[0]


def process(chunk: Chunk) -> None:
    """Compute the month of this chunk and publish it as one partition. Raise ChunkError on failure."""
    source = chunk.folder("flights") / f"{chunk.data_id}.csv"
    what = f"flights {chunk.data_id}"
    if not source.is_file():
        raise ChunkError(f"{what}: no file {source}; run prepare.py to make it")
    if cut_off(source):
        raise ChunkError(f"{what}: torn file: {source} ends in the middle of a line")
    with (
        staged(chunk.partition("carrier_delays"), chunk.fence) as folder,
        SparkSession.builder.getOrCreate() as spark,
    ):
        try:
            run(read(spark, source)).write.mode("append").parquet(str(folder))
        except Exception as error:  # Spark wraps errors of its JVM into several unrelated classes
            bad = first_bad_row(source)
            if bad is None:
                raise ChunkError(f"{what}: Spark can't compute it: {_root_cause(error)}") from error
            raise ChunkError(f"{what}: bad row: {source}, {bad}; repair it and resubmit the chunk") from error


if __name__ == "__main__":
    sys.exit(run_chunk(process))
