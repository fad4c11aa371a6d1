"""Passes the events of the engine to statuses, metrics and logs. No method blocks."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from opendataflow.control.monitoring.logs import log_fields
from opendataflow.control.monitoring.metrics import Metrics
from opendataflow.core.kubernetes.pod_outcome import count_problems
from opendataflow.core.text.explain import breaker_note
from opendataflow.engine.ports import Step
from opendataflow.errors import NotStarted
from opendataflow.model.records.claim import ClaimedRun, Completed, Completion
from opendataflow.names import Reason

PodProblems = Callable[[], Mapping[int, tuple[Reason, str]]]
"""Returns, by run, why the pods of active runs do not run: a reason and a sentence."""

logger = logging.getLogger(__name__)


class EngineObserver:
    """Implements `engine.ports.Observer`. `changed`: called with a job that has changed."""

    def __init__(
        self,
        metrics: Metrics,
        changed: Callable[[str], None],
        pod_problems: PodProblems,
        heartbeat: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._heartbeat = heartbeat
        self._durations = {"claim": metrics.claimed, "create": metrics.created, "commit": metrics.committed}
        self._metrics = metrics
        self._changed = changed
        self._pod_problems = pod_problems
        self._start_errors: dict[str, NotStarted] = {}
        self._jobs: dict[int, str] = {}

    def start_error(self, job: str) -> NotStarted | None:
        """Return why runs of a job can't be started at the moment; None if they can."""
        return self._start_errors.get(job)

    def pod_problems_by_job(self) -> Mapping[str, Mapping[str, tuple[int, str]]]:
        """Return, by job, why existing pods do not run yet: reason -> (number of pods, a sentence)."""
        by_job: dict[str, list[tuple[Reason, str]]] = defaultdict(list)
        for run, hindrance in self._pod_problems().items():
            if run in self._jobs:
                by_job[self._jobs[run]].append(hindrance)
        return {job: count_problems(found) for job, found in by_job.items()}

    def claimed(self, run: ClaimedRun) -> None:
        """Count an active run."""
        self._jobs[run.run] = run.job
        self._metrics.live_runs(len(self._jobs))
        self._changed(run.job)
        logger.debug("claimed, attempt %d", run.attempt, extra=_run_fields(run))

    def completed(self, completion: Completion, run: ClaimedRun, result: Completed) -> None:
        """Record and log the committed outcome of a run."""
        self._jobs.pop(run.run, None)
        self._metrics.live_runs(len(self._jobs))
        late = None if completion.ended_at is None else time.time() - completion.ended_at
        self._metrics.run_ended(run.job, completion.kind, late)
        self._changed(run.job)
        level = logging.DEBUG if result.task_state == "DONE" else logging.INFO
        logger.log(level, "%s: %s", completion.shown, completion.message, extra=_run_fields(run))
        if result.breaker is not None:
            logger.warning("%s", breaker_note(run.job, result.breaker), extra=log_fields(job=run.job))

    def starts_blocked(self, job: str, reason: NotStarted | None) -> None:
        """Record and log that runs of a job can't be started, or can again (None)."""
        if reason is None:
            self._start_errors.pop(job, None)
            logger.info("runs start again", extra=log_fields(job=job))
        else:
            self._start_errors[job] = reason
            logger.warning("runs can't be started: %s", reason, extra=log_fields(job=job))
        self._changed(job)

    def observe_duration(self, step: Step, seconds: float) -> None:
        """Record the duration of a step."""
        self._durations[step](seconds)

    def heartbeat(self, loop: str) -> None:
        """Record that a loop of the engine is alive."""
        self._heartbeat(loop)

    def outdated(self, job: str) -> None:
        """Do nothing: the reconciler provides the new version of the job in a moment."""

    def note(self, text: str) -> None:
        """Log a message for people."""
        logger.warning("%s", text)


def _run_fields(run: ClaimedRun) -> dict[str, object]:
    return log_fields(run.job, run.data_id, run.run, run.fence)
