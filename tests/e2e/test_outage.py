"""Hundreds of jobs lose the one database that they all need: few probes are made, and all goes on by itself afterwards.

Seen at others: every task consumes its retries during an outage, and people restart thousands of them by hand.
"""

import asyncio
import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path

from psycopg.types.json import Jsonb

from opendataflow.engine.claim_authority import LocalClaimAuthority
from opendataflow.engine.engine import Engine
from opendataflow.model.records.claim import ClaimedRun, DeclaredJob
from opendataflow.model.records.run import Command, Ended, Host, Proof, Report, RunOrder
from opendataflow.names import ExitCode, TaskState
from opendataflow.store.store import Store
from tests.e2e.conftest import Program
from tests.e2e.test_engine import engine_over
from tests.seen import Seen
from tests.sql.conftest import Connection
from tests.sql.graph import dataset, job, value
from tests.waiting import until

JOBS = 700
CHUNKS = 6
BACKOFF = {"backoff_initial": 1, "backoff_factor": 2, "backoff_maximum": 4}
PAUSES = (1, 2, 4)
"""Seconds before the first, the second and every later probe."""


def probes_within(seconds: float) -> int:
    """The most probes that a job can make in a time: each comes after its pause."""
    starts = itertools.accumulate(itertools.chain(PAUSES, itertools.repeat(PAUSES[-1])))
    return sum(1 for _ in itertools.takewhile(lambda start: start <= seconds, starts))


class Anything:
    """Makes orders for any job."""

    def matches(self, declared: DeclaredJob) -> bool:  # noqa: ARG002 # a protocol
        return True

    def preflight(self, declared: DeclaredJob) -> None:  # noqa: ARG002 # a protocol
        return None

    def __call__(self, run: ClaimedRun, declared: DeclaredJob) -> RunOrder:  # noqa: ARG002 # a protocol
        return run.order(Command((), {}, Path("/")), None)


@dataclass
class Database:
    """A launcher whose runs are no processes: each ends after a moment, well where the database is there."""

    there: bool
    host: Host = field(default_factory=lambda: Host("here", "boot"))
    runs_home: str = "/runs"
    ends: asyncio.Queue[Ended] = field(default_factory=asyncio.Queue)

    def of_home(self, runs_home: str) -> None:
        pass

    async def announce(self, lease: str) -> None:
        pass

    async def withdraw(self, lease: str) -> None:
        pass

    async def prove_owner_dead(self, lease: str, host: Host) -> Proof:  # noqa: ARG002 # a protocol
        return Proof(False, "nobody asks")

    async def start(self, order: RunOrder) -> None:
        end = Ended(order.run, exit_code=0 if self.there else 1, log_tail="" if self.there else "connection refused")
        asyncio.get_running_loop().call_later(0.01, self.ends.put_nowait, end)

    async def adopt(self, run: ClaimedRun) -> bool:  # noqa: ARG002 # a protocol
        return False

    async def wait_for_late_start(self, run: ClaimedRun) -> bool:  # noqa: ARG002 # a protocol
        return False

    async def ended(self) -> Ended:
        return await self.ends.get()

    async def kill(self, run: int, *, cancelled: bool) -> None:
        pass

    async def prove_dead(self, name: str, host: Host) -> Proof:  # noqa: ARG002 # a protocol
        return Proof(False, "nobody asks")

    async def recover_report(self, name: str) -> Report:  # noqa: ARG002 # a protocol
        return Report()

    async def release(self, run: ClaimedRun) -> None:
        pass

    async def close(self) -> None:
        pass


def count(db: Connection, of: str) -> int:
    return int(value(db, f"SELECT count(*) FROM opendataflow.{of}"))


