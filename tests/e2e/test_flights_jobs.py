"""The jobs of the flights example on a small made month, with real Spark.

One run of each job starts as a run is started, in a process of its own. The others run in this process, whose JVM they
share: a start takes most of a run's time.
"""

import csv
import io
import json
import os
import runpy
import shutil
import subprocess
import sys
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet
import pytest

import prepare
from opendataflow.model.resources.jobfile import parse_job_file
from opendataflow.spark import class_archive
from opendataflow.spark.shared.jvm_start import spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = prepare.DATA.parent
JOBS = {job.id: job.spec for job in parse_job_file((EXAMPLE / "job.yaml").read_text("utf-8"), "job.yaml").jobs}
MONTH = "2013-02"
HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,"
    "origin,dest,air_time,distance,hour,minute,time_hour"
)


def flight(day: int, carrier: str, dep_delay: int | None, arr_delay: int | str | None) -> str:
    """A line of the file; a flight without a departure delay was cancelled."""
    cells = [2013, 2, day, None if dep_delay is None else 600, 600, dep_delay, 700, 700, arr_delay, carrier]
    cells += [1, None, "EWR", "ORD", 60, 719, 6, 0, "2013-02-01T11:00:00Z"]
    return ",".join("NA" if cell is None else str(cell) for cell in cells)


FLIGHTS = [
    flight(1, "AA", 10, 20),
    flight(1, "AA", -4, -10),
    flight(1, "AA", None, None),
    flight(1, "UA", 0, 15),
    flight(2, "AA", 3, 35),
    flight(2, "HA", 5, None),
]
STATISTICS = [
    # day, carrier, flights, cancelled, arrived, late, departure delay: mean, max, arrival delay: mean, max
    ("2013-02-01", "AA", 3, 1, 2, 1, 3.0, 10, 5.0, 20),
    ("2013-02-01", "UA", 1, 0, 1, 1, 0.0, 0, 15.0, 15),
    ("2013-02-02", "AA", 1, 0, 1, 1, 3.0, 3, 35.0, 35),
    ("2013-02-02", "HA", 1, 0, 0, 0, 5.0, 5, None, None),
]


