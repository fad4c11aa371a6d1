"""Where it is measured: a project in a folder, a table in a database, and the processes that do the work."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import psycopg
import pyarrow.parquet

from opendataflow.names import SPARK_ARCHIVE
from tests.bench.pipelines import script
from tests.e2e.projects import DATABASE, shop_variables

TABLE = """
CREATE TABLE {source} AS SELECT i AS id, date '2020-01-01' + (i % 365)::int AS day, 'customer ' || i % 9973 AS customer,
    (i % 50)::int AS quantity, (i % 9999 / 100.0)::numeric(10, 2) AS price, sqrt(i) AS weight,
    CASE WHEN i % 3 > 0 THEN 'a note of the order, ' || md5(i::text) END AS note,
    timestamptz '2020-01-01 00:00:00+00' + i * interval '1.25 s' AS at
    FROM generate_series(1::bigint, {rows}) i;
CREATE INDEX ON {source} (id);
CREATE TABLE {target} AS SELECT *, (quantity * price)::numeric(21, 2) AS total FROM {source} WITH NO DATA;
"""
DATAFLOW = [sys.executable, "-c", "from opendataflow.cli.main import main; main()"]
PROJECT = f"""\
version: 2
name: bench
pipelines:
  - slug: to-parquet
    sources:
      - name: orders
        database: {DATABASE}
        table: {script.SOURCE}
        partitioning: {{column: id, type: range}}
        connections: 2
    transformations: [transformed]
    destination: by_pipeline
  - slug: to-table
    sources:
      - {{name: orders, path: sources/orders.parquet, format: parquet, partitioning: {{column: id, type: range}}}}
    transformations: [transformed]
    destination:
      name: result
      database: {DATABASE}
      table: {script.TARGET}
      partitioning: {{column: id, type: range}}
"""
TRANSFORMATION = """\
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def run(orders: DataFrame) -> DataFrame:
    return orders.where("quantity > 0").withColumn("total", F.expr("quantity * price"))
"""


@dataclass(frozen=True)
class Contender:
    """Who does a direction. `name`: that of the script's, empty for the pipeline. `first`: on this machine, so that
    there is no archive of Spark's classes yet, which is of interest only where Spark starts."""

    title: str
    direction: str
    name: str = ""
    first: bool = False


PIPELINES = {"to-parquet": "table to Parquet", "to-table": "Parquet to table"}
CONTENDERS = (
    Contender("pipeline", "to-parquet"),
    Contender("pipeline, the first run on a machine", "to-parquet", first=True),
    Contender("script", "to-parquet", "to_parquet"),
    Contender("script that reads in binary, as pipelines do", "to-parquet", "to_parquet_in_binary"),
    Contender("pipeline", "to-table"),
    Contender("pipeline, the first run on a machine", "to-table", first=True),
    Contender("script: Spark's writer, batches as one statement", "to-table", "to_table"),
    Contender("Spark's writer as it is by default", "to-table", "plain"),
    Contender("COPY of the same frame, no staging", "to-table", "copy"),
    Contender("COPY of a CSV file that is there, no Spark", "to-table", "csv"),
)


class Place:
    """A project, whose source has so many rows."""

    def __init__(self, folder: Path, dsn: str, rows: int) -> None:
        self.folder, self.rows = folder, rows
        self._dsn = dsn
        for slug in PIPELINES:
            file = folder / "pipelines" / slug / "transformed.py"
            file.parent.mkdir(parents=True)
            file.write_text(TRANSFORMATION)
        (folder / "project.yml").write_text(PROJECT)
        (folder / "conf").mkdir()
        (folder / "conf" / "spark-defaults.conf").write_text("spark.driver.memory 2g\n")
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DATAFLOW_")},
            "SPARK_CONF_DIR": str(folder / "conf"),
            SPARK_ARCHIVE: str(folder / "spark.jsa"),
            **shop_variables(dsn),
            "SHOP_DSN": dsn,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }

    def fill(self) -> None:
        """Make the table, and the same rows as Parquet."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(TABLE.format(source=script.SOURCE, target=script.TARGET, rows=self.rows))
            connection.execute("VACUUM ANALYZE")
        self._run([sys.executable, "-m", "tests.bench.pipelines.warm", "fill", str(self.rows)])
        self._run([*DATAFLOW, "pipeline", "prepare"])
        with psycopg.connect(self._dsn) as connection, (self.folder / script.CSV).open("wb") as file:
            rows = f"SELECT *, quantity * price FROM {script.SOURCE} WHERE quantity > 0"
            with connection.cursor().copy(f"COPY ({rows}) TO STDOUT (FORMAT csv)") as copy:
                for block in copy:
                    file.write(block)

    def cold(self, contender: Contender) -> float:
        """Seconds of the whole command in a process of its own."""
        empty(self._dsn)
        given = json.dumps({"name": contender.name, "rows": self.rows})
        command = [sys.executable, "-m", "tests.bench.pipelines.script", given]
        if not contender.name:
            command = [*DATAFLOW, "pipeline", "run", contender.direction, "--data-id", self.data_id]
        archive = {SPARK_ARCHIVE: "off"} if contender.first else {}
        began = time.perf_counter()
        self._run(command, archive)
        seconds = time.perf_counter() - began
        check(self._dsn, self.folder, contender, self.rows)
        return seconds

    @property
    def data_id(self) -> str:
        """The chunk: all rows."""
        return f"1-{self.rows}"

    @contextmanager
    def warm(self) -> Iterator[subprocess.Popen[str]]:
        """A process with a session, that follows its orders."""
        command = [sys.executable, "-m", "tests.bench.pipelines.warm", "serve", str(self.rows)]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=self.environ, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        with process:
            try:
                yield process
            finally:
                assert process.stdin is not None
                process.stdin.close()

    def _run(self, command: list[str], more: Mapping[str, str] = MappingProxyType({})) -> None:
        environ = {**self.environ, **more}
        with (self.folder / "log").open("ab") as log:
            code = subprocess.run(command, cwd=self.folder, env=environ, stdout=log, stderr=log, check=False)
        if code.returncode:
            raise SystemExit(f"{command}: {(self.folder / 'log').read_text()[-3000:]}")


def empty(dsn: str) -> None:
    """Take away what was written before: a chunk is written for the first time."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {script.TARGET}")
        connection.execute("CHECKPOINT")


def check(dsn: str, folder: Path, contender: Contender, rows: int) -> None:
    """Look whether all that was wanted is there."""
    if contender.direction == "to-table":
        with psycopg.connect(dsn) as connection:
            found = connection.execute(f"SELECT count(*) FROM {script.TARGET}").fetchone()
        assert found is not None
        written = found[0]
    else:
        where = "by_script" if contender.name else f"by_pipeline/data_id=1-{rows}"
        files = (folder / "output" / where).glob("*.parquet")
        written = sum(pyarrow.parquet.read_metadata(file).num_rows for file in files)
    wanted = rows - rows // 50
    if written != wanted:
        raise SystemExit(f"{contender}: {written} rows are there, and not {wanted}")
