"""Writes the statuses of DataSets and DataFlowJobs, and passes their changes on as events.

A status is written at most every two seconds, by one merge patch, only if it differs from the status in the cluster. A
few are written concurrently. There is never a write for a single chunk. A resource is checked after `mark_dirty`, and
every 15 seconds, because other programs change the state in Postgres. This module decides nothing.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from opendataflow.control.monitoring.logs import RateLimitedLogger
from opendataflow.control.resources.bodies import PLURALS
from opendataflow.control.resources.catalog import Catalog, Entry, Key, KeyQueue
from opendataflow.control.resources.failures import concerns_one_resource, failure
from opendataflow.core.status.dataset_state import ObservedDataSet, dataset_status
from opendataflow.core.status.job_state import ObservedJob, job_status, report_seen_from
from opendataflow.core.status.status_events import StatusEvent, scale_events, status_events
from opendataflow.errors import ClusterRefused, DataflowError, NotStarted
from opendataflow.launch.cluster.api import Api, custom
from opendataflow.model.resources.datasets import DataSet
from opendataflow.model.resources.jobs import DataFlowJob
from opendataflow.model.resources.statuses import Status
from opendataflow.store.connections.connection import Row
from opendataflow.store.reports import dataset_counts, dataset_gaps, job_reports
from opendataflow.store.store import Store

WRITE_SECONDS = 2.0
"""The minimum time between two writes of one resource."""
POLL_SECONDS = 15.0
"""The interval between two checks of every resource."""
GATHER_SECONDS = 0.1
"""How long changes are gathered, so that one query reads several jobs."""
CONCURRENT_WRITES = 8
"""The maximum number of concurrent writes."""
JOBS_PER_QUERY = 20
"""The number of jobs in one query."""
ANSWER_SECONDS = 10.0
"""The timeout of a query about jobs."""
REPORT_SECONDS = 300.0
"""The timeout of a query about a data set."""
SHARE = 0.05
"""The share of one core of Postgres for each kind of query that reads every chunk of a data set."""
DATASET_SECONDS = 10.0
"""The minimum time between two counts of one data set."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class EventSink(Protocol):
    """Takes events for people."""

    def record(self, key: Key, uid: str, event: StatusEvent) -> None:
        """Record an event about a resource. Never blocks and never raises."""


