"""The cluster launcher, and the order in which the API server answers and reports. Each test plays one order, step by
step: on a real API server the answer to a create and the watch race each other.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from opendataflow.errors import ClusterRefused, CreateUncertain
from opendataflow.launch.cluster.access import Access, Identity
from opendataflow.launch.cluster.api import PODS, Api, Resource
from opendataflow.launch.cluster.launcher import ClusterLauncher
from opendataflow.model.records.pod import PodOrder, StoredRun
from opendataflow.names import LABEL_ENGINE, LABEL_RUN, OutcomeClass
from tests.pods import BEGAN_AT, RUNNING, claimed, deleted, pod, terminated

RUN = claimed(7)
ORDER = PodOrder(RUN.identity("team"), {"kind": "Pod", "metadata": {"name": "load-r7-c0ffee"}})
SUCCESS = (OutcomeClass.SUCCESS, "exit code 0")
SECOND = 60
CREATED = pod(phase="Pending")
BEGUN = pod(RUNNING)
SUCCEEDED = pod(terminated(0, SECOND), phase="Succeeded")
FAILED = pod(terminated(3, SECOND), phase="Failed")
DELETED = deleted(SECOND)
"""In the same second as the end: times of pods are whole seconds."""


class PlayedApi(Api):
    """An API server of which the test decides when a create is answered, and what the watch reports."""

    def __init__(self) -> None:
        super().__init__(Access("https://none", Identity))
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.released: asyncio.Queue[str] = asyncio.Queue()
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def report(self, kind: str, found: Mapping[str, Any]) -> None:
        """Report a state of the pod by the watch; return when the launcher has taken it."""
        self._events.put_nowait({"type": kind, "object": found})
        await self._events.join()

    async def create(self, *_: Any, **_more: Any) -> dict[str, Any]:
        self.asked.set()
        return await self.answer

    async def get(self, *_: Any, **_more: Any) -> dict[str, Any]:
        return BEGUN

    async def pages(self, *_: Any, **_more: Any) -> AsyncGenerator[tuple[list[dict[str, Any]], str], None]:
        yield [], "1"

    async def watch(self, *_: Any, **_more: Any) -> AsyncGenerator[dict[str, Any], None]:
        while True:
            yield await self._events.get()
            self._events.task_done()

    async def review(self, *_: Any) -> dict[str, Any]:
        return {"status": {"allowed": False}}  # there are no SparkApplications

    async def log_tail(self, *_: Any, **_more: Any) -> str:
        return ""

    async def patch_strategic(self, resource: Resource, namespace: str | None, name: str, *_: Any) -> None:
        assert (resource, namespace) == (PODS, "team")
        self.released.put_nowait(name)


@pytest.fixture
async def api() -> PlayedApi:
    return PlayedApi()


@pytest.fixture
async def launcher(api: PlayedApi) -> AsyncIterator[ClusterLauncher]:
    made = ClusterLauncher(api, "e1", note=print, clock=lambda: BEGAN_AT + 1)
    made.begin()
    await made.synced()
    yield made
    await made.close()


async def end(launcher: ClusterLauncher) -> tuple[OutcomeClass, str]:
    async with asyncio.timeout(240):
        outcome = (await launcher.ended()).outcome
    assert outcome is not None
    return outcome.kind, outcome.message


async def start_behind_the_watch(launcher: ClusterLauncher, api: PlayedApi, *states: Mapping[str, Any]) -> None:
    """Start the run; its create is answered after the watch has reported all states of the pod."""
    starting = asyncio.create_task(launcher.start(ORDER))
    await api.asked.wait()
    await api.report("ADDED", CREATED)
    for state in states:
        await api.report("MODIFIED", state)
    api.answer.set_result(CREATED)
    await starting


def and_deleted(state: Mapping[str, Any]) -> dict[str, Any]:
    return {**state, "metadata": {**state["metadata"], **DELETED}}


def and_evicted(state: Mapping[str, Any]) -> dict[str, Any]:
    return {**state, "status": {**state["status"], "phase": "Failed", "reason": "Evicted", "message": "low on memory"}}


async def test_a_pod_that_ended_before_its_deletion_has_ended_by_itself_although_its_create_is_answered_later(
    launcher: ClusterLauncher, api: PlayedApi
) -> None:
    await start_behind_the_watch(launcher, api, BEGUN, SUCCEEDED, and_deleted(SUCCEEDED))
    assert await end(launcher) == SUCCESS


async def test_later_states_of_a_pod_that_ended_by_itself_change_nothing(
    launcher: ClusterLauncher, api: PlayedApi
) -> None:
    last = and_evicted(and_deleted(FAILED))
    await start_behind_the_watch(launcher, api, BEGUN, FAILED, and_evicted(FAILED), and_deleted(FAILED), last, last)
    assert await end(launcher) == (OutcomeClass.APPLICATION, "exit code 3")


async def test_a_pod_whose_object_is_gone_before_its_create_is_answered_has_ended_as_it_was_seen_to(
    launcher: ClusterLauncher, api: PlayedApi
) -> None:
    starting = asyncio.create_task(launcher.start(ORDER))
    await api.asked.wait()
    for state in (BEGUN, SUCCEEDED, and_deleted(SUCCEEDED)):
        await api.report("MODIFIED", state)
    await api.report("DELETED", and_deleted(SUCCEEDED))
    api.answer.set_result(CREATED)
    await starting
    assert await end(launcher) == SUCCESS


async def test_a_pod_that_was_deleted_before_it_ended_was_ended_by_that(
    launcher: ClusterLauncher, api: PlayedApi
) -> None:
    await start_behind_the_watch(launcher, api, BEGUN, and_deleted(BEGUN), and_deleted(SUCCEEDED))
    assert await end(launcher) == (OutcomeClass.INFRASTRUCTURE, "its pod was deleted by somebody")


async def test_a_deleted_pod_keeps_its_name_for_as_long_as_its_create_may_still_be_on_its_way(
    launcher: ClusterLauncher, api: PlayedApi
) -> None:
    api.answer.set_exception(CreateUncertain("no answer"))
    with pytest.raises(CreateUncertain):
        await launcher.start(ORDER)
    labels = {LABEL_RUN: "8", LABEL_ENGINE: "e1"}
    other = pod(terminated(0, SECOND), metadata={"name": "load-r8-c0ffee", "uid": "u8", "labels": labels})
    for state in (BEGUN, SUCCEEDED, and_deleted(SUCCEEDED), other):
        await api.report("MODIFIED", state)
    api.answer = asyncio.get_running_loop().create_future()
    api.answer.set_exception(ClusterRefused("it exists", 409, "AlreadyExists"))
    await launcher.start(ORDER)
    assert await end(launcher) == SUCCESS
    await launcher.release(RUN)
    await launcher.settle([8], {8: StoredRun(replace(RUN, run=8).identity("team"), ended=True)})
    async with asyncio.timeout(240):
        assert await api.released.get() == "load-r8-c0ffee"  # they go in the order in which they come
