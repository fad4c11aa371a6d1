"""SparkApplications in the launcher: created, adopted, released and swept. Their ends: `test_spark_applications`."""

import asyncio
import dataclasses
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from opendataflow import names
from opendataflow.core.kubernetes import application_outcome
from opendataflow.core.kubernetes.pods import Container, Operator, PodConfig
from opendataflow.core.kubernetes.spark_application import spark_application
from opendataflow.core.runs.environment import JobFacts
from opendataflow.errors import NotCreatable
from opendataflow.launch.cluster import releases
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.pod import PodOrder, StoredRun
from opendataflow.names import OutcomeClass
from tests.kube.cluster.api import Api as Admin
from tests.kube.cluster.api import Object
from tests.kube.cluster.pods import pod_annotations, state
from tests.kube.launching import SECONDS, EnginePlace, end, shorten_pauses
from tests.kube.spark_operator.controller import applications, install, operating
from tests.pods import claimed
from tests.waiting import until


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


class Place(EnginePlace):
    @property
    def run(self) -> ClaimedRun:
        return claimed(1, home=self.namespace)

    @property
    def ended(self) -> dict[int, StoredRun]:
        """What Postgres has of the run once its outcome is committed."""
        return {1: StoredRun(self.run.identity(self.namespace), ended=True)}

    @property
    def path(self) -> str:
        return f"{applications(self.namespace)}/load-r1-c0ffee"

    def order(self, **annotations: Any) -> PodOrder:
        driver = {"annotations": pod_annotations(**annotations)}
        spec = {"type": "Python", "sparkVersion": "4.0.0", "mainApplicationFile": "local:///a.py", "driver": driver}
        config = PodConfig(Container(""), template={"spec": spec})
        job = JobFacts("load", "local:///a.py", (), (), namespace=self.namespace)
        manifest = spark_application(job, self.run, {}, config, Operator(self.namespace, "none/operator:1"))
        return PodOrder(self.run.identity(self.namespace), manifest)

    def application(self) -> Object | None:
        return self.admin.find(self.path)

    async def until(self, true: Any) -> Object:
        return await self.wait(self.path, true)

    async def until_gone(self) -> None:
        await asyncio.to_thread(self.admin.wait_gone, self.path, SECONDS)


@pytest.fixture
def place(cluster: Admin, namespace: str) -> Iterator[Place]:
    install(cluster)
    made = Place(cluster, namespace)
    with operating(cluster, namespace):
        yield made
    if made.application() is not None:
        cluster.patch(made.path, {"metadata": {"finalizers": None}})


def kept(application: Object) -> bool:
    return names.FINALIZER in (application["metadata"].get("finalizers") or [])


async def test_the_same_order_again_is_the_same_application_for_the_next_process_too(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application_outcome, "SUBMISSION_SECONDS", 5.0)  # nobody waits here for a driver that is late
    order = place.order(run_seconds="forever")
    async with place.launcher() as first:
        await first.start(order)
        await first.start(order)
    uid = (place.application() or {})["metadata"]["uid"]
    async with place.launcher() as second:
        await second.start(order)
        await second.kill(1, cancelled=True)
        ended = await end(second)
        assert ended.outcome is not None
        assert ended.outcome.kind is OutcomeClass.CANCELLED
    assert (place.application() or {})["metadata"]["uid"] == uid


async def test_the_next_process_adopts_it_before_it_has_a_driver(place: Place) -> None:
    order = place.order()
    order.manifest["metadata"]["annotations"] |= pod_annotations(submission_error="none")  # so that no driver comes
    async with place.launcher() as first:
        await first.start(order)
    async with place.launcher() as second:
        assert await second.adopt(place.run)
        assert (await end(second)).lost
    async with place.launcher() as third:
        assert third.unknown_runs() == (1,)
        await third.settle([1], place.ended)
        await place.until(lambda application: not kept(application))


async def test_an_application_of_somebody_else_is_not_adopted(place: Place) -> None:
    order = place.order()
    spec = order.manifest["spec"]
    place.admin.create(
        applications(place.namespace),
        {
            "apiVersion": "sparkoperator.k8s.io/v1beta2",
            "kind": "SparkApplication",
            "metadata": {"name": order.name},
            "spec": spec,
        },
    )
    async with place.launcher() as launcher:
        with pytest.raises(NotCreatable, match=r"there is a SparkApplication .*/load-r1-c0ffee already"):
            await launcher.start(order)


async def test_an_application_of_another_database_is_reported_and_not_changed(place: Place) -> None:
    order = place.order()
    foreign = json.loads(json.dumps(order.manifest))
    foreign["metadata"]["labels"][names.LABEL_APPLICATION] = "77"
    place.admin.create(applications(place.namespace), foreign)
    async with place.launcher() as launcher:
        with pytest.raises(NotCreatable, match="/load-r1-c0ffee already that is not of this run"):
            await launcher.start(order)
    found = place.application()
    assert found is not None
    assert found["metadata"]["labels"] == foreign["metadata"]["labels"]
    place.admin.patch(place.path, {"metadata": {"finalizers": None}})


