"""Whatever has happened, all reports agree with the tables, and none says done of what is not.

The machine of test_model.py goes on; after each step everything that a person or a program can ask is asked in this
process, and compared with a recount of the rows.
"""

import asyncio
import io
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from opendataflow.cli.jobs.local import exit_code
from opendataflow.cli.output.screen import Screen
from opendataflow.cli.reports.status import print_status
from opendataflow.core.status.inspection import inspection_answers
from opendataflow.core.status.job_state import ObservedJob, job_status
from opendataflow.model.records.claim import Progress
from opendataflow.names import ExitCode, TaskState
from opendataflow.store.reports import job_reports
from opendataflow.store.store import Store
from tests.share import soaked
from tests.sql.conftest import Connection
from tests.sql.test_model import StoreMachine, clients

NOW = datetime(2026, 11, 28, tzinfo=UTC)
ALL = 1_000_000
THRESHOLD = 5


@dataclass
class Recount:
    """What the rows of a job say: tasks by state, the stale ones, and those that are done without all their outputs."""

    counts: Counter[str] = field(default_factory=Counter)
    stale: set[str] = field(default_factory=set)
    unmade: set[str] = field(default_factory=set)

    @property
    def finished(self) -> bool:
        """Whether each task is done from present versions, or excluded by a person."""
        return not self.stale and set(self.counts) <= {"DONE", "SKIPPED"}


@dataclass
class Rows:
    """A recount of all rows, without any function of the schema."""

    jobs: dict[str, Recount] = field(default_factory=dict)
    chunks: dict[tuple[str, str], str] = field(default_factory=dict)
    outputs: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, db: Connection) -> "Rows":
        """Read the tables."""
        rows = cls({row["id"]: Recount() for row in db.execute("SELECT id FROM opendataflow.job")})
        rows.outputs = {job: [] for job in rows.jobs}
        for link in db.execute("SELECT job, dataset FROM opendataflow.job_output"):
            rows.outputs[link["job"]].append(link["dataset"])
        for chunk in db.execute("SELECT dataset, data_id, status FROM opendataflow.chunk"):
            rows.chunks[chunk["dataset"], chunk["data_id"]] = chunk["status"]
        for task in db.execute("SELECT job, data_id, state, stale FROM opendataflow.task"):
            rows._count(**task)
        return rows

    def _count(self, job: str, data_id: str, state: str, stale: bool) -> None:
        if state == "RETIRED":
            return
        found = self.jobs[job]
        found.counts[state] += 1
        if state == "DONE" and stale:
            found.stale.add(data_id)
        statuses = {self.chunks.get((dataset, data_id)) for dataset in self.outputs[job]}
        if state == "DONE" and not statuses <= {"READY", "HOLD", "PENDING"}:
            found.unmade.add(data_id)


@dataclass(frozen=True)
class JobReports:
    """All reports of one job: by `get jobs`, `status` (JSON and text), its resource, and `local`."""

    row: dict[str, Any]
    status: dict[str, Any]
    text: str
    resource: dict[str, Any]
    progress: Progress

    @property
    def done(self) -> dict[str, bool]:
        """Which of the reports say that the job is done."""
        counts = self.status["counts"]
        total, skipped, incomplete = sum(counts.values()), counts.get("SKIPPED", 0), self.status["incomplete"]
        if not total:
            return {}
        succeeded = next(c["status"] for c in self.resource["conditions"] if c["type"] == "Succeeded")
        return {
            "get jobs": self.row["state"] == "Done",
            "status": counts.get("DONE", 0) + skipped == total and not self.status["stale"] and not incomplete,
            "the text of status": f"{total - skipped} of {total} done" in self.text and not self.restricted,
            "the state of the resource": self.resource["state"] == "Done",
            "its condition": succeeded == "True",
            "local": exit_code([self.progress]) is ExitCode.OK,
        }

    @property
    def restricted(self) -> bool:
        """Whether the text says that something that is done is not right."""
        return "stale" in self.text or "incomplete" in self.text

    @property
    def figures(self) -> dict[str, tuple[int, int, int]]:
        """How many tasks there are, are done and are stale, as each report counts."""
        counts, of_resource = self.status["counts"], self.resource["counts"]
        return {
            "get jobs": (self.row["total"], self.row["done"], self.row["stale"]),
            "status": (sum(counts.values()), counts.get("DONE", 0), self.status["stale"]),
            "the resource": (of_resource["total"], of_resource["done"], of_resource["stale"]),
            "local": (self.progress.total, self.progress.counts.get(TaskState.DONE, 0), self.progress.stale),
        }


