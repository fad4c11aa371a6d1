"""Everything the program asks of Postgres: one method for each function in sql/functions.

A method translates, calls and returns; it decides nothing. A transaction that lost against another one is repeated
here; a lost connection is not: the caller has to learn what became of its request.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, astuple, dataclass
from datetime import UTC, datetime
from typing import LiteralString, Self, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from opendataflow.errors import UnknownThing
from opendataflow.model.records.claim import (
    Answer,
    BeforeClaim,
    Claimed,
    ClaimedRun,
    Completed,
    Completion,
    DeclaredJob,
    PipelineRuns,
    Position,
    Progress,
    Selection,
)
from opendataflow.model.records.run import Host
from opendataflow.names import QUEUED_CHANNEL, RunState, TaskState
from opendataflow.store.connections.connection import (
    Connections,
    DsnSource,
    OneConnection,
    Row,
    TryAgainError,
    connect,
    place,
    raise_if_cancelled,
    translated,
)
from opendataflow.store.migrations import schema

T = TypeVar("T")

Links = Sequence[Row]
GraphCheck = Callable[[Links, set[str]], None]
"""Gets the links of all jobs (job, inputs, outputs) and the ids of all data sets; raises what is wrong with them."""


LISTEN_SECONDS = 1.0
"""How long a cancellation that was swallowed can stay unheard while nothing else happens."""


@dataclass(frozen=True)
class OldRun:
    """A run that has ended long ago. `goes`: nothing of the present rests on it."""

    run: int
    job: str
    host: str
    runs_home: str
    finished_at: datetime
    goes: bool


class Store:
    """The state of everything, in one Postgres database."""

    def __init__(self, pool: Connections, where: str) -> None:
        self._pool = pool
        self.where = where
        self.leader: str | None = None
        """The lease of an operator: its transactions are refused (Deposed) once another one leads."""

    @classmethod
    async def open(cls, source: DsnSource, size: int = 4) -> Self:
        """Connect and refuse a schema that this program does not work with. `size`: how many may ask at a time."""
        dsn = source()
        connection = await connect(dsn)
        try:
            async with translated(place(dsn)):
                await schema.require_current(connection)
        except BaseException:
            await connection.close()
            raise
        if size == 1:
            return cls(OneConnection(connection, source), place(dsn))
        await connection.close()
        from opendataflow.store.connections.pool import Pool  # RunJob starts without it

        pool = Pool(source, size, place(dsn))
        await pool.open()
        return cls(pool, place(dsn))

    async def close(self) -> None:
        """Give the connections back."""
        await self._pool.close()

    # -- the life of runs ------------------------------------------------------------------------------------

    async def open_lease(self, lease: str, kind: str, host: Host, runs_home: str, ttl: float) -> None:
        """Open a lease for `ttl` seconds on the database's clock."""
        query = "SELECT opendataflow.open_lease(%s::uuid, %s, %s, %s, %s, make_interval(secs => %s))"
        await self.row(query, lease, kind, host.name, host.boot, runs_home, ttl)

    async def renew_lease(self, lease: str, ttl: float) -> bool:
        """Renew a lease, also one that has ended meanwhile; False where its row is gone."""
        query = "SELECT opendataflow.renew_lease(%s::uuid, make_interval(secs => %s)) AS renewed"
        return bool((await self.row(query, lease, ttl))["renewed"])

    async def close_lease(self, lease: str) -> None:
        """End a lease now."""
        await self.row("SELECT opendataflow.close_lease(%s::uuid)", lease)

    async def claim(self, lease: str, job: str, limit: int, after: Position, data_id: str | None = None) -> Claimed:
        """Claim up to `limit` tasks of a job, from `after` on, or only one. LeaseLost where the lease has ended."""
        query = "SELECT opendataflow.claim(%s::uuid, %s, %s, %s, decode(%s, 'hex'), %s) AS claimed"
        return _claimed((await self.row(query, lease, job, limit, after.rank, after.key, data_id))["claimed"])

    async def facts_before_claim(self, job: str) -> BeforeClaim:
        """What one RunJob has to know before its claim. UnknownThing where there is no such job."""
        found = (await self.row("SELECT opendataflow.facts_before_claim(%s) AS found", job))["found"]
        if found["facts"] is None:
            raise UnknownThing(f"there is no job {job}")
        return BeforeClaim(_declared(found["facts"]), found["running"], found["due"])

    async def claim_one(
        self, lease: str, host: Host, runs_home: str, ttl: float, job: str, data_id: str | None
    ) -> Claimed:
        """Open a lease for `ttl` seconds and claim one task under it, the first or that of a data id."""
        query = """SELECT opendataflow.claim_one(%s::uuid, %s, %s, %s, make_interval(secs => %s), %s, %s) AS claimed"""
        return _claimed((await self.row(query, lease, host.name, host.boot, runs_home, ttl, job, data_id))["claimed"])

    async def publish_today(self, jobs: Sequence[str], today: str, actor: str, *, catch_up: bool) -> list[str]:
        """Publish the current day for those of the jobs that read `today`, with `catch_up` also those missed before it.

        Returns the days that were not there yet.
        """
        query = "SELECT opendataflow.publish_today(%s, %s, %s, %s) AS days"
        return list((await self.row(query, list(jobs), today, catch_up, actor))["days"])

    async def complete(
        self, completions: Sequence[Completion], actor: str, *, lease: str | None = None, closing: str | None = None
    ) -> tuple[list[Completed], list[str]]:
        """Commit outcomes, all together; return what the runs are now and the jobs that have QUEUED tasks.

        `lease`: whose runs they have to be; others stay as they are. `closing`: a lease that ends with it.
        """
        outcomes = Jsonb([_outcome_row(completion) for completion in completions])
        if closing is None:
            rows = await self.rows("SELECT * FROM opendataflow.complete(%s, %s, %s::uuid)", outcomes, actor, lease)
        else:
            query = "SELECT c.*, opendataflow.close_lease(%s::uuid) FROM opendataflow.complete(%s, %s) AS c"
            rows = await self.rows(query, closing, outcomes, actor)
        completed = [
            Completed(
                run=r["run"],
                run_state=RunState(r["run_state"]),
                task_state=TaskState(r["task_state"]),
                already=r["already"],
                spared=r["spared"],
                breaker=r["breaker"],
            )
            for r in rows
        ]
        return completed, rows[0]["woken"] if rows else []

    async def retry_due(self) -> list[str]:
        """Open tasks whose backoff is over; return the jobs that have QUEUED tasks now."""
        return list((await self.row("SELECT woken FROM opendataflow.retry_due()"))["woken"])

    async def running_runs(self, lease: str, *, own: bool) -> list[tuple[ClaimedRun, bool]]:
        """Runs of this lease, or of all others, that are not ended; each with whether its lease still lives."""
        rows = await self.rows("SELECT * FROM opendataflow.running_runs(%s::uuid, %s)", lease, own)
        return [(_claimed_run(row["run"]), row["lease_lives"]) for row in rows]

    async def runs_to_cancel(self, lease: str) -> list[int]:
        """Runs of this lease that a person wants to be ended."""
        rows = await self.rows("SELECT runs_to_cancel AS run FROM opendataflow.runs_to_cancel(%s::uuid)", lease)
        return [row["run"] for row in rows]

    async def run(self, run: int) -> ClaimedRun | None:
        """One run, or None."""
        row = await self.row("SELECT opendataflow.run_for_takeover(%s) AS run", run)
        return _claimed_run(row["run"]) if row["run"] else None

    async def declared_jobs(self, jobs: Sequence[str]) -> dict[str, DeclaredJob]:
        """Limits and data sets of jobs, by job id."""
        rows = await self.rows("SELECT * FROM opendataflow.job_facts(%s)", list(jobs))
        return {row["job"]["id"]: _declared(row) for row in rows}

    async def claimable_jobs(self, jobs: Sequence[str]) -> list[str]:
        """Those of some jobs that have QUEUED tasks."""
        return [
            row["job"]
            for row in await self.rows("SELECT claimable_jobs AS job FROM opendataflow.claimable_jobs(%s)", list(jobs))
        ]

    async def progress(self, jobs: Sequence[str]) -> list[Progress]:
        """How far jobs are."""
        rows = await self.rows("SELECT * FROM opendataflow.progress(%s)", list(jobs))
        return [
            Progress(r["job"], {TaskState(s): n for s, n in r["counts"].items()}, r["probed_in_vain"]) for r in rows
        ]

    # -- what people ask for ---------------------------------------------------------------------------------

    async def apply(self, datasets: list[Row], jobs: list[Row], actor: str, check: GraphCheck) -> list[str]:
        """Write data sets and jobs (rows as sql/functions/80_apply.sql describes them), or nothing.

        `check` sees the graph as it will be, while no other apply can change it.
        """

        async def attempt(connection: AsyncConnection[Row]) -> list[str]:
            await connection.execute("SELECT opendataflow.lock_apply()")
            links = await (await connection.execute("SELECT * FROM opendataflow.list_links()")).fetchall()
            known = await (await connection.execute("SELECT id FROM opendataflow.dataset")).fetchall()
            replaced = {job["id"] for job in jobs}
            new = [{"job": j["id"], "inputs": j["inputs"], "outputs": j["outputs"]} for j in jobs]
            check(
                [link for link in links if link["job"] not in replaced] + new,
                {row["id"] for row in known} | {d["id"] for d in datasets},
            )
            query = "SELECT opendataflow.apply(%s, %s, %s) AS woken"
            row = await (await connection.execute(query, (Jsonb(datasets), Jsonb(jobs), actor))).fetchone()
            return list(row["woken"]) if row else []

        return await self.transaction(attempt)

    async def declare(self, dataset: str, ids: Sequence[str], actor: str) -> None:
        """Declare chunks without bounds."""
        query = "SELECT opendataflow.declare_chunks(%s, %s, %s::jsonb[], %s)"
        await self.row(query, dataset, list(ids), [None] * len(ids), actor)

    async def call_verb(
        self,
        verb: LiteralString,
        owner: str,
        chosen: Sequence[str] | Selection,
        actor: str,
        reason: str | None,
        *,
        dry_run: bool = False,
    ) -> list[Answer]:
        """Call a verb: resubmit, hold, … of a job, or publish, resubmit_chunks, hold_chunks, … of a data set.

        All or nothing: where one id is refused or unknown, or where `dry_run`, nothing is changed and the answers say
        what would have been. `chosen`: ids, or what they have in common.
        """

        async def attempt(connection: AsyncConnection[Row]) -> list[Answer]:
            ids = await _chosen(connection, owner, chosen) if isinstance(chosen, Selection) else list(chosen)
            query: LiteralString = "SELECT * FROM opendataflow." + verb + "(%s, %s, %s, %s)"
            rows = await (await connection.execute(query, (owner, ids, actor, reason))).fetchall()
            return [Answer(*row.values()) for row in rows]

        def undo(answers: list[Answer]) -> bool:
            return dry_run or any(answer.result in ("refused", "unknown") for answer in answers)

        return await self.transaction(attempt, undo)

    async def scale(self, job: str, parallelism: int, actor: str, reason: str | None) -> Row:
        """Change how many runs of a job there are at a time; return its limits before and after."""
        query = "SELECT opendataflow.scale_job(%s, %s, %s, %s) AS limits"
        limits: Row = (await self.row(query, job, parallelism, actor, reason))["limits"]
        return limits

    async def suspend(self, job: str, actor: str, reason: str | None, *, suspended: bool) -> Row:
        """Let a job start nothing new, or let it go on; return its limits before and after."""
        query = "SELECT opendataflow.suspend_job(%s, %s, %s, %s) AS limits"
        limits: Row = (await self.row(query, job, suspended, actor, reason))["limits"]
        return limits

    async def old_runs(self, job: str, before: datetime, after: OldRun | None, limit: int) -> list[OldRun]:
        """Runs of a job that have ended before a time, in the order of their ends, from `after` on."""
        begin = (after.finished_at, after.run) if after else (datetime(1, 1, 1, tzinfo=UTC), 0)
        rows = await self.rows("SELECT * FROM opendataflow.old_runs(%s, %s, %s, %s, %s)", job, before, *begin, limit)
        return [OldRun(**row) for row in rows]

    async def clean_runs(self, runs: Sequence[int]) -> int:
        """Delete those of some runs that may go; return how many."""
        return int((await self.row("SELECT opendataflow.clean_runs(%s) AS gone", list(runs)))["gone"])

    async def clean_events(self, job: str | None, before: datetime, batch: int, *, dry_run: bool) -> int:
        """Delete events before a time that may go, of all or one job, in short transactions; return how many."""
        events = 0
        after: int | None = 0
        while after is not None:
            query = "SELECT opendataflow.clean_events(%s, %s, %s, %s, %s) AS cleaned"
            cleaned = (await self.row(query, job, before, after, batch, dry_run))["cleaned"]
            events, after = events + cleaned["events"], cleaned["last"]
        return events

    # -- what people ask to see ------------------------------------------------------------------------------

    async def verify(self) -> list[str]:
        """One sentence for each row that breaks what must hold."""
        return [row["verify"] for row in await self.rows("SELECT * FROM opendataflow.verify()")]

    async def list_jobs(self) -> list[Row]:
        """A row for each job."""
        return await self.rows("SELECT * FROM opendataflow.list_jobs()")

    async def list_datasets(self) -> list[Row]:
        """A row for each data set."""
        return await self.rows("SELECT * FROM opendataflow.list_datasets()")

    async def list_chunks(self, dataset: str | None, status: str | None, limit: int) -> list[Row]:
        """Chunks in natural order, of one data set or one status."""
        return await self.rows("SELECT * FROM opendataflow.list_chunks(%s, %s, %s)", dataset, status, limit)

    async def list_runs(self, job: str | None, data_id: str | None, limit: int) -> list[Row]:
        """Runs, the newest first."""
        return await self.rows("SELECT * FROM opendataflow.list_runs(%s, %s, %s)", job, data_id, limit)

    async def pipeline_runs(self, chosen: PipelineRuns, limit: int) -> list[Row]:
        """Runs of pipelines with their steps, the newest first."""
        query = "SELECT * FROM opendataflow.pipeline_runs(%s, %s, %s, %s, %s, %s)"
        return await self.rows(query, *astuple(chosen), limit)

    async def pipelines(self) -> list[str]:
        """The pipelines that jobs run."""
        return [
            row["pipeline"] for row in await self.rows("SELECT pipelines AS pipeline FROM opendataflow.pipelines()")
        ]

    async def run_log(self, job: str | None, data_id: str | None, run: int | None) -> Row | None:
        """The end of the log of a run, or of a task's last run."""
        rows = await self.rows("SELECT * FROM opendataflow.run_log(%s, %s, %s)", job, data_id, run)
        return rows[0] if rows else None

    async def job_status(self, job: str) -> Row | None:
        """All that one screen shows of a job."""
        status: Row | None = (await self.row("SELECT opendataflow.job_status(%s) AS status", job))["status"]
        return status

    async def why(self, job: str, data_id: str) -> Row | None:
        """What a task waits for, with evidence."""
        why: Row | None = (await self.row("SELECT opendataflow.why(%s, %s) AS why", job, data_id))["why"]
        return why

    async def inspection(self, job: str, data_id: str) -> Row | None:
        """The evidence for the five questions about the chunk of a task."""
        found: Row | None = (await self.row("SELECT opendataflow.inspection(%s, %s) AS found", job, data_id))["found"]
        return found

    async def describe_job(self, job: str) -> Row | None:
        """All that is known of a job."""
        return await self._described("SELECT opendataflow.describe_job(%s) AS described", job)

    async def describe_dataset(self, dataset: str) -> Row | None:
        """All that is known of a data set."""
        return await self._described("SELECT opendataflow.describe_dataset(%s) AS described", dataset)

    async def describe_chunk(self, dataset: str, data_id: str) -> Row | None:
        """All that is known of a chunk."""
        return await self._described("SELECT opendataflow.describe_chunk(%s, %s) AS described", dataset, data_id)

    async def describe_run(self, run: int) -> Row | None:
        """All that is known of a run."""
        return await self._described("SELECT opendataflow.describe_run(%s) AS described", run)

    async def _described(self, query: LiteralString, *values: object) -> Row | None:
        described: Row | None = (await self.row(query, *values))["described"]
        return described

    async def known_ids(self, owner: str, limit: int = 5000) -> list[str]:
        """Ids that a job or a data set has."""
        rows = await self.rows("SELECT known_ids AS id FROM opendataflow.known_ids(%s, %s)", owner, limit)
        return [row["id"] for row in rows]

    async def next_task(self, job: str) -> str | None:
        """The data id that a job would take next, or None."""
        found: str | None = (await self.row("SELECT opendataflow.next_task(%s) AS data_id", job))["data_id"]
        return found

    # -- how it is done --------------------------------------------------------------------------------------

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[AsyncIterator[str]]:
        """Listen for jobs that may have QUEUED tasks; ends with Unreachable when the connection does."""
        async with translated(self.where), self._pool.connection() as connection:
            await connection.execute(f"LISTEN {QUEUED_CHANNEL}")
            try:
                yield _payloads(connection)
            finally:
                if not connection.closed:
                    await connection.close()

    async def transaction(
        self, attempt: Callable[[AsyncConnection[Row]], Awaitable[T]], undo: Callable[[T], bool] = lambda _: False
    ) -> T:
        """Do several things or nothing, again where another transaction came between; `undo`: what rolls back all."""
        results: list[T] = []

        async def once() -> None:
            async with (
                translated(self.where),
                self._pool.connection() as connection,
                connection.transaction() as transaction,
            ):
                if self.leader is not None:
                    await connection.execute("SELECT opendataflow.require_leader(%s::uuid)", (self.leader,))
                results.append(await attempt(connection))
                if undo(results[-1]):
                    raise psycopg.Rollback(transaction)

        await _repeated(once)
        return results[-1]

    async def rows(self, query: LiteralString, *values: object) -> list[Row]:
        """Ask one question, again where another transaction came between."""

        async def once() -> list[Row]:
            async with translated(self.where), self._pool.connection() as connection:
                return await (await connection.execute(query, values)).fetchall()

        return await _repeated(once)

    async def row(self, query: LiteralString, *values: object) -> Row:
        """Ask one question that has one row as its answer."""
        return (await self.rows(query, *values))[0]


