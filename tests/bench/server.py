"""A Postgres for measuring, and databases in it with as many QUEUED tasks as asked for.

Its data is nobody's: it does not wait for disks, whose speed is not ours to measure.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from opendataflow.store.connections.connection import connect
from opendataflow.store.embedded import EmbeddedPostgres
from opendataflow.store.migrations.schema import migrate

SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "2GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}

JOBS = 16
"""So many jobs share the chunks of `seed`, beside one job that has as many alone."""

SEED = """
SELECT opendataflow.begin_event('seed', 'bench');
CREATE TEMP TABLE part AS
    SELECT 0 AS job, {chunks} AS chunks
    UNION ALL SELECT n, {chunks} / greatest({jobs}, 1) FROM generate_series(1, {jobs}) n;
INSERT INTO opendataflow.dataset (id) SELECT side || job FROM part, unnest(ARRAY['in', 'out']) side;
INSERT INTO opendataflow.job (id, parallelism) SELECT 'job' || job, 1000000 FROM part;
INSERT INTO opendataflow.job_input SELECT 'job' || job, 'in' || job FROM part;
INSERT INTO opendataflow.job_output SELECT 'job' || job, 'out' || job FROM part;
INSERT INTO opendataflow.chunk (dataset, data_id, status, fence, published_at)
    SELECT 'in' || job, i::text, 'READY', nextval('opendataflow.fence'), now() FROM part, generate_series(1, chunks) i;
INSERT INTO opendataflow.chunk (dataset, data_id) SELECT 'out' || job, i::text FROM part, generate_series(1, chunks) i;
INSERT INTO opendataflow.task (job, data_id, state, sort_key)
    SELECT 'job' || job, i::text, 'QUEUED', opendataflow.sort_key(i::text) FROM part, generate_series(1, chunks) i;
"""


@contextmanager
def server(**settings: str) -> Iterator[str]:
    """The DSN of the server: that of DATAFLOW_BENCH_DSN (a superuser's), else an embedded one of its own, with
    `settings` beside those above."""
    given = os.environ.get("DATAFLOW_BENCH_DSN")
    if given:
        yield given
        return
    folder = Path(tempfile.mkdtemp(prefix="dataflow-bench-"))
    folder.chmod(0o711)
    try:
        with EmbeddedPostgres(folder / "postgres", SETTINGS | settings) as dsn:
            yield dsn
    finally:
        shutil.rmtree(folder)


@contextmanager
def database(server_dsn: str, name: str, template: str | None = None, *, empty: bool = False) -> Iterator[str]:
    """A database with the current schema, a copy of another one, or an empty one; gone at the end."""
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        # FILE_COPY makes a copy without writing it to the log, block by block.
        connection.execute(f"CREATE DATABASE {name}" + (f" TEMPLATE {template} STRATEGY FILE_COPY" if template else ""))
    dsn = make_conninfo(server_dsn, dbname=name)
    if not template and not empty:
        asyncio.run(_migrated(dsn))
    yield dsn
    with psycopg.connect(server_dsn, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


async def _migrated(dsn: str) -> None:
    async with await connect(dsn) as connection:
        await migrate(connection)


def seed(dsn: str, chunks: int, *, jobs: int = JOBS) -> None:
    """Fill a database: `chunks` QUEUED tasks of job0 (it makes out0 of in0), and as many of job1, job2 … together."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SEED.format(jobs=jobs, chunks=chunks))
        connection.execute("VACUUM ANALYZE")
