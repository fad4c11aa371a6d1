"""A node that is silent for a minute: nothing that is alive is given up, and the jobs say what they wait for."""

from tests.e2e.cluster.conftest import left_out_when_unavailable
from tests.e2e.cluster.faults.flows import AT_ONCE, FIRST_WAITS, is_right, script
from tests.e2e.cluster.faults.installation import SECONDS, Installation
from tests.e2e.cluster.installing import WAITS_FOR_A_FILE, let_end
from tests.kube.conftest import Kubectl
from tests.kube.scene import Flows
from tests.waiting import wait_until


def evict(here: Flows, pod: str) -> None:
    """What the node controller does after a while, except where all nodes of a cluster are silent."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": here.namespace}}
    here.api.create(f"{here.pod_path(pod)}/eviction", eviction)


def test_a_node_that_is_silent_for_a_minute_costs_nothing_but_the_runs_that_were_to_leave_it(
    installation: Installation, here: Flows, busybox: str
) -> None:
    with left_out_when_unavailable():
        nodes = installation.cluster.nodes
    here.flow("leaves", 1, **script(busybox, FIRST_WAITS), **AT_ONCE)
    here.flow("stays", 3, **script(busybox, WAITS_FOR_A_FILE), **AT_ONCE)
    (first,) = here.running("leaves", 1, SECONDS)
    stay = here.running("stays", 3, SECONDS)
    node = here.api.get(here.pod_path(first))["spec"]["nodeName"]
    nodes.pause_kubelet(node)
    try:
        installation.cluster.wait_node(node, ready=False, seconds=SECONDS)
        assert node in here.sees("stays", "Progressing", "True", "NodeUnreachable", SECONDS)
        assert node in here.sees("leaves", "Progressing", "True", "NodeUnreachable", SECONDS)
        here.until_event("stays", "NodeUnreachable", SECONDS)
        evict(here, first)
        wait_until(lambda: "deletionTimestamp" in here.api.get(here.pod_path(first))["metadata"], "it is to leave")
        assert [pod["metadata"]["name"] for pod in here.pods("leaves")] == [first], "another one is beside it"
        assert here.condition("stays", "Progressing")[0] == "True"
    finally:
        nodes.resume_kubelet(node)
    installation.cluster.wait_node(node, ready=True, seconds=SECONDS)
    let_end(Kubectl(here.api, here.namespace), stay)
    here.until_done("stays", 3, SECONDS)
    here.until_done("leaves", 1, SECONDS)
    assert here.classes("stays") == [None] * 3
    assert here.classes("leaves") == ["Infrastructure", None]
    is_right(here)
