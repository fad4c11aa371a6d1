"""The statuses of resources, written by the real writer to a real API server."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from opendataflow.control.resources.bodies import parse_entry
from opendataflow.control.status import status_writer as timing
from opendataflow.core.status.conditions import Fault
from opendataflow.errors import Backpressure, ClusterUnreachable, DataflowError
from opendataflow.names import Reason
from opendataflow.store.reports import job_reports
from opendataflow.store.store import Store
from tests.kube.cluster.api import Api
from tests.kube.conftest import Kubectl, OwnCluster
from tests.kube.jobs import dataset, job
from tests.kube.status_scene import StatusScene, condition_status, status_scene
from tests.sql import graph


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a quarter of a minute."""
    monkeypatch.setattr(timing, "POLL_SECONDS", 0.5)
    monkeypatch.setattr(timing, "DATASET_SECONDS", 0.5)


@pytest.fixture
async def here(cluster: Api, namespace: str, dsn: str) -> AsyncIterator[StatusScene]:
    """The parts, on the shared cluster."""
    async with status_scene(cluster, namespace, dsn) as opened:
        yield opened


def work_off(here: StatusScene, verdict: str = "DONE") -> None:
    """Run everything that is ready."""
    lease = graph.open_lease(here.db)
    for run in graph.claim(here.db, lease, f"{here.namespace}/j", 100):
        graph.end(here.db, run, verdict)


async def test_kubectl_wait_sees_a_job_succeed(here: StatusScene, kubectl: Kubectl) -> None:
    here.put_job()
    async with here.writer():
        await here.until("DataFlowJob", "j", lambda status: status.get("progress") == "0/2")
        assert condition_status(here.status("DataFlowJob", "j"), "Succeeded") == "False"
        work_off(here)
        await asyncio.to_thread(kubectl, "wait", "--for=condition=Succeeded", "dfj/j", "--timeout=180s")
        await here.until_recorded("a: Accepted", "j: Accepted", "j: Succeeded")
    status = here.status("DataFlowJob", "j")
    assert (status["state"], status["progress"], status["watermark"]) == ("Done", "2/2", "1")
    assert status["observedGeneration"] == 1
    assert "Done" in kubectl("get", "dfj", "j")


async def test_events_are_recorded_where_the_watch_is_faster_than_the_answer(here: StatusScene) -> None:
    entry = here.put_job()

    def watch(name: str, shown: Mapping[str, Any]) -> None:
        if name == "j":
            entry.status = shown["status"]

    here.api.taken = watch
    async with here.writer() as writer:
        await here.until("DataFlowJob", "j", lambda status: status.get("progress") == "0/2")
        work_off(here)
        writer.mark_dirty(entry.key)
        await here.until_recorded("j: Accepted", "j: Succeeded")


async def test_events_are_recorded_where_the_answer_of_the_write_is_lost(here: StatusScene) -> None:
    entry = here.put_job()

    def lose(name: str, shown: Mapping[str, Any]) -> None:
        if name == "j":
            entry.status = shown["status"]
            raise ClusterUnreachable("the connection is closed")

    here.api.taken = lose
    async with here.writer():
        await here.until_recorded("j: Accepted")


async def test_a_recorded_event_is_not_recorded_again_by_another_writer(here: StatusScene) -> None:
    here.put_job()
    async with here.writer():
        await here.until_recorded("a: Accepted", "j: Accepted")
    here.around.recorded.clear()
    work_off(here)
    async with here.writer():
        await here.until_recorded("j: Succeeded")
    assert here.around.recorded == ["j: Succeeded"]


async def test_a_data_set_shows_its_chunks(here: StatusScene) -> None:
    here.put_job(chunks=12)
    async with here.writer():
        await here.until("DataSet", "a", lambda status: status.get("progress") == "12/12")
        graph.ask(here.db, "resubmit_chunks", f"{here.namespace}/a", "3")
        await here.until("DataSet", "a", lambda status: status.get("watermark") == "2")
    status = here.status("DataSet", "a")
    assert status["gaps"] == [{"from": "3", "to": "3", "chunks": 1}]
    assert condition_status(status, "Ready") == "True"


