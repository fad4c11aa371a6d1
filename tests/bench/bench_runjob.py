"""How long RunJob takes around a script that does nothing, from its start to its exit.

    python -m tests.bench.bench_runjob

Starts an embedded Postgres of its own and prints one table, in seconds and in seconds of the processor: the whole of
RunJob, what Python alone takes to start, and Python with asyncio and psycopg, below which no RunJob can get.
"""

import asyncio
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from opendataflow.store.connections.connection import connect
from opendataflow.store.embedded import EmbeddedPostgres
from opendataflow.store.migrations.schema import migrate
from opendataflow.store.store import Store
from tests.sql.graph import dataset, job

RUNS = 15
RUNJOB = [sys.executable, "-m", "opendataflow.runjob.main"]


def main() -> None:
    """Print the table."""
    folder = Path(tempfile.mkdtemp(prefix="dataflow-bench-"))
    folder.chmod(0o711)
    try:
        with EmbeddedPostgres(folder / "postgres") as dsn:
            asyncio.run(_prepare(dsn))
            environ = {**os.environ, "DATAFLOW_DSN": dsn, "DATAFLOW_HOME": str(folder / "home")}
            # As after an installation: the modules are compiled, by the first run.
            environ |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
            _seconds([*RUNJOB, "true"], environ)
            rows = {
                "RunJob true": [_seconds([*RUNJOB, "true"], environ) for _ in range(RUNS)],
                **{
                    name: [_seconds([sys.executable, "-c", code], environ) for _ in range(RUNS)]
                    for name, code in {
                        "python": "pass",
                        "with psycopg": "import gc; gc.disable(); import asyncio, psycopg",
                    }.items()
                },
            }
    finally:
        shutil.rmtree(folder)
    print(f"{'':<16}{'median':>8}{'least':>8}{'most':>8}{'CPU':>8}{'least':>8}   ({RUNS} runs each)")
    for name, both in rows.items():
        times, busy = zip(*both, strict=True)
        figures = (median(times), min(times), max(times), median(busy), min(busy))
        print(f"{name:<16}" + "".join(f"{figure:>8.3f}" for figure in figures))


async def _prepare(dsn: str) -> None:
    async with await connect(dsn) as connection:
        await migrate(connection)
    store = await Store.open(lambda: dsn)
    ids = [str(number) for number in range(RUNS + 1)]
    await store.apply(
        [dataset("source", *ids), dataset("target")], [job("true", ["source"], ["target"])], "bench", _any
    )
    await store.close()


def _any(links: object, known: object) -> None:
    """Any graph will do."""


def _seconds(command: list[str], environ: dict[str, str]) -> tuple[float, float]:
    """Return how long a command takes, and how long it and its children use the processor."""
    start, before = time.perf_counter(), _busy()
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command} has ended with {done.returncode}: {done.stderr}")
    return time.perf_counter() - start, _busy() - before


def _busy() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
