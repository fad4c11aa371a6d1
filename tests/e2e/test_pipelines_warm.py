"""Runs of pipelines that share a JVM, one after another: they write what runs with their own JVMs write, each sees only
its own variables, and whatever a run leaves in a JVM ends with the JVM."""

import json
import os
import re
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

from opendataflow.crypto.sealed import NONCE_BYTES, SALT_BYTES, seal
from opendataflow.launch.process.session import find_process
from opendataflow.names import ExitCode
from opendataflow.spark.shared import jvm
from opendataflow.spark.shared.jvm import JavaSide, changeable_state, is_unused, limit_waiting
from tests.e2e.conftest import Program
from tests.share import in_share
from tests.sql.conftest import Connection
from tests.sql.graph import tasks
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD = "s3cret-of-nobody"
PROJECT = """\
version: 2
name: tests
pipelines:
  - slug: p
    sources: [{name: numbers, schema: id INT}]
    transformations: [seen]
    destination: out
"""
SEEN = """
import os
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import behaviour


@F.udf("string")
def scalar(number):
    return f"{os.environ['dataid']} {os.environ['numbers_password']} {number}"


def rows(frames):
    for frame in frames:
        print("on a worker", os.environ["DATAFLOW_RUN_ID"] == os.environ.get("DATAFLOW_RUN_ID"))
        yield frame.assign(name=os.environ["DATAFLOW_DATA_ID"])


def run(df):
    spark = SparkSession.builder.getOrCreate()
    assert spark is df.sparkSession
    assert spark.catalog.listTables() == []
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    df.createOrReplaceTempView("numbers")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.udf.register("twice", lambda number: number * 2, "int")
    doubled = spark.sql("SELECT id, twice(id) AS doubled FROM numbers").cache()
    written = doubled.mapInPandas(rows, "id INT, doubled INT, name STRING")
    behave = behaviour.of(os.environ["dataid"])
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    environ = Path(f"/proc/{pid}/environ").read_bytes().decode()
    secret = os.environ["numbers_password"]
    with open(os.environ["SEEN"], "a") as file:
        file.write(f"{os.environ['dataid']} {pid} {secret in environ} {'dataid=' in environ}\\n")
    if behave is not None:
        behave(spark, pid)
    return written.withColumn("text", scalar("id")).orderBy("id")
"""
BEHAVIOUR = """
import os
import signal
import sys
import threading
import time
from pathlib import Path


def of(chunk):
    return globals().get(chunk.partition("-")[2])


def job(spark, pid):
    def slow(frames):
        Path(os.environ["SEEN"] + ".slow").touch()
        time.sleep(1000)
        yield from frames

    frame = spark.range(0, 1, 1, 1).mapInPandas(slow, "id LONG")
    threading.Thread(target=frame.collect, daemon=True).start()
    while not Path(os.environ["SEEN"] + ".slow").exists():
        time.sleep(0.05)


def stop(spark, pid):
    spark.stop()


def vanish(spark, pid):
    os._exit(7)


def kill(spark, pid):
    os.kill(pid, signal.SIGKILL)


def wait(spark, pid):
    Path(os.environ["SEEN"] + ".waits").touch()
    while not Path(os.environ["SEEN"] + ".go").exists():
        time.sleep(0.05)
"""


