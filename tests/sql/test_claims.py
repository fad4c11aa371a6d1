"""Many engines that claim at once: every chunk is taken exactly once, and no job runs more than its parallelism."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.share import soaked
from tests.sql import graph
from tests.sql.conftest import Connection, open_connection

CLAIMERS = 20
CHUNKS = soaked(3_000, 10_000)
BATCH = 10

OVERLAPS = """
    SELECT job, max(running) AS most
    FROM (SELECT job, sum(step) OVER (PARTITION BY job ORDER BY at, step) AS running
          FROM (SELECT job, claimed_at AS at, 1 AS step FROM opendataflow.run
                UNION ALL SELECT job, finished_at, -1 FROM opendataflow.run) AS steps) AS sums
    GROUP BY job
"""
"""How many runs of each job there were at once. A run's place is free when its end is committed, which is after
finished_at, and a claim counts before claimed_at: so no sum is above the parallelism if no claim was too many."""


@dataclass
class Claimer:
    """One engine: its own connection and lease. `left` counts what all of them have still to do."""

    db: Connection
    jobs: list[str]
    parallelism: int
    left: "Countdown"
    taken: list[tuple[str, str]] = field(default_factory=list)

    def work(self) -> "Claimer":
        """Claim and complete until nothing is left; a job after the other, so that claimers meet."""
        lease = graph.open_lease(self.db)
        positions = dict.fromkeys(self.jobs, (-1, ""))
        while self.left:
            for job in self.jobs:
                try:
                    answer = self._claim(lease, job, *positions[job])
                except graph.TRY_AGAIN:
                    continue
                # An answer with no runs may be a position that has got too far: the next claim looks at everything.
                positions[job] = (answer["rank"], answer["key"]) if answer["runs"] else (-1, "")
                self._complete(answer["runs"])
                self.left.subtract(len(answer["runs"]))
        return self

    def _claim(self, lease: str, job: str, rank: int, key: str) -> dict[str, Any]:
        with self.db.transaction():
            answer = graph.claim_all(self.db, lease, job, BATCH, rank, key)
            running = graph.value(
                self.db, "SELECT count(*) FROM opendataflow.task WHERE job = %s AND state = 'RUNNING'", job
            )
        # Counted under the job's lock, where no other claim can add to it.
        assert running <= self.parallelism
        self.taken += [(job, run["data_id"]) for run in answer["runs"]]
        return answer

    def _complete(self, runs: list[dict[str, Any]]) -> None:
        outcomes = [
            {"run": r["run"], "fence": r["fence"], "verdict": "DONE", "state": "SUCCEEDED", "class": "Success"}
            for r in runs
        ]
        if outcomes:
            self.db.execute("SELECT * FROM opendataflow.complete(%s, 'test')", (Jsonb(outcomes),))


class Countdown:
    """A number that threads count down; true until it is used up."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lock = threading.Lock()

    def subtract(self, number: int) -> None:
        """Count down; a negative number says that a claimer failed and the others can stop."""
        with self._lock:
            self._number -= number

    def __bool__(self) -> bool:
        with self._lock:
            return self._number > 0


@pytest.fixture
def connections(dsn: str) -> Iterator[list[Connection]]:
    opened = [open_connection(dsn) for _ in range(CLAIMERS)]
    for connection in opened:
        connection.execute("SET statement_timeout = '300s'")
    yield opened
    for connection in opened:
        connection.close()


def declare(db: Connection, jobs: list[str], chunks: int, parallelism: int) -> None:
    """Jobs that all read the same READY chunks."""
    ids = [str(n) for n in range(chunks)]
    outputs = {job: f"made by {job}" for job in jobs}
    graph.apply(
        db,
        [graph.dataset("source", *ids), *(graph.dataset(d) for d in outputs.values())],
        [graph.job(j, ["source"], [d], parallelism=parallelism) for j, d in outputs.items()],
    )


def claim_everything(connections: list[Connection], jobs: list[str], chunks: int, parallelism: int) -> Counter[Any]:
    """Let the claimers do all there is; return how often each task was claimed."""
    left = Countdown(chunks * len(jobs))

    def work(number: int) -> Claimer:
        try:
            turned = jobs[number % len(jobs) :] + jobs[: number % len(jobs)]
            return Claimer(connections[number], turned, parallelism, left).work()
        except BaseException:
            left.subtract(chunks * len(jobs))
            raise

    with ThreadPoolExecutor(CLAIMERS) as pool:
        claimers = list(pool.map(work, range(CLAIMERS)))
    assert sum(bool(c.taken) for c in claimers) > 1
    return Counter(task for c in claimers for task in c.taken)


@pytest.mark.parametrize(("jobs", "chunks", "parallelism"), [(["only"], CHUNKS, 25), (["x", "y", "z"], 1000, 25)])
def test_each_chunk_is_claimed_exactly_once_within_the_parallelism(
    db: Connection, connections: list[Connection], jobs: list[str], chunks: int, parallelism: int
) -> None:
    declare(db, jobs, chunks, parallelism)
    claimed = claim_everything(connections, jobs, chunks, parallelism)
    assert claimed == Counter((job, str(n)) for job in jobs for n in range(chunks))
    assert set(graph.tasks(db).values()) == {"DONE"}
    most = {row["job"]: row["most"] for row in db.execute(OVERLAPS)}
    print(f"runs at once: {most}, parallelism {parallelism}")
    assert all(BATCH < n <= parallelism for n in most.values())
    assert graph.problems(db) == []
