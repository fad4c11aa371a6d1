"""Listens to the engine on behalf of everybody who has to know: statuses, figures, logs. It returns at once."""

import logging
from collections.abc import Callable, Mapping

from opendataflow.core.explain import breaker_note
from opendataflow.core.pod_outcome import hindrances
from opendataflow.errors import NotStarted
from opendataflow.model.claim import ClaimedRun, Completed, Completion
from opendataflow.names import Reason

logger = logging.getLogger(__name__)


class Watchman:
    """Implements the engine's Observer. `changed`: is told which job has changed. `hindered`: says why the pods of runs
    don't run although they should."""

    def __init__(
        self, changed: Callable[[str], None], hindered: Callable[[], Mapping[int, tuple[Reason, str]]]
    ) -> None:
        self._changed = changed
        self._hindered = hindered
        self._held_back: dict[str, NotStarted] = {}
        self._jobs: dict[int, str] = {}

    def why_held_back(self, job: str) -> NotStarted | None:
        """Why runs of a job can't be started for now."""
        return self._held_back.get(job)

    def why_pods_wait(self) -> dict[str, dict[str, tuple[int, str]]]:
        """Why pods that are there do not run yet, by job: reason -> (how many, a sentence)."""
        by_job: dict[str, list[tuple[Reason, str]]] = {}
        for run, why in self._hindered().items():
            if run in self._jobs:
                by_job.setdefault(self._jobs[run], []).append(why)
        return {job: hindrances(found) for job, found in by_job.items()}

    def claimed(self, run: ClaimedRun) -> None:
        """A run is about to start."""
        self._jobs[run.run] = run.job
        self._changed(run.job)
        logger.debug("claimed, attempt %d", run.attempt, extra=_of(run))

    def completed(self, completion: Completion, run: ClaimedRun, result: Completed) -> None:
        """A run's outcome is committed."""
        self._jobs.pop(run.run, None)
        self._changed(run.job)
        level = logging.DEBUG if result.work_state == "DONE" else logging.INFO
        logger.log(level, "%s: %s", completion.state, completion.message, extra=_of(run))
        if result.breaker is not None:
            logger.warning("%s", breaker_note(run.job, result.breaker), extra={"job": run.job})

    def held_back(self, job: str, reason: NotStarted | None) -> None:
        """Runs of a job can't be started for now, or can again."""
        if reason is None:
            self._held_back.pop(job, None)
            logger.info("runs start again", extra={"job": job})
        else:
            self._held_back[job] = reason
            logger.warning("runs can't be started: %s", reason, extra={"job": job})
        self._changed(job)

    def unfit(self, job: str) -> None:
        """A job was applied anew; the reconciler brings the new version in a moment."""

    def note(self, text: str) -> None:
        """Something else that a person should know."""
        logger.warning("%s", text)


def _of(run: ClaimedRun) -> dict[str, object]:
    return {"job": run.job, "data_id": run.data_id, "run": run.run, "fence": run.fence}
