"""The benchmarks of declarations still run. Their figures are for people."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_benchmark_of_declarations_prints_a_row_without_and_with_a_job() -> None:
    command = [sys.executable, "-m", "tests.bench.bench_declaring", "100"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert [row.split()[:2] for row in done.stdout.splitlines()[1:]] == [["100", "0"], ["100", "1"]]
