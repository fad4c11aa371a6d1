"""Clients that work as fast as they can: ours, and plain statements that write the same rows.

Each is a process of its own, so that none waits for another one's Python.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import cycle
from multiprocessing.synchronize import Barrier
from typing import ClassVar

import psycopg

from opendataflow.model.records.claim import Completion, Position
from opendataflow.model.records.run import Host
from opendataflow.names import OutcomeClass, RunState, TaskState
from opendataflow.store.store import Store

LEASE = "00000000-0000-0000-0000-00000000{:04d}"


@dataclass(frozen=True)
class Load:
    """What one client does: batches of tasks of its jobs in turns, for some seconds or until there are none.

    `first` and `step`: the number of its first batch and the distance to the next, for those who choose by number.
    """

    dsn: str
    jobs: tuple[int, ...]
    batch: int
    seconds: float
    client: int
    first: int
    step: int


class Clock:
    """Starts for all clients at the same moment, when each has done some batches: statements are planned by then."""

    WARM = 6
    barrier: ClassVar[Barrier]

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.batches = self.tasks = 0
        self.began = self.ended = 0.0

    def runs(self) -> bool:
        """Whether to go on."""
        if self.batches == self.WARM and not self.began:
            self.barrier.wait(timeout=120)  # one that ran out of tasks would let the others wait for ever
            self.began = time.monotonic()
        return not self.began or time.monotonic() < self.began + self.seconds

    def count(self, tasks: int) -> None:
        """A batch is done."""
        self.batches += 1
        self.tasks += tasks if self.began else 0
        self.ended = time.monotonic()


Client = Callable[[Load, Clock], Coroutine[None, None, None]]
"""Works until the clock says that the time is up, or until nothing is left, and reports every batch to the clock."""


async def ours(load: Load, clock: Clock) -> None:
    """Claim and complete through the store, as an engine does."""
    store = await Store.open(lambda: load.dsn, size=1)
    lease = LEASE.format(load.client)
    await store.open_lease(lease, "local", Host("bench", "boot"), "/runs", 3600)
    positions = {f"job{job}": Position() for job in load.jobs}
    for job in cycle(list(positions)):
        if not positions or not clock.runs():
            break
        if job not in positions:
            continue
        claimed = await store.claim(lease, job, load.batch, positions[job])
        if claimed.runs:
            await store.complete([_success(run.run, run.fence) for run in claimed.runs], "bench")
            positions[job] = claimed.position
        elif not claimed.dropped:
            del positions[job]
        clock.count(len(claimed.runs))
    await store.close()


def _success(run: int, fence: int) -> Completion:
    return Completion(run, fence, TaskState.DONE, RunState.SUCCEEDED, OutcomeClass.SUCCESS, "", exit_code=0)


RUNS = """
INSERT INTO opendataflow.run (job, data_id, attempt, fence, lease, host, boot, runs_home, reads, read_fences, writes)
SELECT %s, i, 1, nextval('opendataflow.fence'), %s, 'bench', 'boot', '/runs', %s, ARRAY[1], %s FROM unnest(%s::text[]) i
RETURNING id, data_id, fence
"""
TAKE = """
UPDATE opendataflow.task w
SET state = 'RUNNING', run = r.run, fence = r.fence, due_at = NULL, reason = NULL, blockers = 0
FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS r(run, data_id, fence) WHERE w.job = %s AND w.data_id = r.data_id
"""
LOCK = """
UPDATE opendataflow.chunk c SET status = 'RUNNING', run = r.run, fence = r.fence, reason = NULL
FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS r(run, data_id, fence)
WHERE c.dataset = %s AND c.data_id = r.data_id
"""
READ = "UPDATE opendataflow.chunk SET readers = readers + %s WHERE dataset = %s AND data_id = ANY (%s)"
HISTORY = """
INSERT INTO opendataflow.history (kind, owner, data_id, event, from_state, to_state, run, fence, actor, reason)
SELECT %s, %s, r.data_id, %s, %s, %s, r.run, r.fence, 'bench', NULL
FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS r(run, data_id, fence)
"""
END = """
UPDATE opendataflow.run SET state = 'SUCCEEDED', finished_at = clock_timestamp(), exit_code = 0, message = '',
                            log_tail = '' WHERE id = ANY (%s)
