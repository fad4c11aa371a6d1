"""The newcomer's tour, as `make demo` runs it: real Spark over all 336,776 flights."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Program
from tests.share import in_share

EXAMPLE = Path(__file__).parents[2] / "examples" / "flights"
OUTPUTS = ("carrier_delays", "delay_report")


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy of the example: a demo of the user's own keeps its data."""
    return shutil.copytree(EXAMPLE, tmp_path / "flights", ignore=shutil.ignore_patterns("data", "__pycache__"))


@in_share(2)
@pytest.mark.timeout(3600)
def test_the_demo_fails_where_the_data_is_wrong_and_ends_with_everything_ready(
    example: Path, open_folder: Path
) -> None:
    environ = {**os.environ, "DATAFLOW_HOME": str(open_folder / "home")}
    tour = subprocess.run(
        [sys.executable, example / "demo.py"], env=environ, capture_output=True, text=True, check=False
    )

    assert tour.returncode == 0, tour.stdout + tour.stderr
    state = Program(open_folder / "home-demo")
    for output in OUTPUTS:
        chunks = json.loads(state.run("get", "chunks", output, "-o", "json"))
        assert [chunk["status"] for chunk in chunks] == ["READY"] * 12
    march = json.loads(state.run("get", "runs", "delays", "2013-03", "-o", "json"))
    assert [(run["attempt"], run["state"]) for run in march] == [(2, "SUCCEEDED"), (1, "FAILED")]
    september = json.loads(state.run("get", "runs", "delays", "2013-09", "-o", "json"))
    assert [run["state"] for run in september] == ["SUCCEEDED", "FAILED", "FAILED"]
    assert "$ dataflow resubmit delays 2013-09" in tour.stdout
    assert "All 336,776 flights are in the results" in tour.stdout


def test_without_java_the_demo_says_so_in_one_sentence(example: Path, open_folder: Path) -> None:
    (open_folder / "bin").mkdir()
    environ = {
        **{name: value for name, value in os.environ.items() if name != "JAVA_HOME"},
        "DATAFLOW_HOME": str(open_folder / "home"),
        "PATH": str(open_folder / "bin"),
    }
    tour = subprocess.run(
        [sys.executable, example / "demo.py"], env=environ, capture_output=True, text=True, check=False
    )
    assert tour.returncode == 1
    assert tour.stdout == ""
    assert len(tour.stderr.splitlines()) == 1
    assert tour.stderr.startswith("Java 17 or later is needed")