async def test_what_does_not_change_is_not_written_again(here: StatusScene) -> None:
    entry = here.put_job()
    async with here.writer() as writer:
        await here.until("DataSet", "a", lambda status: "counts" in status)
        await here.until("DataFlowJob", "j", lambda status: "counts" in status)
        writes = len(here.api.writes)
        for _ in range(30):
            writer.mark_dirty(entry.key)
            await asyncio.sleep(0.1)
        assert len(here.api.writes) == writes


async def test_a_job_that_changes_all_the_time_is_written_every_two_seconds(here: StatusScene) -> None:
    entry = here.put_job(chunks=60)
    lease = graph.open_lease(here.db)
    async with here.writer() as writer:
        for _ in range(60):
            for run in graph.claim(here.db, lease, f"{here.namespace}/j"):
                graph.end(here.db, run, "DONE")
            writer.mark_dirty(entry.key)
            await asyncio.sleep(0.1)
        await here.until("DataFlowJob", "j", lambda status: status.get("progress") == "60/60")
    times = here.api.of("j")
    assert len(times) >= 2
    least = timing.WRITE_SECONDS - 0.5  # the writer looks at its clock a moment before it writes
    assert all(after - before >= least for before, after in pairwise(times))


async def test_fields_that_are_not_so_any_more_are_taken_out(here: StatusScene) -> None:
    entry = here.put_job()
    old = {"state": "Running", "eta": "3h", "watermark": "0", "replicas": 3}
    here.cluster.patch(here.path("DataFlowJob", "j") + "/status", {"status": old})
    entry.status = old
    async with here.writer():
        await here.until("DataFlowJob", "j", lambda status: status["state"] == "Queued")
    status = here.status("DataFlowJob", "j")
    assert "eta" not in status
    assert "watermark" not in status
    assert status["replicas"] == 0


async def test_a_resource_that_is_gone_disturbs_nobody(here: StatusScene) -> None:
    entry = here.put_job()
    here.cluster.delete(here.path("DataFlowJob", "j"))
    async with here.writer() as writer:
        await here.until("DataSet", "a", lambda status: "counts" in status)
        assert here.api.of("j")
        here.catalog.remove(entry.key)
        writer.mark_dirty(entry.key)
        graph.ask(here.db, "resubmit_chunks", f"{here.namespace}/a", "0")
        await here.until("DataSet", "a", lambda status: status["progress"] == "1/2")
        await here.until_recorded("a: Accepted")
    assert here.around.recorded == ["a: Accepted"]


async def test_another_resource_of_the_same_name_has_its_own_status_in_the_end(here: StatusScene) -> None:
    before = here.put_job()
    before.fault = Fault("InvalidSpec", "spec.env: wrong")
    here.cluster.delete(here.path("DataFlowJob", "j"))
    here.cluster.create(here.path("DataFlowJob", "j").removesuffix("/j"), job("j", ["a"], ["b"]))
    async with here.writer() as writer:
        await here.until("DataFlowJob", "j", lambda status: condition_status(status, "Stalled") == "True")
        assert here.around.recorded.count("j: InvalidSpec") == 0
        entry = parse_entry("DataFlowJob", here.cluster.get(here.path("DataFlowJob", "j")))
        here.catalog.put(entry)
        here.catalog.accept(entry)
        writer.mark_dirty(entry.key)
        await here.until("DataFlowJob", "j", lambda status: condition_status(status, "Stalled") == "False")


async def test_a_job_whose_id_is_taken_shows_no_figures_of_the_other_one(here: StatusScene) -> None:
    here.put_job()
    other = here.put(job("other", ["a"], ["b"], id="j"), accept=False)
    other.fault = Fault("IdTaken", "job j is taken by team/j")
    async with here.writer():
        await here.until("DataFlowJob", "other", lambda status: condition_status(status, "Stalled") == "True")
        await here.until("DataFlowJob", "j", lambda status: "counts" in status)
        await here.until_recorded("other: IdTaken")
    status = here.status("DataFlowJob", "other")
    assert status["state"] == "Stalled"
    assert "counts" not in status


async def test_why_runs_are_held_back_is_reported_and_removed(here: StatusScene) -> None:
    entry = here.put_job()

    def reason(status: dict[str, Any]) -> str:
        return next((c["reason"] for c in status.get("conditions", []) if c["type"] == "Progressing"), "")

    here.around.start_errors[f"{here.namespace}/j"] = Backpressure('pods "x" is forbidden: exceeded quota: small')
    async with here.writer() as writer:
        await here.until("DataFlowJob", "j", lambda status: reason(status) == "QuotaExceeded")
        here.around.start_errors.clear()
        writer.mark_dirty(entry.key)
        await here.until("DataFlowJob", "j", lambda status: reason(status) == "Queued")
        await here.until_recorded("j: QuotaExceeded")


