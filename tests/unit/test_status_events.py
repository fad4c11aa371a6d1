"""Events come from what a status was and is: once for each change, never for a single chunk."""

from datetime import UTC, datetime
from typing import Any

from opendataflow.core.status.conditions import Fault
from opendataflow.core.status.job_state import ObservedJob, job_status
from opendataflow.core.status.status_events import StatusEvent, scale_events, status_events
from opendataflow.errors import Backpressure, NotCreatable
from tests.unit.test_job_state import BREAKER, facts, found, status_of

NOW = datetime(2026, 11, 28, 11, 0, tzinfo=UTC)


def between(before: ObservedJob | None, after: ObservedJob) -> list[StatusEvent]:
    """What happened between two looks."""
    return status_events({} if before is None else status_of(before), job_status(after, NOW))


def reasons(before: ObservedJob | None, after: ObservedJob) -> list[str]:
    return [happening.reason for happening in between(before, after)]


def failure(run: int, message: str = "exit code 1") -> dict[str, Any]:
    return {"data_id": f"d{run}", "run": run, "message": message, "at": "2026-11-28T09:00:00+00:00"}


def test_nothing_happens_where_nothing_changes() -> None:
    same = facts(found=found({"QUEUED": 1}, breaker=BREAKER, suspended=True, last_failures=[failure(1)]))
    assert reasons(same, same) == []


def test_a_generation_is_accepted_once() -> None:
    assert reasons(None, facts({"QUEUED": 1})) == ["Accepted"]
    assert reasons(facts({"QUEUED": 1}), facts({"QUEUED": 1}, generation=3, accepted=3)) == ["Accepted"]
    assert reasons(facts(accepted=None), facts(accepted=None)) == []


def test_a_job_that_goes_on_after_an_outage_was_not_accepted_anew() -> None:
    assert reasons(facts(unreachable="away"), facts({"QUEUED": 1})) == []


def test_a_fault_is_reported_once_and_again_when_it_is_another_one() -> None:
    taken, wrong = Fault("IdTaken", "load belongs to other/load"), Fault("InvalidSpec", "spec.env: wrong")
    assert between(None, facts(fault=taken)) == [StatusEvent("Warning", "IdTaken", taken.message)]
    assert reasons(facts(fault=taken), facts(fault=taken)) == []
    assert reasons(facts(fault=taken), facts(fault=wrong)) == ["InvalidSpec"]
    assert reasons(facts({"QUEUED": 1}), facts({"QUEUED": 1}, start_error=NotCreatable("image: Required"))) == [
        "NotCreatable"
    ]


def test_the_breaker_opens_and_closes() -> None:
    closed, opened = facts({"QUEUED": 1}), facts(found=found({"QUEUED": 1}, breaker=BREAKER))
    assert reasons(closed, opened) == ["BreakerOpened"]
    assert reasons(opened, closed) == ["BreakerClosed"]


def test_tests_that_fail_are_reported_for_each_version_and_when_they_pass_again() -> None:
    def tested(**known: str) -> ObservedJob:
        return facts(
            found=found({"QUEUED": 1}, tests={"passed": None, "failed": None, "failure": None, "looks": 0, **known})
        )

    new, passing = tested(), tested(passed="c1")
    failing = tested(passed="c1", failed="c2", failure="the tests fail at c2")
    assert reasons(new, passing) == []
    assert between(passing, failing) == [
        StatusEvent("Warning", "TestsFail", "the tests fail at c2; runs go on at commit c1, whose tests pass")
    ]
    assert reasons(failing, failing) == []
    assert reasons(failing, tested(passed="c1", failed="c3", failure="the tests fail at c3")) == ["TestsFail"]
    assert reasons(failing, tested(passed="c4")) == ["TestsPass"]


def test_a_job_is_suspended_and_resumed() -> None:
    active, suspended = facts({"QUEUED": 1}), facts(found=found({"QUEUED": 1}, suspended=True))
    assert reasons(active, suspended) == ["Suspended"]
    assert reasons(suspended, active) == ["Resumed"]


def test_a_job_succeeds_and_is_asked_again() -> None:
    assert reasons(facts({"RUNNING": 1}), facts({"DONE": 1})) == ["Succeeded"]
    assert reasons(facts({"DONE": 1}), facts({"RUNNING": 1})) == []


def test_many_failures_between_two_looks_are_one_event() -> None:
    before = facts(found=found({"QUEUED": 9}, last_failures=[failure(1)]))
    after = facts(found=found({"QUEUED": 9}, last_failures=[failure(4, "no space left"), failure(3), failure(1)]))
    assert between(before, after) == [
        StatusEvent("Warning", "RunsFailing", "d4, run 4: no space left; 2 runs since the last update")
    ]


def test_an_expectation_that_does_not_hold_has_a_reason_of_its_own() -> None:
    unmet = failure(4, "what is expected is not so: keys") | {"reason": "ExpectationFailed"}
    after = facts(found=found({"QUEUED": 9}, last_failures=[unmet, failure(3)]))
    assert between(facts({"QUEUED": 9}), after) == [
        StatusEvent(
            "Warning",
            "ExpectationFailed",
            "d4, run 4: what is expected is not so: keys; 2 runs since the last update",
        )
    ]


def test_what_keeps_pods_from_running_is_reported() -> None:
    quota = facts({"QUEUED": 1}, start_error=Backpressure("exceeded quota: small"))
    pull = facts({"RUNNING": 1}, pods={"ImagePull": (1, "image pull: no such image")})
    assert reasons(facts({"QUEUED": 1}), quota) == ["QuotaExceeded"]
    assert reasons(quota, quota) == []
    assert reasons(quota, pull) == ["ImagePull"]
    assert reasons(pull, facts({"RUNNING": 1})) == []


def test_a_request_that_was_taken_over_is_reported() -> None:
    request = {"id": "fix-1", "answer": {"counts": {"done": 3}, "message": "resubmit: 3 done", "refusal": None}}
    after = facts(found=found({"QUEUED": 1}, resubmit=request))
    assert between(facts({"QUEUED": 1}), after) == [StatusEvent("Normal", "Resubmitted", "fix-1: 3 chunks resubmitted")]
    assert reasons(after, after) == []


def test_a_job_is_scaled_once_its_parallelism_was_known() -> None:
    assert scale_events(None, 3) == []
    assert scale_events(3, 3) == []
    assert scale_events(3, 5) == [StatusEvent("Normal", "Scaled", "parallelism 3 -> 5")]


def test_a_missing_location_is_reported_once_not_at_every_look() -> None:
    def at(state: str, gate: dict[str, str] | None) -> ObservedJob:
        return facts(found=found({state: 1}, preflight=gate))

    missing = {"failure": "there is no table t"}
    assert "LocationMissing" in reasons(at("QUEUED", None), at("QUEUED", missing))
    assert "LocationMissing" not in reasons(at("QUEUED", missing), at("RUNNING", missing))