class Scene:
    """A project, its job, and what its runs have seen."""

    def __init__(self, folder: Path, dataflow: Program) -> None:
        self.folder = folder
        self.program = Program(dataflow.home, dataflow.dsn, {"PASSKEY": "plugh", "SEEN": str(folder / "seen")})
        for name, text in {
            "project.yml": PROJECT,
            "pipelines/p/seen.py": SEEN,
            "behaviour.py": BEHAVIOUR,
            "sources/numbers.csv": "id\n1\n2\n3\n",
        }.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def job(self, output: str, *chunks: str, **more: Any) -> str:
        """Write a job file; return its name."""
        sealed = seal(PASSWORD, "plugh", salt=b"s" * SALT_BYTES, nonce=b"n" * NONCE_BYTES)
        conf = {"spark.sql.shuffle.partitions": "3", "spark.sql.warehouse.dir": str(self.folder / "warehouse")}
        pipeline = {"project": {"path": "."}, "pipeline": "p", "output": output, "sparkConf": conf, **more}
        numbers = {"chunkSource": {"list": list(chunks)}, "credentials": {"encryptedPassword": sealed}}
        job = {
            "inputs": ["numbers"],
            "outputs": [output],
            "retry": {"limit": 0, "backoff": {"initial": "1s"}},
            "runtime": {"pipeline": pipeline},
        }
        documents = [
            {"kind": "DataSet", "metadata": {"name": "numbers"}, "spec": numbers},
            {"kind": "DataSet", "metadata": {"name": output}},
            {"kind": "DataFlowJob", "metadata": {"name": output}, "spec": job},
        ]
        path = self.folder / f"{output}.yaml"
        path.write_text(
            "\n---\n".join(json.dumps({"apiVersion": "opendataflow.io/v1alpha1", **it}) for it in documents)
        )
        return str(path)

    def local(self, file: str, *, parallelism: int = 1, code: int = ExitCode.OK) -> str:
        return self.program.run("local", "-f", file, "--until-caught-up", f"--parallelism={parallelism}", code=code)

    def seen(self) -> dict[str, tuple[int, bool, bool]]:
        """By chunk: the process of the JVM, and whether a password and the chunk are in its environment."""
        lines = (self.folder / "seen").read_text().splitlines()
        return {
            chunk: (int(pid), secret == "True", known == "True") for chunk, pid, secret, known in map(str.split, lines)
        }

    def processes(self, chunk: str) -> list[Path]:
        """The environments of the processes of a chunk."""
        variables = {f"DATAFLOW_DATA_ID={chunk}".encode(), f"SEEN={self.folder / 'seen'}".encode()}
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if variables <= set(environ.read_bytes().split(b"\0")):
                    found.append(environ)
        return found

    def written(self, output: str) -> dict[str, list[tuple[int, Any, Any]]]:
        """The size, the schema and the rows of each file of each chunk.

        The footers of two files of the same rows differ in each JVM: Parquet lists encodings in the order of a hash.
        """
        return {
            folder.name: [
                (file.stat().st_size, pyarrow.parquet.read_schema(file), pyarrow.parquet.ParquetFile(file).read())
                for file in sorted(folder.glob("part-*.parquet"))
            ]
            for folder in (self.folder / output / "output" / "out").glob("data_id=*")
        }


@pytest.fixture
def scene(dataflow: Program, db: Connection, tmp_path: Path) -> Scene:  # noqa: ARG001 # an empty database
    return Scene(tmp_path, dataflow)


def is_alive(pid: int) -> bool:
    process = find_process(pid)
    return process is not None and not process.gone


def test_runs_that_share_a_jvm_write_what_others_write_and_see_only_their_own_variables(scene: Scene) -> None:
    scene.local(scene.job("cold", "2", "3", warm={"enabled": False}))
    own = scene.seen()
    scene.local(scene.job("warm", "1", "2", "3", warm={}))
    shared = scene.seen()
    assert len({pid for pid, _, _ in own.values()}) == 2
    assert len({pid for pid, _, _ in shared.values()}) == 1
    assert [(secret, known) for _, secret, known in own.values()] == [(True, True)] * 2
    assert [(secret, known) for _, secret, known in shared.values()] == [(False, False)] * 3
    warm, cold = scene.written("warm"), scene.written("cold")
    assert warm.keys() == {"data_id=1", "data_id=2", "data_id=3"}
    assert {chunk: warm[chunk] for chunk in cold} == cold != {}
    texts = [text for _, _, table in cold["data_id=2"] for text in table["text"].to_pylist()]
    assert texts == [f"2 {PASSWORD} {number}" for number in (1, 2, 3)]
    assert not any(is_alive(pid) for pid, _, _ in shared.values())
    folders = [path.name for path in (scene.program.home / "runs").glob("*/holders/*")]
    assert folders == []


@in_share(0)
def test_what_a_run_leaves_in_a_jvm_ends_with_the_jvm_and_the_next_run_has_another_one(
    scene: Scene, db: Connection
) -> None:
    chunks = ("1", "2-vanish", "3-stop", "4-job", "5", "6-kill", "7")
    driver = {"cores": 2}  # one for the job that is left running
    shown = scene.local(scene.job("warm", *chunks, warm={}, driver=driver), code=ExitCode.UNFINISHED)
    assert {chunk for chunk in chunks if tasks(db)[f"warm/{chunk}"] == "DONE"} == {"1", "4-job", "5", "7"}
    pids = [scene.seen()[chunk][0] for chunk in chunks]
    assert [pids.index(pid) for pid in pids] == [0, 0, 2, 3, 4, 4, 6]
    assert not any(map(is_alive, pids))
    assert not scene.processes("4-job")
    assert re.search(r"6-kill  FAILED .*Spark's Java was killed", shown)


