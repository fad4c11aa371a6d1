"""Nodes that are lost while runs are on them. A new attempt starts only when the old one is certainly dead, or when the
user has accepted the risk; then the old one can't commit any more.

Seen at others: a node that is lost or drained leaves a pod Terminating; infrastructure that consumes the user's
retries; a partition that is run twice.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.kube.cluster.api import Object
from tests.kube.cluster.nodes import add_nodes, remove_node, start_heartbeat, stop_heartbeat, wait_until_unreachable
from tests.kube.cluster.pods import has_ended, pod
from tests.kube.scene import AT_ONCE, SECONDS, Scene
from tests.waiting import wait_until

SOON = [
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    for taint in ("unreachable", "not-ready")
]
"""Without these a pod is left alone for five minutes on a node of which nothing is heard."""


@pytest.fixture
def scene(own_scene: Scene) -> Scene:
    return own_scene


def on_a_node_of_its_own(scene: Scene, name: str, node: str, tolerations: Sequence[Object] = SOON, **spec: Any) -> str:
    """Start a run for ever on a new node, in a job whose next attempts go elsewhere; return its pod's name."""
    add_nodes(scene.api, [node])
    pods = f"/api/v1/namespaces/{scene.namespace}/pods"
    scene.api.create(pods, pod(f"on-{node}", spec={"nodeSelector": {"kubernetes.io/hostname": node}}))
    scene.api.wait(f"{pods}/on-{node}", has_ended, "the scheduler knows the node")
    preferred = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    wish = {"weight": 100, "preference": preferred}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    template = {
        "metadata": {"annotations": {"test.opendataflow.io/run-seconds": "forever"}},
        "spec": {"affinity": affinity, "tolerations": tolerations, "terminationGracePeriodSeconds": 1},
    }
    scene.flow(name, 1, podTemplate=template, retry={"limit": 0, **AT_ONCE}, **spec)
    (first,) = scene.running(name)
    assert scene.api.get(scene.pod_path(first))["spec"]["nodeName"] == node
    return first


def test_pods_that_are_collected_with_their_node_are_tried_again(scene: Scene) -> None:
    operator = scene.start()
    first = on_a_node_of_its_own(scene, "collected", "gone-1")
    stop_heartbeat(scene.api, "gone-1")
    remove_node(scene.api, "gone-1")
    scene.until_ended("collected")  # the controller looks after 20 s, and again after 40 s
    assert scene.classes("collected")[0] == "Infrastructure"
    second = scene.another("collected", first)
    scene.annotate(second, run_seconds=0)
    scene.until_done("collected", 1)
    assert scene.consumed("collected")[0][0] == 0
    scene.is_right()
    assert operator.healthy


def test_a_run_on_an_unreachable_node_waits_and_the_user_sees_why(scene: Scene) -> None:
    operator = scene.start()
    first = on_a_node_of_its_own(scene, "unreachable", "away-1")
    stop_heartbeat(scene.api, "away-1")
    wait_until_unreachable(scene.api, "away-1")
    # At first it may be reported that nothing is heard from the node.
    scene.sees("unreachable", "Progressing", "True", "NodeUnreachable", saying="node away-1 does not answer or is slow")
    operator.operator.process.join(15)
    assert [pod["metadata"]["name"] for pod in scene.pods("unreachable")] == [first], "no second attempt beside it"
    assert len(scene.runs("unreachable")) == 1
    start_heartbeat(scene.api, "away-1")
    scene.until_ended("unreachable")
    assert scene.classes("unreachable")[0] == "Infrastructure"
    assert scene.consumed("unreachable")[0][0] == 0
    second = scene.another("unreachable", first)
    scene.annotate(second, run_seconds=0)
    scene.until_done("unreachable", 1)
    scene.is_right()
    assert operator.healthy


def test_whoever_takes_the_risk_gets_another_attempt_and_the_old_one_can_not_commit(scene: Scene) -> None:
    operator = scene.start()
    first = on_a_node_of_its_own(scene, "risky", "away-2", onNodeUnreachable={"retryAfter": "5s"})
    stop_heartbeat(scene.api, "away-2")
    wait_until_unreachable(scene.api, "away-2")
    scene.until_ended("risky")
    assert "given up without proof (onNodeUnreachable.retryAfter)" in scene.runs("risky")[0]["message"]
    second = scene.another("risky", first)
    scene.annotate(first, run_seconds=0)
    start_heartbeat(scene.api, "away-2")  # what was lost ends well, too late
    wait_until(lambda: len(scene.running("risky")) == 1, "the old one has ended", SECONDS)
    assert scene.database.done("risky") == 0
    scene.annotate(second, run_seconds=0)
    scene.until_done("risky", 1)
    assert [run["state"] for run in scene.runs("risky")] == ["LOST", "SUCCEEDED"]
    assert scene.database.problems() == []
    assert scene.database.published_more_than_once() == []
    assert operator.healthy


def test_a_node_of_which_nothing_is_heard_is_reported_while_its_runs_may_go_on(scene: Scene) -> None:
    operator = scene.start()
    first = on_a_node_of_its_own(scene, "silent", "silent-1", tolerations=[])
    stop_heartbeat(scene.api, "silent-1")
    assert "nothing is heard from node silent-1" in scene.sees("silent", "Progressing", "True", "NodeUnreachable")
    start_heartbeat(scene.api, "silent-1")
    scene.annotate(first, run_seconds=0)
    scene.until_done("silent", 1)
    assert scene.classes("silent") == [None]
    scene.is_right()
    assert operator.healthy


def test_a_node_that_is_back_in_time_costs_nothing(scene: Scene) -> None:
    operator = scene.start()
    first = on_a_node_of_its_own(
        scene, "patient", "back-1", tolerations=[{**one, "tolerationSeconds": 300} for one in SOON]
    )
    stop_heartbeat(scene.api, "back-1")
    operator.operator.process.join(8)
    start_heartbeat(scene.api, "back-1")
    scene.annotate(first, run_seconds=0)
    scene.until_done("patient", 1)
    assert scene.classes("patient") == [None]
    scene.is_right()
