"""How the end of a run in a SparkApplication is judged: by its driver, and by the Spark operator where that is gone."""

from typing import Any

import pytest

from opendataflow import names
from opendataflow.core.kubernetes.application_outcome import (
    SUBMISSION_SECONDS,
    find_application_problem,
    judge_application,
)
from opendataflow.core.kubernetes.pod_outcome import CANCELLED
from opendataflow.launch.cluster.seen import parse_application, parse_pod
from opendataflow.model.records.application import ObservedApplication
from opendataflow.model.records.pod import ObservedPod, Stop
from opendataflow.model.records.run import Outcome
from opendataflow.names import OutcomeClass, Reason
from tests.pods import BEGAN, BEGAN_AT, RUNNING, at, container, deleted, pod, terminated, waiting

SUCCESS, APPLICATION, INFRASTRUCTURE, DEADLINE, OUT_OF_MEMORY = (
    OutcomeClass.SUCCESS,
    OutcomeClass.APPLICATION,
    OutcomeClass.INFRASTRUCTURE,
    OutcomeClass.DEADLINE,
    OutcomeClass.OUT_OF_MEMORY,
)
SOMEBODY = "its SparkApplication was deleted by somebody"
FAILED_3 = "driver container failed with ExitCode: 3, Reason: Error"


def application(state: str = "", message: str = "", *, attempts: int = 1, **more: Any) -> ObservedApplication:
    """As the Spark operator reports it. `ended`, `deleted`: seconds; `deadline`: of the run."""
    annotations = {names.ANNOTATION_RUN: "7", names.ANNOTATION_START_DEADLINE: "600"}
    if "deadline" in more:
        annotations[names.ANNOTATION_RUN_DEADLINE] = str(more["deadline"])
    metadata = {
        "name": "load-r7",
        "namespace": "team",
        "uid": "a7",
        "creationTimestamp": BEGAN,
        "labels": {names.LABEL_APPLICATION: "e1"},
        "annotations": annotations,
        "finalizers": [names.FINALIZER],
        **({"deletionTimestamp": at(more["deleted"])} if "deleted" in more else {}),
    }
    status = {
        "applicationState": {"state": state, "errorMessage": message},
        "executionAttempts": attempts if state else 0,
        "driverInfo": {},
        **({"terminationTime": at(more["ended"])} if "ended" in more else {}),
    }
    return parse_application({"metadata": metadata, "status": status})


def driver(state: dict[str, Any] | None = None, *, gone: bool = False, **more: Any) -> ObservedPod:
    """The pod of its driver."""
    labels = {names.LABEL_RUN: "7", names.LABEL_ENGINE: "e1", names.LABEL_APPLICATION: "e1"}
    metadata = {"name": "load-r7-driver", "labels": labels, "finalizers": [], **more.pop("metadata", {})}
    statuses = [] if state is None else [container(names.DRIVER_CONTAINER, state)]
    seen = parse_pod(pod(metadata=metadata, containerStatuses=statuses, **more))
    return seen if not gone else _gone(seen)


def _gone(seen: ObservedPod) -> ObservedPod:
    return ObservedPod(**{**{name: getattr(seen, name) for name in ObservedPod.__slots__}, "gone": True})


