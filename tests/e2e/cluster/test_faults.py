"""What goes wrong on real nodes: the operator is killed, pods are deleted by force, nodes fall silent, memory, images
and room are missing. No chunk is lost or done twice, and everybody is told in a sentence what is wrong.
"""

from collections import defaultdict
from typing import Any

import pytest

from tests.e2e.cluster.conftest import left_out_when_unavailable
from tests.e2e.cluster.installation import SECONDS, Installation
from tests.kube.cluster.processes import wait_until
from tests.kube.conftest import Kubectl
from tests.kube.jobs import dataset, job
from tests.kube.scene import Flows

NO_RETRY = {"limit": 0, "infrastructureLimit": 0}
AT_ONCE: dict[str, Any] = {"retry": {"limit": 0, "backoff": {"initial": "0s"}}}
FIRST_WAITS = 'echo begun; if [ "$DATAFLOW_ATTEMPT" = 1 ]; then sleep 3600; fi'
"""The first attempt goes on until somebody ends it, the next one is done at once."""


@pytest.fixture
def here(installation: Installation) -> Flows:
    return installation.here


@pytest.fixture
def pods(here: Flows) -> Kubectl:
    """kubectl where the runs are."""
    return Kubectl(here.api, here.namespace)


def script(image: str, command: str, **main: Any) -> dict[str, Any]:
    """What runs a shell script, and gives it a second to end; `main`: more of its container."""
    return {
        "runtime": {"script": {"image": image, "command": ["sh", "-c", command]}},
        "podTemplate": {"spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", **main}]}},
    }


def progressing(flows: Flows, name: str) -> tuple[str, str]:
    """Reason and message of Progressing."""
    return flows.condition(name, "Progressing")[1:]


def is_right(flows: Flows) -> None:
    """Nothing was lost or done twice, no two pods of a chunk were alive together, and no pod is kept."""
    flows.is_right(SECONDS)
    flows.is_released(SECONDS)


# The operator --------------------------------------------------------------------------------------------------


def test_an_operator_that_is_killed_in_the_middle_goes_on_and_does_nothing_twice(
    installation: Installation, here: Flows, busybox: str
) -> None:
    with left_out_when_unavailable():
        assert installation.cluster.nodes
    here.flow("killed", 8, **script(busybox, "sleep 3"))
    here.running("killed", 2, SECONDS)
    installation.kill_operator()
    here.until_done("killed", 4, SECONDS, at_least=True)
    installation.kill_operator()
    here.until_done("killed", 8, SECONDS)
    assert [run["state"] for run in here.runs("killed")] == ["SUCCEEDED"] * 8
    is_right(here)


# Pods ----------------------------------------------------------------------------------------------------------


def test_a_pod_that_is_deleted_by_force_is_replaced_when_its_container_is_dead(
    here: Flows, pods: Kubectl, busybox: str
) -> None:
    here.flow("forced", 1, **script(busybox, FIRST_WAITS), **AT_ONCE)
    (first,) = here.running("forced", 1, SECONDS)
    assert pods("exec", first, "--container=main", "--", "echo", "alive") == "alive\n"
    pods("delete", "pod", first, "--grace-period=0", "--force", "--wait=false")
    here.until_done("forced", 1, SECONDS)
    assert here.classes("forced") == ["Infrastructure", None]
    assert here.runs("forced")[0]["message"] == "its pod was deleted by somebody"
    assert here.runs("forced")[0]["log_tail"] in ("begun\n", "", None), "the log may be gone with the container"
    assert here.burnt("forced") == [(0, 1)]
    is_right(here)


def test_a_program_that_takes_more_memory_than_its_limit_is_told_with_the_limit_and_its_last_words(
    here: Flows, pods: Kubectl, busybox: str
) -> None:
    takes = script(busybox, "echo I take it all; exec tail /dev/zero", resources={"limits": {"memory": "32Mi"}})
    here.flow("greedy", 1, **takes, retry=NO_RETRY)
    here.until_failed("greedy", 1, SECONDS)
    (run,) = here.runs("greedy")
    assert (run["failure_class"], run["message"]) == ("OOMKilled", "out of memory: its limit is 32Mi")
    assert run["log_tail"] == pods("logs", f"greedy-r{run['id']}", "--container=main") == "I take it all\n"
    assert "out of memory: its limit is 32Mi" in here.sees("greedy", "Succeeded", "False", "ChunksFailed", SECONDS)
    is_right(here)


# Nodes ---------------------------------------------------------------------------------------------------------

EVICTED_SOON = [
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    for taint in ("unreachable", "not-ready")
]