def test_a_run_and_its_jvm_end_before_a_killed_engines_run_is_lost_and_tried_again(
    scene: Scene, db: Connection
) -> None:
    file = scene.job("warm", "1", "2-wait", warm={})
    engine = scene.program.start("local", "-f", file, "--until-caught-up", "--parallelism=1")
    wait_until((scene.folder / "seen.waits").exists, "the second run waits")
    os.kill(engine.pid, signal.SIGKILL)
    engine.communicate()
    pid, _, _ = scene.seen()["2-wait"]
    wait_until(lambda: not is_alive(pid), "the JVM ends with its engine")
    (scene.folder / "seen.go").touch()
    shown = scene.local(file)
    assert re.search(r"from run warm-r2; .*the shared JVM of run warm-r2", " ".join(shown.split()))
    assert tasks(db) == {"warm/1": "DONE", "warm/2-wait": "DONE"}
    assert scene.seen()["2-wait"][0] != pid
    assert len(scene.written("warm")) == 2
    assert not scene.processes("2-wait")


@in_share(2)
def test_a_cancelled_run_and_runs_that_a_second_signal_ends_take_their_jvms_along(scene: Scene, db: Connection) -> None:
    file = scene.job("warm", "1", "2-wait", "3-wait")
    engine = scene.program.start("local", "-f", file, "--until-caught-up", "--parallelism=1")
    wait_until((scene.folder / "seen.waits").exists, "the second run waits")
    (scene.folder / "seen.waits").unlink()
    scene.program.run("cancel", "warm", "2-wait")
    wait_until((scene.folder / "seen.waits").exists, "the third run waits")
    first, cancelled, ended = (scene.seen()[chunk][0] for chunk in ("1", "2-wait", "3-wait"))
    assert first == cancelled != ended
    assert not is_alive(cancelled)
    engine.send_signal(signal.SIGINT)
    assert engine.stdout is not None
    assert any("stopping: runs go on to their end" in line for line in engine.stdout)  # two at once would be one
    engine.send_signal(signal.SIGINT)
    engine.communicate()
    assert not is_alive(ended)
    assert not scene.processes("2-wait")
    assert not scene.processes("3-wait")
    assert tasks(db)["warm/1"] == "DONE"


def _set_hadoop(spark: "SparkSession", value: str | None) -> None:
    configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set("left", value) if value else configuration.unset("left")


def _set_zone(spark: "SparkSession", name: str) -> None:
    zone: Any = spark._jvm.java.util.TimeZone  # type: ignore[union-attr]  # a session has a JVM
    zone.setDefault(zone.getTimeZone(name))


CHANGES: dict[str, tuple[Callable[["SparkSession"], Any], Callable[["SparkSession"], Any]]] = {
    "hadoop": (lambda spark: _set_hadoop(spark, "here"), lambda spark: _set_hadoop(spark, None)),
    "zone": (lambda spark: _set_zone(spark, "Asia/Kathmandu"), lambda spark: _set_zone(spark, "UTC")),
    "table": (
        lambda spark: spark.sql("CREATE TABLE left_here (id INT) USING csv LOCATION '/tmp/left-here'"),
        lambda spark: spark.sql("DROP TABLE left_here"),
    ),
    "database": (
        lambda spark: spark.sql("CREATE DATABASE left_here LOCATION '/tmp/left-here'"),
        lambda spark: spark.sql("DROP DATABASE left_here"),
    ),
    "view": (
        lambda spark: spark.range(1).createGlobalTempView("left_here"),
        lambda spark: spark.catalog.dropGlobalTempView("left_here"),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_run_that_changes_what_all_sessions_of_a_jvm_share_is_noticed(spark: "SparkSession", what: str) -> None:
    change, undo = CHANGES[what]
    before = changeable_state(JavaSide.of(spark))
    spark.range(3).createOrReplaceTempView("of_the_session")
    assert changeable_state(JavaSide.of(spark.newSession())) == before
    change(spark)
    try:
        assert changeable_state(JavaSide.of(spark)) != before
    finally:
        undo(spark)
    assert changeable_state(JavaSide.of(spark)) == before


def test_cached_data_and_streams_that_are_left_are_noticed(spark: "SparkSession") -> None:
    spark.range(3).cache().count()
    assert is_unused(JavaSide.of(spark))
    kept = spark.sparkContext.parallelize([1]).persist()
    kept.count()
    assert not is_unused(JavaSide.of(spark))
    kept.unpersist()
    stream = spark.readStream.format("rate").load().writeStream.format("noop").start()
    assert not is_unused(JavaSide.of(spark))
    stream.stop()
    assert is_unused(JavaSide.of(spark))


def test_a_question_at_the_end_of_a_run_fails_in_time_if_the_jvm_does_not_answer(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "ANSWER_SECONDS", 0.1)
    errors: list[Exception] = []

    def ask() -> None:  # in a thread, which has a connection of its own
        try:
            limit_waiting()
        except OSError as error:
            errors.append(error)
        java: Any = spark._jvm.java  # type: ignore[union-attr]  # a session has a JVM
        java.lang.System.nanoTime()
        limit_waiting()
        try:
            java.lang.Thread.sleep(3_600_000)
        except Exception as error:
            errors.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(60)
    assert len(errors) == 2
