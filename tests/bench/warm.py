"""What a chunk of a small pipeline or program costs with a JVM of its own, and with a JVM that chunks share.

    python -m tests.bench.warm [--chunks N]

Each way runs with one chunk, and with N more. So the figures of a later chunk have no share of the start of the
program and of the first JVM. At the end it prints what the engine alone costs: see `tests.bench.engine`.
"""

import argparse
import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from tests.bench import engine

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipeline"
PROGRAM = """\
import os

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

with SparkSession.builder.getOrCreate() as spark:
    flights = spark.read.csv("sources/flights.csv", header=True, inferSchema=True)
    delays = flights.groupBy("carrier").agg(F.avg("delay").alias("mean"))
    delays.write.mode("overwrite").parquet(f"output/{os.environ['dataid']}")
"""
_SET_CHILD_SUBREAPER = 36
"""See prctl(2): a process without a parent becomes a child of this one, so that its CPU time is counted."""
DATAFLOW = [sys.executable, "-c", "from opendataflow.cli.main import main; main()"]


@dataclass(frozen=True)
class Cost:
    """CPU time and wall time, in seconds."""

    cpu: float
    wall: float

    def later(self, first: "Cost", chunks: int) -> "Cost":
        """The cost of each of the chunks after the first one."""
        return Cost((self.cpu - first.cpu) / chunks, (self.wall - first.wall) / chunks)

    def __str__(self) -> str:
        return f"{self.cpu:6.1f} CPU-s {self.wall:6.1f} s wall"


def measure(folder: Path, chunks: int, kind: str, *, warm: bool) -> Cost:
    """Run the example for a number of chunks in a new home, with its own embedded database. `kind`: of the runtime."""
    scene = folder / f"{kind}-{'warm' if warm else 'cold'}-{chunks}"
    shutil.copytree(EXAMPLE, scene, ignore=shutil.ignore_patterns("output", "__pycache__"))
    days = [f"2013-{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 29)][:chunks]
    what = {"project": {"path": "."}, "pipeline": "delays"} if kind == "pipeline" else {"main": "program.py"}
    (scene / "program.py").write_text(PROGRAM)
    spec = {"inputs": ["flights"], "outputs": ["delays"], "runtime": {kind: {**what, "warm": {"enabled": warm}}}}
    documents = [
        {"kind": "DataSet", "metadata": {"name": "flights"}, "spec": {"chunkSource": {"list": days}}},
        {"kind": "DataSet", "metadata": {"name": "delays"}},
        {"kind": "DataFlowJob", "metadata": {"name": "delays"}, "spec": spec},
    ]
    file = scene / "job.yaml"
    file.write_text("\n---\n".join(json.dumps({"apiVersion": "opendataflow.io/v1alpha1", **it}) for it in documents))
    environ = {**os.environ, "DATAFLOW_HOME": str(scene / "home")}
    _run("apply", "-f", str(file), environ=environ)
    before, begin = _cpu(), time.monotonic()
    _run("local", "-f", str(file), "--until-caught-up", "--parallelism=1", environ=environ)
    return Cost(_cpu() - before, time.monotonic() - begin)


def _run(*arguments: str, environ: Mapping[str, str]) -> None:
    done = subprocess.run([*DATAFLOW, *arguments], env=environ, check=False, capture_output=True, text=True)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):  # JVMs whose programs have ended without them
            pass
    if done.returncode:
        sys.exit(f"dataflow {' '.join(arguments)} has failed:\n{done.stdout}{done.stderr}")


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure both ways, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=20, help="the number of chunks after the first one")
    chunks = parser.parse_args().chunks
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with tempfile.TemporaryDirectory(prefix="dataflow-bench-") as name:
        Path(name).chmod(0o755)  # the embedded Postgres may run as another user
        for kind, way in product(("pipeline", "spark"), ("cold", "warm")):
            first = measure(Path(name), 1, kind, warm=way == "warm")
            print(f"{kind:8} {way}: program and first chunk {first}", flush=True)
            later = measure(Path(name), 1 + chunks, kind, warm=way == "warm").later(first, chunks)
            print(f"{kind:8} {way}: each later chunk        {later}", flush=True)
    engine.measure(10_000)


if __name__ == "__main__":
    main()
