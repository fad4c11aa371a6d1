"""The store: one method for each SQL function that the program calls.

A method translates arguments and results, and makes no decisions. See `database` for transactions and connections, and
`records` for the conversion of rows.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import LiteralString

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
from opendataflow.model.records.plan import NO_CONSENT, NO_LIMITS, Applied, Batch, Consent, NamespaceLimits, Plan
from opendataflow.model.records.run import Host
from opendataflow.names import RunState, TaskState
from opendataflow.store.connections.connection import Row
from opendataflow.store.database import Database
from opendataflow.store.records import claimed, claimed_run, declared, outcome_row

Links = Sequence[Row]
GraphCheck = Callable[[Links, set[str]], None]
"""Called with the links of all jobs (job, inputs, outputs) and the ids of all data sets. Raises if they are invalid."""


@dataclass(frozen=True)
class OldRun:
    """A run that ended long ago. `goes`: it can be deleted, because nothing refers to it."""

    run: int
    job: str
    host: str
    runs_home: str
    finished_at: datetime
    goes: bool


class Store(Database):
    """The state of all jobs, data sets, tasks and runs, in one Postgres database."""

    # -- runs -----------------------------------------------------------------------------------------------

    async def open_lease(
        self,
        lease: str,
        kind: str,
        host: Host,
        runs_home: str,
        ttl: float,
        slots: int | None = None,
        jobs: Collection[str] = (),
    ) -> None:
        """Open a lease for `ttl` seconds on the database's clock.

        `slots`: how many runs of `jobs` together its engine starts at most. It is stored for people.
        """
        query = "SELECT opendataflow.open_lease(%s::uuid, %s, %s, %s, %s, make_interval(secs => %s), %s, %s)"
        await self.row(query, lease, kind, host.name, host.boot, runs_home, ttl, slots, list(jobs))

    async def renew_lease(self, lease: str, ttl: float, newest: ClaimedRun | None = None) -> bool:
        """Renew a lease, also an expired one. Return False if its row is deleted.

        `newest`: the newest run that the caller knows from the database. Raises HistoryLost if the database lacks it.
        """
        query = "SELECT opendataflow.renew_lease(%s::uuid, make_interval(secs => %s), %s, %s) AS renewed"
        run, fence = (None, None) if newest is None else (newest.run, newest.fence)
        return bool((await self.row(query, lease, ttl, run, fence))["renewed"])

    async def close_lease(self, lease: str) -> None:
        """End a lease now."""
        await self.row("SELECT opendataflow.close_lease(%s::uuid)", lease)

    async def claim(self, lease: str, job: str, limit: int, after: Position, data_id: str | None = None) -> Claimed:
        """Claim up to `limit` tasks of a job after the position `after`, or the task of one data id.

        Raise LeaseLost if the lease has ended.
        """
        query = "SELECT opendataflow.claim(%s::uuid, %s, %s, %s, decode(%s, 'hex'), %s) AS claimed"
        return claimed((await self.row(query, lease, job, limit, after.rank, after.key, data_id))["claimed"])

    async def facts_before_claim(self, job: str) -> BeforeClaim:
        """Return the facts that RunJob needs before its claim. Raise UnknownThing if the job does not exist."""
        found = (await self.row("SELECT opendataflow.facts_before_claim(%s) AS found", job))["found"]
        if found["facts"] is None:
            raise UnknownThing(f"there is no job {job}")
        return BeforeClaim(declared(found["facts"]), found["running"], found["due"])

    async def claim_one(
        self, lease: str, host: Host, runs_home: str, ttl: float, job: str, data_id: str | None
    ) -> Claimed:
        """Open a lease for `ttl` seconds and claim one task with it: the first one, or the one of a data id."""
        query = """SELECT opendataflow.claim_one(%s::uuid, %s, %s, %s, make_interval(secs => %s), %s, %s) AS claimed"""
        return claimed((await self.row(query, lease, host.name, host.boot, runs_home, ttl, job, data_id))["claimed"])

    async def publish_today(self, jobs: Sequence[str], today: str, actor: str, *, catch_up: bool) -> list[str]:
        """Publish the current day for the jobs that read `today`. With `catch_up`, publish missed days too.

        Return the days that are new.
        """
        query = "SELECT opendataflow.publish_today(%s, %s, %s, %s) AS days"
        return list((await self.row(query, list(jobs), today, catch_up, actor))["days"])

    async def complete(
        self, completions: Sequence[Completion], actor: str, *, lease: str | None = None, closing: str | None = None
    ) -> tuple[list[Completed], list[str]]:
        """Commit outcomes in one transaction. Return the new states of the runs, and the jobs that have QUEUED tasks.

        `lease`: only runs of this lease are changed. `closing`: a lease to close in the same transaction.
        """
        outcomes = Jsonb([outcome_row(completion) for completion in completions])
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
        """Queue tasks whose backoff is over. Return the jobs that have QUEUED tasks now."""
        return list((await self.row("SELECT woken FROM opendataflow.retry_due()"))["woken"])

    async def running_runs(self, lease: str, *, own: bool) -> list[tuple[ClaimedRun, bool]]:
        """Return active runs of this lease (`own`) or of all other leases, each with whether its lease is valid."""
        rows = await self.rows("SELECT * FROM opendataflow.running_runs(%s::uuid, %s)", lease, own)
        return [(claimed_run(row["run"]), row["lease_lives"]) for row in rows]

    async def runs_to_cancel(self, lease: str) -> list[int]:
        """Return runs of this lease for which a person has requested cancellation."""
        rows = await self.rows("SELECT runs_to_cancel AS run FROM opendataflow.runs_to_cancel(%s::uuid)", lease)
        return [row["run"] for row in rows]

    async def run(self, run: int) -> ClaimedRun | None:
        """Return one run, or None."""
        row = await self.row("SELECT opendataflow.run_for_takeover(%s) AS run", run)
        return claimed_run(row["run"]) if row["run"] else None

    async def declared_jobs(self, jobs: Sequence[str]) -> dict[str, DeclaredJob]:
        """Return job id -> limits and data sets."""
        rows = await self.rows("SELECT * FROM opendataflow.job_facts(%s)", list(jobs))
        return {row["job"]["id"]: declared(row) for row in rows}

    async def claimable_jobs(self, jobs: Sequence[str]) -> list[str]:
        """Return the given jobs that have QUEUED tasks."""
        return [
            row["job"]
            for row in await self.rows("SELECT claimable_jobs AS job FROM opendataflow.claimable_jobs(%s)", list(jobs))
        ]

    async def progress(self, jobs: Sequence[str]) -> list[Progress]:
        """Return the progress of jobs."""
        rows = await self.rows("SELECT * FROM opendataflow.progress(%s)", list(jobs))
        return [
            Progress(
                r["job"],
                {TaskState(s): n for s, n in r["counts"].items()},
                r["probed_in_vain"],
                r["stale"],
                r["incomplete"],
                r["declaring"] is not None,
            )
            for r in rows
        ]

    # -- changes by people -----------------------------------------------------------------------------------

    async def apply(
        self,
        datasets: list[Row],
        jobs: list[Row],
        actor: str,
        check: GraphCheck,
        consent: Consent = NO_CONSENT,
        limits: NamespaceLimits = NO_LIMITS,
    ) -> Applied:
        """Write data sets and jobs, all or none. For the rows, see sql/functions/80_apply.sql.

        `check` receives the future graph, while no other apply can change it. Raises PlanRefused if finished tasks are
        affected and the consent does not allow that.
        """

        async def attempt(connection: AsyncConnection[Row]) -> Applied:
            await _check_graph(connection, datasets, jobs, check)
            query = "SELECT opendataflow.apply(%s, %s, %s, %s, %s) AS applied"
            values = (Jsonb(datasets), Jsonb(jobs), actor, Jsonb(consent.body()), Jsonb(limits.body()))
            row = await (await connection.execute(query, values)).fetchone()
            assert row is not None
            applied = row["applied"]
            return Applied(Plan.of_row(applied["plan"]), tuple(applied["woken"]), applied["declaring"])

        return await self.transaction(attempt)

    async def declare_next(self, after: str) -> Batch | None:
        """Write the next batch of a declaration of many chunks. Return None if nothing is being declared.

        `after`: the namespace of the last batch. Namespaces take turns.
        """
        found = (await self.row("SELECT opendataflow.declare_next(%s) AS batch", after))["batch"]
        return None if found is None else Batch(**found)

    async def next_declaring(self, after: str) -> str:
        """Return the namespace whose turn to declare chunks is next; empty for files, and if there is none."""
        query = "SELECT opendataflow.namespace_of((opendataflow.next_declaring(%s)).id) AS namespace"
        return str((await self.row(query, after))["namespace"])

    async def plan(self, datasets: list[Row], jobs: list[Row], check: GraphCheck, consent: Consent) -> Plan:
        """Return the plan of an apply, and change nothing. The arguments are those of `apply`."""

        async def attempt(connection: AsyncConnection[Row]) -> Plan:
            await _check_graph(connection, datasets, jobs, check)
            query = "SELECT opendataflow.plan_apply(%s, %s, %s) AS plan"
            values = (Jsonb(datasets), Jsonb(jobs), Jsonb(consent.body()))
            row = await (await connection.execute(query, values)).fetchone()
            assert row is not None
            return Plan.of_row(row["plan"])

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

        `chosen`: ids, or a selection. Nothing is changed if one id is refused or unknown, or with `dry_run`. Then the
        answers describe the results that the verb would have had.
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
        """Change the parallelism of a job. Return its limits before and after."""
        query = "SELECT opendataflow.scale_job(%s, %s, %s, %s) AS limits"
        limits: Row = (await self.row(query, job, parallelism, actor, reason))["limits"]
        return limits

    async def suspend(self, job: str, actor: str, reason: str | None, *, suspended: bool) -> Row:
        """Suspend or resume a job. Return its limits before and after."""
        query = "SELECT opendataflow.suspend_job(%s, %s, %s, %s) AS limits"
        limits: Row = (await self.row(query, job, suspended, actor, reason))["limits"]
        return limits

    async def assign(self, name: str, namespace: str, actor: str) -> Row:
        """Move a data set or a job of a file into a namespace. Return the numbers of moved rows.

        Raise Refused if it is in use or the namespace has the id already, UnknownThing if it does not exist.
        """

        async def attempt(connection: AsyncConnection[Row]) -> Row:
            query = "SELECT opendataflow.assign(%s, %s, %s) AS assigned"
            row = await (await connection.execute(query, (name, namespace, actor))).fetchone()
            assert row is not None
            assigned: Row = row["assigned"]
            return assigned

        return await self.transaction(attempt)

    async def old_runs(self, job: str, before: datetime, after: OldRun | None, limit: int) -> list[OldRun]:
        """Return runs of a job that ended before a time, sorted by their end, starting behind the run `after`."""
        begin = (after.finished_at, after.run) if after else (datetime(1, 1, 1, tzinfo=UTC), 0)
        rows = await self.rows("SELECT * FROM opendataflow.old_runs(%s, %s, %s, %s, %s)", job, before, *begin, limit)
        return [OldRun(**row) for row in rows]

    async def clean_runs(self, runs: Sequence[int]) -> int:
        """Delete the given runs, except those that are still needed. Return the number of deleted runs."""
        return int((await self.row("SELECT opendataflow.clean_runs(%s) AS gone", list(runs)))["gone"])

    async def clean_events(self, job: str | None, before: datetime, batch: int, *, dry_run: bool) -> int:
        """Delete old events that are not needed, of all jobs or one, in short transactions. Return their number."""
        events = 0
        after: int | None = 0
        while after is not None:
            query = "SELECT opendataflow.clean_events(%s, %s, %s, %s, %s) AS cleaned"
            cleaned = (await self.row(query, job, before, after, batch, dry_run))["cleaned"]
            events, after = events + cleaned["events"], cleaned["last"]
        return events

    # -- reports ---------------------------------------------------------------------------------------------

    async def verify(self) -> list[str]:
        """Return one sentence for each inconsistent row."""
        return [row["verify"] for row in await self.rows("SELECT * FROM opendataflow.verify()")]

    async def list_jobs(self) -> list[Row]:
        """Return a row for each job."""
        return await self.rows("SELECT * FROM opendataflow.list_jobs()")

    async def list_datasets(self) -> list[Row]:
        """Return a row for each data set."""
        return await self.rows("SELECT * FROM opendataflow.list_datasets()")

    async def list_chunks(
        self, dataset: str | None, status: str | None, limit: int, *, stale: bool = False
    ) -> list[Row]:
        """Return chunks in natural order. Optional filters: a data set, a status, and only stale chunks."""
        query = "SELECT * FROM opendataflow.list_chunks(%s, %s, %s, %s)"
        return await self.rows(query, dataset, status, stale, limit)

    async def list_tasks(self, job: str | None, state: str | None, limit: int, *, stale: bool = False) -> list[Row]:
        """Return tasks in the order of their job. Optional filters: a job, a state, and only stale tasks."""
        return await self.rows("SELECT * FROM opendataflow.list_tasks(%s, %s, %s, %s)", job, state, stale, limit)

    async def list_runs(self, job: str | None, data_id: str | None, limit: int) -> list[Row]:
        """Return runs, newest first. Optional filters: a job and a data id."""
        return await self.rows("SELECT * FROM opendataflow.list_runs(%s, %s, %s)", job, data_id, limit)

    async def pipeline_runs(self, chosen: PipelineRuns, limit: int) -> list[Row]:
        """Return runs of pipelines with their steps, newest first."""
        query = "SELECT * FROM opendataflow.pipeline_runs(%s, %s, %s, %s, %s, %s)"
        return await self.rows(query, *astuple(chosen), limit)

    async def pipelines(self) -> list[str]:
        """Return the pipelines that jobs run."""
        return [
            row["pipeline"] for row in await self.rows("SELECT pipelines AS pipeline FROM opendataflow.pipelines()")
        ]

    async def run_log(self, job: str | None, data_id: str | None, run: int | None) -> Row | None:
        """Return the last part of the log of a run, or of a task's last run, or None."""
        rows = await self.rows("SELECT * FROM opendataflow.run_log(%s, %s, %s)", job, data_id, run)
        return rows[0] if rows else None

    async def job_status(self, job: str) -> Row | None:
        """Return the status of a job, for `dataflow status`, or None."""
        status: Row | None = (await self.row("SELECT opendataflow.job_status(%s) AS status", job))["status"]
        return status

    async def why(self, job: str, data_id: str) -> Row | None:
        """Return the blockers of a task, with evidence, or None."""
        why: Row | None = (await self.row("SELECT opendataflow.why(%s, %s) AS why", job, data_id))["why"]
        return why

    async def inspection(self, job: str, data_id: str) -> Row | None:
        """Return the evidence for the five questions about the chunk of a task, or None."""
        found: Row | None = (await self.row("SELECT opendataflow.inspection(%s, %s) AS found", job, data_id))["found"]
        return found

    async def describe_job(self, job: str) -> Row | None:
        """Return all details of a job, or None."""
        return await self._describe("SELECT opendataflow.describe_job(%s) AS described", job)

    async def describe_dataset(self, dataset: str) -> Row | None:
        """Return all details of a data set, or None."""
        return await self._describe("SELECT opendataflow.describe_dataset(%s) AS described", dataset)

    async def describe_chunk(self, dataset: str, data_id: str) -> Row | None:
        """Return all details of a chunk, or None."""
        return await self._describe("SELECT opendataflow.describe_chunk(%s, %s) AS described", dataset, data_id)

    async def describe_run(self, run: int) -> Row | None:
        """Return all details of a run, or None."""
        return await self._describe("SELECT opendataflow.describe_run(%s) AS described", run)

    async def _describe(self, query: LiteralString, *values: object) -> Row | None:
        described: Row | None = (await self.row(query, *values))["described"]
        return described

    async def known_ids(self, owner: str, limit: int = 5000) -> list[str]:
        """Return data ids of a job or a data set."""
        rows = await self.rows("SELECT known_ids AS id FROM opendataflow.known_ids(%s, %s)", owner, limit)
        return [row["id"] for row in rows]

    async def next_task(self, job: str) -> str | None:
        """Return the next data id that a job would claim, or None."""
        found: str | None = (await self.row("SELECT opendataflow.next_task(%s) AS data_id", job))["data_id"]
        return found


