"""Listens to the engine on behalf of everybody who has to know: statuses, figures, logs. It returns at once."""

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from opendataflow.control.monitoring.logs import about
from opendataflow.control.monitoring.metrics import Figures
from opendataflow.core.kubernetes.pod_outcome import hindrances
from opendataflow.core.text.explain import breaker_note
from opendataflow.engine.ports import Step
from opendataflow.errors import NotStarted
from opendataflow.model.records.claim import ClaimedRun, Completed, Completion
from opendataflow.names import Reason

Hindered = Callable[[], Mapping[int, tuple[Reason, str]]]
"""What hinders living runs in the cluster, by run."""

logger = logging.getLogger(__name__)


class Watchman:
    """Implements the engine's Observer. `changed`: is told which job has changed; `turned`: which loop goes on."""

    def __init__(
        self,
        figures: Figures,
        changed: Callable[[str], None],
        hindered: Hindered,
        turned: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._turned = turned
        self._took = {"claim": figures.claimed, "create": figures.created, "commit": figures.committed}
        self._figures = figures
        self._changed = changed
        self._hindered = hindered
        self._held_back: dict[str, NotStarted] = {}
        self._jobs: dict[int, str] = {}

    def why_held_back(self, job: str) -> NotStarted | None:
        """Why runs of a job can't be started for now."""
        return self._held_back.get(job)

    def why_pods_wait(self) -> Mapping[str, Mapping[str, tuple[int, str]]]:
        """Why pods that are there do not run yet, by job: reason -> (how many, a sentence)."""
        by_job: dict[str, list[tuple[Reason, str]]] = defaultdict(list)
        for run, hindrance in self._hindered().items():
            if run in self._jobs:
                by_job[self._jobs[run]].append(hindrance)
        return {job: hindrances(found) for job, found in by_job.items()}

    def claimed(self, run: ClaimedRun) -> None:
        """A run is about to start."""
        self._jobs[run.run] = run.job
        self._figures.live_runs(len(self._jobs))
        self._changed(run.job)
        logger.debug("claimed, attempt %d", run.attempt, extra=_about(run))

    def completed(self, completion: Completion, run: ClaimedRun, result: Completed) -> None:
        """A run's outcome is committed."""
        self._jobs.pop(run.run, None)
        self._figures.live_runs(len(self._jobs))
        late = None if completion.ended_at is None else time.time() - completion.ended_at
        self._figures.run_ended(run.job, completion.kind, late)
        self._changed(run.job)
        level = logging.DEBUG if result.task_state == "DONE" else logging.INFO
        logger.log(level, "%s: %s", completion.shown, completion.message, extra=_about(run))
        if result.breaker is not None:
            logger.warning("%s", breaker_note(run.job, result.breaker), extra=about(job=run.job))

    def held_back(self, job: str, reason: NotStarted | None) -> None:
        """Runs of a job can't be started for now, or can again."""
        if reason is None:
            self._held_back.pop(job, None)
            logger.info("runs start again", extra=about(job=job))
        else:
            self._held_back[job] = reason
            logger.warning("runs can't be started: %s", reason, extra=about(job=job))
        self._changed(job)

    def took(self, step: Step, seconds: float) -> None:
        """A step of a run's life took so long."""
        self._took[step](seconds)

    def turned(self, loop: str) -> None:
        """A loop of the engine goes on."""
        self._turned(loop)

    def unfit(self, job: str) -> None:
        """A job was applied anew; the reconciler brings the new version in a moment."""

    def note(self, text: str) -> None:
        """Something else that a person should know."""
        logger.warning("%s", text)


def _about(run: ClaimedRun) -> dict[str, object]:
    return about(run.job, run.data_id, run.run, run.fence)
