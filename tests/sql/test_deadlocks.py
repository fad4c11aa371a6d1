"""Everything that changes states, at once on a few chunks: nobody ever waits in a circle, nothing else goes wrong."""

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.share import SHARE, soaked
from tests.sql import graph
from tests.sql.conftest import Connection, open_connection
from tests.waiting import wait_until

SECONDS = float(os.environ.get("DATAFLOW_TEST_DEADLOCK_SECONDS") or soaked(12, 300))
"""How long they ask; longer on a machine that is so busy that not all of EXPECTED has happened by then."""
CLIENTS = 8
IDS = ("1", "2", "3", "4", "5")
JOBS = {
    "split": graph.job("split", ["a"], ["b", "c"], parallelism=3),
    "left": graph.job("left", ["b"], ["d"], parallelism=2),
    "right": graph.job("right", ["b", "c"], ["e"]),
    "join": graph.job("join", ["d", "e"], ["f"]),
    "make": graph.job("make", [], ["g"]),
}
OTHERS = (
    graph.job("left", ["b", "c"], ["d"], parallelism=4),
    graph.job("join", ["e"], ["f"], descending=True),
    graph.job("split", ["a"], ["b", "c", "h"]),
)
DATASETS = "abcdefgh"
EXPECTED = {
    *("claim", "complete", "publish", "resubmit", "hold", "release", "resubmit_chunks", "hold_chunks"),
    *("release_chunks", "retry_due", "declare", "apply", "job row", "UPDATE READY", "INSERT READY"),
}
"""What has to happen: where all of it has, all paths have met."""


@dataclass
class Client:
    """Asks for anything, in any order; `counts` says how often each request changed something."""

    db: Connection
    number: int
    counts: Counter[str] = field(default_factory=Counter)
    runs: list[dict[str, Any]] = field(default_factory=list)
    lease: str = ""

    def work(self, enough: Callable[[], bool]) -> "Client":
        """Ask until it is enough, then end the runs that were claimed. Each day's requests are others."""
        dice = random.Random(f"{SHARE} {self.number}")
        self.lease = graph.open_lease(self.db)
        requests: list[Callable[[random.Random], None]] = [
            *([self.claim] * 6),
            *([self.complete] * 6),
            *([self.publish] * 3),
            *([self.ask_for_tasks] * 3),
            *([self.ask_for_chunks] * 3),
            self.retry_due,
            self.declare,
            self.apply,
            *([self.write_rows] * 3),
            self.write_a_job_row,
        ]
        while not enough():
            self.repeated(dice.choice(requests), dice)
        while self.runs:
            self.repeated(self.complete, dice)
        return self

    def repeated(self, request: Callable[[random.Random], None], dice: random.Random) -> None:
        """The errors that may come say that the same request has to be made again."""
        try:
            request(dice)
        except graph.TRY_AGAIN:
            self.counts["to be repeated"] += 1

    def claim(self, dice: random.Random) -> None:
        runs = graph.claim(self.db, self.lease, dice.choice([*JOBS]), dice.randint(1, 5))
        self.runs += runs
        self.counts["claim"] += len(runs)

    def complete(self, dice: random.Random) -> None:
        dice.shuffle(self.runs)
        some = self.runs[: dice.randint(1, 5)]
        if not some:
            return
        verdict = dice.choice(["DONE", "DONE", "DONE", "RETRYING", "FAILED"])
        state = "SUCCEEDED" if verdict == "DONE" else "FAILED"
        outcomes = [
            {
                "run": r["run"],
                "fence": r["fence"],
                "verdict": verdict,
                "state": state,
                "class": "Application",
                "delay": 0,
            }
            for r in some
        ]
        query = "SELECT * FROM opendataflow.complete(%s, 'test')"
        rows = self.db.execute(query, (Jsonb(outcomes),)).fetchall()
        assert not any(row["already"] for row in rows)
        self.runs = self.runs[len(some) :]
        self.counts["complete"] += len(some)

    def publish(self, dice: random.Random) -> None:
        self.ask("publish", dice.choice("aaagbdh"), dice)

    def ask_for_tasks(self, dice: random.Random) -> None:
        verb = dice.choice(["resubmit", "resubmit_cascade", "cancel", "hold", "release", "release", "skip", "force"])
        self.ask(verb, dice.choice([*JOBS]), dice)

    def ask_for_chunks(self, dice: random.Random) -> None:
        verb = dice.choice(["resubmit_chunks", "hold_chunks", "release_chunks", "release_chunks"])
        self.ask(verb, dice.choice(DATASETS), dice)

    def ask(self, verb: str, owner: str, dice: random.Random) -> None:
        rows = graph.ask(self.db, verb, owner, *dice.sample(IDS, dice.randint(1, len(IDS))))
        self.counts[verb] += sum(row["result"] in ("done", "remembered") for row in rows)

    def write_rows(self, dice: random.Random) -> None:
        """By SQL, many rows of several data sets in one statement."""
        status = dice.choice(["READY", "READY", "RESUBMIT", "RESUBMIT", "HOLD", "PENDING", "FAILED"])
        update = """UPDATE dataflow.datastatus SET status = %s, modified = now()
                    WHERE dataid = ANY (%s) AND datasetid = ANY (%s) AND status <> 'RUNNING'"""
        insert = """INSERT INTO dataflow.datastatus (datasetid, jobid, dataid, locktype, status)
                    SELECT d, 'outside', i, 'OUT', s
                    FROM unnest(%s::text[]) AS s, unnest(%s::text[]) AS i, unnest(%s::text[]) AS d"""
        query, by = (update, status) if dice.random() < 0.7 else (insert, [status])
        try:
            done = self.db.execute(query, (by, dice.sample(IDS, 3), dice.sample(DATASETS, 3)))
            self.counts[f"{query[:6]} {status}"] += done.rowcount
        except psycopg.DatabaseError as error:
            if error.sqlstate != "DF001":  # a run has begun to write a chunk, or its task is skipped
                raise

    def write_a_job_row(self, dice: random.Random) -> None:
        row = (dice.choice(["left", "join"]), dice.choice("bch"))
        self.db.execute("INSERT INTO dataflow.job (jobid, itemtype, datasetid) VALUES (%s, 'IN', %s)", row)
        self.counts["job row"] += 1

    def retry_due(self, _: random.Random) -> None:
        row = self.db.execute("SELECT * FROM opendataflow.retry_due()").fetchone()
        assert row is not None
        self.counts["retry_due"] += len(row["woken"])

    def declare(self, dice: random.Random) -> None:
        ids = dice.sample(IDS, len(IDS))
        self.db.execute(
            "SELECT opendataflow.declare_chunks(%s, %s, array_fill(NULL::jsonb, ARRAY[%s]), 'test')",
            (dice.choice(DATASETS), ids, len(ids)),
        )
        self.counts["declare"] += 1

    def apply(self, dice: random.Random) -> None:
        jobs = {job["id"]: job for job in (*dice.sample([*JOBS.values()], 2), dice.choice(OTHERS))}
        sources = [graph.dataset(d, *dice.sample(IDS, 2)) for d in dice.sample(DATASETS, 2)]
        consent = {"retire": True, "overlap": True, "backfill": dice.choice(["all", "none"])}
        graph.apply_allowing(self.db, sources, [*jobs.values()], **consent)
        self.counts["apply"] += 1


