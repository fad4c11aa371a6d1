"""Two queues on Postgres that others use, doing as many: take a job, finish it, keep its row or its log.

Their own calls, without their workers' loops, which gives them the best of what they can do.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import procrastinate
import psycopg
from pgqueuer.adapters.drivers.psycopg import PsycopgDriver
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.ports.repository import EntrypointExecutionParameter
from pgqueuer.types import QueueEntrypoint, QueueManagerId
from procrastinate.jobs import Status

from tests.bench.clients import Clock, Load

STEP = 10_000
"""Jobs in one request of filling."""


def fill(dsn: str, chunks: int) -> None:
    """Install both in an empty database, with as many jobs in each."""
    asyncio.run(_fill(dsn, chunks))
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")


async def _fill(dsn: str, chunks: int) -> None:
    async with _procrastinate(dsn) as app:
        await app.schema_manager.apply_schema_async()
        for first in range(0, chunks, STEP):
            jobs: list[dict[str, Any]] = [{"chunk": i} for i in range(first, min(first + STEP, chunks))]
            await app.configure_task("chunk").batch_defer_async(*jobs)
    async with _pgqueuer(dsn) as queries:
        await queries.install()
        for first in range(0, chunks, STEP):
            number = min(STEP, chunks - first)
            await queries.enqueue(["chunk"] * number, [b""] * number, [0] * number)


@asynccontextmanager
async def _procrastinate(dsn: str) -> AsyncIterator[procrastinate.App]:
    connector = procrastinate.PsycopgConnector(conninfo=dsn, min_size=1, max_size=1)
    async with procrastinate.App(connector=connector).open_async() as app:
        yield app


@asynccontextmanager
async def _pgqueuer(dsn: str) -> AsyncIterator[Queries]:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
        yield Queries(PsycopgDriver(connection))


async def procrastinate_client(load: Load, clock: Clock) -> None:
    """One at a time: it has no batches."""
    async with _procrastinate(load.dsn) as app:
        worker = await app.job_manager.register_worker()
        while clock.runs():
            job = await app.job_manager.fetch_job(None, worker)
            if job is None:
                break
            await app.job_manager.finish_job(job, Status.SUCCEEDED, delete_job=False)
            clock.count(1)


async def pgqueuer_client(load: Load, clock: Clock) -> None:
    """In batches, as it offers them."""
    async with _pgqueuer(load.dsn) as queries:
        me = QueueManagerId(uuid.uuid4())
        limits = {QueueEntrypoint("chunk"): EntrypointExecutionParameter(concurrency_limit=0)}
        while clock.runs():
            jobs = await queries.dequeue(load.batch, limits, me, None, timedelta(seconds=30))
            if not jobs:
                break
            await queries.log_jobs([(job, "successful", None) for job in jobs])
            clock.count(len(jobs))
