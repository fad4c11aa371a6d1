"""Tells in the statuses of DataSets and DataFlowJobs how they are, and what has happened to them as events.

One writer. A resource is written at most every two seconds, only where its status differs from what the cluster shows,
by one merge patch, a few at once; never for a single chunk. It is looked at when somebody says that it may have
changed, and every quarter of a minute, since others change things through Postgres. It decides nothing.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from opendataflow.control.monitoring.logs import Sparing
from opendataflow.control.resources.bodies import PLURALS
from opendataflow.control.resources.catalog import Catalog, Entry, Key, Pending
from opendataflow.core.status.dataset_state import DataSetFacts, dataset_status
from opendataflow.core.status.job_state import JobFacts, job_status
from opendataflow.core.status.status_events import Happening, happenings, scaled
from opendataflow.errors import ClusterRefused, DataflowError, NotStarted
from opendataflow.launch.cluster.api import Api, custom
from opendataflow.model.resources.datasets import DataSet
from opendataflow.model.resources.jobs import DataFlowJob
from opendataflow.model.resources.statuses import Status
from opendataflow.store.connections.connection import Row
from opendataflow.store.reports import dataset_counts, dataset_gaps, job_reports
from opendataflow.store.store import Store

WRITE_SECONDS = 2.0
"""At least this long between two writes of one resource."""
LOOK_SECONDS = 15.0
"""How often every resource is looked at."""
GATHER_SECONDS = 0.1
"""How long changes are gathered, so that many are asked for together."""
AT_ONCE = 8
"""Writes under way at a time."""
JOBS_AT_ONCE = 20
"""Jobs that Postgres is asked about in one question."""
ANSWER_SECONDS = 10.0
"""How long an answer about jobs may take."""
REPORT_SECONDS = 300.0
"""How long a report of a data set may take."""
SHARE = 0.05
"""How much of one core of Postgres may go into each kind of question that looks at every chunk of a data set."""
DATASET_SECONDS = 10.0
"""At least this long between two counts of one data set."""

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Teller(Protocol):
    """Who tells people what has happened. Returns at once and never raises."""

    def tell(self, key: Key, uid: str, happening: Happening) -> None:
        """Tell one thing about a resource."""


class Surroundings(Protocol):
    """Who knows of jobs, by id, what Postgres does not."""

    def why_held_back(self, job: str) -> NotStarted | None:
        """Why runs of a job can't be started for now."""

    def why_pods_wait(self) -> Mapping[str, Mapping[str, tuple[int, str]]]:
        """Why pods that are there do not run yet, by job: reason -> (how many, a sentence)."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class StatusWriter:
    """The statuses of everything in the catalog. `reported`: gets what Postgres says of a job. `turned`: is told each
    time that the loop turns. `answers`: is told after each question whether Postgres has answered."""

    def __init__(  # noqa: PLR0913  # what a composition root puts together
        self,
        store: Store,
        api: Api,
        catalog: Catalog,
        surroundings: Surroundings,
        teller: Teller,
        *,
        reported: Callable[[str, Row], None] = lambda _job, _report: None,
        turned: Callable[[], None] = lambda: None,
        answers: Callable[[bool], None] = lambda _reachable: None,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._store = store
        self._api = api
        self._catalog = catalog
        self._surroundings = surroundings
        self._teller = teller
        self._clock = clock
        self._sparing = Sparing(logger)
        self._dirty: dict[Key, None] = {}
        self._woken = asyncio.Event()
        self._written: dict[Key, float] = {}
        self._told: dict[str, Mapping[str, Any]] = {}
        self._parallelism: dict[Key, int] = {}
        self._pods: Mapping[str, Mapping[str, tuple[int, str]]] = {}
        self._postgres = _Postgres(store.where, self._look_soon, answers)
        self._reports = _DataSetReports(store, self._postgres)
        self._look_at = 0.0
        self._reported = reported
        self._turned = turned

    def dirty(self, key: Key) -> None:
        """The status of a resource may have changed."""
        self._dirty[key] = None
        self._woken.set()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reports.run(self._catalog, self.dirty), name="reports of data sets")
            while True:
                now = time.monotonic()
                self._turned()
                if now >= self._look_at:
                    self._look_at = now + LOOK_SECONDS
                    self._look_at_all()
                due = [key for key in self._dirty if self._due_at(key) <= now]
                await self._tell(due)
                await self._sleep()

    def _look_at_all(self) -> None:
        entries = [entry for entry in self._catalog if entry.key.kind in ("DataSet", "DataFlowJob")]
        keys = {entry.key for entry in entries}
        for uid in set(self._told) - {entry.uid for entry in entries}:
            del self._told[uid]
        self._dirty.update(dict.fromkeys(sorted(keys)))
        for remembered in (self._written, self._parallelism):
            for key in set(remembered) - keys:
                del remembered[key]

    def _look_soon(self) -> None:
        self._look_at = 0.0
        self._woken.set()

    def _due_at(self, key: Key) -> float:
        written = self._written.get(key)
        return 0.0 if written is None else written + WRITE_SECONDS

    async def _sleep(self) -> None:
        """Wait for the next thing to do: a change, a resource that was written too lately, or a look at all."""
        self._woken.clear()
        soonest = min([self._look_at, *map(self._due_at, self._dirty)])
        try:
            async with asyncio.timeout(max(0.0, soonest - time.monotonic())):
                await self._woken.wait()
        except TimeoutError:
            return
        await asyncio.sleep(GATHER_SECONDS)

    async def _tell(self, keys: Sequence[Key]) -> None:
        """Write the statuses of resources that have to be told anew."""
        for key in keys:
            del self._dirty[key]
        entries = [entry for key in keys if (entry := self._catalog.get(key)) is not None]
        jobs = {e.key: e.model.id for e in entries if isinstance(e.model, DataFlowJob) and e.accepted is not None}
        found = await self._found(sorted(set(jobs.values())))
        self._pods = self._surroundings.why_pods_wait()
        free = asyncio.Semaphore(AT_ONCE)

        async def write(entry: Entry) -> None:
            async with free:
                await self._write(entry, found.get(jobs.get(entry.key, "")))

        async with asyncio.TaskGroup() as group:
            for entry in entries:
                group.create_task(write(entry))

    async def _found(self, jobs: Sequence[str]) -> dict[str, Row]:
        found: dict[str, Row] = {}
        for start in range(0, len(jobs), JOBS_AT_ONCE):
            some = jobs[start : start + JOBS_AT_ONCE]
            found |= await self._postgres.ask(job_reports(self._store, some), ANSWER_SECONDS) or {}
            if self._postgres.away is not None:
                break
        for job, report in found.items():
            self._reported(job, report)
        return found

    def _status(self, entry: Entry, found: Row | None) -> Status:
        now = self._clock()
        if entry.key.kind == "DataSet":
            name = entry.model.id if isinstance(entry.model, DataSet) and entry.accepted is not None else None
            return dataset_status(
                DataSetFacts(
                    generation=entry.generation,
                    accepted=entry.accepted,
                    fault=entry.fault,
                    found=None if name is None else self._reports.get(name),
                    away=self._postgres.away,
                    before=entry.status,
                ),
                now,
            )
        job = entry.model.id if isinstance(entry.model, DataFlowJob) else entry.key.name
        ours = entry.accepted is not None
        return job_status(
            JobFacts(
                job=job,
                generation=entry.generation,
                accepted=entry.accepted,
                fault=entry.fault,
                found=found,
                away=self._postgres.away,
                held_back=self._surroundings.why_held_back(job) if ours else None,
                pods=self._pods.get(job, {}) if ours else {},
                before=entry.status,
            ),
            now,
        )

    async def _write(self, entry: Entry, found: Row | None) -> None:
        """Write a status where it differs from what the cluster shows; what does not succeed is tried again. What has
        happened since the last one is told when the cluster shows it, whether the answer or the watch says so."""
        status = self._status(entry, found)
        body = status.body()
        before = self._told.setdefault(entry.uid, entry.status)
        patch = merge_patch(entry.status, body)
        if patch and not await self._written_to(entry, patch):
            return
        if patch:
            shown = self._catalog.get(entry.key)  # the watch may have brought another entry meanwhile
            for one in (entry, shown):
                if one is not None and one.uid == entry.uid:
                    one.status = body
        self._told[entry.uid] = body
        for happening in [*happenings(before, status), *self._scaled(entry.key, found)]:
            self._teller.tell(entry.key, entry.uid, happening)

    async def _written_to(self, entry: Entry, patch: Mapping[str, Any]) -> bool:
        key = entry.key
        self._written[key] = time.monotonic()
        try:
            resource, sent = custom(PLURALS[key.kind]), {"status": patch}
            shown = await self._api.patch_merge(resource, key.namespace, key.name, sent, status=True)
        except ClusterRefused as error:
            # Gone: the watch tells.
            if error.code != 404:
                self._sparing.warn(f"the status of {key.kind} {key.owner} was not taken: {error}")
            return False
        except DataflowError as error:
            if not error.retryable:
                raise
            logger.debug("the status of %s %s was not written: %s", key.kind, key.owner, error)
            self._dirty[key] = None
            return False
        # Else it was another one of the same name (a status can't be refused by uid): the watch brings it in a moment.
        return bool((shown.get("metadata") or {}).get("uid") == entry.uid)

    def _scaled(self, key: Key, found: Row | None) -> list[Happening]:
        if found is None:
            return []
        before, self._parallelism[key] = self._parallelism.get(key), found["parallelism"]
        return scaled(before, found["parallelism"])


def merge_patch(shown: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch that makes one status of another; empty where they are the same. Its size is that of
    the fields that differ."""
    changed = {name: value for name, value in wanted.items() if shown.get(name) != value}
    for name, value in changed.items():
        was = shown.get(name)
        if isinstance(value, dict) and isinstance(was, dict):
            changed[name] = {**dict.fromkeys(was.keys() - value.keys()), **value}
    return {**changed, **{name: None for name in shown if name not in wanted and shown[name] is not None}}


