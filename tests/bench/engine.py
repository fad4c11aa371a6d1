"""What the engine itself costs: chunks whose runs do nothing, from the claim over the launcher to the commit.

    python -m tests.bench.engine [--chunks N]

The launcher is a queue: it starts no process, and each run has ended when it was started. So this is the rate that no
launcher, with or without a shared JVM, can exceed.
"""

import argparse
import asyncio
import sys
import time

import psycopg

from opendataflow.engine.claim_authority import Leadership
from opendataflow.engine.engine import Engine
from opendataflow.model.records.run import Ended, Host, RunOrder
from opendataflow.store.store import Store
from tests.bench.server import database, seed, server
from tests.e2e.test_outage import Anything
from tests.e2e.test_outage import Database as LauncherOfNothing
from tests.seen import Seen

PARALLELISM = 50


class EndedAtOnce(LauncherOfNothing):
    """Its runs have ended when they are started."""

    async def start(self, order: RunOrder) -> None:
        """Report the end."""
        self.ends.put_nowait(Ended(order.run, exit_code=0))


async def work(dsn: str, chunks: int) -> tuple[float, float]:
    """Run all chunks. Return the wall time and the CPU time of this process, without Postgres, in seconds."""
    store = await Store.open(lambda: dsn, size=6)
    seen = Seen()
    leadership = Leadership(store, Host("operator", "1"), lambda _: None)
    engine = Engine(store, EndedAtOnce(there=True), leadership, {"job0": Anything()}, seen, parallelism=PARALLELISM)
    wall, cpu = time.monotonic(), time.process_time()
    working = asyncio.create_task(engine.run())
    while len(seen.ends) < chunks:
        await asyncio.wait([working], timeout=0.01)
        if working.done():
            working.result()
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    engine.leave()
    await working
    await store.close()
    return wall, cpu


def measure(chunks: int) -> None:
    """Measure and print."""
    with server() as dsn, database(dsn, "bench_engine") as own:
        seed(own, chunks, jobs=0)
        wall, cpu = asyncio.run(work(own, chunks))
        with psycopg.connect(own) as connection:
            done = connection.execute("SELECT count(*) FROM opendataflow.task WHERE state = 'DONE'").fetchone()
    if done != (chunks,):
        sys.exit(f"not all of {chunks} tasks are done, but {done}")
    print(
        f"engine: {chunks} chunks that do nothing in {wall:.1f} s: {chunks / wall * 60:,.0f} a minute (goal: 10,000), "
        f"{cpu / chunks * 1000:.1f} ms of CPU time for each, without Postgres",
        flush=True,
    )


def main() -> None:
    """Measure as many chunks as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=10_000)
    measure(parser.parse_args().chunks)


if __name__ == "__main__":
    main()
