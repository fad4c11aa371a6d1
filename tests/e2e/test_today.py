"""Jobs that read `today`: one run a day by RunJob; every day, also those of an outage, by an engine."""

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from opendataflow.cli.jobs.job_files import Declared, apply_files, read_files
from opendataflow.engine.claim_authority import LocalClaimAuthority
from opendataflow.engine.engine import Engine
from opendataflow.engine.orders import FileOrders
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.model.records.run import RunOrder
from opendataflow.store.store import Store
from tests.e2e.conftest import Program
from tests.e2e.test_runjob import run, script
from tests.seen import Seen
from tests.sql.conftest import Connection
from tests.waiting import until, wait_until

JOB = """
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {name: table}
---
apiVersion: opendataflow.io/v1alpha1
kind: DataFlowJob
metadata: {name: loadbob}
spec:
  inputs: [today]
  outputs: [table]
  runtime: {script: {command: [sh, -c, 'echo "$today_datasetid $today_itemtype $dataid" >> days']}}
"""
EARLIER = """
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {name: raw}
spec: {chunkSource: {list: ["1"]}}
---
apiVersion: opendataflow.io/v1alpha1
kind: DataSet
metadata: {name: cooked}
---
apiVersion: opendataflow.io/v1alpha1
kind: DataFlowJob
metadata: {name: earlier}
spec:
  inputs: [raw]
  outputs: [cooked]
  runtime: {script: {command: [touch, ran]}}
"""
DATE = r"\d{4}-\d\d-\d\d"


class Calendar:
    """A clock that a test turns."""

    def __init__(self, day: str) -> None:
        self.day = day

    def __call__(self) -> datetime:
        return datetime.fromisoformat(f"{self.day}T23:59:59+00:00").astimezone(UTC)


@pytest.fixture
def one_day() -> None:
    """A day that does not end while a test goes on, for programs that have no clock but that of the machine."""

    def lasts() -> bool:
        now = datetime.now().astimezone()
        return (now + timedelta(minutes=5)).day == now.day

    wait_until(lasts, "another day has begun", 600)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path


@pytest.fixture
def applied(folder: Path, dataflow: Program) -> Path:
    dataflow.run("apply", "-f", str(folder / "job.yaml"))
    script(folder, 'echo "$today_datasetid $today_itemtype $dataid" >> days; env | grep ^today_ | sort > seen')
    return folder


@pytest.mark.usefixtures("one_day")
def test_runjob_runs_it_once_a_day(dataflow: Program, applied: Path) -> None:
    code, lines, err = run(dataflow, applied)
    assert (code, err) == (0, "")
    assert re.fullmatch(rf"Launching \./loadbob\.sh with dataid {DATE}", lines[0])
    assert re.fullmatch(rf"today IN {DATE}\n", (applied / "days").read_text())
    assert (applied / "seen").read_text() == "today_datasetid=today\ntoday_itemtype=IN\n"

    code, lines, _ = run(dataflow, applied)
    assert (code, lines) == (75, ["no suitable data available for job. Not running it"])


@pytest.mark.usefixtures("one_day")
def test_runjob_takes_the_current_day_only(dataflow: Program, applied: Path, db: Connection) -> None:
    """The day before is there, and was never done: RunJob leaves it alone, as it always did."""
    db.execute("UPDATE opendataflow.job SET chunk_from = '2026-01-01'")
    db.execute("SELECT opendataflow.publish('today', '{2026-01-02}', 'test')")
    run(dataflow, applied)
    code, _, _ = run(dataflow, applied)
    assert code == 75
    states = db.execute("SELECT state FROM opendataflow.task ORDER BY data_id").fetchall()
    assert [row["state"] for row in states] == ["QUEUED", "DONE"]


@pytest.mark.usefixtures("applied")
def test_a_day_that_was_missed_is_run_by_its_name(dataflow: Program, db: Connection) -> None:
    db.execute("UPDATE opendataflow.job SET chunk_from = '2026-01-01'")
    dataflow.run("publish", "today", "2026-01-02")
    output = dataflow.run("run", "--job", "loadbob", "--data-id", "2026-01-02", "--", "true")
    assert "Launching true with dataid 2026-01-02" in output


async def test_an_engine_that_runs_over_midnight_goes_on_and_catches_up_what_an_outage_has_cost(
    folder: Path, dsn: str, db: Connection
) -> None:
    declared = read_files([folder / "job.yaml"])
    store = await Store.open(lambda: dsn)
    await apply_files(store, declared, "test")
    db.execute("UPDATE opendataflow.job SET chunk_from = '2026-01-01'")
    calendar = Calendar("2026-01-10")

    def engine(*, until_caught_up: bool) -> Engine[RunOrder]:
        return _engine(store, folder, calendar, _makers(declared, folder), until_caught_up=until_caught_up)

    await engine(until_caught_up=True).run()
    assert _days(folder) == ["2026-01-10"]

    calendar.day = "2026-01-12"
    running_on = engine(until_caught_up=False)
    running = asyncio.create_task(running_on.run())
    await until(lambda: len(_days(folder)) == 3)
    calendar.day = "2026-01-13"
    await until(lambda: len(_days(folder)) == 4)
    running_on.drain()
    await running
    assert _days(folder) == ["2026-01-10", "2026-01-11", "2026-01-12", "2026-01-13"]
    assert await store.verify() == []
    await store.close()


async def test_a_job_that_is_applied_after_the_day_was_published_runs_on_that_day(
    folder: Path, dsn: str, db: Connection
) -> None:
    """An operator that has begun the day without a job that reads `today`."""
    (folder / "earlier.yaml").write_text(EARLIER)
    earlier, later = (read_files([folder / name]) for name in ("earlier.yaml", "job.yaml"))
    store = await Store.open(lambda: dsn)
    await apply_files(store, earlier, "test")
    makers = _makers(earlier, folder)
    engine = _engine(store, folder, Calendar("2026-01-10"), makers, until_caught_up=False)
    running = asyncio.create_task(engine.run())
    await until((folder / "ran").exists)

    await apply_files(store, later, "test")
    db.execute("UPDATE opendataflow.job SET chunk_from = '2026-01-01'")
    makers.update(_makers(later, folder))
    engine.refresh_jobs()
    await until((folder / "days").exists)
    engine.drain()
    await running
    assert _days(folder) == ["2026-01-10"]
    await store.close()


def _makers(declared: Declared, folder: Path) -> dict[str, FileOrders]:
    return {job.id: FileOrders(job, folder, "python3", folder / "clones") for job in declared.jobs}


def _engine(
    store: Store, folder: Path, calendar: Calendar, makers: Mapping[str, FileOrders], *, until_caught_up: bool
) -> Engine[RunOrder]:
    launcher, seen = ProcessLauncher(folder / "runs"), Seen()
    return Engine(
        store,
        launcher,
        LocalClaimAuthority(store, launcher, seen.note),
        makers,
        seen,
        parallelism=1,
        until_caught_up=until_caught_up,
        clock=calendar,
    )


def _days(folder: Path) -> list[str]:
    return [line.split()[-1] for line in (folder / "days").read_text().splitlines()]
