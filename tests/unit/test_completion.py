"""From a run's end to what is committed: the verdict on the task, the state of the run, and what is kept of it."""

import pytest

from opendataflow.core.runs.completion import completion
from opendataflow.core.runs.retry import RetryPolicy
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.run import Ended, Host, Report, StepReport
from opendataflow.names import OutcomeClass, RunState, StepStatus, TaskState
from tests.pods import NONCE

POLICY = RetryPolicy(limit=1, infrastructure_limit=1, initial=10, factor=2, maximum=60)
LOST = Ended(7, lost="its machine was started again")


def claimed(attempts: int = 0, infrastructure_attempts: int = 0) -> ClaimedRun:
    attempt = attempts + infrastructure_attempts + 1
    host = Host("h", "b")
    return ClaimedRun(7, "j", "2013", 42, attempt, attempts, infrastructure_attempts, {}, "lease", host, "/runs", NONCE)


def test_a_success_makes_the_task_done() -> None:
    done = completion(claimed(), Ended(7, exit_code=0), POLICY)
    assert (done.verdict, done.state, done.kind) == (TaskState.DONE, RunState.SUCCEEDED, OutcomeClass.SUCCESS)
    assert done.delay == 0


def test_a_success_after_failures_is_a_success() -> None:
    assert completion(claimed(1, 1), Ended(7, exit_code=0), POLICY).verdict is TaskState.DONE


def test_a_failure_is_tried_again_after_the_first_wait() -> None:
    done = completion(claimed(), Ended(7, exit_code=3), POLICY)
    assert (done.verdict, done.state, done.kind) == (TaskState.RETRYING, RunState.FAILED, OutcomeClass.APPLICATION)
    assert done.delay == 10
    assert done.exit_code == 3


def test_the_last_failure_fails_the_task() -> None:
    done = completion(claimed(attempts=1), Ended(7, exit_code=3), POLICY)
    assert (done.verdict, done.state) == (TaskState.FAILED, RunState.FAILED)
    assert done.delay == 0
    assert done.reason == "no retries left (1 allowed): exit code 3"
    assert done.message == "exit code 3"


def test_a_lost_run_consumes_no_retry_of_the_program() -> None:
    assert completion(claimed(attempts=1), LOST, POLICY).verdict is TaskState.RETRYING


def test_a_failure_consumes_no_retry_of_the_infrastructure() -> None:
    assert completion(claimed(infrastructure_attempts=1), Ended(7, exit_code=1), POLICY).verdict is TaskState.RETRYING


def test_a_lost_run_is_lost_whatever_becomes_of_its_task() -> None:
    again, last = completion(claimed(), LOST, POLICY), completion(claimed(infrastructure_attempts=1), LOST, POLICY)
    assert (again.verdict, last.verdict) == (TaskState.RETRYING, TaskState.FAILED)
    assert (again.state, last.state) == (RunState.LOST, RunState.LOST)
    assert again.kind is OutcomeClass.INFRASTRUCTURE


def test_a_cancelled_run_is_never_tried_again() -> None:
    done = completion(claimed(), Ended(7, signal=15, cancelled=True), POLICY)
    assert (done.verdict, done.state, done.kind) == (TaskState.FAILED, RunState.CANCELLED, OutcomeClass.CANCELLED)


def test_a_run_past_its_deadline_has_a_class_of_its_own() -> None:
    done = completion(claimed(), Ended(7, signal=15, deadline_exceeded=True), POLICY)
    assert (done.verdict, done.state, done.kind) == (TaskState.RETRYING, RunState.FAILED, OutcomeClass.DEADLINE)


@pytest.mark.parametrize("ended", [Ended(7, exit_code=0), Ended(7, exit_code=1), LOST])
def test_what_is_committed_names_the_run_and_its_fence(ended: Ended) -> None:
    done = completion(claimed(), ended, POLICY)
    assert (done.run, done.fence) == (7, 42)


def test_the_log_is_handed_on() -> None:
    done = completion(claimed(), Ended(7, exit_code=0, log_tail="done\n", log_path="/runs/j-r7/output.log"), POLICY)
    assert (done.log_tail, done.log_path) == ("done\n", "/runs/j-r7/output.log")


def steps(*statuses: StepStatus) -> tuple[StepReport, ...]:
    return tuple(StepReport(number, f"s{number}", status) for number, status in enumerate(statuses, 1))


UNMET = {"expectations": [{"name": "keys", "held": False, "severity": "fail", "found": "2 rows"}]}


def test_an_expectation_that_does_not_hold_fails_a_run_that_ended_well() -> None:
    done = completion(claimed(), Ended(7, exit_code=0, report=Report(UNMET)), POLICY)
    assert (done.verdict, done.state, done.kind) == (TaskState.RETRYING, RunState.FAILED, OutcomeClass.EXPECTATION)
    assert done.message == "what is expected is not so: keys (2 rows)"
    warned = {"expectations": [{**UNMET["expectations"][0], "severity": "warn"}]}
    assert completion(claimed(), Ended(7, exit_code=0, report=Report(warned)), POLICY).verdict is TaskState.DONE


def test_a_run_that_failed_for_an_expectation_has_a_class_of_its_own_and_consumes_a_retry() -> None:
    done = completion(claimed(attempts=1), Ended(7, exit_code=1, report=Report(UNMET)), POLICY)
    assert (done.kind, done.verdict, done.message) == (OutcomeClass.EXPECTATION, TaskState.FAILED, "exit code 1")
    lost = completion(claimed(), Ended(7, lost="its node is gone", report=Report(UNMET)), POLICY)
    assert lost.kind is OutcomeClass.INFRASTRUCTURE


def test_a_run_that_was_killed_says_in_which_step_and_none_of_them_runs_any_more() -> None:
    report = Report({}, steps(StepStatus.DONE, StepStatus.RUNNING, StepStatus.WAITING), unfinished=True)
    done = completion(claimed(), Ended(7, signal=9, report=report), POLICY)
    assert done.message == "killed by SIGKILL (out of memory?), in step s2"
    assert [(step.status, step.error) for step in done.steps] == [
        (StepStatus.DONE, None),
        (StepStatus.FAILED, done.message),
        (StepStatus.SKIPPED, None),
    ]
