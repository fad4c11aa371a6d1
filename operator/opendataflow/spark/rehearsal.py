"""Do the work of typical runs with a few rows, so that Java loads their classes. A program for `spark-submit`.

Its only argument is a folder for results, which are not used.
"""

import sys

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.pyspark.worker.logging.enabled": "true",
}
ROW = (
    "id", "string(id) AS name", "cast(id AS decimal(10, 2)) AS price", "current_timestamp() AS at",
    "current_date() AS day", "id * 1.5d AS weight", "array(id) AS list", "id % 2 = 0 AS even",
)  # fmt: skip


def rehearse(spark: SparkSession, folder: str) -> None:
    """Read, transform, observe and write, in each of Spark's formats, and with functions of Python."""
    rows = spark.range(1000).selectExpr(*ROW)
    for name in ("parquet", "json"):
        rows.write.format(name).save(f"{folder}/{name}")
        spark.read.format(name).load(f"{folder}/{name}").agg(F.count("*"), F.max("day")).collect()
    rows.drop("list").write.option("header", "true").csv(f"{folder}/csv")
    spark.read.options(header="true", inferSchema="true", multiLine="true").csv(f"{folder}/csv").count()

    read = spark.read.parquet(f"{folder}/parquet")
    chosen = read.where("id >= 1 AND id < 900").withColumn("total", F.expr("price * 2"))
    seen = Observation()
    watched = chosen.observe(seen, F.count(F.lit(1)), F.sum(F.shiftright(F.xxhash64("id", "name"), 32)))
    watched.write.parquet(f"{folder}/observed")
    print(seen.get)
    spark.createDataFrame([], read.schema).count()
    joined = read.join(read.groupBy("name").agg(F.sum("price").alias("sum")), "name").orderBy("id")
    joined.write.partitionBy("even").parquet(f"{folder}/joined")
    read.mapInArrow(lambda batches: batches, read.schema).collect()
    read.select(F.udf(str)("name")).collect()
    spark.tvf.python_worker_logs().collect()


if __name__ == "__main__":
    builder = SparkSession.builder.appName("rehearsal")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    rehearse(session, sys.argv[1])
    session.stop()
