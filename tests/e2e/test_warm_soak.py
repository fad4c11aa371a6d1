"""A thousand chunks in shared JVMs: memory does not grow, and the chunks are what chunks with JVMs of their own are."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from tests.e2e.conftest import Program
from tests.share import only_in_a_soak
from tests.sql.conftest import Connection
from tests.sql.graph import tasks

CHUNKS = 1000
COMPARED = 30
RUNS_OF_A_JVM = 100
MOST_GROWTH = 1.15
"""The memory of a JVM at its end, of that of the first ones. The heap varies with the moments of its collections."""

PROGRAM = """\
import os
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

chunk = os.environ["dataid"]


@F.udf(StringType())
def text(number):
    return f"{os.environ['dataid']} {number}"


with SparkSession.builder.appName(chunk).getOrCreate() as spark:
    numbers = spark.range(0, 20_000, 1, 4).withColumn("chunk", F.lit(int(chunk))).withColumn("text", text("id"))
    numbers = numbers.withColumn("part", F.col("id") % 7).cache()
    sums = numbers.groupBy("part").agg(F.sum("id").alias("ids"), F.max("text").alias("last")).orderBy("part")
    sums.coalesce(1).write.mode("overwrite").csv(f"{os.environ['OUTPUT']}/csv/{chunk}", header=True)
    numbers.coalesce(1).write.mode("overwrite").parquet(f"{os.environ['OUTPUT']}/parquet/{chunk}")
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = status.partition("VmRSS:")[2].split()[0]
    with open(f"{os.environ['OUTPUT']}/seen", "a") as file:
        file.write(f"{pid} {kilobytes}\\n")
"""


class Scene:
    """A program whose job runs in one folder with shared JVMs, and in another one with a JVM for each chunk."""

    def __init__(self, folder: Path, dataflow: Program) -> None:
        self.folder = folder
        self.dataflow = dataflow

    def run(self, way: str, chunks: int, warm: dict[str, Any]) -> Path:
        """Run the job for its first chunks. Return the folder with its outputs."""
        output = self.folder / way
        output.mkdir()
        (self.folder / "program.py").write_text(PROGRAM)
        spark = {"main": "program.py", "warm": warm, "conf": {"spark.driver.memory": "768m"}}
        job = {"inputs": [f"numbers-{way}"], "outputs": [way], "runtime": {"spark": spark}, "retry": {"limit": 0}}
        source = {"chunkSource": {"list": [str(chunk) for chunk in range(1, chunks + 1)]}}
        documents = [
            {"kind": "DataSet", "metadata": {"name": f"numbers-{way}"}, "spec": source},
            {"kind": "DataSet", "metadata": {"name": way}},
            {"kind": "DataFlowJob", "metadata": {"name": way}, "spec": job},
        ]
        file = self.folder / f"{way}.yaml"
        file.write_text(
            "\n---\n".join(json.dumps({"apiVersion": "opendataflow.io/v1alpha1", **it}) for it in documents)
        )
        program = Program(self.dataflow.home, self.dataflow.dsn, {"OUTPUT": str(output)})
        program.run("local", "-f", str(file), "--until-caught-up", "--parallelism=1", seconds=7200)
        return output


def memory_of_generations(output: Path) -> list[list[int]]:
    """The resident memory of each JVM after each of its runs, in KiB, the first JVM first."""
    found: dict[str, list[int]] = defaultdict(list)
    for line in (output / "seen").read_text().splitlines():
        pid, kilobytes = line.split()
        found[pid].append(int(kilobytes))
    return [*found.values()]


@only_in_a_soak
@pytest.mark.timeout(10_000)
def test_a_thousand_chunks_in_shared_jvms_need_no_more_memory_and_are_what_jvms_of_their_own_write(
    dataflow: Program, db: Connection, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, dataflow)
    shared = scene.run("shared", CHUNKS, {"maxChunks": RUNS_OF_A_JVM})
    own = scene.run("own", COMPARED, {"enabled": False})
    assert set(tasks(db).values()) == {"DONE"}

    generations = memory_of_generations(shared)
    print(f"{CHUNKS} chunks in {len(generations)} JVMs; MiB after the first and the last run of each:")
    print(*(f"{runs[0] // 1024}-{runs[-1] // 1024}" for runs in generations))
    assert [len(runs) for runs in generations] == [RUNS_OF_A_JVM] * (CHUNKS // RUNS_OF_A_JVM)
    first, last = (max(runs[-1] for runs in some) for some in (generations[:3], generations[-3:]))
    assert last <= MOST_GROWTH * first

    for chunk in range(1, COMPARED + 1):
        texts = [next((way / "csv" / str(chunk)).glob("part-*.csv")).read_bytes() for way in (shared, own)]
        assert texts[0] == texts[1]
        tables = [pyarrow.parquet.read_table(way / "parquet" / str(chunk)) for way in (shared, own)]
        assert tables[0].schema == tables[1].schema
        assert tables[0] == tables[1]
        assert tables[0].num_rows == 20_000
