"""The same work written by hand: what a pipeline is measured against.

It is what somebody writes who knows Spark, Postgres and its driver. What it lacks: it can't be repeated (a chunk done
twice is there twice, a killed one is there in part), an older attempt may write over a newer one, and it knows neither
rows nor checksum nor which step has failed.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

if TYPE_CHECKING:
    import pyarrow

SOURCE, TARGET, CSV = "orders", "result", "result.csv"


def transformed(orders: DataFrame) -> DataFrame:
    """The transformation, as the pipeline has it."""
    return orders.where("quantity > 0").withColumn("total", F.expr("quantity * price"))


def session() -> SparkSession:
    """A session as a pipeline's: nothing is open to the network, and the driver for Postgres is there already."""
    jar = next(Path("~/.ivy2.5.2/jars").expanduser().glob("org.postgresql_postgresql-*.jar"))
    settings = {
        "spark.master": "local[*]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.jars": str(jar),
    }
    builder = SparkSession.builder.appName("script")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def login() -> dict[str, str]:
    """Spark's options for getting into the database."""
    known = {"url": "SHOP_URL", "user": "SHOP_USER", "password": "SHOP_WORD"}
    return {**{name: os.environ[variable] for name, variable in known.items()}, "driver": "org.postgresql.Driver"}


def to_parquet(spark: SparkSession, rows: int, folder: str, **more: str) -> None:
    """The chunk of a table to Parquet, by two connections."""
    divided = {"partitionColumn": "id", "lowerBound": "1", "upperBound": str(rows), "numPartitions": "2"}
    table = f"(SELECT * FROM {SOURCE} WHERE id >= 1 AND id < {rows + 1}) chunk"
    options = {**login(), **divided, "fetchsize": "10000", "dbtable": table, **more}
    orders = spark.read.format("jdbc").options(**options).load()
    transformed(orders).write.mode("overwrite").parquet(folder)


def _read(spark: SparkSession, rows: int) -> DataFrame:
    orders = spark.read.parquet("sources/orders.parquet")
    return transformed(orders.where(f"id >= 1 AND id < {rows + 1}"))


def to_table(spark: SparkSession, rows: int) -> None:
    """The chunk of Parquet to a table, as quick as Spark's writer is."""
    faster = {"batchsize": "10000", "reWriteBatchedInserts": "true"}
    frame = _read(spark, rows)
    frame.write.format("jdbc").options(**login(), **faster, dbtable=TARGET).mode("append").save()


def to_table_plainly(spark: SparkSession, rows: int) -> None:
    """The same, with the default settings of Spark's writer."""
    _read(spark, rows).write.format("jdbc").options(**login(), dbtable=TARGET).mode("append").save()


def to_table_by_copy(spark: SparkSession, rows: int) -> None:
    """The same frame by COPY, straight into the table: CSV of Arrow's, by each task for itself."""
    dsn = os.environ["SHOP_DSN"]
    frame = _read(spark, rows)
    names = ", ".join(frame.columns)

    def copied(batches: "Iterator[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
        import pyarrow
        import pyarrow.csv

        plain = pyarrow.csv.WriteOptions(include_header=False)
        into = f"COPY {TARGET} ({names}) FROM STDIN (FORMAT csv)"
        with psycopg.connect(dsn) as connection, connection.cursor().copy(into) as copy:
            for batch in batches:
                text = pyarrow.BufferOutputStream()
                pyarrow.csv.write_csv(batch, text, plain)
                copy.write(memoryview(text.getvalue()))
        yield pyarrow.RecordBatch.from_pydict({"done": [1]})

    frame.mapInArrow(copied, "done long").collect()


def copy_csv() -> None:
    """A file that is there already by COPY, without Spark: what Postgres can take from one connection."""
    into = f"COPY {TARGET} FROM STDIN (FORMAT csv)"
    with (
        Path(CSV).open("rb") as file,
        psycopg.connect(os.environ["SHOP_DSN"]) as connection,
        connection.cursor().copy(into) as copy,
    ):
        while block := file.read(1 << 20):
            copy.write(block)


def work(name: str, spark: SparkSession | None, rows: int) -> None:
    """Do the work of one contender."""
    if spark is None:
        copy_csv()
    elif name == "to_parquet":
        to_parquet(spark, rows, "output/by_script")
    elif name == "to_parquet_in_binary":
        to_parquet(spark, rows, "output/by_script", prepareThreshold="-1")
    else:
        {"to_table": to_table, "plain": to_table_plainly, "copy": to_table_by_copy}[name](spark, rows)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    opened = None if given["name"] == "csv" else session()
    work(given["name"], opened, given["rows"])
    if opened is not None:
        opened.stop()
