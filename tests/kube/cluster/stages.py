"""What happens to the pods of the fake nodes: kwok's Stages, driven by annotations of the pod.

All annotations are optional and start with `test.opendataflow.io/`. With none, a pod starts and succeeds at once.

    start-seconds      before the pod is started                                    "0"
    image-pull         "fail": it stays Pending, its containers Waiting with ImagePullBackOff
    init-seconds       how long the init containers run                             "0"
    init-exit-code     not 0: the pod has failed, and its containers never run      "0"
    ready-seconds      from the start of the containers until the pod is Ready      at once
    run-seconds        how long the main container runs, or "forever"               "0"
    exit-code          of the main container                                        "0", "137" if OOMKilled
    message            its termination message
    reason             its reason                                                   Completed, Error
    pod-reason         status.reason of the pod at the end: Evicted ...
    pod-message        status.message of the pod at the end
    sidecar            "keeps-running": the other containers go on, and the pod stays Running
    stop-seconds       after a deletion, until the main container has ended         "0"
    stop-exit-code     its exit code then                                           "143", "137" after the grace period

The main container is the one called `main` or `spark-kubernetes-driver`, or the first. Times above a second are kept to
a whole second (the API server cuts fractions off); times below start anew whenever the pod is changed. An annotation
that is changed while a pod runs counts: "forever" until a test writes "0".

`activeDeadlineSeconds` is watched over, and a deletion gets its grace period, as a kubelet does it: the pod is removed
with grace period 0 when its containers have ended, and stays as long as it has finalizers.
"""

from typing import Any

from tests.kube.cluster import statuses
from tests.kube.cluster.annotations import PREFIX

_WORDS = """
def note($name; $otherwise): .metadata.annotations["PREFIX" + $name] // $otherwise;
def seconds($name): note($name; "0") | tonumber;
def living: .metadata.deletionTimestamp == null;
def in_phase($phase): .status.phase == $phase;
def final: in_phase("Succeeded") or in_phase("Failed");

def known: select(. == "main" or . == "spark-kubernetes-driver");
def main: first((.spec.containers[].name | known), .spec.containers[0].name);
def main_runs: main as $main | any(.status.containerStatuses[]?; .name == $main and .state.running != null);
def is_ready: any(.status.conditions[]?; .type == "Ready" and .status == "True");
def held_back: note("ready-seconds"; null) != null and (is_ready | not);
def runs: living and in_phase("Running") and main_runs and (held_back | not);

def never: 1000000000000;
def started: first(.status.containerStatuses[]?.state.running.startedAt // empty) | fromdateiso8601;
def ends: if note("run-seconds"; "0") == "forever" then never else started + seconds("run-seconds") end;
def deadline: (.status.startTime | fromdateiso8601) + (.spec.activeDeadlineSeconds // never);
def deleted: (.metadata.deletionTimestamp | fromdateiso8601) - .metadata.deletionGracePeriodSeconds;
def stops: deleted + ([seconds("stop-seconds"), .metadata.deletionGracePeriodSeconds] | min);
def moment: floor | todate;
def from_now($name): note($name; "0") + "s";
""".replace("PREFIX", PREFIX)
"""What the Stages below say, in jq. Moments are seconds since the epoch."""


def _stage(
    kind: str,
    name: str,
    when: str,
    *,
    status: str | None = None,
    delay: str | None = None,
) -> dict[str, Any]:
    """One Stage. `when`, `delay`: jq; `status`: a template of the status to merge, None: the object is removed."""
    patch = {"subresource": "status", "root": "status", "template": status}
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": [{"jq": {"key": _WORDS + when, "operator": "In", "values": ["true"]}}]},
        "steps": [{"delete": True} if status is None else {"patch": patch}],
    }
    if delay is not None:
        spec["delay"] = {"durationMilliseconds": 0, "durationFrom": {"jq": {"expression": _WORDS + delay}}}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def stages() -> list[dict[str, Any]]:
    """All Stages, as documents of kwok's configuration file. At most one matches a pod at any time."""
    return [
        _stage("Node", "node", "is_ready | not", status=statuses.NODE),
        _stage(
            "Pod",
            "pod-starts",
            'living and in_phase("Pending") and .status.startTime == null',
            status=statuses.STARTED,
            delay='from_now("start-seconds")',
        ),
        _stage(
            "Pod",
            "pod-is-initialized",
            'living and in_phase("Pending") and any(.status.initContainerStatuses[]?; .state.running != null)',
            status=statuses.INITIALIZED,
            delay='from_now("init-seconds")',
        ),
        _stage(
            "Pod",
            "pod-is-ready",
            'living and in_phase("Running") and main_runs and held_back',
            status=statuses.READY_NOW,
            delay='from_now("ready-seconds")',
        ),
        _stage(
            "Pod",
            "pod-ends",
            "runs and ends < never and ends <= deadline",
            status=statuses.ended(statuses.BY_ITSELF, 0, "Completed"),
            delay='if seconds("run-seconds") < 1 then from_now("run-seconds") else (ends | moment) end',
        ),
        _stage(
            "Pod",
            "pod-passes-its-deadline",
            "runs and deadline < ends and deadline < never",
            status=statuses.ended(statuses.BY_DEADLINE, 137, "Error"),
            delay="deadline | moment",
        ),
        _stage(
            "Pod",
            "pod-is-stopped",
            '(living | not) and (in_phase("Running") or in_phase("Pending"))',
            status=statuses.ended(statuses.BY_DELETION, 143, "Error"),
            delay="stops | moment",
        ),
        _stage("Pod", "pod-is-removed", "(living | not) and final and .metadata.deletionGracePeriodSeconds > 0"),
    ]
