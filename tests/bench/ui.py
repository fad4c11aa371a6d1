"""How fast the dashboard is, from the server and as a real Chromium paints it, and what open tabs cost.

    python -m tests.bench.ui [--chunks N] [--jobs N] [--tabs N] [--seconds N]

Prints one line for each goal, and ends with 1 if one is missed.
"""

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
from playwright.sync_api import Page
from psycopg.conninfo import make_conninfo

import opendataflow
from opendataflow.names import SPARK_ARCHIVE
from opendataflow.store.embedded import EmbeddedPostgres
from tests.e2e.conftest import Program
from tests.e2e.dashboard.browser import chromium, visiting
from tests.e2e.dashboard.serving import Dashboard, dashboard
from tests.sql import graph
from tests.sql.conftest import Connection, open_connection

STATIC = Path(opendataflow.__file__).parent / "dashboard" / "static"
_BATCH = 50_000
_SMALL = 10_000
_TIMES = 20


@dataclass
class Goals:
    """The lines that were printed, and whether one was missed."""

    missed: int = 0

    def report(self, name: str, value: float, most: float, unit: str) -> None:
        """Print one figure beside its goal."""
        met = value <= most
        self.missed += not met
        print(f"{'ok  ' if met else 'MISS'}  {name:<52} {value:9.1f} {unit:<4} at most {most:g}", flush=True)


def write_jobs(db: Connection, jobs: int, chunks: int) -> None:
    """Write jobs with 10 chunks each, one with 10,000 and one with a given number."""
    few = [str(number) for number in range(10)]
    graph.apply(
        db,
        [graph.source("few", *few), graph.dataset("small"), graph.dataset("large")],
        [graph.job(f"job{number:03}", ["few"], []) for number in range(jobs)]
        + [graph.job("small-job", ["small"], []), graph.job("large-job", ["large"], [])],
    )
    for dataset, size in (("small", _SMALL), ("large", chunks)):
        for first in range(0, size, _BATCH):
            ids = [f"c{number:07}" for number in range(first, min(first + _BATCH, size))]
            declare = "SELECT opendataflow.declare_chunks(%s, %s, %s::jsonb[], 'bench')"
            db.execute(declare, (dataset, ids, [None] * len(ids)))
    db.execute("ANALYZE")


def p95(action: Callable[[], object]) -> tuple[float, float]:
    """Return the first time and the 95th percentile of the later ones, in milliseconds."""
    times = []
    for _ in range(_TIMES + 1):
        begun = time.perf_counter()
        action()
        times.append(1000 * (time.perf_counter() - begun))
    return times[0], statistics.quantiles(times[1:], n=20)[-1]


def asking(running: Dashboard, path: str) -> Callable[[], object]:
    """Return a request as a browser sends it."""
    cookie = running.cookie()

    def ask() -> None:
        assert running.ask(path, Cookie=cookie).status == 200

    return ask


def painting(page: Page, running: Dashboard, job: str, cells: int) -> Callable[[], object]:
    """Return the opening of a job's page until its grid is painted."""

    def paint() -> None:
        page.goto(f"{running.root}/job?id={job}", wait_until="commit")
        page.wait_for_selector(f".gridbox[data-drawn='{cells}']")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    return paint


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mebibytes(pid: int) -> float:
    """Return the largest resident size that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text("utf-8")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def keep_open(running: Dashboard, cookie: str) -> None:
    """Be an open tab: follow the news, and read the page after each."""
    with suppress(OSError, ValueError):
        request = urllib.request.Request(f"{running.root}/events", headers={"Cookie": cookie})
        with urllib.request.urlopen(request, timeout=600) as stream:
            for line in stream:
                if line.startswith(b"data:"):
                    version = line.partition(b":")[2].strip().decode()
                    running.ask("/job?id=job000", Cookie=cookie, If_None_Match=f'"{version}"')


def share_of_a_core(running: Dashboard, tabs: int, seconds: int) -> float:
    """Return the percentage of a core that open tabs cost while nothing changes."""
    cookie = running.cookie()
    for _ in range(tabs):
        threading.Thread(target=keep_open, args=(running, cookie), daemon=True).start()
    time.sleep(5)
    before = cpu_seconds(running.process.pid)
    time.sleep(seconds)
    return 100 * (cpu_seconds(running.process.pid) - before) / seconds


def measure(running: Dashboard, goals: Goals, chosen: argparse.Namespace) -> None:
    """Print all figures."""
    goals.report(f"overview of {chosen.jobs} jobs, server, p95", p95(asking(running, "/"))[1], 150, "ms")
    goals.report("grid of 10,000 chunks, server, p95", p95(asking(running, "/cells?job=small-job"))[1], 100, "ms")
    goals.report("page of that job, server, p95", p95(asking(running, "/job?id=small-job"))[1], 100, "ms")
    first, later = p95(asking(running, "/cells?job=large-job"))
    goals.report(f"grid of {chosen.chunks:,} chunks, server, first", first, 1000, "ms")
    goals.report(f"grid of {chosen.chunks:,} chunks, server, later p95", later, 150, "ms")
    with chromium() as browser, visiting(browser, running) as page:
        goals.report(
            "grid of 10,000 chunks, painted, p95", p95(painting(page, running, "small-job", _SMALL))[1], 300, "ms"
        )
        later = p95(painting(page, running, "large-job", chosen.chunks))[1]
        print(f"      grid of {chosen.chunks:,} chunks, painted, later p95: {later:.0f} ms", flush=True)
    goals.report(f"{chosen.tabs} open tabs", share_of_a_core(running, chosen.tabs, chosen.seconds), 5, "%")
    goals.report("largest size of the process", peak_mebibytes(running.process.pid), 80, "MiB")
    scripts = sum(file.stat().st_size for file in STATIC.glob("*.js"))
    goals.report("all JavaScript", scripts / 1024, 60, "KiB")


def main() -> None:
    """Measure in a new database."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("chunks", 1_000_000), ("jobs", 500), ("tabs", 50), ("seconds", 20)):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N")
    chosen = parser.parse_args()
    os.environ[SPARK_ARCHIVE] = "off"
    goals = Goals()
    with tempfile.TemporaryDirectory(prefix="dataflow-bench-ui-") as made:
        home = Path(made)
        home.chmod(0o711)
        _measure_in(home, goals, chosen)
    sys.exit(min(goals.missed, 1))


def _measure_in(home: Path, goals: Goals, chosen: argparse.Namespace) -> None:
    with EmbeddedPostgres(home / "postgres", {"fsync": "off"}) as server:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("CREATE DATABASE bench")
        dsn = make_conninfo(server, dbname="bench")
        Program(home, dsn).run("db", "migrate")
        with open_connection(dsn) as db:
            write_jobs(db, chosen.jobs, chosen.chunks)
        with dashboard(dsn, home) as running:
            measure(running, goals, chosen)


if __name__ == "__main__":
    main()
