"""PySpark programs that share a JVM: they are unchanged, and see what a program with a JVM of its own sees."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from opendataflow.launch.process.session import find_process
from opendataflow.names import ExitCode
from tests.e2e.conftest import Program
from tests.sql.conftest import Connection
from tests.sql.graph import tasks

PROGRAM = """\
import os
import sys
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

import beside

CHUNK = os.environ["dataid"]
KIND = CHUNK.partition("-")[2]


class Doubled:  # of __main__, so that workers get it by value
    def __init__(self, number):
        self.number = 2 * number


@F.udf(StringType())
def seen_by_worker(number):
    return f"{os.environ['dataid']} {os.environ['DATAFLOW_RUN_ID']} {Doubled(number).number}"


def work(spark):
    assert spark.catalog.listTables() == [], "views of another program"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true", "settings of another program"
    spark.conf.set("spark.sql.ansi.enabled", "false")
    spark.range(3).createOrReplaceTempView("numbers")
    (row,) = spark.sql("SELECT id FROM numbers WHERE id = 2").select(seen_by_worker("id")).collect()
    assert row[0] == f"{CHUNK} {os.environ['DATAFLOW_RUN_ID']} 4", row
    return spark._jvm.java.lang.ProcessHandle.current().pid()


def main():
    assert sys.argv == [__file__, "an argument"], sys.argv
    assert Path(__file__).is_absolute() and sys.path[0] == str(Path(__file__).parent) and beside
    assert sys.modules["__main__"].Doubled is Doubled
    assert "PYSPARK_GATEWAY_SECRET" not in os.environ and "DATAFLOW_HOLDER" not in os.environ
    if KIND == "none":
        pid = 0
    elif KIND == "static":
        builder = SparkSession.builder.config("spark.executor.heartbeatInterval", "7s").appName("static")
        with builder.getOrCreate() as spark:
            pid = work(spark)
            conf = spark.sparkContext.getConf()
            assert (conf.get("spark.executor.heartbeatInterval"), conf.get("spark.app.name")) == ("7s", "static")
    elif KIND == "context":
        context = SparkContext.getOrCreate()
        assert context.parallelize([1, 2]).map(lambda number: Doubled(number).number).sum() == 6
        context.stop()
        context = SparkContext(appName="the second one")
        assert context.parallelize([1]).count() == 1
        pid = context._jvm.java.lang.ProcessHandle.current().pid()
    else:
        builder = SparkSession.builder.appName(CHUNK).config("spark.sql.shuffle.partitions", CHUNK[0])
        with builder.getOrCreate() as spark:
            assert spark.conf.get("spark.sql.shuffle.partitions") == CHUNK[0]
            pid = work(spark)
        with SparkSession.builder.getOrCreate() as spark:
            assert work(spark) == pid
    with open(os.environ["SEEN"], "a") as file:
        file.write(f"{CHUNK} {pid}\\n")
    if KIND == "raise":
        raise ValueError("of the program")
    sys.exit(3 if KIND == "exit" else 0)


if __name__ == "__main__":
    main()
"""


class Scene:
    """A program, its job, and what its runs have seen."""

    def __init__(self, folder: Path, dataflow: Program) -> None:
        self.folder = folder
        self.program = Program(dataflow.home, dataflow.dsn, {"SEEN": str(folder / "seen")})
        (folder / "program.py").write_text(PROGRAM)
        (folder / "beside.py").write_text("")

    def local(self, *chunks: str, code: int = ExitCode.OK, **more: Any) -> str:
        """Run the program for chunks, one after another, in a shared JVM."""
        spark = {"main": "program.py", "args": ["an argument"], "warm": {}, **more}
        job = {"inputs": ["numbers"], "outputs": ["out"], "retry": {"limit": 0}, "runtime": {"spark": spark}}
        specs = {
            ("DataSet", "numbers"): {"chunkSource": {"list": list(chunks)}},
            ("DataSet", "out"): {},
            ("DataFlowJob", "out"): job,
        }
        head = {"apiVersion": "opendataflow.io/v1alpha1"}
        file = self.folder / "job.yaml"
        file.write_text(
            "\n---\n".join(
                json.dumps({**head, "kind": kind, "metadata": {"name": name}, "spec": spec})
                for (kind, name), spec in specs.items()
            )
        )
        return self.program.run("local", "-f", str(file), "--until-caught-up", "--parallelism=1", code=code)

    def seen(self) -> dict[str, int]:
        """The process of the JVM that each chunk has used."""
        lines = (self.folder / "seen").read_text().splitlines()
        return {chunk: int(pid) for chunk, pid in map(str.split, lines)}

    def log(self, chunk: str) -> str:
        return self.program.ask("logs", "out", chunk).out


@pytest.fixture
def scene(dataflow: Program, db: Connection, tmp_path: Path) -> Scene:  # noqa: ARG001 # an empty database
    return Scene(tmp_path, dataflow)


def test_an_unchanged_program_runs_in_the_jvm_of_the_chunk_before_also_if_it_stops_its_session(
    scene: Scene, db: Connection
) -> None:
    chunks = ("1", "2-context", "3-none", "4", "5-exit", "6", "7-raise")
    scene.local(*chunks, code=ExitCode.UNFINISHED)
    failed = {f"out/{chunk}" for chunk in ("5-exit", "7-raise")}
    assert {task for task, state in tasks(db).items() if state == "FAILED"} == failed
    seen = scene.seen()
    assert seen["3-none"] == 0
    assert len({seen[chunk] for chunk in ("1", "2-context", "4", "5-exit")}) == 1
    assert seen["6"] == seen["7-raise"] != seen["5-exit"]  # a run that fails ends its JVM
    assert not any((process := find_process(pid)) and not process.gone for pid in seen.values() if pid)
    lines = scene.log("7-raise").splitlines()
    begin = lines.index("Traceback (most recent call last):")
    assert re.fullmatch(r'  File ".*/program.py", line \d+, in <module>', lines[begin + 1]), lines
    assert "ValueError: of the program" in lines


def test_a_program_with_settings_that_a_running_jvm_can_not_take_gets_a_jvm_of_its_own_and_a_note(
    scene: Scene,
) -> None:
    scene.local("1", "2-static", "3")
    seen = scene.seen()
    assert len(set(seen.values())) == 3
    noted = "it can't use the shared one: the program sets spark.executor.heartbeatInterval"
    assert noted in " ".join(scene.log("2-static").split())
    assert noted not in " ".join(scene.log("3").split())
    static, other = (json.loads(scene.program.run("why", "out", chunk, "-o", "json")) for chunk in ("2-static", "3"))
    assert "heartbeatInterval" in static["own_jvm"]
    assert other["own_jvm"] is None


def test_what_the_jvm_prints_during_a_run_is_in_the_log_of_the_run(scene: Scene) -> None:
    chatty = PROGRAM.replace(
        "    (row,) =", '    spark._jvm.java.lang.System.err.println(f"printed for {CHUNK}")\n    (row,) ='
    )
    (scene.folder / "program.py").write_text(chatty)
    scene.local("1", "2")
    assert len(set(scene.seen().values())) == 1
    assert [scene.log(chunk).count("printed for") for chunk in "12"] == [2, 2]
    assert "printed for 2" in scene.log("2").partition("output of Spark's JVM:\n")[2]