async def _chosen(connection: AsyncConnection[Row], owner: str, chosen: Selection) -> list[str]:
    query: LiteralString = "SELECT data_id FROM opendataflow.select_tasks(%s, %s, %s, %s)"
    if chosen.of_chunks:
        query = "SELECT data_id FROM opendataflow.select_chunks(%s, %s, %s, %s)"
    limits = (chosen.first, chosen.last, list(chosen.states) or None)
    return [row["data_id"] for row in await (await connection.execute(query, (owner, *limits))).fetchall()]


async def _repeated(attempt: Callable[[], Awaitable[T]]) -> T:
    """Make an attempt, and again with growing pauses where it lost against others."""
    try:
        return await attempt()
    except TryAgainError:
        from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential  # rare

        again = AsyncRetrying(
            retry=retry_if_exception_type(TryAgainError),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            stop=stop_after_attempt(8),
            reraise=True,
        )
        return await again(attempt)


def _claimed(answer: Row) -> Claimed:
    runs = tuple(_claimed_run({**answer["owner"], **run}) for run in answer["runs"])
    declared = _declared(answer["facts"]) if answer["facts"] else None
    return Claimed(runs, answer["dropped"], Position(answer["rank"], answer["key"]), declared)


def _declared(facts: Row) -> DeclaredJob:
    return DeclaredJob(facts["job"], tuple(facts["datasets"]))


