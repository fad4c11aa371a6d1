"""Everything the program asks of Postgres: one method for each function in sql/functions.

A method translates, calls and returns; it decides nothing. A transaction that lost against another one is repeated
here; a lost connection is not: the caller has to learn what became of its request.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import LiteralString, Self, TypeVar

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from opendataflow.errors import InvalidInput
from opendataflow.model.alert import Alert
from opendataflow.model.claim import (
    Answer,
    Claimed,
    ClaimedRun,
    Completed,
    Completion,
    DeclaredJob,
    Position,
    Progress,
    Selection,
)
from opendataflow.model.run import Host
from opendataflow.names import READY_CHANNEL, AlertKind, RunState, WorkState
from opendataflow.store import schema
from opendataflow.store.connection import (
    DsnSource,
    Pool,
    Row,
    TryAgainError,
    connect,
    open_pool,
    place,
    translated,
)

T = TypeVar("T")

Links = Sequence[Row]
GraphCheck = Callable[[Links, set[str]], None]
"""Gets the links of all jobs (job, inputs, outputs) and the ids of all data sets; raises what is wrong with them."""


class Store:
    """The state of everything, in one Postgres database."""

    def __init__(self, pool: Pool, where: str) -> None:
        self._pool = pool
        self.where = where

    @classmethod
    async def open(cls, source: DsnSource, size: int = 4) -> Self:
        """Connect and refuse a schema that this program does not work with."""
        dsn = source()
        connection = await connect(dsn)
        async with connection, translated(place(dsn)):
            await schema.require_current(connection)
        return cls(await open_pool(source, size), place(dsn))

    async def close(self) -> None:
        """Give the connections back."""
        await self._pool.close()

    # -- the life of runs ------------------------------------------------------------------------------------

    async def open_lease(self, lease: str, kind: str, host: Host, runs_home: str, ttl: float) -> None:
        """Open a lease for `ttl` seconds on the database's clock."""
        query = "SELECT opendataflow.open_lease(%s::uuid, %s, %s, %s, %s, make_interval(secs => %s))"
        await self._one(query, lease, kind, host.name, host.boot, runs_home, ttl)

    async def renew_lease(self, lease: str, ttl: float) -> bool:
        """Renew a lease, also one that has ended meanwhile; False where its row is gone."""
        query = "SELECT opendataflow.renew_lease(%s::uuid, make_interval(secs => %s)) AS renewed"
        return bool((await self._one(query, lease, ttl))["renewed"])

    async def close_lease(self, lease: str) -> None:
        """End a lease now."""
        await self._one("SELECT opendataflow.close_lease(%s::uuid)", lease)

    async def claim(self, lease: str, job: str, limit: int, after: Position, data_id: str | None = None) -> Claimed:
        """Claim up to `limit` works of a job, from `after` on, or only one. LeaseLost where the lease has ended."""
        query = "SELECT opendataflow.claim(%s::uuid, %s, %s, %s, decode(%s, 'hex'), %s) AS claimed"
        answer = (await self._one(query, lease, job, limit, after.rank, after.key, data_id))["claimed"]
        runs = tuple(_claimed_run({**answer["owner"], **run}) for run in answer["runs"])
        facts = answer["facts"]
        declared = DeclaredJob(facts["job"], tuple(facts["datasets"])) if facts else None
        return Claimed(runs, answer["dropped"], Position(answer["rank"], answer["key"]), declared)

    async def complete(self, completions: Sequence[Completion], actor: str) -> tuple[list[Completed], list[str]]:
        """Commit outcomes, all together; return what the runs are now and the jobs that have READY work."""
        outcomes = Jsonb([_outcome_row(completion) for completion in completions])
        rows = await self._all("SELECT * FROM opendataflow.complete(%s, %s)", outcomes, actor)
        completed = [
            Completed(
                run=r["run"],
                run_state=RunState(r["run_state"]),
                work_state=WorkState(r["work_state"]),
                already=r["already"],
                spared=r["spared"],
                breaker=r["breaker"],
            )
            for r in rows
        ]
        return completed, rows[0]["woken"] if rows else []

    async def retry_due(self) -> list[str]:
        """Open works whose backoff is over; return the jobs that have READY work now."""
        return list((await self._one("SELECT woken FROM opendataflow.retry_due()"))["woken"])

    async def running_runs(self, lease: str, *, own: bool) -> list[tuple[ClaimedRun, bool]]:
        """Runs of this lease, or of all others, that are not ended; each with whether its lease still lives."""
        rows = await self._all("SELECT * FROM opendataflow.running_runs(%s::uuid, %s)", lease, own)
        return [(_claimed_run(row["run"]), row["lease_lives"]) for row in rows]

    async def runs_to_cancel(self, lease: str) -> list[int]:
        """Runs of this lease that a person wants to be ended."""
        rows = await self._all("SELECT runs_to_cancel AS run FROM opendataflow.runs_to_cancel(%s::uuid)", lease)
        return [row["run"] for row in rows]

    async def run(self, run: int) -> ClaimedRun | None:
        """One run, or None."""
        row = await self._one("SELECT opendataflow.described_run(%s) AS run", run)
        return _claimed_run(row["run"]) if row["run"] else None

    async def declared_jobs(self, jobs: Sequence[str]) -> dict[str, DeclaredJob]:
        """Limits and data sets of jobs, by job id."""
        rows = await self._all("SELECT * FROM opendataflow.job_facts(%s)", list(jobs))
        return {row["job"]["id"]: DeclaredJob(row["job"], tuple(row["datasets"])) for row in rows}

    async def hungry(self, jobs: Sequence[str]) -> list[str]:
        """Those of some jobs that have READY work."""
        return [row["job"] for row in await self._all("SELECT hungry AS job FROM opendataflow.hungry(%s)", list(jobs))]

    async def progress(self, jobs: Sequence[str]) -> list[Progress]:
        """How far jobs are."""
        rows = await self._all("SELECT * FROM opendataflow.progress(%s)", list(jobs))
        return [
            Progress(r["job"], {WorkState(s): n for s, n in r["counts"].items()}, r["next_due"], r["probed_in_vain"])
            for r in rows
        ]

    # -- what people ask for ---------------------------------------------------------------------------------

    async def apply(self, datasets: list[Row], jobs: list[Row], actor: str, check: GraphCheck) -> list[str]:
        """Write data sets and jobs (rows as sql/functions/80_apply.sql describes them), or nothing.

        `check` sees the graph as it will be, while no other apply can change it.
        """

        async def attempt(connection: AsyncConnection[Row]) -> list[str]:
            await connection.execute("SELECT opendataflow.lock_apply()")
            links = await (await connection.execute("SELECT * FROM opendataflow.links()")).fetchall()
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

        return await self._transaction(attempt)

    async def declare(self, dataset: str, ids: Sequence[str], actor: str) -> None:
        """Declare chunks without bounds."""
        query = "SELECT opendataflow.declare_chunks(%s, %s, %s::jsonb[], %s)"
        await self._one(query, dataset, list(ids), [None] * len(ids), actor)

    async def ask(
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
            answers = [Answer(*row.values()) for row in rows]
            if dry_run or any(answer.result in ("refused", "unknown") for answer in answers):
                raise _RolledBackError(answers)
            return answers

        try:
            return await self._transaction(attempt)
        except _RolledBackError as error:
            return error.answers

    # -- what people are told --------------------------------------------------------------------------------

    async def claim_alerts(self, target: str, limit: int, pause: float, ttl: float) -> list[Alert]:
        """Take on what a target is to be told now; for `ttl` seconds nobody else gets it. `pause`: seconds that must
        have passed since the last message about the same."""
        query = (
            "SELECT * FROM opendataflow.claim_alerts(%s, %s, make_interval(secs => %s), make_interval(secs => %s)) "
            "ORDER BY job, kind"
        )
        rows = await self._all(query, target, limit, pause, ttl)
        return [Alert(**{**row, "kind": AlertKind(row["kind"])}) for row in rows]

    async def alert_told(self, target: str, alert: Alert) -> None:
        """Remember that a target has been told."""
        query = "SELECT opendataflow.alert_told(%s, %s, %s, %s)"
        await self._one(query, target, alert.job, alert.kind, alert.failing)

    async def release_alerts(self, target: str, alerts: Sequence[Alert]) -> None:
        """Give back what could not be told."""
        query = "SELECT opendataflow.release_alerts(%s, %s, %s)"
        await self._one(query, target, [a.job for a in alerts], [a.kind.value for a in alerts])

    # -- what people ask to see ------------------------------------------------------------------------------

    async def verify(self) -> list[str]:
        """One sentence for each row that breaks what must hold."""
        return [row["verify"] for row in await self._all("SELECT * FROM opendataflow.verify()")]

    async def list_jobs(self) -> list[Row]:
        """A row for each job."""
        return await self._all("SELECT * FROM opendataflow.list_jobs()")

    async def list_datasets(self) -> list[Row]:
        """A row for each data set."""
        return await self._all("SELECT * FROM opendataflow.list_datasets()")

    async def list_chunks(self, dataset: str | None, status: str | None, limit: int) -> list[Row]:
        """Chunks in natural order, of one data set or one status."""
        return await self._all("SELECT * FROM opendataflow.list_chunks(%s, %s, %s)", dataset, status, limit)

    async def list_runs(self, job: str | None, data_id: str | None, limit: int) -> list[Row]:
        """Runs, the newest first."""
        return await self._all("SELECT * FROM opendataflow.list_runs(%s, %s, %s)", job, data_id, limit)

    async def run_log(self, job: str | None, data_id: str | None, run: int | None) -> Row | None:
        """The end of the log of a run, or of a work's last run."""
        rows = await self._all("SELECT * FROM opendataflow.run_log(%s, %s, %s)", job, data_id, run)
        return rows[0] if rows else None

    async def job_status(self, job: str) -> Row | None:
        """All that one screen shows of a job."""
        status: Row | None = (await self._one("SELECT opendataflow.job_status(%s) AS status", job))["status"]
        return status

    async def why(self, job: str, data_id: str) -> Row | None:
        """What a work waits for, with evidence."""
        why: Row | None = (await self._one("SELECT opendataflow.why(%s, %s) AS why", job, data_id))["why"]
        return why

    async def known_ids(self, owner: str, limit: int = 5000) -> list[str]:
        """Ids that a job or a data set has."""
        rows = await self._all("SELECT known_ids AS id FROM opendataflow.known_ids(%s, %s)", owner, limit)
        return [row["id"] for row in rows]

    # -- how it is done --------------------------------------------------------------------------------------

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[AsyncIterator[str]]:
        """Listen for jobs that may have READY work; ends with Unreachable when the connection does."""
        async with translated(self.where), self._pool.connection() as connection:
            await connection.execute(f"LISTEN {READY_CHANNEL}")
            try:
                yield (notification.payload async for notification in connection.notifies())
            finally:
                if not connection.closed:
                    await connection.close()

    async def _transaction(self, attempt: Callable[[AsyncConnection[Row]], Awaitable[T]]) -> T:
        async for trial in _again():
            with trial:
                async with (
                    translated(self.where),
                    self._pool.connection() as connection,
                    connection.transaction(),
                ):
                    result = await attempt(connection)
        return result

    async def _all(self, query: LiteralString, *values: object) -> list[Row]:
        async for trial in _again():
            with trial:
                async with translated(self.where), self._pool.connection() as connection:
                    rows = await (await connection.execute(query, values)).fetchall()
        return rows

    async def _one(self, query: LiteralString, *values: object) -> Row:
        return (await self._all(query, *values))[0]


class _RolledBackError(InvalidInput):
    """Rolls a request back whose answers are not all good, or which was only to be tried."""

    def __init__(self, answers: list[Answer]) -> None:
        super().__init__("not all of the request can be done")
        self.answers = answers


async def _chosen(connection: AsyncConnection[Row], owner: str, chosen: Selection) -> list[str]:
    query: LiteralString = "SELECT data_id FROM opendataflow.select_works(%s, %s, %s, %s)"
    if chosen.of_chunks:
        query = "SELECT data_id FROM opendataflow.select_chunks(%s, %s, %s, %s)"
    limits = (chosen.first, chosen.last, list(chosen.states) or None)
    return [row["data_id"] for row in await (await connection.execute(query, (owner, *limits))).fetchall()]


def _again() -> AsyncRetrying:
    return AsyncRetrying(
        retry=retry_if_exception_type(TryAgainError),
        wait=wait_random_exponential(multiplier=0.05, max=1),
        stop=stop_after_attempt(8),
        reraise=True,
    )


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
    return {
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
    }
