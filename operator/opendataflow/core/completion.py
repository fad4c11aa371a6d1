"""From the end of a run to what is committed: the outcome, the verdict on its work, the state of the run. Pure."""

from opendataflow.core.outcome import judge
from opendataflow.core.retry import Decision, RetryPolicy, decide
from opendataflow.model.claim import ClaimedRun, Completion
from opendataflow.model.run import Ended, Outcome
from opendataflow.names import OutcomeClass, RunState, WorkState

_WORK_STATE = {
    Decision.DONE: WorkState.DONE,
    Decision.RETRY: WorkState.RETRY,
    Decision.FAILED: WorkState.FAILED,
}


def completion(run: ClaimedRun, ended: Ended, policy: RetryPolicy) -> Completion:
    """Return what has to be committed for a run that has ended. The time of a retry is a delay: the store's clock
    adds it, so that the machines' clocks need not agree."""
    outcome = judge(ended)
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
        verdict=_WORK_STATE[verdict.decision],
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
        ended_at=ended.at,
    )


def _run_state(outcome: Outcome, ended: Ended) -> RunState:
    if outcome.succeeded:
        return RunState.SUCCEEDED
    if outcome.kind is OutcomeClass.CANCELLED:
        return RunState.CANCELLED
    given_back = outcome.kind is OutcomeClass.NOT_STARTED  # it has failed at nothing
    return RunState.LOST if ended.lost is not None or given_back else RunState.FAILED