@pytest.fixture
def unreachable(dsn: str, postgres_server: str) -> Iterator[Any]:
    """Make the database unreachable (True) and reachable (False)."""
    name = conninfo_to_dict(dsn)["dbname"]

    def set_unreachable(is_unreachable: bool) -> None:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {'false' if is_unreachable else 'true'}")
            if is_unreachable:
                connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))

    yield set_unreachable
    set_unreachable(False)


async def test_while_postgres_is_unreachable_the_last_figures_stay_with_a_condition(
    here: StatusScene, unreachable: Any
) -> None:
    here.put_job()
    work_off(here)
    async with here.writer():
        await here.until("DataFlowJob", "j", lambda status: status.get("state") == "Done")
        await here.until("DataSet", "a", lambda status: "counts" in status)
        unreachable(True)
        for kind, name in (("DataFlowJob", "j"), ("DataSet", "a")):
            await here.until(kind, name, lambda status: condition_status(status, "DatabaseReachable") == "False")
        status = here.status("DataFlowJob", "j")
        assert (status["state"], status["progress"], condition_status(status, "Succeeded")) == ("Done", "2/2", "True")
        assert here.status("DataSet", "a")["progress"] == "2/2"
        unreachable(False)
        for kind, name in (("DataFlowJob", "j"), ("DataSet", "a")):
            await here.until(kind, name, lambda status: condition_status(status, "DatabaseReachable") == "True")
        await here.until_recorded("a: Accepted", "j: Accepted", "j: Succeeded")


async def test_many_jobs_are_all_written(here: StatusScene) -> None:
    names = [f"j{n}" for n in range(45)]
    here.declare(
        [graph.dataset("a", "1"), *(graph.dataset(f"out-{name}") for name in names)],
        [graph.job(name, ["a"], [f"out-{name}"]) for name in names],
    )
    for name in names:
        here.put(job(name, ["a"], [f"out-{name}"]))
    async with here.writer():
        for name in names:
            await here.until("DataFlowJob", name, lambda status: status.get("progress") == "0/1")
        await asyncio.sleep(1)
    assert sorted(name for _, name in here.api.writes) == sorted(names)


async def test_an_api_server_that_was_unreachable_gets_the_status_when_it_is_back(
    own_cluster: OwnCluster, own_namespace: str, dsn: str
) -> None:
    async with status_scene(own_cluster.api, own_namespace, dsn) as here:
        entry = here.put_job()
        here.put(dataset("b"))
        async with here.writer() as writer:
            await here.until("DataFlowJob", "j", lambda status: "counts" in status)
            own_cluster.plane.api_server.kill()
            work_off(here)
            writer.mark_dirty(entry.key)
            await asyncio.sleep(3)
            await asyncio.to_thread(own_cluster.plane.restart_api_server)
            await here.until("DataFlowJob", "j", lambda status: status.get("state") == "Done")
            await here.until_recorded("j: Succeeded")


async def test_a_job_whose_report_fails_is_stalled_and_others_are_reported(
    here: StatusScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(store: Store, jobs: Sequence[str]) -> dict[str, Any]:
        if f"{here.namespace}/bad" in jobs:
            raise DataflowError("22P05")
        return {**await job_reports(store, jobs), f"{here.namespace}/odd": {"parallelism": 1}}

    monkeypatch.setattr(timing, "job_reports", failing)
    here.put_job()
    here.put(job("bad", ["a"], ["c"]))
    here.put(job("odd", ["a"], ["d"]))
    failed: list[str] = []
    async with here.writer(failed=failed.append):
        await here.until("DataFlowJob", "j", lambda status: status.get("progress") == "0/2")
        await here.until("DataFlowJob", "odd", lambda status: condition_status(status, "Stalled") == "True")
        await here.until("DataFlowJob", "bad", lambda status: bool(status.get("conditions")))
    assert set(failed) == {"DataFlowJob"}
    stalled = [one for one in here.status("DataFlowJob", "odd")["conditions"] if one["type"] == "Stalled"]
    assert stalled[0]["reason"] == Reason.INTERNAL_ERROR