class Place:
    """A folder with the data sets of the example; runs are started there in the documented environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.urls = {name: str(folder / name) for name in ("flights", "carrier_delays", "delay_report")}
        (folder / "flights").mkdir()
        (folder / "airlines.csv").write_text("carrier,name\nAA,American Airlines\nHA,Hawaiian\n", "utf-8")

    def write(self, *lines: str, end: str = "\n") -> None:
        (self.folder / "flights" / f"{MONTH}.csv").write_text("\n".join((HEADER, *lines)) + end, "utf-8")

    def partition(self, dataset: str) -> Path:
        return self.folder / dataset / f"month={MONTH}"

    def run(self, job: str, fence: int) -> "Ended":
        """Start a run as it is started, in a process of its own."""
        arguments = self._prepare(job, fence)
        environ = {**os.environ, **JOBS[job].env, **self._variables(job)}
        ended = subprocess.run(
            [sys.executable, *arguments],
            cwd=EXAMPLE,
            env={**environ, **class_archive.pyspark_variables(environ, spark_home())},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        return Ended(ended.returncode, ended.stderr)

    def run_here(self, job: str, fence: int) -> "Ended":
        """Do the same in this process."""
        arguments = self._prepare(job, fence)
        with pytest.MonkeyPatch.context() as patched, redirect_stderr(io.StringIO()) as err:
            for name, value in {**JOBS[job].env, **self._variables(job)}.items():
                patched.setenv(name, value)
            patched.chdir(EXAMPLE)
            patched.setattr(sys, "argv", arguments)
            with pytest.raises(SystemExit) as ended:
                runpy.run_path(arguments[0], run_name="__main__")
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, err.getvalue())

    def _prepare(self, job: str, fence: int) -> list[str]:
        """Write the files that a run reads; return its program with its arguments."""
        spec = JOBS[job]
        spark = spec.runtime.spark
        assert spark is not None
        context = {
            "job": job, "data_id": MONTH, "run_id": fence, "attempt": 1, "fence": fence,
            "datasets": {
                name: {"itemtype": kind, "url": self.urls[name]}
                for kind, names in (("IN", spec.inputs), ("OUT", spec.outputs))
                for name in names
            },
        }  # fmt: skip
        (self.folder / "context.json").write_text(json.dumps(context), "utf-8")
        conf = {"spark.master": "local[1]", "spark.driver.memory": "1g", **spark.settings}
        properties = "".join(f"{name} {value}\n" for name, value in conf.items())
        (self.folder / "spark-defaults.conf").write_text(properties, "utf-8")
        arguments = ["--airlines", str(self.folder / "airlines.csv")] if spark.program_arguments else []
        return [str(EXAMPLE / spark.program), *arguments]

    def _variables(self, job: str) -> dict[str, str]:
        return {
            "dataid": MONTH,
            "jobid": job,
            "SPARK_CONF_DIR": str(self.folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "DATAFLOW_CONTEXT": str(self.folder / "context.json"),
        }


@dataclass(frozen=True)
class Ended:
    """The exit code of a run, and its errors."""

    returncode: int
    stderr: str


def rows(folder: Path) -> list[tuple[Any, ...]]:
    """The rows of a Parquet folder, with dates as text."""
    table = pyarrow.parquet.read_table(folder, partitioning=None)
    return [(str(row.pop("day")), *row.values()) for row in table.to_pylist()]


def sentence(ended: Ended) -> str:
    """The last line of what a failed run says."""
    assert ended.returncode == 1
    return ended.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def done_twice(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Place:  # noqa: ARG001 # it runs
    """A place where the month was computed by fence 5 (kept as `once`) and again by fence 6."""
    place = Place(tmp_path_factory.mktemp("done"))
    place.write(*FLIGHTS)
    for run, fence in ((place.run, 5), (place.run_here, 6)):
        ended = run("delays", fence)
        assert ended.returncode == 0, ended.stderr
        if fence == 5:
            shutil.copytree(place.partition("carrier_delays"), place.folder / "once")
    return place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_statistics_are_right_and_doing_a_chunk_twice_equals_doing_it_once(done_twice: Place) -> None:
    assert rows(done_twice.folder / "once") == STATISTICS
    assert rows(done_twice.partition("carrier_delays")) == STATISTICS
    left = {path.name for path in done_twice.partition("carrier_delays").parent.iterdir()}
    assert left == {f"month={MONTH}", f".month={MONTH}.lock"}


def test_an_older_fence_does_not_overwrite_what_a_newer_one_published(done_twice: Place) -> None:
    published = done_twice.partition("carrier_delays")
    before = {path.name: path.stat().st_mtime_ns for path in published.iterdir()}
    assert "fence 4, a newer one with fence 6" in sentence(done_twice.run_here("delays", 4))
    assert {path.name: path.stat().st_mtime_ns for path in published.iterdir()} == before


def test_the_report_weighs_the_days_and_names_the_carriers(done_twice: Place) -> None:
    ended = done_twice.run("report", 7)
    assert ended.returncode == 0, ended.stderr
    with (done_twice.partition("delay_report") / "carriers.csv").open(encoding="utf-8", newline="") as file:
        assert [tuple(row) for row in csv.reader(file)] == [
            ("carrier", "name", "flights", "cancelled", "late_percent", "mean_arr_delay", "max_arr_delay"),
            ("AA", "American Airlines", "4", "1", "66.7", "15.0", "35"),
            ("UA", "UA", "1", "0", "100.0", "15.0", "15"),
            ("HA", "Hawaiian", "1", "0", "", "", ""),
        ]
    page = (done_twice.partition("delay_report") / "report.md").read_text("utf-8")
    assert "| 2013-02-02 | 2 | 0 | 100.0 | 35.0 |\n| 2013-02-01 | 4 | 1 | 66.7 | 8.3 |" in page
    assert "| Hawaiian | 1 | 0 | - | - | - |" in page


def test_a_file_cut_in_the_middle_of_a_line_fails_with_a_sentence(place: Place) -> None:
    place.write(*FLIGHTS, FLIGHTS[0][:30], end="")
    message = sentence(place.run_here("delays", 1))
    source = place.folder / "flights" / f"{MONTH}.csv"
    assert message == f"flights {MONTH}: torn file: {source} ends in the middle of a line"
    assert not place.partition("carrier_delays").exists()


def test_a_delay_that_is_no_number_fails_with_a_sentence_that_names_file_line_and_value(
    spark: "SparkSession",  # noqa: ARG001 # it runs
    place: Place,
) -> None:
    place.write(*FLIGHTS[:2], flight(1, "AA", 3, "late"), *FLIGHTS[2:])
    message = sentence(place.run_here("delays", 1))
    source = place.folder / "flights" / f"{MONTH}.csv"
    assert message.startswith(f"flights {MONTH}: bad row: {source}, line 4: arr_delay is 'late', not a number")
    assert not place.partition("carrier_delays").exists()


def test_a_row_with_too_few_columns_fails_though_spark_could_do_without_the_missing_ones(
    spark: "SparkSession",  # noqa: ARG001 # it runs
    place: Place,
) -> None:
    place.write(*FLIGHTS, FLIGHTS[0].rpartition(",")[0])
    message = sentence(place.run_here("delays", 1))
    assert "line 8: 18 columns instead of 19" in message


def test_a_missing_file_fails_with_a_sentence(place: Place) -> None:
    message = sentence(place.run("delays", 1))
    assert message.startswith(f"flights {MONTH}: no file {place.folder / 'flights' / f'{MONTH}.csv'}")


def test_a_job_that_was_started_by_hand_says_how_to_start_it() -> None:
    environ = {name: value for name, value in os.environ.items() if name != "DATAFLOW_CONTEXT"}
    ended = subprocess.run(
        [sys.executable, EXAMPLE / "delays.py"],
        env=environ, capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    assert "start this job with `dataflow local -f job.yaml`" in sentence(Ended(ended.returncode, ended.stderr))
