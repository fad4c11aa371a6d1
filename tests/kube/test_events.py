"""Events on a real API server: one for what happens, a count for what is repeated."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from opendataflow.control.resources.catalog import Key
from opendataflow.control.status import events
from opendataflow.control.status.events import EventWriter
from opendataflow.core.status.status_events import StatusEvent
from opendataflow.errors import CreateUncertain
from opendataflow.launch.cluster.api import Api
from tests.kube.cluster import api as kube
from tests.kube.conftest import Kubectl, OwnCluster
from tests.kube.jobs import job
from tests.kube.status_scene import at_work, counting_api
from tests.waiting import wait_until

FAILING = StatusEvent("Warning", "RunsFailing", "d1, run 1: exit code 1")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "COUNT_SECONDS", 0.3)


@asynccontextmanager
async def reporting(cluster: kube.Api) -> AsyncIterator[EventWriter]:
    """A reporter at work."""
    async with counting_api(cluster) as api:
        made = EventWriter(api, "operator-0")
        async with at_work(made.run()):
            yield made


def found(cluster: kube.Api, namespace: str) -> list[dict[str, Any]]:
    """Our events of a namespace, the oldest first."""
    items = cluster.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    return [item for item in items if item.get("reportingController") == events.CONTROLLER]


async def until(cluster: kube.Api, namespace: str, true: Any, seconds: float = 180) -> list[dict[str, Any]]:
    """Wait until our events are as wanted; return them."""
    seen: list[dict[str, Any]] = []

    def wanted() -> bool:
        seen[:] = found(cluster, namespace)
        return bool(true(seen))

    await asyncio.to_thread(wait_until, wanted, "our events are as wanted", seconds)
    return seen


async def test_kubectl_describe_shows_what_has_happened(cluster: kube.Api, namespace: str, kubectl: Kubectl) -> None:
    created = cluster.create(f"/apis/opendataflow.io/v1alpha1/namespaces/{namespace}/dataflowjobs", job("j", [], ["b"]))
    key = Key("DataFlowJob", namespace, "j")
    async with reporting(cluster) as reporter:
        reporter.record(key, created["metadata"]["uid"], FAILING)
        await until(cluster, namespace, lambda seen: len(seen) == 1)
    assert "RunsFailing" in kubectl("describe", "dfj", "j")


async def test_repeats_are_counted_in_one_event_with_the_words_of_the_first(cluster: kube.Api, namespace: str) -> None:
    key = Key("DataFlowJob", namespace, "j")
    async with reporting(cluster) as reporter:
        for number in range(200):
            reporter.record(key, "uid-1", StatusEvent("Warning", "RunsFailing", f"d1, run {number}: exit code 1"))
            await asyncio.sleep(0.005)
        (event,) = await until(cluster, namespace, lambda seen: seen and seen[0].get("series", {}).get("count") == 200)
    assert event["note"] == "d1, run 0: exit code 1"
    assert event["regarding"] == {
        "apiVersion": "opendataflow.io/v1alpha1",
        "kind": "DataFlowJob",
        "namespace": namespace,
        "name": "j",
        "uid": "uid-1",
    }


async def test_other_reasons_and_other_resources_have_events_of_their_own(cluster: kube.Api, namespace: str) -> None:
    key = Key("DataFlowJob", namespace, "j")
    async with reporting(cluster) as reporter:
        reporter.record(key, "uid-1", FAILING)
        reporter.record(key, "uid-1", StatusEvent("Normal", "Succeeded", "2 chunks done"))
        reporter.record(key, "uid-2", FAILING)
        await until(cluster, namespace, lambda seen: len(seen) == 3)


async def test_an_event_that_the_cluster_has_forgotten_is_made_anew(cluster: kube.Api, namespace: str) -> None:
    key = Key("DataFlowJob", namespace, "j")
    async with reporting(cluster) as reporter:
        reporter.record(key, "uid-1", FAILING)
        (event,) = await until(cluster, namespace, lambda seen: len(seen) == 1)
        cluster.delete(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/{event['metadata']['name']}")
        reporter.record(key, "uid-1", FAILING)
        (again,) = await until(cluster, namespace, lambda seen: len(seen) == 1)
    assert again["metadata"]["name"] != event["metadata"]["name"]
    assert again["series"]["count"] == 2


async def test_a_repeat_after_a_long_pause_is_a_new_event(cluster: kube.Api, namespace: str) -> None:
    key = Key("DataFlowJob", namespace, "j")
    now = 1_800_000_000.0
    async with counting_api(cluster) as api:
        reporter = EventWriter(api, "operator-0", clock=lambda: now)
        future = asyncio.create_task(reporter.run())
        reporter.record(key, "uid-1", FAILING)
        await until(cluster, namespace, lambda seen: len(seen) == 1)
        now += events.SERIES_SECONDS + 1
        reporter.record(key, "uid-1", FAILING)
        await until(cluster, namespace, lambda seen: len(seen) == 2)
        future.cancel()
        await asyncio.gather(future, return_exceptions=True)


async def test_a_namespace_that_is_not_there_disturbs_nobody(cluster: kube.Api, namespace: str) -> None:
    async with reporting(cluster) as reporter:
        reporter.record(Key("DataFlowJob", "nowhere", "j"), "uid-1", FAILING)
        reporter.record(Key("DataFlowJob", namespace, "j"), "uid-2", FAILING)
        await until(cluster, namespace, lambda seen: len(seen) == 1)


async def test_what_nobody_can_write_is_bounded(cluster: kube.Api, namespace: str) -> None:
    async with counting_api(cluster) as api:
        reporter = EventWriter(api, "operator-0")
        for number in range(3 * events.MAX_SERIES):
            reporter.record(Key("DataFlowJob", namespace, f"j{number}"), f"uid-{number}", FAILING)
        assert len(reporter._series) == events.MAX_SERIES
        assert len(reporter._waiting) <= events.MAX_WAITING
        future = asyncio.create_task(reporter.run())
        await until(cluster, namespace, lambda seen: len(seen) >= 100)
        future.cancel()
        await asyncio.gather(future, return_exceptions=True)


async def test_an_event_waits_for_an_api_server_that_is_unreachable(
    own_cluster: OwnCluster, own_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "RETRY_SECONDS", 0.3)
    key = Key("DataFlowJob", own_namespace, "j")
    async with reporting(own_cluster.api) as reporter:
        own_cluster.plane.api_server.kill()
        reporter.record(key, "uid-1", FAILING)
        await asyncio.sleep(1)  # it is tried meanwhile
        await asyncio.to_thread(own_cluster.plane.restart_api_server)
        (event,) = await until(own_cluster.api, own_namespace, lambda seen: seen)
    assert event["note"] == FAILING.message


async def test_an_event_whose_answer_was_lost_is_made_once(
    cluster: kube.Api, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "RETRY_SECONDS", 0.1)
    create, lost = Api.create, asyncio.Event()

    async def losing(self: Api, *given: Any) -> dict[str, Any]:
        made = await create(self, *given)
        if not lost.is_set():
            lost.set()
            raise CreateUncertain("the connection is closed")
        return made

    monkeypatch.setattr(Api, "create", losing)
    key = Key("DataFlowJob", namespace, "j")
    async with reporting(cluster) as reporter:
        reporter.record(key, "uid-1", FAILING)
        await lost.wait()
        reporter.record(key, "uid-1", FAILING)
        reporter.record(key, "uid-2", FAILING)
        await until(cluster, namespace, lambda seen: len(seen) == 2)
        await until(cluster, namespace, lambda seen: any(event.get("series", {}).get("count") == 2 for event in seen))
        assert len(await asyncio.to_thread(found, cluster, namespace)) == 2
