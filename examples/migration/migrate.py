"""Copies a range of orders from one Postgres to another: one run for each range, each as often as it takes.

Spark reads and writes by JDBC, into a table that only this attempt has. One transaction then puts these rows in the
place of all that the destination had of the range, so that doing a range twice equals doing it once. An attempt that
was given up and comes back to life has an older fence, and changes nothing.
"""

import json
import os
import re
import sys
import traceback
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier, Literal
from pyspark.sql import SparkSession

OLD, NEW = "old_orders", "new_orders"  # the data sets of job.yaml
DRIVER = {"driver": "org.postgresql.Driver"}
REPORT = Path("/dev/termination-log")


def told(dataset: str, what: str) -> str:
    """Return what this run is told of a data set, such as its hostname or its password."""
    name = f"{dataset}_{what}"
    if name not in os.environ:
        sys.exit(f"{name} is not set: README.md says where the passwords come from")
    return os.environ[name]


def copy_to_staging(first: int, end: int, staging: str) -> None:
    """Read the range by two connections, and append it to the table `staging` in the destination."""
    source, target = (f"jdbc:postgresql://{told(name, 'hostname')}/{told(name, 'database')}" for name in (OLD, NEW))
    login = {
        name: {**DRIVER, "user": told(name, "username"), "password": told(name, "password")} for name in (OLD, NEW)
    }
    ids = f"(SELECT * FROM {told(OLD, 'tablename')} WHERE id >= {first} AND id < {end}) AS range"
    parts = {"column": "id", "lowerBound": first, "upperBound": end, "numPartitions": 2}
    with SparkSession.builder.getOrCreate() as spark:
        rows = spark.read.jdbc(source, ids, **parts, properties={**login[OLD], "fetchsize": "5000"})
        rows.write.jdbc(f"{target}?reWriteBatchedInserts=true", staging, "append", {**login[NEW], "batchsize": "5000"})


def migrate(first: int, end: int, fence: int) -> int:
    """Migrate the orders from `first` to before `end`; return how many they are."""
    table, staging = told(NEW, "tablename"), f"staging_{first}_{fence}"
    host, _, port = told(NEW, "hostname").partition(":")
    with psycopg.connect(
        host=host,
        port=port or None,
        dbname=told(NEW, "database"),
        user=told(NEW, "username"),
        password=told(NEW, "password"),
        autocommit=True,
    ) as connection:
        create = SQL("CREATE TABLE {} (LIKE {})").format(Identifier(staging), Identifier(table))
        connection.execute(SQL("DROP TABLE IF EXISTS {}").format(Identifier(staging)))
        connection.execute(create)
        try:
            copy_to_staging(first, end, staging)
            with connection.transaction():
                take_over(connection, first, fence)
                delete = SQL("DELETE FROM {} WHERE id >= {} AND id < {}")
                connection.execute(delete.format(Identifier(table), Literal(first), Literal(end)))
                insert = SQL("INSERT INTO {} SELECT * FROM {}").format(Identifier(table), Identifier(staging))
                return connection.execute(insert).rowcount
        finally:
            connection.execute(SQL("DROP TABLE {}").format(Identifier(staging)))


def take_over(connection: psycopg.Connection, first: int, fence: int) -> None:
    """Note the fence of this attempt, and let another one of the same range wait; end where that one is newer."""
    noted = connection.execute(
        """INSERT INTO migrated AS before (first, fence) VALUES (%s, %s)
           ON CONFLICT (first) DO UPDATE SET fence = excluded.fence WHERE before.fence <= excluded.fence""",
        (first, fence),
    )
    if noted.rowcount == 0:
        sys.exit(f"range {first}: a newer attempt than fence {fence} was here already; nothing was changed")


def cause(error: Exception) -> str:
    """Return what lies under an error, in one line."""
    lines = str(error).splitlines() or [type(error).__name__]
    told = [line.strip() for line in lines if re.match(r"(Caused by)?: \S*(Exception|Error)", line)]
    return (told or lines)[-1].removeprefix("Caused by").removeprefix(": ")


def main() -> None:
    """Do the range of this run, and report how many rows it has."""
    context = json.loads(Path(os.environ["DATAFLOW_CONTEXT"]).read_text("utf-8"))
    ids = context["datasets"][OLD]["bounds"]
    try:
        rows = migrate(ids["from"], ids["to"], context["fence"])
    except Exception as error:  # the last line is what a failure shows: Spark's own would be one of its stack
        traceback.print_exc()
        sys.exit(f"orders {context['data_id']}: {cause(error)}")
    print(f"orders {context['data_id']}: {rows} rows")
    if os.access(REPORT, os.W_OK):
        REPORT.write_text(json.dumps({"rows": rows}), "utf-8")


if __name__ == "__main__":
    main()
