"""The facts that are remembered of a pod, from its JSON."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from opendataflow import names
from opendataflow.core.kubernetes.pod_outcome import CANCELLED, find_pod_problem, judge_pod
from opendataflow.launch.cluster.seen import parse_pod
from opendataflow.model.records.pod import Condition, ObservedPod, Termination, Waiting
from tests.pods import BEGAN_AT, NONCE, RUNNING, at, container, deleted, pod, terminated, waiting


def test_a_running_pod() -> None:
    assert parse_pod(pod(RUNNING)) == ObservedPod(
        namespace="team",
        name="load-r7-c0ffee",
        uid="u7",
        run=7,
        fence=41,
        nonce=NONCE,
        engine="e1",
        phase="Running",
        node="n1",
        created_at=BEGAN_AT,
        begun_at=BEGAN_AT + 1,
        started=True,
        finalizer=True,
        memory_limit="512Mi",
    )


def test_a_driver_with_executors() -> None:
    assert parse_pod(pod(RUNNING, metadata={"annotations": {names.ANNOTATION_EXECUTORS: "true"}})).executors
    assert not parse_pod(pod(RUNNING)).executors


def test_the_end_of_main() -> None:
    seen = parse_pod(pod(terminated(3, 90, reason="Error", message="no table", signal=0)))
    assert seen.ended == Termination(3, None, "Error", "no table", BEGAN_AT + 90)
    assert not seen.started


def test_the_end_of_a_sidecar_is_not_the_end_of_main() -> None:
    statuses = [container("proxy", terminated(1)), container("main", RUNNING)]
    assert parse_pod(pod(containerStatuses=statuses)).ended is None


def test_a_deletion_was_asked_for_a_grace_period_before_its_timestamp() -> None:
    seen = parse_pod(pod(RUNNING, metadata=deleted(60, grace=30)))
    assert (seen.deleted_at, seen.grace) == (BEGAN_AT + 60, 30)


def test_why_a_container_waits() -> None:
    seen = parse_pod(pod(waiting("ImagePullBackOff", "no such image"), phase="Pending"))
    assert seen.waiting == Waiting("ImagePullBackOff", "no such image")


def test_the_image_of_a_container_that_waits() -> None:
    statuses = [{**container("main", waiting("ErrImagePull")), "image": "example.org/load:1"}]
    assert parse_pod(pod(phase="Pending", containerStatuses=statuses)).waiting == Waiting(
        "ErrImagePull", image="example.org/load:1"
    )


def test_the_init_container_that_failed_and_the_one_that_waits() -> None:
    inits = [container("a", terminated(0)), container("b", terminated(2)), container("c", waiting("ErrImagePull"))]
    seen = parse_pod(pod(phase="Pending", initContainerStatuses=inits))
    assert seen.failed_init is not None
    assert (seen.failed_init[0], seen.failed_init[1].exit_code) == ("b", 2)
    assert seen.waiting_init == ("c", Waiting("ErrImagePull"))


def test_conditions_that_say_that_something_is_wrong() -> None:
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"},
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "lastTransitionTime": at(9)},
    ]
    seen = parse_pod(pod(conditions=conditions))
    assert seen.unscheduled == Condition("Unschedulable", "0/3 nodes")
    assert seen.disrupted == Condition("PreemptionByScheduler", None, BEGAN_AT + 9)


def test_conditions_that_are_healthy_are_not_remembered() -> None:
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "DisruptionTarget", "status": "False"}]
    seen = parse_pod(pod(conditions=conditions))
    assert (seen.unscheduled, seen.disrupted) == (None, None)


def test_what_the_run_asked_for_is_in_the_annotations() -> None:
    annotations = {names.ANNOTATION_START_DEADLINE: "90", names.ANNOTATION_RETRY_AFTER: "1800"}
    seen = parse_pod(pod(RUNNING, metadata={"annotations": annotations}))
    assert (seen.start_deadline, seen.retry_after) == (90, 1800)


def test_a_log_is_read_unless_the_run_has_asked_for_the_opposite() -> None:
    pods = {name: pod(RUNNING, metadata={"annotations": {names.ANNOTATION_KEEP_LOG: name}}) for name in ("false", "no")}
    assert {name: parse_pod(found).keep_log for name, found in pods.items()} == {"false": False, "no": True}
    assert parse_pod(pod(RUNNING)).keep_log


def test_spoilt_annotations_are_as_none() -> None:
    annotations = {names.ANNOTATION_START_DEADLINE: "soon", names.ANNOTATION_RETRY_AFTER: "-1"}
    seen = parse_pod(pod(RUNNING, metadata={"annotations": annotations}))
    assert (seen.start_deadline, seen.retry_after) == (600, None)


def test_a_released_pod() -> None:
    labels = {names.LABEL_RUN: "7", names.LABEL_DONE: "29931000"}
    seen = parse_pod(pod(terminated(0), metadata={"labels": labels, "finalizers": ["other.io/keep"]}))
    assert (seen.done, seen.finalizer) == (29931000, False)


# Whatever the JSON ------------------------------------------------------------------------------------------

_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
_JSON = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "name"]), inner, max_size=2),
    max_leaves=4,
)
_MAIN = st.sampled_from([RUNNING, terminated(0), terminated(137, reason="OOMKilled"), waiting("ErrImagePull"), {}])
_WORDS = st.sampled_from(["metadata", "spec", "status", "phase", "containerStatuses", "conditions", "labels"])


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in _places(each, (*path, key)))]


@st.composite
def _spoilt_pods(draw: st.DrawFn) -> Any:
    """A real pod in which some places hold any JSON."""
    made = pod(
        draw(_MAIN),
        phase=draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"])),
        metadata=draw(st.sampled_from([{}, deleted(50), deleted(10, 0)])),
        initContainerStatuses=[container("open-passwords", draw(_MAIN))],
        conditions=[{"type": draw(st.sampled_from(["PodScheduled", "DisruptionTarget"])), "status": "True"}],
        reason=draw(st.sampled_from(["Evicted", "DeadlineExceeded", None])),
    )
    made = copy.deepcopy(made)  # its parts are shared by all tests
    for _ in range(draw(st.integers(0, 3))):
        *way, last = draw(st.sampled_from(_places(made)[1:]))
        place: Any = made
        for step in way:
            place = place[step]
        place[last] = draw(_JSON)
    return made


@given(_spoilt_pods() | st.dictionaries(_WORDS, _JSON, max_size=3), st.floats(0, 2e9), st.booleans(), st.booleans())
def test_any_json_is_seen_and_judged_without_an_error(made: Any, now: float, cancelled: bool, gone: bool) -> None:
    seen = parse_pod(made)
    judge_pod(seen, now, stopped=CANCELLED if cancelled else None, node_gone=gone)
    find_pod_problem(seen, now)
