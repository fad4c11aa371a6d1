"""The operator and pods that are killed on a real node: no chunk is lost or done twice, and reasons are reported."""

import pytest

from tests.e2e.cluster.conftest import left_out_when_unavailable
from tests.e2e.cluster.faults.flows import AT_ONCE, FIRST_WAITS, NO_RETRY, is_right, script
from tests.e2e.cluster.faults.installation import SECONDS, Installation
from tests.kube.conftest import Kubectl
from tests.kube.scene import Flows
from tests.pods import pod_of


@pytest.fixture
def pods(here: Flows) -> Kubectl:
    """kubectl where the runs are."""
    return Kubectl(here.api, here.namespace)


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


def test_a_pod_that_is_deleted_by_force_is_replaced_when_its_container_is_dead(
    here: Flows, pods: Kubectl, busybox: str
) -> None:
    here.flow("forced", 1, **script(busybox, FIRST_WAITS), **AT_ONCE)
    (first,) = here.running("forced", 1, SECONDS)
    assert pods("exec", first, "--container=main", "--", "echo", "alive") == "alive\n"
    pods("delete", "pod", first, "--grace-period=0", "--force", "--wait=false")
    here.until_done("forced", 1, SECONDS)
    assert here.classes("forced") == ["Infrastructure", None]
    assert here.runs("forced")[0]["message"].endswith("deleted by somebody")
    assert here.runs("forced")[0]["log_tail"] in ("begun\n", "", None), "the log may be gone with the container"
    assert here.consumed("forced") == [(0, 1)]
    is_right(here)


def test_a_program_that_takes_more_memory_than_its_limit_is_reported_with_the_limit_and_its_last_words(
    here: Flows, pods: Kubectl, busybox: str
) -> None:
    takes = script(busybox, "echo I take it all; exec tail /dev/zero", resources={"limits": {"memory": "32Mi"}})
    here.flow("greedy", 1, **takes, retry=NO_RETRY)
    here.until_failed("greedy", 1, SECONDS)
    (run,) = here.runs("greedy")
    assert (run["failure_class"], run["message"]) == ("OOMKilled", "out of memory: its limit is 32Mi")
    assert run["log_tail"] == pods("logs", pod_of(run), "--container=main") == "I take it all\n"
    assert "out of memory: its limit is 32Mi" in here.sees("greedy", "Succeeded", "False", "ChunksFailed", SECONDS)
    is_right(here)