ENDS: list[tuple[str, ObservedApplication, ObservedPod | None, OutcomeClass, str]] = [
    ("its driver succeeded", application("RUNNING"), driver(terminated(0)), SUCCESS, "exit code 0"),
    ("its driver failed", application("RUNNING"), driver(terminated(3)), APPLICATION, "exit code 3"),
    (
        "its driver succeeded, whatever the Spark operator thinks",
        application("FAILED", "driver pod not found", ended=70),
        driver(terminated(0)),
        SUCCESS,
        "exit code 0",
    ),
    (
        "its driver was out of memory",
        application("FAILED", "driver container failed with ExitCode: 137, Reason: OOMKilled", ended=70),
        None,
        OUT_OF_MEMORY,
        "out of memory",
    ),
    ("completed, and nothing was seen", application("COMPLETED", ended=60), None, SUCCESS, "exit code 0"),
    ("about to be completed", application("SUCCEEDING", ended=60), None, SUCCESS, "exit code 0"),
    (
        "completed, and the driver vanished",
        application("COMPLETED", ended=60),
        driver(RUNNING, gone=True),
        SUCCESS,
        "exit code 0",
    ),
    (
        "completed, then deleted by somebody",
        application("COMPLETED", ended=60, deleted=61),
        None,
        SUCCESS,
        "exit code 0",
    ),
    (
        "completed after somebody began to delete it",
        application("COMPLETED", ended=61, deleted=60),
        None,
        INFRASTRUCTURE,
        "its pod was deleted by somebody",
    ),
    (
        "completed after somebody began to delete the driver",
        application("COMPLETED", ended=61),
        driver(RUNNING, gone=True, metadata=deleted(60)),
        INFRASTRUCTURE,
        "its pod was deleted by somebody",
    ),
    ("failed by its exit code", application("FAILED", FAILED_3, ended=60), None, APPLICATION, "exit code 3"),
    ("about to be failed", application("FAILING", FAILED_3, ended=60), None, APPLICATION, "exit code 3"),
    (
        "the driver was lost",
        application("FAILED", "driver pod not found"),
        None,
        INFRASTRUCTURE,
        "lost: its driver was not observed, and the Spark operator reports: driver pod not found",
    ),
    (
        "the submission failed",
        application("SUBMISSION_FAILED", "failed to run spark-submit:\n no such class", attempts=0),
        None,
        INFRASTRUCTURE,
        "the Spark operator could not submit it: failed to run spark-submit: no such class (SubmissionFailed)",
    ),
    (
        "the submission failed for good",
        application("FAILED", "failed to run spark-submit", attempts=0),
        None,
        INFRASTRUCTURE,
        "the Spark operator could not submit it: failed to run spark-submit (SubmissionFailed)",
    ),
    (
        "the driver was deleted, and the application after it",
        application("RUNNING", deleted=62),
        driver(RUNNING, gone=True, metadata=deleted(60)),
        INFRASTRUCTURE,
        "its pod was deleted by somebody",
    ),
    (
        "deleted by somebody while a submission may be under way, long ago",
        application("", deleted=int(99 - SUBMISSION_SECONDS)),
        None,
        INFRASTRUCTURE,
        SOMEBODY,
    ),
]


@pytest.mark.parametrize(("seen", "driver", "kind", "message"), [end[1:] for end in ENDS], ids=[end[0] for end in ENDS])
def test_an_end_is_judged(
    seen: ObservedApplication, driver: ObservedPod | None, kind: OutcomeClass, message: str
) -> None:
    verdict = judge_application(seen, driver, BEGAN_AT + 100)
    assert isinstance(verdict, Outcome)
    assert (verdict.kind, verdict.message) == (kind, message)


@pytest.mark.parametrize("state", ["", "SUBMITTED", "RUNNING", "PENDING_RERUN", "INVALIDATING", "UNKNOWN", "SUSPENDED"])
def test_one_that_may_still_run_is_waited_for(state: str) -> None:
    assert judge_application(application(state), None, BEGAN_AT + 100) is None


@pytest.mark.parametrize("state", ["SUBMITTED", "RUNNING", "FAILED", "COMPLETED"])
def test_a_driver_that_runs_is_waited_for_whatever_the_spark_operator_says(state: str) -> None:
    assert judge_application(application(state, ended=60), driver(RUNNING), BEGAN_AT + 100) is None


@pytest.mark.parametrize("state", ["RUNNING", "PENDING_RERUN", "SUSPENDED", "INVALIDATING"])
def test_a_driver_that_has_gone_may_come_again_until_its_application_is_deleted(state: str) -> None:
    lost = driver(RUNNING, gone=True)
    verdict = judge_application(application(state), lost, BEGAN_AT + 100)
    assert isinstance(verdict, Stop)
    ended = judge_application(application(state, deleted=100), lost, BEGAN_AT + 100, stopped=verdict.outcome)
    assert ended == verdict.outcome
    assert ended.kind is INFRASTRUCTURE


def test_nobody_picks_it_up() -> None:
    assert judge_application(application(), None, BEGAN_AT + 599) is None
    verdict = judge_application(application(), None, BEGAN_AT + 600)
    sentence = (
        "not started for 10 min: nobody has picked up its SparkApplication: does a Spark operator watch this namespace?"
    )
    assert verdict == Stop(Outcome(INFRASTRUCTURE, sentence))


def test_a_driver_that_never_comes_is_given_up() -> None:
    verdict = judge_application(application("SUBMITTED"), None, BEGAN_AT + 600)
    sentence = "not started for 10 min: its SparkApplication is SUBMITTED, and no driver pod of it is there"
    assert verdict == Stop(Outcome(INFRASTRUCTURE, sentence))


