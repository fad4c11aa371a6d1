"""How long `status` and `why` take for a job of a million chunks."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

import psycopg

from opendataflow.store.store import Store
from tests.bench.server import database, seed, server

CHUNKS = 1_000_000

MIXED = """
SELECT opendataflow.begin_event('seed', 'bench');
UPDATE opendataflow.task SET state = 'DONE'
WHERE job = 'job0' AND data_id::integer % 100 <> 0 AND data_id::integer < 600000;
UPDATE opendataflow.task SET state = 'FAILED', reason = 'the target refused the connection'
WHERE job = 'job0' AND data_id::integer % 100 = 0 AND data_id::integer < 600000;
"""
"""Six in ten are done, and one in a hundred of them has failed."""


def main() -> None:
    """Measure and print."""
    with server() as dsn, database(dsn, "bench_reads") as own:
        seed(own, CHUNKS, jobs=0)
        with psycopg.connect(own, autocommit=True) as connection:
            connection.execute(MIXED)
            connection.execute("VACUUM ANALYZE")
        asyncio.run(_measure(own))


async def _measure(dsn: str) -> None:
    store = await Store.open(lambda: dsn, size=1)
    asked: dict[str, Callable[[], Awaitable[object]]] = {
        "status": lambda: store.job_status("job0"),
        "why (done)": lambda: store.why("job0", "500001"),
        "why (failed)": lambda: store.why("job0", "500000"),
        "why (ready, 400,000 before it)": lambda: store.why("job0", "1000000"),
    }
    for name, ask in asked.items():
        seconds = [await _timed(ask) for _ in range(5)]
        print(f"{name}: {statistics.median(seconds) * 1000:.0f} ms with {CHUNKS:,} chunks (goal: 200)")
    await store.close()


async def _timed(ask: Callable[[], Awaitable[object]]) -> float:
    began = time.monotonic()
    await ask()
    return time.monotonic() - began


if __name__ == "__main__":
    main()
