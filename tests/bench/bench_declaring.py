"""How long a declaration of many chunks takes, and what it costs others meanwhile.

    python -m tests.bench.bench_declaring [CHUNKS]

Each row: seconds for all chunks; the slowest renewal of the leader's lease meanwhile; seconds from the apply of another
namespace's one-chunk job until its task is claimed; and the peak memory of this process, which expands no chunk.
"""

import asyncio
import resource
import sys
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from opendataflow.engine.declaring import batches, declare
from opendataflow.model.records.claim import Position
from opendataflow.model.records.run import Host
from opendataflow.store.leader import acquire_leadership
from opendataflow.store.store import Store
from tests.bench.server import database, server
from tests.sql import graph

CHUNKS = 1_000_000
RENEW_SECONDS = 0.2
OTHER_AFTER_SECONDS = 5.0
HOST = Host("bench", "boot")


@dataclass
class Measured:
    """What one declaration took, in seconds."""

    whole: float = 0.0
    other: float = 0.0
    renewals: list[float] = field(default_factory=list)


def main(chunks: int = CHUNKS) -> None:
    """Measure and print."""
    print(f"{'chunks':>9} {'jobs':>4} {'seconds':>8} {'slowest renewal':>15} {'other job':>9} {'peak MiB':>8}")
    with server() as dsn:
        for jobs in (0, 1):
            with database(dsn, "bench_declaring") as fresh:
                measured = asyncio.run(_measure(fresh, chunks, jobs))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(
                f"{chunks:>9} {jobs:>4} {measured.whole:>8.1f} {max(measured.renewals):>15.3f} {measured.other:>9.2f} "
                f"{peak:>8}",
                flush=True,
            )


async def _measure(dsn: str, chunks: int, jobs: int) -> Measured:
    measured = Measured()
    store = await Store.open(lambda: dsn, size=4)
    lease = str(uuid.uuid4())
    await acquire_leadership(store, lease, HOST, 3600, ())
    datasets: list[dict[str, Any]] = [
        {"id": "big", "owner": "team-b/big", "source": {"range": {"from": 0, "to": chunks * 10, "step": 10}}},
        {"id": "made", "owner": "team-b/made"},
    ]
    consumers = [graph.job("reads", ["big"], ["made"], owner="team-b/reads")] if jobs else []
    begin = time.monotonic()
    beside = [asyncio.create_task(_renew(store, lease, measured)), asyncio.create_task(_other(store, lease, measured))]
    await declare(store, datasets, consumers, "bench")
    async for _ in batches(store, print):
        pass
    measured.whole = time.monotonic() - begin
    beside[0].cancel()
    with suppress(asyncio.CancelledError):
        await beside[0]
    await beside[1]
    await store.close()
    return measured


async def _renew(store: Store, lease: str, measured: Measured) -> None:
    while True:
        begin = time.monotonic()
        await acquire_leadership(store, lease, HOST, 3600, ())
        measured.renewals.append(time.monotonic() - begin)
        await asyncio.sleep(RENEW_SECONDS)


async def _other(store: Store, lease: str, measured: Measured) -> None:
    await asyncio.sleep(OTHER_AFTER_SECONDS)
    begin = time.monotonic()
    small: list[dict[str, Any]] = [
        {**graph.source("one", "1"), "owner": "team-a/one"},
        {"id": "out", "owner": "team-a/out"},
    ]
    await declare(store, small, [graph.job("quick", ["one"], ["out"], owner="team-a/quick")], "bench")
    claimed = await store.claim(lease, "quick", 1, Position())
    assert claimed.runs, "the apply has queued the task"
    measured.other = time.monotonic() - begin


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