async def test_700_jobs_that_lose_one_database_make_few_probes_and_recover_without_a_hand(
    dsn: str, db: Connection
) -> None:
    names = [f"job-{number}" for number in range(JOBS)]
    datasets = [dataset(f"{name}-out", *map(str, range(CHUNKS))) for name in names]
    jobs = [job(name, [], [f"{name}-out"], parallelism=CHUNKS, retry_limit=2, **BACKOFF) for name in names]
    db.execute("SELECT opendataflow.apply(%s, %s, 'test')", (Jsonb(datasets), Jsonb(jobs)))
    store = await Store.open(lambda: dsn, size=6)
    database, seen = Database(there=False), Seen()
    authority = LocalClaimAuthority(store, database, seen.note)
    engine = Engine(store, database, authority, dict.fromkeys(names, Anything()), seen, parallelism=JOBS * CHUNKS)
    working = asyncio.create_task(engine.run())

    await until(lambda: count(db, "breaker WHERE opened_at IS NOT NULL") == JOBS, seconds=900, every=0.25)
    await until(lambda: count(db, "breaker WHERE probes >= 2") == JOBS, seconds=900, every=0.25)
    probed = db.execute(
        """SELECT b.job, count(r.id) AS probes, extract(epoch FROM clock_timestamp() - b.opened_at)::float AS seconds
           FROM opendataflow.breaker b JOIN opendataflow.run r ON r.job = b.job AND r.claimed_at > b.opened_at
           GROUP BY b.job"""
    ).fetchall()
    database.there = True
    await until(lambda: count(db, "task WHERE state = 'DONE'") == JOBS * CHUNKS, seconds=900, every=0.25)
    engine.drain()
    await working
    assert await store.verify() == []
    await store.close()

    assert len(probed) == JOBS
    for row in probed:
        assert row["probes"] <= probes_within(row["seconds"]), row
    assert count(db, "task WHERE attempts + infrastructure_attempts > 0") == 0
    assert sum("The breaker is open" in note for note in seen.notes) == JOBS
    assert sum("the breaker is closed" in note for note in seen.notes) == JOBS
    assert len(seen.notes) == 2 * JOBS


async def test_real_runs_wait_for_the_file_that_they_need(dsn: str, db: Connection, tmp_path: Path) -> None:
    """Without any retries: only the breaker keeps them from failing for good."""
    async with engine_over(dsn, tmp_path, "test -e database", chunks=30, parallelism=4) as (engine, seen, store):
        db.execute("UPDATE opendataflow.job SET retry_limit = 1000000, backoff_initial = 0.5")
        working = asyncio.create_task(engine.run())
        await until(lambda: count(db, "breaker WHERE probes >= 2") == 1, seconds=900, every=0.25)
        await asyncio.to_thread((tmp_path / "database").touch)
        [progress] = await working
        assert progress.counts == {TaskState.DONE: 30}
        assert count(db, "run WHERE state = 'FAILED'") < 30
        assert len([note for note in seen.notes if "breaker" in note]) == 2
        assert await store.verify() == []


async def test_a_runner_that_ends_when_it_has_caught_up_does_not_wait_for_ever(
    dsn: str, db: Connection, tmp_path: Path
) -> None:
    async with engine_over(dsn, tmp_path, "exit 3", chunks=8, parallelism=8) as (engine, _, store):
        [progress] = await engine.run()
        assert progress.probed_in_vain
        assert progress.of(TaskState.FAILED) == 0
        assert count(db, "breaker WHERE opened_at IS NOT NULL") == 1
        assert await store.verify() == []


JOB_FILE = """
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {name: out}
spec:
  chunkSource: {list: ["1", "2", "3", "4", "5", "6"]}
---
apiVersion: opendataflow.io/v1alpha1
kind: DataFlowJob
metadata: {name: load}
spec:
  outputs: [out]
  parallelism: 6
  retry: {backoff: {initial: 30m, max: 1h}}
  runtime: {script: {command: [./load.sh]}}
"""


def test_people_see_an_open_breaker_and_can_try_at_once(dataflow: Program, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE)
    (tmp_path / "load.sh").write_text("#!/bin/sh\n[ -e database ] || { echo no answer; exit 3; }\n")
    (tmp_path / "load.sh").chmod(0o755)
    dataflow.run("apply", "-f", str(tmp_path / "job.yaml"))
    run = ("run", "--job", "load", "--", "./load.sh")
    for _ in range(4):
        dataflow.ask(*run, cwd=tmp_path)
    opening = dataflow.ask(*run, cwd=tmp_path)
    assert opening.code == 3
    assert "exit code 3: no answer; it costs no attempt, the breaker is open" in opening.err
    assert re.search("load: 5 chunks failed .*: exit code 3: no answer. The breaker is open", opening.err)

    assert "BreakerOpen" in dataflow.run("get", "jobs")
    sentence = "5 chunks failed .*: exit code 3: no answer; the next probe in"
    assert re.search(sentence, dataflow.run("status", "load"))
    assert re.search(sentence, dataflow.run("why", "load", "6"))
    waiting = dataflow.ask(*run, cwd=tmp_path)
    assert waiting.code == ExitCode.NOTHING_READY
    assert re.search(sentence, waiting.err)

    (tmp_path / "database").touch()
    dataflow.run("force", "load", "3")
    closing = dataflow.ask(*run, cwd=tmp_path)
    assert closing.code == 0
    assert "the breaker is closed" in closing.err
    assert "breaker" not in dataflow.run("status", "load")