async def test_it_stays_for_a_minute_when_it_is_released_and_goes_with_its_driver(place: Place) -> None:
    later = 0.0
    async with place.launcher(clock=lambda: time.time() + later) as launcher:
        await launcher.start(place.order())
        await end(launcher)
        await launcher.release(place.run)
        released = await place.until(lambda application: not kept(application))
        assert names.LABEL_DONE in released["metadata"]["labels"]
        await launcher.sweep()
        assert place.application() is not None
        later = 130.0
        async with asyncio.timeout(SECONDS):
            while place.application() is not None:  # the answer to its release may not have come yet
                await launcher.sweep()
                await asyncio.sleep(0.1)
        driver = f"/api/v1/namespaces/{place.namespace}/pods/load-r1-c0ffee-driver"
        await asyncio.to_thread(place.admin.wait_gone, driver, SECONDS)


async def test_the_next_process_sweeps_the_tombstones_that_it_finds(place: Place) -> None:
    async with place.launcher() as first:
        await first.start(place.order())
        await end(first)
        await first.release(place.run)
    async with place.launcher(clock=lambda: time.time() + 130) as second:
        await second.settle(second.unknown_runs(), place.ended)
        await second.sweep()
        await place.until_gone()


async def test_one_that_was_deleted_keeps_its_name_for_a_while(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "TOMBSTONE_SECONDS", 8.0)
    async with place.launcher() as launcher:
        began = time.time()
        await launcher.start(place.order(run_seconds="forever"))
        await place.until(lambda application: application.get("status", {}).get("driverInfo", {}).get("podName"))
        await launcher.kill(1, cancelled=True)
        await end(launcher)
        await launcher.release(place.run)
        await place.until_gone()
        assert time.time() - began > 7.0


async def test_what_others_have_put_on_it_stays_when_it_is_released(place: Place) -> None:
    async with place.launcher() as launcher:
        await launcher.start(place.order())
        await end(launcher)
        both = {"finalizers": [names.FINALIZER, "a.test/b"], "labels": {"a.test/c": "d"}}
        place.admin.patch(place.path, {"metadata": both})
        await launcher.release(place.run)
        released = await place.until(lambda application: not kept(application))
        assert released["metadata"]["finalizers"] == ["a.test/b"]
        assert released["metadata"]["labels"]["a.test/c"] == "d"
    place.admin.patch(place.path, {"metadata": {"finalizers": None}})


# Runs that Postgres has lost, and a later run that has the id again -------------------------------------------


class LaterPlace(Place):
    @property
    def run(self) -> ClaimedRun:
        return dataclasses.replace(super().run, nonce="11111111-2222-4333-8444-555555555555")

    @property
    def path(self) -> str:
        return f"{applications(self.namespace)}/load-r1-111111"


@pytest.fixture
def later(place: Place) -> Iterator[LaterPlace]:
    made = LaterPlace(place.admin, place.namespace)
    yield made
    if made.application() is not None:
        made.admin.patch(made.path, {"metadata": {"finalizers": None}})


async def test_the_finished_application_of_a_lost_run_does_not_end_the_later_run(
    place: Place, later: LaterPlace
) -> None:
    async with place.launcher() as first:
        await first.start(place.order())
        assert (await end(first)).exit_code == 0
    async with place.launcher() as second:
        await second.start(later.order(exit_code=3))
        assert (await end(second)).exit_code == 3
    async with place.launcher() as third:
        assert await third.adopt(later.run)
        assert (await end(third)).exit_code == 3


async def test_the_application_of_a_lost_run_is_ended_with_its_driver_as_an_orphan(
    place: Place, later: LaterPlace
) -> None:
    async with place.launcher() as first:
        await first.start(place.order(run_seconds="forever"))
        await place.until(lambda application: "driverInfo" in (application.get("status") or {}))
    async with place.launcher() as second:
        (orphan,) = second.orphans(second.unknown_runs(), {})
        assert (orphan.identity, orphan.job) == (place.run.identity(place.namespace), f"{place.namespace}/load")
        second.recognize_orphan(orphan)
        await second.end_orphan(orphan)
        await until(lambda: second.ended_orphans() == [orphan], "it has ended", SECONDS)
        pods = place.admin.items(f"/api/v1/namespaces/{place.namespace}/pods")
        assert all("running" not in state(pod) for pod in pods)
        second.release_orphan(orphan)
        await place.until_gone()
        await second.start(later.order(exit_code=3))
        assert (await end(second)).exit_code == 3