"""
PUBLISH = """
UPDATE opendataflow.chunk SET status = 'READY', published_at = clock_timestamp()
WHERE dataset = %s AND data_id = ANY (%s)
"""
COUNT = "INSERT INTO opendataflow.task_count (job, state, tasks) VALUES (%s, %s, %s), (%s, %s, %s)"
DONE = "UPDATE opendataflow.task SET state = 'DONE', rank = 2 WHERE job = %s AND data_id = ANY (%s)"


async def plain(load: Load, clock: Clock) -> None:
    """Write the same rows in the same batches with plain statements: nothing is chosen, checked, ordered or refused.

    The database's triggers must be off (`without_triggers`).
    """
    connection = await psycopg.AsyncConnection.connect(load.dsn, autocommit=True, prepare_threshold=1)
    numbers = dict.fromkeys(load.jobs, load.first)
    async with connection:
        for job in cycle(load.jobs):
            if not clock.runs():
                break
            ids = [str(i) for i in range(numbers[job] * load.batch + 1, (numbers[job] + 1) * load.batch + 1)]
            numbers[job] += load.step
            await _write(connection, LEASE.format(load.client), job, ids)
            clock.count(load.batch)


async def _write(connection: psycopg.AsyncConnection, lease: str, number: int, ids: list[str]) -> None:
    job, read, made = f"job{number}", f"in{number}", f"out{number}"
    async with connection.transaction():
        rows = await (await connection.execute(RUNS, (job, lease, [read], [made], ids))).fetchall()
        columns = tuple(list(column) for column in zip(*rows, strict=True))
        async with connection.pipeline():
            await connection.execute(TAKE, (*columns, job))
            await connection.execute(LOCK, (*columns, made))
            await connection.execute(READ, (1, read, ids))
            await connection.execute(HISTORY, ("task", job, "claim", "QUEUED", "RUNNING", *columns))
            await connection.execute(COUNT, (job, "QUEUED", -len(ids), job, "RUNNING", len(ids)))
            await connection.execute(HISTORY, ("chunk", made, "claim", "DECLARED", "RUNNING", *columns))
    async with connection.transaction(), connection.pipeline():
        await connection.execute(END, (columns[0],))
        await connection.execute(PUBLISH, (made, ids))
        await connection.execute(READ, (-1, read, ids))
        await connection.execute(DONE, (job, ids))
        await connection.execute(HISTORY, ("chunk", made, "complete", "RUNNING", "READY", *columns))
        await connection.execute(HISTORY, ("task", job, "complete", "RUNNING", "DONE", *columns))
        await connection.execute(COUNT, (job, "RUNNING", -len(ids), job, "DONE", len(ids)))


def without_triggers(dsn: str) -> None:
    """Take away what writes the history by itself and refuses changes around the functions."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for table in ("task", "chunk", "history"):
            connection.execute(f"ALTER TABLE opendataflow.{table} DISABLE TRIGGER USER")


def rate(client: Client, loads: Sequence[Load]) -> float:
    """Let clients work at once, each in its process; return how many tasks they finish in a second together."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(len(loads))
    with context.Pool(len(loads), initializer=_meet, initargs=(barrier,)) as pool:
        clocks = pool.starmap(_work, [(client, load) for load in loads], chunksize=1)
    began, ended = min(clock.began for clock in clocks), max(clock.ended for clock in clocks)
    return sum(clock.tasks for clock in clocks) / (ended - began)


def _meet(barrier: Barrier) -> None:
    Clock.barrier = barrier


def _work(client: Client, load: Load) -> Clock:
    clock = Clock(load.seconds)
    asyncio.run(client(load, clock))
    return clock