class ClusterFacts(Protocol):
    """Facts about jobs that Postgres does not have."""

    def start_error(self, job: str) -> NotStarted | None:
        """Return why runs of a job can't be started at the moment; None if they can."""

    def pod_problems_by_job(self) -> Mapping[str, Mapping[str, tuple[int, str]]]:
        """Return, by job, why existing pods do not run yet: reason -> (number of pods, a sentence)."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class StatusWriter:
    """Writes the statuses of all resources in the catalog.

    `reported`: called with the report of Postgres about a job. `failed`: called after a failure, with the kind of the
    resource; the next check of all resources tries again. `heartbeat`: called at each iteration of the loop.
    `answers`: called after each query with whether Postgres answered.
    """

    def __init__(  # noqa: PLR0913  # called once, by a composition root
        self,
        store: Store,
        api: Api,
        catalog: Catalog,
        cluster_facts: ClusterFacts,
        events: EventSink,
        *,
        reported: Callable[[str, Row], None] = lambda _job, _report: None,
        failed: Callable[[str], None] = lambda _kind: None,
        heartbeat: Callable[[], None] = lambda: None,
        answers: Callable[[bool], None] = lambda _reachable: None,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._store = store
        self._api = api
        self._catalog = catalog
        self._cluster_facts = cluster_facts
        self._events = events
        self._clock = clock
        self._limited_logger = RateLimitedLogger(logger)
        self._dirty: dict[Key, None] = {}
        self._woken = asyncio.Event()
        self._written: dict[Key, float] = {}
        self._last_status: dict[str, Mapping[str, Any]] = {}
        self._parallelism: dict[Key, int] = {}
        self._pods: Mapping[str, Mapping[str, tuple[int, str]]] = {}
        self._database = _Database(store.where, self._poll_soon, answers)
        self._reports = _DataSetReports(store, self._database, self._fail)
        self._poll_at = 0.0
        self._reported = reported
        self._failed = failed
        self._heartbeat = heartbeat

    def mark_dirty(self, key: Key) -> None:
        """Record that the status of a resource may have changed."""
        self._dirty[key] = None
        self._woken.set()

    async def run(self) -> None:
        """Write statuses until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reports.run(self._catalog, self.mark_dirty), name="reports of data sets")
            while True:
                now = time.monotonic()
                self._heartbeat()
                if now >= self._poll_at:
                    self._poll_at = now + POLL_SECONDS
                    self._mark_all_dirty()
                due = [key for key in self._dirty if self._due_at(key) <= now]
                await self._write_due(due)
                await self._sleep()

    def _mark_all_dirty(self) -> None:
        entries = [entry for entry in self._catalog if entry.key.kind in ("DataSet", "DataFlowJob")]
        keys = {entry.key for entry in entries}
        for uid in set(self._last_status) - {entry.uid for entry in entries}:
            del self._last_status[uid]
        self._dirty.update(dict.fromkeys(sorted(keys)))
        for remembered in (self._written, self._parallelism):
            for key in set(remembered) - keys:
                del remembered[key]

    def _poll_soon(self) -> None:
        self._poll_at = 0.0
        self._woken.set()

    def _due_at(self, key: Key) -> float:
        written = self._written.get(key)
        return 0.0 if written is None else written + WRITE_SECONDS

    async def _sleep(self) -> None:
        """Wait for a change, for the next due write, or for the next check of all resources."""
        self._woken.clear()
        soonest = min([self._poll_at, *map(self._due_at, self._dirty)])
        try:
            async with asyncio.timeout(max(0.0, soonest - time.monotonic())):
                await self._woken.wait()
        except TimeoutError:
            return
        await asyncio.sleep(GATHER_SECONDS)

    async def _write_due(self, keys: Sequence[Key]) -> None:
        """Write the statuses of some resources, as far as they have changed."""
        for key in keys:
            del self._dirty[key]
        entries = [entry for key in keys if (entry := self._catalog.get(key)) is not None]
        jobs = {e.key: str(e.store_key) for e in entries if isinstance(e.model, DataFlowJob) and e.accepted is not None}
        found = await self._ask_reports(sorted(set(jobs.values())))
        self._pods = self._cluster_facts.pod_problems_by_job()
        free = asyncio.Semaphore(CONCURRENT_WRITES)

        async def write(entry: Entry) -> None:
            async with free:
                try:
                    await self._write(entry, found.get(jobs.get(entry.key, "")))
                except Exception as error:
                    self._fail(entry.key.kind, entry.key.owner, error)

        async with asyncio.TaskGroup() as group:
            for entry in entries:
                group.create_task(write(entry))

    async def _ask_reports(self, jobs: Sequence[str]) -> dict[str, Row]:
        found: dict[str, Row] = {}
        for start in range(0, len(jobs), JOBS_PER_QUERY):
            found |= await self._ask_some(jobs[start : start + JOBS_PER_QUERY])
            if self._database.unreachable is not None:
                break
        for job, report in found.items():
            try:
                self._reported(job, report)
            except Exception as error:
                self._fail("DataFlowJob", job, error)
        return found

    async def _ask_some(self, jobs: Sequence[str]) -> dict[str, Row]:
        """Query reports about a few jobs. If one job makes the query fail, the others still get their reports."""
        try:
            return await self._database.ask(job_reports(self._store, jobs), ANSWER_SECONDS) or {}
        except Exception as error:
            if len(jobs) > 1 and concerns_one_resource(error):
                return {job: report for one in jobs for job, report in (await self._ask_some([one])).items()}
            self._fail("DataFlowJob", jobs[0], error)
            return {}

    def _fail(self, kind: str, name: str, error: Exception) -> None:
        """Log and count a failure about one resource. Raises errors from which all resources suffer."""
        if not concerns_one_resource(error):
            raise error
        self._failed(kind)
        self._limited_logger.warn(f"the status of {kind} {name}: {type(error).__name__}: {error}")

    def _status_or_failure(self, entry: Entry, found: Row | None) -> Status:
        """Return the status; if its computation fails, a status with this failure as the fault of the resource."""
        try:
            return self._status(entry, found)
        except Exception as error:
            self._fail(entry.key.kind, entry.key.owner, error)
            return self._status(replace(entry, fault=failure(error), status={}), None)

    def _status(self, entry: Entry, found: Row | None) -> Status:
        now = self._clock()
        if entry.key.kind == "DataSet":
            name = entry.store_key if entry.accepted is not None else None
            return dataset_status(
                ObservedDataSet(
                    generation=entry.generation,
                    accepted=entry.accepted,
                    fault=entry.fault,
                    found=None if name is None else self._reports.get(name),
                    declaring=entry.declaring,
                    unreachable=self._database.unreachable,
                    before=entry.status,
                    plan=entry.plan,
                ),
                now,
            )
        job = entry.model.id if isinstance(entry.model, DataFlowJob) else entry.key.name
        key = entry.store_key if entry.accepted is not None else None
        return job_status(
            ObservedJob(
                job=job,
                generation=entry.generation,
                accepted=entry.accepted,
                fault=entry.fault,
                found=None if found is None else report_seen_from(entry.key.namespace, found),
                unreachable=self._database.unreachable,
                start_error=None if key is None else self._cluster_facts.start_error(key),
                pods={} if key is None else self._pods.get(key, {}),
                before=entry.status,
                plan=entry.plan,
                accepted_spec=entry.accepted_spec,
            ),
            now,
        )

    async def _write(self, entry: Entry, found: Row | None) -> None:
        """Write a status if it differs from the status in the cluster. A failed write is retried.

        The events since the last status are recorded when the cluster shows the new status, after the answer or from
        the watch.
        """
        status = self._status_or_failure(entry, found)
        body = status.body()
        before = self._last_status.setdefault(entry.uid, entry.status)
        patch = merge_patch(entry.status, body)
        if patch and not await self._patch(entry, patch):
            return
        if patch:
            shown = self._catalog.get(entry.key)  # the watch may have replaced the entry meanwhile
            for one in (entry, shown):
                if one is not None and one.uid == entry.uid:
                    one.status = body
        self._last_status[entry.uid] = body
        for event in [*status_events(before, status), *self._scaled(entry.key, found)]:
            self._events.record(entry.key, entry.uid, event)

    async def _patch(self, entry: Entry, patch: Mapping[str, Any]) -> bool:
        key = entry.key
        self._written[key] = time.monotonic()
        try:
            resource, sent = custom(PLURALS[key.kind]), {"status": patch}
            shown = await self._api.patch_merge(resource, key.namespace, key.name, sent, status=True)
        except ClusterRefused as error:
            # After a deletion the watch removes the entry.
            if error.code != 404:
                self._limited_logger.warn(f"the status of {key.kind} {key.owner} was not taken: {error}")
            return False
        except DataflowError as error:
            if not error.retryable:
                raise
            logger.debug("the status of %s %s was not written: %s", key.kind, key.owner, error)
            self._dirty[key] = None
            return False
        # The API server does not check the uid of a status. Another resource may have the name; the watch reports it.
        return bool((shown.get("metadata") or {}).get("uid") == entry.uid)

    def _scaled(self, key: Key, found: Row | None) -> list[StatusEvent]:
        if found is None:
            return []
        before, self._parallelism[key] = self._parallelism.get(key), found["parallelism"]
        return scale_events(before, found["parallelism"])


