"""Drivers are killed at any moment while they write: files are whole, and the next attempt completes the rest."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pyarrow.parquet
import pytest

from tests.e2e.conftest import SPARK_DEFAULTS
from tests.e2e.projects import DATABASE, Project, shop_variables
from tests.waiting import wait_until

ROWS = 20_000
YML = f"""\
version: 2
name: tests
pipelines:
  - slug: table
    sources: [{{name: numbers, database: {DATABASE}, query: "SELECT * FROM generate_series(1, {ROWS}) id"}}]
    transformations: [one]
    destination: {{name: rows, database: {DATABASE}, table: result}}
  - slug: folder
    sources: [{{name: numbers, database: {DATABASE}, query: "SELECT * FROM generate_series(1, {ROWS}) id"}}]
    transformations: [one]
    destination: files
"""
ONE = """
import time
from pyspark.sql import functions as F

def run(df):
    return df.repartition(2).withColumn("version", F.lit(time.time_ns()))
"""

DRIVER = """
import sys
from opendataflow.cli.commands import run
from opendataflow.core.databases.postgres import Postgres
from opendataflow.spark.pipeline.measure.session import local_session

with local_session("tests", [Postgres.driver]):
    for _ in range(int(sys.argv[1])):
        for pipeline in ("table", "folder"):
            code = run(["pipeline", "run", pipeline, "--data-id", "all"])
            assert code == 0, code
"""


class Scene:
    """A project, and drivers of it in processes of their own."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.dsn = dsn
        self.folder = folder
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DATAFLOW_")},
            "SPARK_CONF_DIR": str(folder / "conf"),
            **shop_variables(dsn),
        }

    def start(self, times: int) -> subprocess.Popen[bytes]:
        """Let a driver write again and again."""
        command = [sys.executable, "-c", DRIVER, str(times)]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.folder, env=self._environ, stdout=log, stderr=log, start_new_session=True
            )

    def one(self, text: str) -> object:
        """The one value of a query."""
        with psycopg.connect(self.dsn) as connection:
            row = connection.execute(text).fetchone()
        return None if row is None else row[0]

    def result(self) -> Path:
        """The folder of the chunk."""
        return self.folder / "output" / "files" / "data_id=all"

    def check_whole(self) -> None:
        """All rows of one run, and no others."""
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        wait_until(lambda: self.one(others) == 0, "nobody else is connected")
        with psycopg.connect(self.dsn) as connection:
            assert connection.execute("SELECT count(*), count(DISTINCT version) FROM result").fetchone() == (ROWS, 1)
            assert connection.execute("SELECT rows FROM opendataflow_chunk").fetchall() == [(ROWS,)]
        rows = pyarrow.parquet.read_table(self.result())
        assert (rows.num_rows, len(set(rows["version"].to_pylist()))) == (ROWS, 1)


@pytest.fixture
def scene(bare_dsn: str, tmp_path: Path) -> Scene:
    project = Project(tmp_path, None)
    project.write("project.yml", YML)
    project.step("one", ONE, pipeline="table")
    project.step("one", ONE, pipeline="folder")
    project.write("conf/spark-defaults.conf", SPARK_DEFAULTS)
    return Scene(tmp_path, bare_dsn)


def test_what_a_killed_driver_has_written_is_whole_and_the_next_one_removes_what_it_left(scene: Scene) -> None:
    moments = random.Random()
    for _ in range(3):
        before = scene.one("SELECT to_regclass('opendataflow_chunk')") and scene.one(
            "SELECT max(written_at) FROM opendataflow_chunk"
        )
        driver = scene.start(1000)

        def works(driver: subprocess.Popen[bytes] = driver, before: object = before) -> bool:
            assert driver.poll() is None, (scene.folder / "log").read_text()[-3000:]
            return (
                scene.result().is_dir()
                and scene.one("SELECT to_regclass('result')") is not None
                and scene.one("SELECT max(written_at) FROM opendataflow_chunk") != before
            )

        wait_until(works, "the driver has written")
        time.sleep(moments.uniform(0, 3))
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
        scene.check_whole()
    assert scene.start(1).wait(300) == 0, (scene.folder / "log").read_text()[-3000:]
    scene.check_whole()
    assert scene.one("SELECT count(*) FROM pg_class WHERE relname LIKE 'opendataflow_staging%'") == 0
    assert {path.name for path in scene.result().parent.iterdir()} == {"data_id=all", ".data_id=all.lock"}