def test_a_node_that_is_silent_for_a_minute_costs_nothing_but_the_runs_that_were_to_leave_it(
    installation: Installation, here: Flows, busybox: str
) -> None:
    with left_out_when_unavailable():
        nodes = installation.cluster.nodes
    leaves = script(busybox, FIRST_WAITS)
    leaves["podTemplate"]["spec"]["tolerations"] = EVICTED_SOON
    here.flow("leaves", 1, **leaves, **AT_ONCE)
    here.flow("stays", 3, **script(busybox, "sleep 20"), **AT_ONCE)
    (first,) = here.running("leaves", 1, SECONDS)
    here.running("stays", 3, SECONDS)
    node = here.api.get(here.pod_path(first))["spec"]["nodeName"]
    nodes.pause_kubelet(node)
    try:
        installation.cluster.wait_node(node, ready=False, seconds=SECONDS)
        assert node in here.sees("stays", "Progressing", "True", "NodeUnreachable", SECONDS)
        assert node in here.sees("leaves", "Progressing", "True", "NodeUnreachable", SECONDS)
        here.told("stays", "NodeUnreachable", SECONDS)
        wait_until(lambda: "deletionTimestamp" in here.api.get(here.pod_path(first))["metadata"], "it is to leave")
        assert [pod["metadata"]["name"] for pod in here.pods("leaves")] == [first], "another one is beside it"
        assert here.condition("stays", "Progressing")[0] == "True"
    finally:
        nodes.resume_kubelet(node)
    installation.cluster.wait_node(node, ready=True, seconds=SECONDS)
    here.until_done("stays", 3, SECONDS)
    here.until_done("leaves", 1, SECONDS)
    assert here.classes("stays") == [None] * 3
    assert here.classes("leaves") == ["Infrastructure", None]
    is_right(here)


# What can't start ----------------------------------------------------------------------------------------------

Told = dict[str, set[tuple[str, str]]]


@pytest.fixture(scope="module")
def waited(lasting_installation: tuple[Installation, list[str]], busybox: str) -> Told:
    """Jobs whose pods can't start, and one beside them that can: what was told of each until its run was given up."""
    there = lasting_installation[0].there
    needs = dataset("needs-in", 1, location={"kind": "postgres", "username": "reader"})
    needs["spec"]["credentials"] = {"secretRef": {"name": "of-the-other-namespace", "key": "password"}}
    Kubectl(there.api, lasting_installation[0].here.namespace)(
        "create", "secret", "generic", "of-the-other-namespace", "--from-literal=password=p1anted"
    )
    late: dict[str, Any] = {"startDeadline": "45s", "retry": NO_RETRY}
    there.flow("imageless", 1, **script("registry.invalid/nothing:1", "true"), **late)
    there.flow("roomless", 1, **script(busybox, "true", resources={"requests": {"cpu": "900"}}), **late)
    there.apply(needs, dataset("needs-out"))
    there.apply(job("needs", ["needs-in"], ["needs-out"], **script(busybox, "true"), **late))
    told: Told = defaultdict(set)
    names = ("imageless", "roomless", "needs")

    def hindered() -> bool:
        for name in names:
            told[name].add(progressing(there, name))
        return all(there.database.states(name)["RUNNING"] for name in names)

    def given_up() -> bool:
        hindered()
        return all(there.database.states(name)["FAILED"] for name in names)

    wait_until(hindered, "they wait", SECONDS)
    there.flow("beside", 3, **script(busybox, "true"))
    wait_until(given_up, "they are given up", SECONDS, every=0.5)
    there.until_done("beside", 3, SECONDS)
    return told


@pytest.fixture
def there(installation: Installation, waited: Told) -> Flows:  # noqa: ARG001 # it comes before
    return installation.there


def test_an_image_that_does_not_exist_is_told_and_given_up(there: Flows, waited: Told) -> None:
    words = [message for reason, message in waited["imageless"] if reason == "ImagePull"]
    assert any("registry.invalid/nothing:1" in each for each in words), waited["imageless"]
    there.told("imageless", "ImagePull", SECONDS)
    (run,) = there.runs("imageless")
    assert run["failure_class"] == "Infrastructure"
    assert run["message"].startswith("image pull: ")


def test_a_pod_without_room_is_told_in_the_scheduler_s_words_while_others_run(there: Flows, waited: Told) -> None:
    words = [message for reason, message in waited["roomless"] if reason == "Unschedulable"]
    assert any("Insufficient cpu" in each for each in words), waited["roomless"]
    there.told("roomless", "Unschedulable", SECONDS)
    (run,) = there.runs("roomless")
    assert run["failure_class"] == "Infrastructure"
    assert "Insufficient cpu" in run["message"]
    assert max(each["finished_at"] for each in there.runs("beside")) < run["finished_at"]


def test_a_secret_of_another_namespace_is_not_found_and_the_job_says_so(there: Flows, waited: Told) -> None:
    missing = 'it can\'t start: secret "of-the-other-namespace" not found (CreateContainerConfigError)'
    words = [message for reason, message in waited["needs"] if reason == "PodPending"]
    assert any(missing in each for each in words), waited["needs"]
    (run,) = there.runs("needs")
    assert (run["failure_class"], run["message"]) == ("Infrastructure", missing)


def test_runs_that_have_not_started_leave_nothing_behind(there: Flows) -> None:
    is_right(there)
