"""Job `report`: writes a report and a CSV file from the delay statistics of one month.

It is started once for each chunk of `carrier_delays`, as `python report.py --airlines FILE`. It writes `report.md` and
`carriers.csv` into the month's folder, and never reads the flights themselves.
"""

import argparse
import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from context import Chunk, ChunkError, run_chunk
from delays import STATISTICS
from staging import staged

WORST_DAYS = 5
Row = Mapping[str, object]


def carriers(delays: DataFrame, airlines: DataFrame) -> DataFrame:
    """Return one row for each carrier with its name, the latest one first. Delays are in minutes."""
    totals = delays.groupBy("carrier").agg(*_totals(), F.max("max_arr_delay").alias("max_arr_delay"))
    named = totals.join(F.broadcast(airlines), "carrier", "left")
    columns = ("carrier", "name", "flights", "cancelled", "late_percent", "mean_arr_delay", "max_arr_delay")
    named = named.withColumn("name", F.coalesce("name", "carrier"))
    return named.select(*columns).orderBy(F.desc_nulls_last("mean_arr_delay"), "carrier")


def worst_days(delays: DataFrame, limit: int = WORST_DAYS) -> DataFrame:
    """Return the `limit` days with the highest mean arrival delay, in minutes, over all carriers."""
    return delays.groupBy("day").agg(*_totals()).orderBy(F.desc_nulls_last("mean_arr_delay"), "day").limit(limit)


def _totals() -> list[Column]:
    """Return the totals of a group. Means are weighted by the number of arrivals."""
    arrived = F.sum("arrived")
    minutes = F.sum(F.col("mean_arr_delay") * F.col("arrived"))
    return [
        F.sum("flights").alias("flights"),
        F.sum("cancelled").alias("cancelled"),
        F.round(F.try_divide(100 * F.sum("late"), arrived), 1).alias("late_percent"),
        F.round(F.try_divide(minutes, arrived), 1).alias("mean_arr_delay"),
    ]


def page(month: str, by_carrier: Sequence[Row], by_day: Sequence[Row]) -> str:
    """Return the month's report as Markdown."""
    parts = [
        f"# Delays of flights from New York, {month}",
        f"## The {len(by_day)} worst days",
        _table(by_day, ("day", "flights", "cancelled", "late_percent", "mean_arr_delay")),
        "## Carriers, the latest first",
        _table(by_carrier, ("name", "flights", "cancelled", "late_percent", "mean_arr_delay", "max_arr_delay")),
        "Delays at arrival in minutes; late: the share of arrivals with 15 minutes or more, in percent.",
    ]
    return "\n\n".join(parts) + "\n"


def _table(rows: Iterable[Row], columns: Sequence[str]) -> str:
    cells = [[str("-" if row[column] is None else row[column]) for column in columns] for row in rows]
    lines = [columns, ["---"] * len(columns), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write(folder: Path, month: str, by_carrier: Sequence[Row], by_day: Sequence[Row]) -> None:
    """Write both files of a month into `folder`."""
    (folder / "report.md").write_text(page(month, by_carrier, by_day), encoding="utf-8")
    with (folder / "carriers.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, fieldnames=list(by_carrier[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(dict(row) for row in by_carrier)


def process(chunk: Chunk, airlines: Path) -> None:
    """Write the report of this chunk's month. Raise ChunkError if there is no data."""
    source = chunk.partition("carrier_delays")
    if not source.is_dir():
        raise ChunkError(f"carrier_delays {chunk.data_id}: no folder {source}; resubmit the chunk to job delays")
    with (
        staged(chunk.partition("delay_report"), chunk.fence) as folder,
        SparkSession.builder.getOrCreate() as spark,
    ):
        delays = spark.read.schema(STATISTICS).parquet(str(source))
        names = spark.read.csv(str(airlines), schema="carrier STRING, name STRING", header=True)
        by_carrier = [row.asDict() for row in carriers(delays, names).collect()]
        if not by_carrier:
            raise ChunkError(f"carrier_delays {chunk.data_id}: {source} has no rows; look at flights {chunk.data_id}")
        by_day = [row.asDict() for row in worst_days(delays).collect()]
        write(folder, chunk.data_id, by_carrier, by_day)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--airlines", type=Path, required=True, help="CSV file: carrier, name")
    given = arguments.parse_args()
    sys.exit(run_chunk(lambda chunk: process(chunk, given.airlines)))