async def reports(store: Store) -> dict[str, JobReports]:
    """Ask for everything about every job."""
    rows = {row["job"]: row for row in await store.list_jobs()}
    progress = {one.job: one for one in await store.progress(sorted(rows))}
    found = await job_reports(store, sorted(rows))
    return {job: _job_reports(rows[job], found[job], progress[job]) for job in rows}


def _job_reports(row: dict[str, Any], report: dict[str, Any], progress: Progress) -> JobReports:
    file = io.StringIO()
    print_status(Screen(lambda: file), report)
    resource = job_status(ObservedJob(row["job"], 1, 1, found=report), NOW).body()
    return JobReports(row, report, file.getvalue(), resource, progress)


class ReportMachine(StoreMachine):
    """Asks after each step. `runner`, `store`: where the functions of the commands run."""

    def __init__(self, people: Connection, engines: list[Connection], runner: asyncio.Runner, store: Store) -> None:
        super().__init__(people, engines, set(), THRESHOLD)
        self.runner = runner
        self.store = store
        self.asked = 0

    @invariant()
    def engines_are_notified_of_new_queued_tasks(self) -> None:
        """Nobody listens here."""

    @invariant()
    def all_reports_agree_with_the_rows(self) -> None:
        rows = Rows.of(self.people)
        self._check_reports(rows)
        self._check_lists(rows)
        self._check_inspect(rows)

    def _check_reports(self, rows: Rows) -> None:
        shown = self.runner.run(reports(self.store))
        assert shown.keys() == rows.jobs.keys()
        for job, recount in rows.jobs.items():
            expected = (recount.counts.total(), recount.counts["DONE"], len(recount.stale))
            assert shown[job].figures == dict.fromkeys(shown[job].figures, expected), job
            finished = recount.finished and not recount.unmade
            wrong = [name for name, says_done in shown[job].done.items() if says_done and not finished]
            assert not wrong, (job, wrong)

    def _check_lists(self, rows: Rows) -> None:
        stale = {(job, data_id) for job, recount in rows.jobs.items() for data_id in recount.stale}
        listed = self.runner.run(self.store.list_tasks(None, None, ALL))
        assert {(task["job"], task["data_id"]) for task in listed if task["stale"]} == stale
        unmade = {(job, data_id) for job, recount in rows.jobs.items() for data_id in recount.unmade}
        assert unmade <= {(task["job"], task["data_id"]) for task in listed if task["incomplete"] and task["reason"]}
        assert Counter(task["state"] for task in listed) == sum((r.counts for r in rows.jobs.values()), Counter())
        of_chunks = self.runner.run(self.store.list_chunks(None, None, ALL, stale=True))
        written = {(d, data_id) for job, data_id in stale for d in rows.outputs[job]} & rows.chunks.keys()
        assert {(chunk["dataset"], chunk["data_id"]) for chunk in of_chunks} == written

    def _check_inspect(self, rows: Rows) -> None:
        """Ask about one task after each step, each in turn: ready and correct is only what is."""
        tasks = sorted(self.model.tasks)
        if not tasks:
            return
        self.asked += 1
        job, data_id = tasks[self.asked % len(tasks)]
        found = self.runner.run(self.store.inspection(job, data_id))
        assert found is not None
        ready, correct, *_ = [answer.answer for answer in inspection_answers(found)]
        if ready.startswith("yes"):
            assert {rows.chunks.get((dataset, data_id)) for dataset in rows.outputs[job]} <= {"READY"}
        if correct.startswith("yes"):
            assert data_id not in rows.jobs[job].stale | rows.jobs[job].unmade


@contextmanager
def running_store(dsn: str) -> Iterator[tuple[asyncio.Runner, Store]]:
    """A store over one connection, in a loop of its own."""
    with asyncio.Runner() as runner:
        store = runner.run(Store.open(lambda: dsn, 1))
        yield runner, store
        runner.run(store.close())


def test_all_reports_agree_with_the_rows_and_none_says_done_of_what_is_not(dsn: str) -> None:
    with clients(dsn, 3) as (people, *engines), running_store(dsn) as (runner, store):
        run_state_machine_as_test(
            partial(ReportMachine, people, engines, runner, store),  # type: ignore[arg-type]  # any factory does
            settings=settings(max_examples=soaked(10, 300), stateful_step_count=40, print_blob=True),
        )
