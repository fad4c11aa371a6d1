"""What the engine adds to a run: many runs of `true`, eight at a time, from the job file to the last commit."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.server import database, server

RUNS, PARALLELISM = 2_000, 8

JOB_FILE = f"""\
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {{name: numbers}}
spec:
  chunkSource: {{range: {{from: 0, to: {RUNS}, step: 1}}}}
---
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {{name: nothing}}
spec: {{}}
---
apiVersion: opendataflow.io/v1alpha1
kind: DataFlowJob
metadata: {{name: nothing}}
spec:
  inputs: [numbers]
  outputs: [nothing]
  parallelism: {PARALLELISM}
  runtime: {{script: {{command: ["true"]}}}}
"""


def main() -> None:
    """Measure and print."""
    program = str(Path(sys.executable).parent / "dataflow")
    with server() as dsn, database(dsn, "bench_runner") as own, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "job.yaml"
        file.write_text(JOB_FILE)
        environ = {**os.environ, "DATAFLOW_DSN": own, "DATAFLOW_HOME": folder}
        subprocess.run([program, "apply", "-f", str(file)], env=environ, check=True, stdout=subprocess.DEVNULL)
        began = time.monotonic()
        command = [program, "local", "-f", str(file), "--parallelism", str(PARALLELISM), "--until-caught-up"]
        subprocess.run(command, env=environ, check=True, stdout=subprocess.DEVNULL)
        seconds = time.monotonic() - began
    print(f"{RUNS} runs of `true`, {PARALLELISM} at a time: {seconds / RUNS * 1000:.1f} ms a run (goal: 15)")


if __name__ == "__main__":
    main()