@pytest.fixture
def connections(dsn: str) -> Iterator[list[Connection]]:
    opened = [open_connection(dsn) for _ in range(CLIENTS)]
    for connection in opened:
        connection.execute("SET statement_timeout = '300s'")
        try:
            connection.execute("SET deadlock_timeout = '200ms'")
        except psycopg.errors.InsufficientPrivilege:
            print("the user of the tests may not set deadlock_timeout: the server's own is used")
    yield opened
    for connection in opened:
        connection.close()


@pytest.mark.timeout(SECONDS + 1800)
def test_requests_at_once_never_deadlock_and_leave_the_store_consistent(
    db: Connection, connections: list[Connection]
) -> None:
    graph.apply(db, [graph.dataset(d) for d in DATASETS], [*JOBS.values()])
    until, at_last = time.monotonic() + SECONDS, time.monotonic() + SECONDS + 600
    clients = [Client(connection, number) for number, connection in enumerate(connections)]

    def enough() -> bool:
        now = time.monotonic()
        return now > at_last or (now > until and all(any(c.counts[name] for c in clients) for name in EXPECTED))

    with ThreadPoolExecutor(CLIENTS) as pool:
        futures = [pool.submit(client.work, enough) for client in clients]
    counts: Counter[str] = sum((future.result().counts for future in futures), Counter())
    print(", ".join(f"{name}: {number}" for name, number in sorted(counts.items())))
    assert graph.problems(db) == []
    assert "RUNNING" not in graph.tasks(db).values()
    assert {name for name, number in counts.items() if number > 0} >= EXPECTED


BRINGS_BACK = {
    "publish": "SELECT opendataflow.publish('a', '{3,4}', 'test')",
    "declare": "SELECT opendataflow.declare_chunks('a', '{3,4}', '{NULL,NULL}', 'test')",
    "import": "SELECT opendataflow.import_chunks('{a,a}', '{3,4}', '{READY,READY}', '{NULL,NULL}', '{NULL,NULL}')",
    "write rows": "INSERT INTO dataflow.datastatus (datasetid, jobid, dataid, locktype, status)"
    " SELECT 'a', 'outside', i, 'OUT', 'READY' FROM unnest('{3,4}'::text[]) AS i",
}


@pytest.mark.parametrize("request_name", BRINGS_BACK)
def test_who_brings_a_retired_id_back_locks_all_chunks_before_the_first_task(
    db: Connection, connections: list[Connection], request_name: str
) -> None:
    other, returning, *_ = connections
    jobs = [graph.job("j", ["a"], ["b"])]
    graph.apply(db, [graph.source("a", "3", "4"), graph.dataset("b")], jobs)
    for run in graph.claim(db, graph.open_lease(db), "j", 2):
        graph.end(db, run, "DONE")
    graph.apply_allowing(db, [graph.source("a", "4")], [], retire=True)
    with ThreadPoolExecutor(1) as pool:
        with other.transaction():
            other.execute("SELECT opendataflow.lock_chunks('{a}', '{4}')")
            answer = pool.submit(returning.execute, BRINGS_BACK[request_name])
            wait_until(lambda: is_blocked(db, returning), "it waits for the chunk", every=0.01)
            other.execute("SELECT opendataflow.lock_tasks('{j}', '{3}')")
        answer.result()
    assert (graph.chunks(db)["a/3"], graph.tasks(db)["j/3"]) == ("READY", "DONE")
    assert graph.problems(db) == []


def is_blocked(db: Connection, connection: Connection) -> bool:
    """Whether a connection waits for a lock."""
    return bool(graph.value(db, "SELECT pg_blocking_pids(%s)", connection.info.backend_pid))
