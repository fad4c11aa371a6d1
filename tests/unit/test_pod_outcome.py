"""How the end of a run's pod is judged: the whole table, as Kubernetes reports it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from opendataflow import names
from opendataflow.core.kubernetes.pod_outcome import CANCELLED, find_pod_problem, judge_pod, with_last_line
from opendataflow.launch.cluster.seen import parse_pod
from opendataflow.model.records.pod import Stop
from opendataflow.model.records.run import Outcome
from opendataflow.names import OutcomeClass, Reason
from tests.pods import BEGAN_AT, RUNNING, at, container, deleted, pod, terminated, waiting

SUCCESS, APPLICATION, INFRASTRUCTURE, DEADLINE, OUT_OF_MEMORY = (
    OutcomeClass.SUCCESS,
    OutcomeClass.APPLICATION,
    OutcomeClass.INFRASTRUCTURE,
    OutcomeClass.DEADLINE,
    OutcomeClass.OUT_OF_MEMORY,
)
REPORT = json.dumps({"rows": 12})
LOST_BY_NODE = terminated(137, reason="ContainerStatusUnknown", message="could not be located", finishedAt=None)


def disrupted(reason: str, second: int, message: str = "") -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    return {"conditions": [condition | {"lastTransitionTime": at(second)}]}


def with_deadline(seconds: int) -> dict[str, Any]:
    return {"spec": {"activeDeadlineSeconds": seconds}}


def verdict(made: dict[str, Any], second: float = 100, **more: Any) -> Any:
    return judge_pod(parse_pod(made), BEGAN_AT + second, **more)


ENDS: list[tuple[str, dict[str, Any], OutcomeClass, str]] = [
    ("exit code 0", pod(terminated(0), phase="Succeeded"), SUCCESS, "exit code 0"),
    ("a sidecar keeps the pod Running", pod(terminated(0)), SUCCESS, "exit code 0"),
    (
        "a sidecar has failed, and the pod with it",
        pod(phase="Failed", containerStatuses=[container("proxy", terminated(1)), container("main", terminated(0))]),
        SUCCESS,
        "exit code 0",
    ),
    (
        "exit code 0, then the pod was deleted while a sidecar ran",
        pod(terminated(0, 60), metadata=deleted(61)),
        SUCCESS,
        "exit code 0",
    ),
    (
        "exit code 0 after the deletion began, within the grace period",
        pod(terminated(0, 62), metadata=deleted(60)),
        INFRASTRUCTURE,
        "its pod was deleted by somebody",
    ),
    (
        "exit code 0 in the second of the deletion",
        pod(terminated(0, 60), metadata=deleted(60)),
        INFRASTRUCTURE,
        "its pod was deleted by somebody",
    ),
    (
        "exit code 0 after a deletion without grace",
        pod(terminated(0, 61), metadata=deleted(60, grace=0)),
        INFRASTRUCTURE,
        "its pod was deleted by somebody",
    ),
    (
        "a report, then stopped by a deletion",
        pod(terminated(143, 62, message=REPORT), metadata=deleted(60)),
        SUCCESS,
        "its report says that it was done before it was stopped",
    ),
    (
        "a report from the middle, then stopped by a deletion",
        pod(terminated(143, 62, message='{"rows": 12, "unfinished": true}'), metadata=deleted(60)),
        INFRASTRUCTURE,
        "its pod was deleted by somebody",
    ),
    (
        "a report, and exit code 0 after the deletion began",
        pod(terminated(0, 62, message=REPORT), metadata=deleted(60)),
        SUCCESS,
        "its report says that it was done before it was stopped",
    ),
    ("a report, and a failure of its own", pod(terminated(4, message=REPORT)), APPLICATION, "exit code 4"),
    (
        "a report of its failure",
        pod(terminated(1, message='{"commit": "4f0c", "failure": "clean has failed: no such column"}')),
        APPLICATION,
        "exit code 1: clean has failed: no such column",
    ),
    (
        "a report of a missing location",
        pod(terminated(1, message='{"preflight": "chunk", "failure": "there is no in/1.csv"}')),
        OutcomeClass.NOT_STARTED,
        "there is no in/1.csv",
    ),
    (
        "a report of its failure, after it has found its locations",
        pod(terminated(1, message='{"preflight": "passed", "failure": "clean has failed"}')),
        APPLICATION,
        "exit code 1: clean has failed",
    ),
    (
        "a report of its failure, then stopped by a deletion",
        pod(terminated(143, 62, message='{"rows": 3, "failure": "clean has failed"}'), metadata=deleted(60)),
        INFRASTRUCTURE,
        "its pod was deleted by somebody",
    ),
    (
        "no report but a text, then deleted",
        pod(terminated(143, 62, message="half way"), metadata=deleted(60)),
        INFRASTRUCTURE,
        "its pod was deleted by somebody",
    ),
    ("another exit code", pod(terminated(3), phase="Failed"), APPLICATION, "exit code 3"),
    (
        "another exit code with a message",
        pod(terminated(3, message="reading\nno such table\n")),
        APPLICATION,
        "exit code 3: no such table",
    ),
    (
        "a Spark driver that got no executor",
        pod(terminated(126, message="no executor has come up within 60 s: e1 is unschedulable: no cpu")),
        INFRASTRUCTURE,
        "no executor has come up within 60 s: e1 is unschedulable: no cpu",
    ),
    (
        "an init container that got no answer of a git server",
        pod(
            waiting("PodInitializing"),
            phase="Failed",
            initContainerStatuses=[
                container(
                    "fetch-project", terminated(1, message="the git server does not answer: https://h/p: HTTP 503")
                )
            ],
        ),
        INFRASTRUCTURE,
        "init container fetch-project: the git server does not answer: https://h/p: HTTP 503",
    ),
    (
        "its own failure before somebody deleted the pod",
        pod(terminated(3, 59), metadata=deleted(60)),
        APPLICATION,
        "exit code 3",
    ),
    ("killed", pod(terminated(137)), APPLICATION, "exit code 137 (SIGKILL)"),
    ("a crash", pod(terminated(139)), APPLICATION, "exit code 139 (SIGSEGV)"),
    ("a signal that the runtime reports", pod(terminated(1, signal=15)), APPLICATION, "exit code 1 (SIGTERM)"),
    (
        "out of memory",
        pod(terminated(137, reason="OOMKilled"), phase="Failed"),
        OUT_OF_MEMORY,
        "out of memory: its limit is 512Mi",
    ),
    (
        "out of memory of the node, no limit of its own",
        pod(terminated(137, reason="OOMKilled"), spec={"containers": [{"name": "main"}]}),
        OUT_OF_MEMORY,
        "out of memory",
    ),
    (
        "no such program in the image",
        pod(terminated(128, reason="StartError", message='exec: "x": not found')),
        APPLICATION,
        'the command can\'t be started: exec: "x": not found',
    ),
    ("the node lost the container", pod(LOST_BY_NODE), INFRASTRUCTURE, "lost: its node does not know how it ended"),
    (
        "stopped at its deadline",
        pod(terminated(143, 61), phase="Failed", reason="DeadlineExceeded", **with_deadline(60)),
        DEADLINE,
        "stopped at its deadline",
    ),
    (
        "exit code 0 when it was stopped at its deadline",
        pod(terminated(0, 61), phase="Failed", reason="DeadlineExceeded", **with_deadline(60)),
        DEADLINE,
        "stopped at its deadline",
    ),
    (
        "exit code 0 before the deadline, which ended a sidecar",
        pod(terminated(0, 50), phase="Failed", reason="DeadlineExceeded", **with_deadline(60)),
        SUCCESS,
        "exit code 0",
    ),
    (
        "stopped at its deadline before main was seen",
        pod(phase="Failed", reason="DeadlineExceeded", **with_deadline(60)),
        DEADLINE,
        "stopped at its deadline",
    ),
    (
        "evicted",
        pod(terminated(137, 61), phase="Failed", reason="Evicted", message="low on\nmemory"),
        INFRASTRUCTURE,
        "evicted: low on memory",
    ),
    (
        "evicted, and its main container was never seen to end",
        pod(RUNNING, phase="Failed", reason="Evicted", message="low on memory"),
        INFRASTRUCTURE,
        "evicted: low on memory",
    ),
    (
        "exit code 0 while it was evicted",
        pod(terminated(0, 61), phase="Failed", reason="Evicted", **disrupted("TerminationByKubelet", 60)),
        INFRASTRUCTURE,
        "evicted",
    ),
    (
        "exit code 0 before it was evicted",
        pod(terminated(0, 59), phase="Failed", reason="Evicted", **disrupted("TerminationByKubelet", 60)),
        SUCCESS,
        "exit code 0",
    ),
    (
        "its node was shut down",
        pod(terminated(143, 61), phase="Failed", reason="Terminated", message="node shutdown"),
        INFRASTRUCTURE,
        "its node ended it: node shutdown (Terminated)",
    ),
    (
        "preempted",
        pod(terminated(143, 61), metadata=deleted(60), **disrupted("PreemptionByScheduler", 60, "a pod of priority 9")),
        INFRASTRUCTURE,
        "disrupted: a pod of priority 9 (PreemptionByScheduler)",
    ),
    (
        "a disruption that came to nothing, and a failure of its own",
        pod(terminated(3, 90), **disrupted("EvictionByEvictionAPI", 60)),
        APPLICATION,
        "exit code 3",
    ),
    (
        "its node is gone, and Kubernetes has given the pod up",
        pod(RUNNING, phase="Failed", **disrupted("DeletionByPodGC", 60, "node no longer exists")),
        INFRASTRUCTURE,
        "disrupted: node no longer exists (DeletionByPodGC)",
    ),
    (
        "Succeeded, and main was never seen to end",
        pod(RUNNING, phase="Succeeded"),
        INFRASTRUCTURE,
        "lost: its pod is Succeeded, and how its program ended is not known",
    ),
    (
        "Failed without any container",
        pod(phase="Failed"),
        INFRASTRUCTURE,
        "lost: its pod is Failed, and how its program ended is not known",
    ),
    (
        "refused by its node",
        pod(phase="Failed", reason="OutOfcpu", message="not enough"),
        INFRASTRUCTURE,
        "its node ended it: not enough (OutOfcpu)",
    ),
    (
        "deleted before it had a node",
        pod(phase="Pending", spec={"nodeName": None}, metadata=deleted(9, grace=0)),
        INFRASTRUCTURE,
        "its pod was deleted by somebody before it started",
    ),
    (
        "an init container has failed",
        pod(
            waiting("PodInitializing"),
            phase="Failed",
            initContainerStatuses=[container("open-passwords", terminated(1, message="the ciphertext does not open"))],
        ),
        APPLICATION,
        "init container open-passwords: exit code 1: the ciphertext does not open",
    ),
    (
        "an init container was stopped by a deletion",
        pod(
            waiting("PodInitializing"),
            phase="Failed",
            metadata=deleted(60),
            initContainerStatuses=[container("fetch", terminated(143, 61))],
        ),
        INFRASTRUCTURE,
        "its pod was deleted by somebody before it started",
    ),
    (
        "given up by a process that has ended since",
        pod(waiting("ImagePullBackOff", "no such image"), phase="Failed", metadata=deleted(601)),
        INFRASTRUCTURE,
        "image pull: no such image (ImagePullBackOff)",
    ),
]


@pytest.mark.parametrize(("made", "kind", "message"), [row[1:] for row in ENDS], ids=[row[0] for row in ENDS])
def test_an_end(made: dict[str, Any], kind: OutcomeClass, message: str) -> None:
    outcome = verdict(made)
    assert isinstance(outcome, Outcome)
    assert (outcome.kind, outcome.message) == (kind, message)


GOING_ON: list[tuple[str, dict[str, Any]]] = [
    ("it runs", pod(RUNNING)),
    ("it waits for its image", pod(waiting("ImagePullBackOff"), phase="Pending")),
    ("it has no node yet", pod(phase="Pending", spec={"nodeName": None})),
    ("only a sidecar has ended", pod(containerStatuses=[container("x", terminated(1)), container("main", RUNNING)])),
    ("it was deleted and has not ended yet", pod(RUNNING, metadata=deleted(90))),
    ("it was deleted long ago, on a node that does not answer", pod(RUNNING, metadata=deleted(5, grace=1))),
    (
        "it was deleted while it waited for its image",
        pod(waiting("ErrImagePull"), phase="Pending", metadata=deleted(9)),
    ),
    ("somebody tried to evict it", pod(RUNNING, **disrupted("EvictionByEvictionAPI", 60))),
    ("its init container runs", pod(phase="Pending", initContainerStatuses=[container("fetch", RUNNING)])),
]


@pytest.mark.parametrize("made", [row[1] for row in GOING_ON], ids=[row[0] for row in GOING_ON])
def test_it_goes_on(made: dict[str, Any]) -> None:
    assert verdict(made) is None


def test_a_run_that_runs_goes_on_however_late_it_started() -> None:
    assert verdict(pod(RUNNING), 100_000) is None


NO_NODE: dict[str, Any] = {"phase": "Pending", "spec": {"nodeName": None}}
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient memory.",
}

LATE: list[tuple[str, dict[str, Any], str]] = [
    (
        "unschedulable",
        pod(**NO_NODE, conditions=[UNSCHEDULABLE]),
        "unschedulable for 10 min: 0/3 nodes are available: 3 Insufficient memory.",
    ),
    ("no scheduler", pod(**NO_NODE), "no node was chosen for 10 min: does the cluster have a scheduler?"),
    (
        "image pull",
        pod(waiting("ImagePullBackOff", 'Back-off pulling image "nope:1"'), phase="Pending"),
        'image pull: Back-off pulling image "nope:1" (ImagePullBackOff)',
    ),
    (
        "a sidecar runs and main waits for its image",
        pod(containerStatuses=[container("proxy", RUNNING), container("main", waiting("ErrImagePull", "denied"))]),
        "image pull: denied (ErrImagePull)",
    ),
    (
        "a Secret is missing",
        pod(waiting("CreateContainerConfigError", 'secret "db" not found'), phase="Pending"),
        'it can\'t start: secret "db" not found (CreateContainerConfigError)',
    ),
    (
        "the image of an init container",
        pod(
            waiting("PodInitializing"),
            phase="Pending",
            initContainerStatuses=[container("fetch", waiting("ErrImagePull", "denied"))],
        ),
        "init container fetch: image pull: denied (ErrImagePull)",
    ),
    (
        "a volume is missing",
        pod(waiting("ContainerCreating"), phase="Pending"),
        "it has not started for 10 min on node n1; the pod's events say why",
    ),
]


@pytest.mark.parametrize(("made", "message"), [row[1:] for row in LATE], ids=[row[0] for row in LATE])
def test_past_its_start_deadline_it_is_stopped_first_and_infrastructure_once_it_is_dead(
    made: dict[str, Any], message: str
) -> None:
    assert verdict(made, 599) is None
    stop = verdict(made, 600)
    assert stop == Stop(Outcome(INFRASTRUCTURE, message))
    seen = replace(parse_pod(made), deleted_at=BEGAN_AT + 600, phase="Failed")
    assert judge_pod(seen, BEGAN_AT + 601, stopped=stop.outcome) == stop.outcome


def test_the_start_deadline_is_the_run_s_own() -> None:
    made = pod(**NO_NODE, metadata={"annotations": {names.ANNOTATION_START_DEADLINE: "30"}})
    assert verdict(made, 29) is None
    assert isinstance(verdict(made, 30), Stop)


def test_one_that_started_and_succeeded_before_its_deletion_for_lateness_has_succeeded() -> None:
    given_up = Outcome(INFRASTRUCTURE, "image pull: …")
    made = pod(terminated(0, 599), metadata=deleted(600))
    assert verdict(made, 700, stopped=given_up).kind is SUCCESS


def test_one_that_started_at_the_last_moment_and_was_stopped_is_what_it_was_given_up_for() -> None:
    given_up = Outcome(INFRASTRUCTURE, "image pull: …")
    made = pod(terminated(143, 601), metadata=deleted(600))
    assert (verdict(made, 700, stopped=given_up).message) == "image pull: …"


@pytest.mark.parametrize("made", [pod(terminated(143, 61), metadata=deleted(60)), pod(terminated(1, 59))])
def test_a_cancelled_run_is_cancelled_however_it_ended(made: dict[str, Any]) -> None:
    assert verdict(made, stopped=CANCELLED).kind is OutcomeClass.CANCELLED


def test_a_run_that_succeeded_before_it_was_cancelled_has_succeeded() -> None:
    assert verdict(pod(terminated(0, 59), metadata=deleted(60)), stopped=CANCELLED).kind is SUCCESS


def test_a_cancelled_run_whose_pod_is_gone_is_cancelled() -> None:
    seen = replace(parse_pod(pod(RUNNING)), gone=True)
    assert judge_pod(seen, BEGAN_AT, stopped=CANCELLED) == CANCELLED


def test_a_run_whose_pod_is_gone_was_deleted_by_somebody() -> None:
    outcome = judge_pod(replace(parse_pod(pod(RUNNING)), gone=True), BEGAN_AT + 60)
    assert outcome == Outcome(INFRASTRUCTURE, "its pod was deleted by somebody")


def test_the_end_counts_although_the_pod_is_gone() -> None:
    assert judge_pod(replace(parse_pod(pod(terminated(0))), gone=True), BEGAN_AT + 90) == Outcome(
        SUCCESS, "exit code 0", 0
    )


def test_a_run_whose_node_is_gone_is_lost() -> None:
    assert verdict(pod(RUNNING), node_gone=True) == Outcome(INFRASTRUCTURE, "lost: its node n1 is gone")


def test_on_a_node_that_does_not_answer_it_waits_unless_the_user_takes_the_risk() -> None:
    risk = deleted(60) | {"annotations": {names.ANNOTATION_RETRY_AFTER: "300"}}
    assert verdict(pod(RUNNING, metadata=deleted(60)), 100_000) is None
    assert verdict(pod(RUNNING, metadata=risk), 389) is None
    assert verdict(pod(RUNNING, metadata=risk), 390) == Outcome(
        INFRASTRUCTURE,
        "lost: node n1 has not ended its pod for 5 min; given up without proof (onNodeUnreachable.retryAfter)",
    )


HINDERED: list[tuple[dict[str, Any], tuple[Reason, str] | None]] = [
    (pod(RUNNING), None),
    (pod(terminated(0)), None),
    (pod(RUNNING, metadata=deleted(119)), None),
    (
        pod(**NO_NODE, conditions=[UNSCHEDULABLE | {"message": "0/3 nodes"}]),
        (Reason.UNSCHEDULABLE, "unschedulable: 0/3 nodes"),
    ),
    (
        pod(waiting("ErrImagePull", "denied"), phase="Pending"),
        (Reason.IMAGE_PULL, "image pull: denied (ErrImagePull)"),
    ),
    (
        pod(waiting("ContainerCreating"), phase="Pending"),
        (Reason.POD_PENDING, "it has not started on node n1; the pod's events say why"),
    ),
    (
        pod(RUNNING, metadata=deleted(60, grace=20)),
        (Reason.NODE_UNREACHABLE, "node n1 does not answer or is slow"),
    ),
]


@pytest.mark.parametrize(("made", "hindrance"), HINDERED)
def test_what_hinders_a_living_run(made: dict[str, Any], hindrance: tuple[Reason, str] | None) -> None:
    assert find_pod_problem(parse_pod(made), BEGAN_AT + 120) == hindrance


def test_the_last_line_of_the_log_explains_a_bare_exit_code() -> None:
    seen = parse_pod(pod(terminated(3)))
    outcome = Outcome(APPLICATION, "exit code 3", 3)
    assert with_last_line(outcome, seen, "a\nno such table\n").message == "exit code 3: no such table"
    assert with_last_line(outcome, seen, "").message == "exit code 3"


def test_the_log_adds_nothing_to_what_is_explained_already() -> None:
    seen = parse_pod(pod(terminated(3, message="printed")))
    outcome = Outcome(APPLICATION, "exit code 3: printed", 3)
    assert with_last_line(outcome, seen, "another line") == outcome
