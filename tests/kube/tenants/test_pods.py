"""Pods with the labels of a run that the operator did not create: whoever creates them, they are ignored.

Run ids are predictable, and each pod of a run shows the identity of the database. So a user who may create pods in any
namespace that the operator watches can create pods with the labels of another user's runs.
"""

import asyncio
import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opendataflow import names
from tests.kube.cluster.api import Api, Object
from tests.kube.cluster.pods import pod, pod_annotations
from tests.kube.cluster.proxy import Fault, Proxy, refusal
from tests.kube.launching import SECONDS, end
from tests.kube.scene import Running, Scene, new_scene
from tests.kube.test_launcher import Place, place, short_pauses  # noqa: F401 # fixtures
from tests.pods import pod_of
from tests.waiting import wait_until

TAKEN = range(1, 9)
"""The first run ids of a database."""


@pytest.fixture
def proxied(dsn: str, cluster: Api, namespace: str, tmp_path: Path, proxy: Proxy) -> Iterator[Scene]:
    """A scene whose operators reach the cluster through the proxy."""
    with new_scene(dsn, cluster, namespace, tmp_path, kubeconfig=proxy.kubeconfig) as made:
        made.operators.hasty = True
        yield made


def start(scene: Scene, *namespaces: str) -> Running:
    """Start an operator that manages the namespace of the scene and others."""
    scene.operators.often = True
    return scene.start(DATAFLOW_NAMESPACES=",".join((scene.namespace, *namespaces)))


def engine(scene: Scene) -> str:
    return str(scene.database.rows("SELECT identity FROM opendataflow.leader")[0]["identity"])


def innocent(scene: Scene, namespace: str) -> list[Object]:
    """Create pods that succeed at once, with the labels of runs that are still to come, and a finalizer of ours."""
    made = []
    for run in TAKEN:
        one = pod(f"innocent-{run}", finalizer=True)
        one["metadata"]["labels"] = {names.LABEL_RUN: str(run), names.LABEL_ENGINE: engine(scene)}
        made.append(scene.api.create(f"/api/v1/namespaces/{namespace}/pods", one))
    for one in made:
        scene.api.wait(path(one), lambda found: found["status"]["phase"] == "Succeeded", "it has succeeded", SECONDS)
    return made


def path(found: Object) -> str:
    return f"/api/v1/namespaces/{found['metadata']['namespace']}/pods/{found['metadata']['name']}"


def is_left_alone(api: Api, foreign: Object) -> bool:
    """Whether a pod has the labels, the finalizers and the uid that it was created with, and is not being deleted."""
    found = api.find(path(foreign)) or {"metadata": {}}
    kept = ("uid", "labels", "finalizers", "deletionTimestamp")
    return all(found["metadata"].get(name) == foreign["metadata"].get(name) for name in kept)


def counted(operator: Running, kind: str = "pods") -> int:
    """The value of the metric."""
    lines = operator.probe("/metrics")[1].splitlines()
    line = f'opendataflow_foreign_objects_total{{kind="{kind}"}} '
    return next((int(float(each.removeprefix(line))) for each in lines if each.startswith(line)), 0)


@pytest.mark.parametrize("place_of_attack", ["another namespace", "the same namespace"])
def test_pods_with_the_labels_of_runs_that_are_to_come_end_no_run(
    scene: Scene, other_namespace: str, place_of_attack: str
) -> None:
    namespace = other_namespace if place_of_attack == "another namespace" else scene.namespace
    foreign = innocent(scene, namespace)
    operator = start(scene, other_namespace)
    scene.flow("load", 2, {"run-seconds": "forever"}, parallelism=2)
    own = scene.running("load", 2)
    wait_until(lambda: counted(operator) == len(TAKEN), "the foreign pods are counted", SECONDS)
    assert {run["state"] for run in scene.runs("load")} == {"RUNNING"}
    for one in own:
        scene.annotate(one, run_seconds=0)
    scene.done_at_once("load", 2)
    assert {run["pod_uid"] for run in scene.runs("load")}.isdisjoint(one["metadata"]["uid"] for one in foreign)
    wait_until(lambda: len(scene.api.items(released(scene))) == 2, "the pods of the runs are released", SECONDS)
    assert all(is_left_alone(scene.api, one) for one in foreign)
    output = operator.operator.output()
    assert output.count("and is not of that run: it is ignored") == 1, output
    assert operator.healthy


def released(scene: Scene) -> str:
    return f"/api/v1/namespaces/{scene.namespace}/pods?labelSelector={names.LABEL_DONE}"