def merge_patch(shown: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch that turns status `shown` into `wanted`; empty if they are equal. It contains only
    the fields that differ."""
    changed = {name: value for name, value in wanted.items() if shown.get(name) != value}
    for name, value in changed.items():
        was = shown.get(name)
        if isinstance(value, dict) and isinstance(was, dict):
            changed[name] = {**dict.fromkeys(was.keys() - value.keys()), **value}
    return {**changed, **{name: None for name in shown if name not in wanted and shown[name] is not None}}


class _Database:
    """Runs queries, and tracks whether Postgres answers.

    `changed`: called when Postgres becomes unreachable or reachable. `answers`: called after each query with whether
    Postgres answered. `unreachable`: why it does not answer; None if it does.
    """

    def __init__(self, where: str, changed: Callable[[], None], answers: Callable[[bool], None]) -> None:
        self._where = where
        self._changed = changed
        self._answers = answers
        self.unreachable: str | None = None

    async def ask(self, question: Awaitable[T], seconds: float) -> T | None:
        """Return the answer of a query. Return None if there is none within `seconds`, and set `unreachable`."""
        answer, unreachable = None, None
        try:
            async with asyncio.timeout(seconds):
                answer = await question
        except TimeoutError:
            unreachable = f"Postgres at {self._where} does not answer: nothing came within {seconds:.0f} s"
        except DataflowError as error:
            if not error.retryable:
                raise
            unreachable = str(error)
        before, self.unreachable = self.unreachable, unreachable
        self._answers(unreachable is None)
        if (before is None) != (unreachable is None):
            self._changed()
        return answer


class _DataSetReports:
    """The reports of Postgres about data sets: counts, watermark and gaps.

    Such a query reads every chunk. So the queries of each kind run one at a time, with pauses that limit them to a
    small share of one core. With a million chunks, counts are read every few seconds. After a change, the watermark and
    the gaps are read every few minutes.
    """

    def __init__(self, store: Store, postgres: _Database, fail: Callable[[str, str, Exception], None]) -> None:
        self._store = store
        self._database = postgres
        self._fail = fail
        self._counts: dict[str, Row] = {}
        self._gaps: dict[str, Row] = {}
        self._changed: KeyQueue[tuple[Key, str]] = KeyQueue()

    def get(self, name: str) -> Row | None:
        """Return the counts, watermark and gaps of a data set; None before all of them are known.

        While chunks are being declared, the watermark is unknown, and the gaps are those of an earlier time.
        """
        if name in self._counts and self._counts[name]["declaring"] is not None:
            return {**self._counts[name], **self._gaps.get(name, {"gaps": []}), "watermark": None}
        if name not in self._counts or name not in self._gaps:
            return None
        return {**self._counts[name], **self._gaps[name]}

    async def run(self, catalog: Catalog, dirty: Callable[[Key], None]) -> None:
        """Query until cancelled. `dirty`: called with each data set that has changed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._count_all(catalog, dirty))
            group.create_task(self._order_changed(dirty))

    async def _count_all(self, catalog: Catalog, dirty: Callable[[Key], None]) -> None:
        while True:
            begin = time.monotonic()
            here = {str(e.store_key): e for e in catalog if isinstance(e.model, DataSet) and e.accepted is not None}
            for gone in self._counts.keys() - here.keys():
                del self._counts[gone]
                self._gaps.pop(gone, None)
            for name, entry in here.items():
                current = entry.accepted == entry.generation  # so this query sees its declaration
                counts = await self._ask(name, dataset_counts(self._store, name))
                if counts is None:
                    continue
                if current and entry.declaring != (counts["declaring"] is not None):
                    entry.declaring = counts["declaring"] is not None
                    dirty(entry.key)
                if counts != self._counts.get(name):
                    self._counts[name] = counts
                    self._changed.put((entry.key, name))
                    dirty(entry.key)
            rest = DATASET_SECONDS if here else 1.0
            await asyncio.sleep(max(0.1, begin + rest - time.monotonic()))

    async def _order_changed(self, dirty: Callable[[Key], None]) -> None:
        while True:
            key, name = await self._changed.get()
            gaps = await self._ask(name, dataset_gaps(self._store, name))
            if gaps is None:
                self._changed.put((key, name))
            elif name in self._counts:
                self._gaps[name] = gaps
                dirty(key)

    async def _ask(self, name: str, question: Awaitable[T]) -> T | None:
        begin = time.monotonic()
        try:
            answer = await self._database.ask(question, REPORT_SECONDS)
        except Exception as error:
            self._fail("DataSet", name, error)
            answer = None
        pause = (time.monotonic() - begin) * (1 / SHARE - 1)
        await asyncio.sleep(pause if answer is not None else max(pause, 1.0))
        return answer