def test_what_was_given_up_is_reported_as_such_also_by_the_next_process() -> None:
    verdict = judge_application(application(deleted=600), None, BEGAN_AT + 600 + SUBMISSION_SECONDS)
    assert isinstance(verdict, Outcome)
    assert verdict.message.startswith("not started for 10 min")


def test_a_deleted_application_waits_for_a_submission_that_may_be_under_way() -> None:
    seen = application(deleted=100)
    assert judge_application(seen, None, BEGAN_AT + 99 + SUBMISSION_SECONDS, stopped=CANCELLED) is None
    assert judge_application(seen, None, BEGAN_AT + 100 + SUBMISSION_SECONDS, stopped=CANCELLED) == CANCELLED


def test_a_deleted_application_waits_for_its_driver() -> None:
    seen = application("RUNNING", deleted=100)
    going = driver(RUNNING, metadata=deleted(100))
    assert judge_application(seen, going, BEGAN_AT + 200, stopped=CANCELLED) is None
    ended = driver(terminated(143, 110), metadata=deleted(100))
    verdict = judge_application(seen, ended, BEGAN_AT + 200, stopped=CANCELLED)
    assert isinstance(verdict, Outcome)
    assert verdict.kind is OutcomeClass.CANCELLED


@pytest.mark.parametrize("gone", [True, False])
def test_the_driver_of_a_deleted_application_is_ended_where_nobody_else_does_it(gone: bool) -> None:
    seen = application("RUNNING", deleted=100)
    seen = seen if not gone else ObservedApplication("team", "load-r7", "a7", run=7, gone=True)
    assert judge_application(seen, driver(RUNNING), BEGAN_AT + 100) == Stop(Outcome(INFRASTRUCTURE, SOMEBODY))


def test_an_application_that_is_gone_without_a_driver_was_deleted() -> None:
    seen = ObservedApplication("team", "load-r7", "a7", run=7, gone=True)
    assert judge_application(seen, None, BEGAN_AT) == Outcome(INFRASTRUCTURE, SOMEBODY)


def test_a_run_is_stopped_at_its_deadline() -> None:
    began = int((driver(RUNNING).begun_at or 0) - BEGAN_AT)
    seen = application("RUNNING", deadline=90)
    assert judge_application(seen, driver(RUNNING), BEGAN_AT + began + 89) is None
    verdict = judge_application(seen, driver(RUNNING), BEGAN_AT + began + 90)
    assert verdict == Stop(Outcome(DEADLINE, "stopped at its deadline"))
    ended = driver(terminated(143, began + 91), metadata=deleted(began + 90))
    outcome = judge_application(application("RUNNING", deadline=90, deleted=began + 90), ended, BEGAN_AT + 200)
    assert isinstance(outcome, Outcome)
    assert outcome.kind is DEADLINE  # also by a process that has not stopped it


def test_a_driver_without_a_node_is_given_up_by_its_own_start_deadline() -> None:
    pending = driver(phase="Pending", spec={"nodeName": None})
    verdict = judge_application(application("SUBMITTED"), pending, BEGAN_AT + 600)
    assert isinstance(verdict, Stop)
    assert "no node was chosen" in verdict.outcome.message


def test_what_hinders_is_reported_after_a_while() -> None:
    assert find_application_problem(application(), None, BEGAN_AT + 29) is None
    found = find_application_problem(application(), None, BEGAN_AT + 30)
    assert found is not None
    assert found[0] is Reason.SUBMISSION_PENDING
    assert "does a Spark operator watch this namespace?" in found[1]
    assert find_application_problem(application("COMPLETED"), None, BEGAN_AT + 30) is None


def test_what_hinders_its_driver_is_reported_as_of_every_pod() -> None:
    seen = driver(waiting("ErrImagePull", "no such image"), phase="Pending")
    found = find_application_problem(application("SUBMITTED"), seen, BEGAN_AT + 30)
    assert found == (Reason.IMAGE_PULL, "image pull: no such image (ErrImagePull)")


@pytest.mark.parametrize("spoilt", [{}, {"metadata": 5, "status": []}, {"status": {"applicationState": "FAILED"}}])
def test_any_json_is_read(spoilt: dict[str, Any]) -> None:
    assert parse_application(spoilt).state == ""