def test_a_foreign_pod_that_has_the_name_of_a_run_costs_no_attempt_and_the_next_run_has_another_name(
    proxied: Scene, proxy: Proxy
) -> None:
    """The name can't be guessed: the test reads the nonce in Postgres, and holds the create back meanwhile."""
    scene = proxied
    held = proxy.fail(Fault("POST", "/pods", times=10**6, answer=refusal(429, "TooManyRequests")))
    start(scene)
    scene.flow("load", 1)
    wait_until(lambda: held.met > 0, "the pod is created", SECONDS)
    (run,) = scene.runs("load")
    foreign = pod(pod_of(run), finalizer=True)
    foreign["metadata"]["labels"] = {names.LABEL_RUN: str(run["id"]), names.LABEL_ENGINE: engine(scene)}
    foreign = scene.api.create(f"/api/v1/namespaces/{scene.namespace}/pods", foreign)
    held.times = 0
    scene.until_done("load", 1)
    first, second = scene.runs("load")
    assert (first["state"], first["failure_class"]) == ("LOST", "NotStarted")
    assert f"there is a pod {scene.namespace}/{pod_of(run)} already that is not of this run" in first["message"]
    assert second["state"] == "SUCCEEDED"
    assert second["nonce"] != first["nonce"]
    assert scene.consumed("load") == [(0, 0)]
    assert is_left_alone(scene.api, foreign)


def test_the_next_operator_adopts_the_pod_of_the_run_and_no_copy_of_it(scene: Scene, other_namespace: str) -> None:
    first = start(scene, other_namespace)
    scene.flow("load", 1, {"run-seconds": "forever"})
    (own,) = scene.running("load")
    first.operator.kill()
    body = scene.api.get(scene.pod_path(own))
    copies = [
        scene.api.create(f"/api/v1/namespaces/{namespace}/pods", copied(body, name))
        for namespace, name in ((other_namespace, own), (scene.namespace, "copy"))
    ]
    scene.operators.expire_lease()
    second = start(scene, other_namespace)
    wait_until(lambda: counted(second) == 2, "the copies are counted", SECONDS)
    assert [run["state"] for run in scene.runs("load")] == ["RUNNING"]
    scene.annotate(own, run_seconds=0)
    scene.done_at_once("load", 1)
    (run,) = scene.runs("load")
    assert run["pod_uid"] == body["metadata"]["uid"]
    assert pod_of(run) == own
    assert all(is_left_alone(scene.api, one) for one in copies)


def copied(body: Object, name: str) -> Object:
    """A copy of a pod that succeeds at once, with all of its labels, annotations and finalizers."""
    made = pod(name)
    made["metadata"] |= {key: copy.deepcopy(body["metadata"][key]) for key in ("labels", "annotations", "finalizers")}
    made["metadata"]["annotations"] |= pod_annotations(run_seconds=0)
    return made


# One launcher ------------------------------------------------------------------------------------------------


async def test_a_pod_that_only_looks_released_is_not_swept(place: Place) -> None:  # noqa: F811
    looks: dict[str, Any] = pod("looks-released")
    labels = {names.LABEL_RUN: "1", names.LABEL_ENGINE: place.namespace, names.LABEL_DONE: "1"}
    looks["metadata"]["labels"] = labels
    foreign = place.admin.create(f"/api/v1/namespaces/{place.namespace}/pods", looks)
    async with place.launcher() as first:
        await first.start(place.order(1))
        await end(first)
        await first.release(place.run(1))
        await place.until(lambda found: names.LABEL_DONE in found["metadata"]["labels"])
    kinds: list[str] = []
    async with place.launcher(clock=lambda: time.time() + 130, foreign=kinds.append) as second:
        assert second.unknown_runs() == (1,)
        await second.settle([1], place.ended(1))
        await second.sweep()
        await asyncio.to_thread(place.admin.wait_gone, place.path(1))
    assert kinds == ["pods"]
    assert is_left_alone(place.admin, foreign)


async def test_a_pod_with_the_labels_of_a_run_that_does_not_exist_is_foreign(place: Place) -> None:  # noqa: F811
    kinds: list[str] = []
    place.admin.create(f"/api/v1/namespaces/{place.namespace}/pods", place.order(7, run_seconds="forever").manifest)
    async with place.launcher(foreign=kinds.append) as launcher:
        assert launcher.unknown_runs() == (7,)
        await launcher.settle([7], {})
        assert (kinds, launcher.unknown_runs()) == (["pods"], ())
    assert (place.pod(7) or {})["metadata"]["finalizers"] == [names.FINALIZER]


async def run_without_finalizer(place: Place) -> None:  # noqa: F811
    """Start a run, end its launcher, and remove the finalizer of its pod."""
    async with place.launcher() as launcher:
        await launcher.start(place.order(run_seconds="forever"))
        await place.runs()
    place.strip()


async def test_a_pod_whose_finalizer_was_removed_gets_it_back_before_it_is_adopted(place: Place) -> None:  # noqa: F811
    await run_without_finalizer(place)
    async with place.launcher() as second:
        assert await second.adopt(place.run(1))
        assert (place.pod() or {})["metadata"]["finalizers"] == [names.FINALIZER]
        await second.kill(1, cancelled=True)
        assert (await end(second)).cancelled


async def test_a_start_finds_the_pod_of_its_run_whose_finalizer_was_removed(place: Place) -> None:  # noqa: F811
    await run_without_finalizer(place)
    async with place.launcher() as second:
        await second.start(place.order())
        assert (place.pod() or {})["metadata"]["finalizers"] == [names.FINALIZER]