async def _check_graph(
    connection: AsyncConnection[Row], datasets: list[Row], jobs: list[Row], check: GraphCheck
) -> None:
    """Call `check` with the future graph, while no other apply can change it. Raises NotShared."""
    await connection.execute("SELECT opendataflow.lock_apply()")
    await connection.execute("SELECT opendataflow.refuse_unshared(%s)", (Jsonb(jobs),))
    links = await (await connection.execute("SELECT * FROM opendataflow.list_links()")).fetchall()
    known = await (await connection.execute("SELECT id FROM opendataflow.dataset")).fetchall()
    replaced = {job["id"] for job in jobs}
    new = [{"job": j["id"], "inputs": j["inputs"], "outputs": j["outputs"]} for j in jobs]
    check(
        [link for link in links if link["job"] not in replaced] + new,
        {row["id"] for row in known} | {d["id"] for d in datasets},
    )


async def _chosen(connection: AsyncConnection[Row], owner: str, chosen: Selection) -> list[str]:
    query: LiteralString = "SELECT data_id FROM opendataflow.select_tasks(%s, %s, %s, %s, %s)"
    if chosen.of_chunks:
        query = "SELECT data_id FROM opendataflow.select_chunks(%s, %s, %s, %s, %s)"
    limits = (chosen.first, chosen.last, list(chosen.states) or None, chosen.stale)
    return [row["data_id"] for row in await (await connection.execute(query, (owner, *limits))).fetchall()]
