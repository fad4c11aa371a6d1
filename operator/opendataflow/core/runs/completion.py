"""From the end of a run to what is committed: the outcome, the verdict on its task, the state of the run, its steps.

Pure. What a run reports counts beside how it ended: an expectation that does not hold fails it, also where its exit
code is 0, and the step that it was in is told where it did not get to say how it ended.
"""

from dataclasses import replace

from opendataflow.core.runs.outcome import judge
from opendataflow.core.runs.retry import Decision, RetryPolicy, decide
from opendataflow.model.records.claim import ClaimedRun, Completion
from opendataflow.model.records.run import Ended, Outcome, Report, StepTold
from opendataflow.names import OutcomeClass, RunState, StepStatus, TaskState

_LONGEST = 1000
"""Letters of a message."""
_TASK_STATE = {
    Decision.DONE: TaskState.DONE,
    Decision.RETRY: TaskState.RETRYING,
    Decision.FAILED: TaskState.FAILED,
}


def completion(run: ClaimedRun, ended: Ended, policy: RetryPolicy) -> Completion:
    """Return what has to be committed for a run that has ended. The time of a retry is a delay: the store's clock
    adds it, so that the machines' clocks need not agree."""
    outcome = _reported(judge(ended), ended.report)
    infrastructure = outcome.kind is OutcomeClass.INFRASTRUCTURE
    burns = outcome.kind not in (OutcomeClass.INFRASTRUCTURE, OutcomeClass.NOT_STARTED)
    verdict = decide(
        outcome,
        attempts=run.attempts + burns,
        infrastructure_attempts=run.infrastructure_attempts + infrastructure,
        policy=policy,
    )
    return Completion(
        run=run.run,
        fence=run.fence,
        verdict=_TASK_STATE[verdict.decision],
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


def _reported(outcome: Outcome, report: Report) -> Outcome:
    """The outcome with what the run's report says of it."""
    if outcome.succeeded and report.unmet:
        unmet = "; ".join(f"{it['name']} ({it['found']})" if it["found"] else it["name"] for it in report.unmet)
        return replace(
            outcome, kind=OutcomeClass.EXPECTATION, message=f"what is expected is not so: {unmet}"[:_LONGEST]
        )
    if outcome.kind is OutcomeClass.APPLICATION and report.unmet:
        return replace(outcome, kind=OutcomeClass.EXPECTATION)
    if not outcome.succeeded and report.unfinished:
        within = next((step.name for step in report.steps if step.status is StepStatus.RUNNING), None)
        return outcome if within is None else replace(outcome, message=f"{outcome.message}, in step {within}")
    return outcome


def _ended_step(step: StepTold, outcome: Outcome) -> StepTold:
    """A step of a run that has ended: none of them runs any more."""
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
    given_back = outcome.kind is OutcomeClass.NOT_STARTED  # it has failed at nothing
    return RunState.LOST if ended.lost is not None or given_back else RunState.FAILED