def _claimed_run(row: Row) -> ClaimedRun:
    return ClaimedRun(
        run=row["run"],
        job=row["job"],
        data_id=row["data_id"],
        fence=row["fence"],
        attempt=row["attempt"],
        attempts=row["attempts"],
        infrastructure_attempts=row["infrastructure_attempts"],
        bounds=row["bounds"],
        lease=row["lease"],
        host=Host(row["host"], row["boot"]),
        runs_home=row["runs_home"],
    )


def _outcome_row(completion: Completion) -> Row:
    steps = {"steps": [asdict(step) for step in completion.steps]} if completion.steps else {}
    return {
        **steps,
        "run": completion.run,
        "fence": completion.fence,
        "verdict": completion.verdict,
        "state": completion.state,
        "class": completion.kind,
        "delay": completion.delay,
        "exit_code": completion.exit_code,
        "message": completion.message,
        "reason": completion.reason,
        "log_tail": completion.log_tail,
        "log_path": completion.log_path,
        "pod_uid": completion.pod_uid,
        "node": completion.node,
        "metrics": completion.metrics,
    }


async def _payloads(connection: AsyncConnection[Row]) -> AsyncIterator[str]:
    while True:
        async for notification in connection.notifies(timeout=LISTEN_SECONDS):
            yield notification.payload
        raise_if_cancelled()
