"""How long a declaration of many chunks takes, and what it costs others meanwhile.

    python -m tests.bench.bench_declaring [CHUNKS]

Each row: seconds for all chunks; the slowest renewal of the leader's lease meanwhile; seconds from the apply of another
namespace's one-chunk job until its task is claimed; seconds to apply the same again, and with one chunk more; and the
peak memory of this process, which expands no chunk.
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
from tests.sql.graph import of_namespace

CHUNKS = 1_000_000
RENEW_SECONDS = 0.2
OTHER_AFTER_SECONDS = 5.0
HOST = Host("bench", "boot")


@dataclass
class Measured:
    """What one declaration took, in seconds."""

    whole: float = 0.0
    other: float = 0.0
    again: float = 0.0
    one_more: float = 0.0
    renewals: list[float] = field(default_factory=list)


def main(chunks: int = CHUNKS) -> None:
    """Measure and print."""
    heads = ("chunks", "jobs", "seconds", "slowest renewal", "other job", "again", "one more", "peak MiB")
    print(" ".join(f"{head:>9}" for head in heads))
    with server() as dsn:
        for jobs in (0, 1):
            with database(dsn, "bench_declaring") as fresh:
                measured = asyncio.run(_measure(fresh, chunks, jobs))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(
                f"{chunks:>9} {jobs:>9} {measured.whole:>9.1f} {max(measured.renewals):>15.3f} {measured.other:>9.2f} "
                f"{measured.again:>9.1f} {measured.one_more:>9.1f} {peak:>9}",
                flush=True,
            )


async def _measure(dsn: str, chunks: int, jobs: int) -> Measured:
    measured = Measured()
    store = await Store.open(lambda: dsn, size=4)
    lease = str(uuid.uuid4())
    await acquire_leadership(store, lease, HOST, 3600, ())
    datasets = [_ranges(chunks), of_namespace("team-b", {"id": "made"})]
    consumers = [of_namespace("team-b", graph.job("reads", ["big"], ["made"]))] if jobs else []
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
    measured.again = await _seconds_to_apply(store, _ranges(chunks))
    measured.one_more = await _seconds_to_apply(store, _ranges(chunks + 1))
    await store.close()
    return measured


def _ranges(chunks: int) -> dict[str, Any]:
    return of_namespace("team-b", {"id": "big", "source": {"range": {"from": 0, "to": chunks * 10, "step": 10}}})


async def _seconds_to_apply(store: Store, dataset: dict[str, Any]) -> float:
    begin = time.monotonic()
    await declare(store, [dataset], [], "bench")
    return time.monotonic() - begin


async def _renew(store: Store, lease: str, measured: Measured) -> None:
    while True:
        begin = time.monotonic()
        await acquire_leadership(store, lease, HOST, 3600, ())
        measured.renewals.append(time.monotonic() - begin)
        await asyncio.sleep(RENEW_SECONDS)


async def _other(store: Store, lease: str, measured: Measured) -> None:
    await asyncio.sleep(OTHER_AFTER_SECONDS)
    begin = time.monotonic()
    small = [of_namespace("team-a", one) for one in (graph.source("one", "1"), {"id": "out"})]
    await declare(store, small, [of_namespace("team-a", graph.job("quick", ["one"], ["out"]))], "bench")
    claimed = await store.claim(lease, "team-a/quick", 1, Position())
    assert claimed.runs, "the apply has queued the task"
    measured.other = time.monotonic() - begin


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