class _Postgres:
    """Asks, and remembers whether there was an answer. `changed`: is told when that changes; `answers`: each time."""

    def __init__(self, where: str, changed: Callable[[], None], answers: Callable[[bool], None]) -> None:
        self._where = where
        self._changed = changed
        self._answers = answers
        self.away: str | None = None

    async def ask(self, question: Awaitable[T], seconds: float) -> T | None:
        """Return the answer; None where there is none, also after so many seconds, and `away` says why."""
        answer, away = None, None
        try:
            async with asyncio.timeout(seconds):
                answer = await question
        except TimeoutError:
            away = f"Postgres at {self._where} does not answer: nothing came within {seconds:.0f} s"
        except DataflowError as error:
            if not error.retryable:
                raise
            away = str(error)
        before, self.away = self.away, away
        self._answers(away is None)
        if (before is None) != (away is None):
            self._changed()
        return answer


class _DataSetReports:
    """What Postgres says of data sets. It has to look at every chunk for it, so that each kind of question is asked one
    at a time, with pauses that keep it at a small share of one core: counts of a million chunks every few seconds, and
    where these have changed, the watermark and the gaps every few minutes."""

    def __init__(self, store: Store, postgres: _Postgres) -> None:
        self._store = store
        self._postgres = postgres
        self._counts: dict[str, Row] = {}
        self._gaps: dict[str, Row] = {}
        self._changed: Pending[tuple[Key, str]] = Pending()

    def get(self, name: str) -> Row | None:
        """What is known of a data set: counts, watermark and gaps; None before all of it is."""
        if name not in self._counts or name not in self._gaps:
            return None
        return {"counts": self._counts[name]["counts"], **self._gaps[name]}

    async def run(self, catalog: Catalog, dirty: Callable[[Key], None]) -> None:
        """Ask until cancelled; tell `dirty` which data sets have changed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._count_all(catalog, dirty))
            group.create_task(self._order_changed(dirty))

    async def _count_all(self, catalog: Catalog, dirty: Callable[[Key], None]) -> None:
        while True:
            begin = time.monotonic()
            here = {e.model.id: e.key for e in catalog if isinstance(e.model, DataSet) and e.accepted is not None}
            for gone in self._counts.keys() - here.keys():
                del self._counts[gone]
                self._gaps.pop(gone, None)
            for name, key in here.items():
                counts = await self._asked(dataset_counts(self._store, name))
                if counts is not None and counts != self._counts.get(name):
                    self._counts[name] = counts
                    self._changed.put((key, name))
                    dirty(key)
            rest = DATASET_SECONDS if here else 1.0
            await asyncio.sleep(max(0.1, begin + rest - time.monotonic()))

    async def _order_changed(self, dirty: Callable[[Key], None]) -> None:
        while True:
            key, name = await self._changed.get()
            gaps = await self._asked(dataset_gaps(self._store, name))
            if gaps is None:
                self._changed.put((key, name))
            elif name in self._counts:
                self._gaps[name] = gaps
                dirty(key)

    async def _asked(self, question: Awaitable[T]) -> T | None:
        begin = time.monotonic()
        answer = await self._postgres.ask(question, REPORT_SECONDS)
        pause = (time.monotonic() - begin) * (1 / SHARE - 1)
        await asyncio.sleep(pause if answer is not None else max(pause, 1.0))
        return answer
