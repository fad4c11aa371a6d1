"""Why pods do not run although they should by now: in a word, and in words that stay the same while it is so."""

from typing import Any

import pytest

from opendataflow.core.kubernetes.pod_outcome import count_problems, find_pod_problem
from opendataflow.launch.cluster.seen import parse_pod
from opendataflow.names import Reason
from tests.pods import BEGAN_AT, RUNNING, container, deleted, pod, terminated, waiting

UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: no cpu"}
UNHEARD = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "False"}]
ROOT = waiting(
    "CreateContainerConfigError",
    'container has runAsNonRoot and image will run as root (pod: "load-r7-c0ffee_team(u7)", container: main)',
)
NAMED = waiting(
    "CreateContainerConfigError",
    "container has runAsNonRoot and image has non-numeric user (nobody), cannot verify user is non-root "
    '(pod: "load-r7-c0ffee_team(u7)", container: main)',
)
REMEDY = "set a numeric USER other than 0 in the image, or runAsUser in the securityContext of the pod"
PULL = waiting("ImagePullBackOff", "no such image")

CASES: list[tuple[dict[str, Any], float, str | None, str]] = [
    (pod(RUNNING), 60, None, ""),
    (pod(terminated(0)), 60, None, ""),
    (pod(PULL, phase="Pending"), 1, Reason.IMAGE_PULL, "image pull: no such image (ImagePullBackOff)"),
    (
        pod(waiting("CreateContainerConfigError", "secret x not found"), phase="Pending"),
        1,
        Reason.POD_PENDING,
        "it can't start: secret x not found (CreateContainerConfigError)",
    ),
    (
        pod(phase="Pending", containerStatuses=[{**container("main", ROOT), "image": "example.org/load:1"}]),
        1,
        Reason.POD_PENDING,
        f"it can't start: image example.org/load:1 runs as root: {REMEDY} (CreateContainerConfigError)",
    ),
    (
        pod(phase="Pending", containerStatuses=[{**container("main", NAMED), "image": "example.org/load:1"}]),
        1,
        Reason.POD_PENDING,
        f"image example.org/load:1 names its user without a number: {REMEDY} (CreateContainerConfigError)",
    ),
    (
        pod(phase="Pending", spec={"nodeName": None}, conditions=[UNSCHEDULABLE]),
        1,
        Reason.UNSCHEDULABLE,
        "0/3 nodes: no cpu",
    ),
    (pod(waiting("ContainerCreating"), phase="Pending"), 5, None, ""),
    (pod(waiting("ContainerCreating"), phase="Pending"), 60, Reason.POD_PENDING, "not started on node n1"),
    (pod(RUNNING, metadata=deleted(10)), 20, None, ""),
    (pod(RUNNING, metadata=deleted(10)), 60, Reason.NODE_UNREACHABLE, "node n1 does not answer"),
    (pod(RUNNING, conditions=UNHEARD), 60, Reason.NODE_UNREACHABLE, "nothing is heard from node n1"),
    (pod(RUNNING, conditions=UNHEARD, metadata=deleted(10)), 20, None, ""),
    (pod(RUNNING, conditions=UNHEARD, spec={"readinessGates": [{"conditionType": "x"}]}), 60, None, ""),
    (pod(RUNNING, conditions=[{"type": t, "status": "False"} for t in ("ContainersReady", "Ready")]), 60, None, ""),
]


@pytest.mark.parametrize(("seen", "second", "reason", "words"), CASES)
def test_what_hinders_a_pod(seen: dict[str, Any], second: float, reason: str | None, words: str) -> None:
    found = find_pod_problem(parse_pod(seen), BEGAN_AT + second)
    assert (found[0] if found else None) == reason
    assert words in (found[1] if found else "")


def test_it_is_reported_in_the_same_words_a_minute_later() -> None:
    seen = parse_pod(pod(waiting("ContainerCreating"), phase="Pending"))
    assert find_pod_problem(seen, BEGAN_AT + 60) == find_pod_problem(seen, BEGAN_AT + 120)


def test_pods_are_counted_by_reason() -> None:
    found = [(Reason.IMAGE_PULL, "b"), (Reason.IMAGE_PULL, "a"), (Reason.UNSCHEDULABLE, "c")]
    assert count_problems(found) == {"ImagePull": (2, "a"), "Unschedulable": (1, "c")}
