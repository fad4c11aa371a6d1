"""Turn the end of a run into the completion to commit: outcome, verdict on the task, state of the run, steps. Pure.

The report of a run counts as well as its end. A failed expectation of severity `fail` fails the run, even with exit
code 0. If the run could not report its end, the message names the step that was running.
"""

from dataclasses import replace

from opendataflow.core.runs.outcome import judge
from opendataflow.core.runs.retry import Decision, RetryPolicy, decide
from opendataflow.model.records.claim import ClaimedRun, Completion
from opendataflow.model.records.run import Ended, Outcome, Report, StepReport
from opendataflow.names import OutcomeClass, RunState, StepStatus, TaskState

_LONGEST = 1000
"""The most characters of a message."""
_TASK_STATES = {
    Decision.DONE: TaskState.DONE,
    Decision.RETRY: TaskState.RETRYING,
    Decision.FAILED: TaskState.FAILED,
}


def completion(run: ClaimedRun, ended: Ended, policy: RetryPolicy) -> Completion:
    """Return the completion of an ended run.

    The time of a retry is a delay in seconds. The store adds it to its own clock, so that clocks of machines need not
    agree.
    """
    outcome = _with_report(judge(ended), ended.report)
    infrastructure = outcome.kind is OutcomeClass.INFRASTRUCTURE
    counts_as_attempt = outcome.kind not in (OutcomeClass.INFRASTRUCTURE, OutcomeClass.NOT_STARTED)
    verdict = decide(
        outcome,
        attempts=run.attempts + counts_as_attempt,
        infrastructure_attempts=run.infrastructure_attempts + infrastructure,
        policy=policy,
    )
    return Completion(
        run=run.run,
        fence=run.fence,
        verdict=_TASK_STATES[verdict.decision],
        state=_run_state(outcome, ended),
        kind=outcome.kind,
        message=outcome.message,
        reason=verdict.reason,
        delay=verdict.delay or 0.0,
        exit_code=ended.exit_code,
        log_tail=ended.log_tail,
        log_path=ended.log_path,
        pod_uid=ended.pod_uid,
        node=ended.node,
        metrics=ended.report.metrics or None,
        steps=tuple(_ended_step(step, outcome) for step in ended.report.steps),
        ended_at=ended.at,
    )


def _with_report(outcome: Outcome, report: Report) -> Outcome:
    """Return the outcome, changed by the expectations and the unfinished step of the run's report."""
    if outcome.succeeded and report.failed_expectations:
        failed = report.failed_expectations
        names = "; ".join(f"{one['name']} ({one['found']})" if one["found"] else one["name"] for one in failed)
        message = f"what is expected is not so: {names}"[:_LONGEST]
        return replace(outcome, kind=OutcomeClass.EXPECTATION, message=message)
    if outcome.kind is OutcomeClass.APPLICATION and report.failed_expectations:
        return replace(outcome, kind=OutcomeClass.EXPECTATION)
    if not outcome.succeeded and report.unfinished:
        within = next((step.name for step in report.steps if step.status is StepStatus.RUNNING), None)
        return outcome if within is None else replace(outcome, message=f"{outcome.message}, in step {within}")
    return outcome


def _ended_step(step: StepReport, outcome: Outcome) -> StepReport:
    """Return a step with its final status, after its run has ended."""
    if step.status is StepStatus.RUNNING:
        status, error = (StepStatus.DONE, None) if outcome.succeeded else (StepStatus.FAILED, outcome.message)
        return replace(step, status=status, error=error)
    if step.status is StepStatus.WAITING:
        return replace(step, status=StepStatus.DONE if outcome.succeeded else StepStatus.SKIPPED)
    return step


def _run_state(outcome: Outcome, ended: Ended) -> RunState:
    if outcome.succeeded:
        return RunState.SUCCEEDED
    if outcome.kind is OutcomeClass.CANCELLED:
        return RunState.CANCELLED
    not_started = outcome.kind is OutcomeClass.NOT_STARTED  # the program itself has not failed
    return RunState.LOST if ended.lost is not None or not_started else RunState.FAILED
