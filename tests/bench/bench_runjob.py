"""How long RunJob takes around a script that does nothing, from its start to its exit.

    python -m tests.bench.bench_runjob

Starts an embedded Postgres of its own and prints one table: the whole of RunJob, what Python alone takes to start, and
the difference, which is what the program adds.
"""

import asyncio
import os
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
                "python -c pass": [_seconds([sys.executable, "-c", "pass"], environ) for _ in range(RUNS)],
            }
    finally:
        shutil.rmtree(folder)
    print(f"{'seconds':<16}{'median':>8}{'least':>8}{'most':>8}   ({RUNS} runs each)")
    for name, times in rows.items():
        print(f"{name:<16}{median(times):>8.3f}{min(times):>8.3f}{max(times):>8.3f}")
    added = median(rows["RunJob true"]) - median(rows["python -c pass"])
    print(f"{'added':<16}{added:>8.3f}")


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


def _seconds(command: list[str], environ: dict[str, str]) -> float:
    start = time.perf_counter()
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command} has ended with {done.returncode}: {done.stderr}")
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
