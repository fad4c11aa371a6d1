"""Judges how a run in a SparkApplication ended, or that it has to be ended. Pure, like `core.pod_outcome`.

Its driver's container counts, by the rules of every other run's pod, for as long as that pod is there or its end was
seen. What the Spark operator says of the application counts where it was not:

    COMPLETED, SUCCEEDING                                 as exit code 0, at its terminationTime
    FAILED, FAILING, with an exit code in the message     as that exit code, at its terminationTime
    SUBMISSION_FAILED, FAILED, before any submission      Infrastructure: it never ran
    FAILED, FAILING, after one                            Infrastructure: the driver was lost
    any other, and no driver by the start deadline        it is to be stopped, and is Infrastructure

An outcome is only told when no driver can come any more: an application that the Spark operator may submit again is
deleted first, and one that is deleted before its driver was seen is given the time of a submission that was under way.
"""

import re
from dataclasses import replace

from opendataflow.core.kubernetes.pod_outcome import PATIENCE, judge_pod, one_line, what_hinders
from opendataflow.core.text.explain import duration
from opendataflow.model.records.application import ApplicationSeen
from opendataflow.model.records.pod import Ending, PodSeen, Stop
from opendataflow.model.records.run import Outcome
from opendataflow.names import OutcomeClass, Reason

SUBMISSION_SECONDS = 30.0
"""How long a submission may go on that was under way when the application was deleted."""

_COMPLETED = frozenset({"COMPLETED", "SUCCEEDING"})
_FAILED = frozenset({"FAILED", "FAILING", "SUBMISSION_FAILED"})
_EXIT_CODE = re.compile(r"ExitCode: (-?[0-9]{1,9})(?:, Reason: ([A-Za-z]+))?")
"""In the Spark operator's own words: "driver container failed with ExitCode: 3, Reason: Error"."""
_DELETED = Outcome(OutcomeClass.INFRASTRUCTURE, "its SparkApplication was deleted by somebody")
_DEADLINE = Outcome(OutcomeClass.DEADLINE, "stopped at its deadline")


def judge_application(
    application: ApplicationSeen,
    driver: PodSeen | None,
    now: float,
    *,
    stopped: Outcome | None = None,
    node_gone: bool = False,
) -> Outcome | Stop | None:
    """Return the outcome of the run, or that its application has to be deleted and why, or None while it goes on.

    `driver`: None where no pod of it was ever seen. The rest: as for `judge_pod`.
    """
    told = _told_end(application)
    if told is not None and (driver is None or (driver.gone and driver.ended is None)):
        driver = _vanished(application, driver, told)
    if driver is None:
        return _without_driver(application, now, stopped)
    stopped = stopped or _stopped_before(application, driver)
    verdict = judge_pod(driver, now, stopped=stopped, node_gone=node_gone)
    if verdict is None:
        return _alive(application, driver, now)
    if isinstance(verdict, Outcome) and driver.ended is None and _may_go_on(application):
        return Stop(verdict)
    return verdict


def what_hinders_application(
    application: ApplicationSeen, driver: PodSeen | None, now: float
) -> tuple[Reason, str] | None:
    """Why a run does not run although it should by now; None where nothing is known to be wrong."""
    if driver is not None:
        return what_hinders(driver, now)
    if not _may_go_on(application) or application.created_at is None or now - application.created_at < PATIENCE:
        return None
    return Reason.SUBMISSION_PENDING, _what_is_missing(application)


def _told_end(application: ApplicationSeen) -> Ending | None:
    """How the driver ended, as the Spark operator has seen it."""
    if application.state in _COMPLETED:
        return Ending(0, finished_at=application.terminated_at)
    found = _EXIT_CODE.search(application.message or "") if application.state in _FAILED else None
    return Ending(int(found[1]), reason=found[2], finished_at=application.terminated_at) if found else None


def _vanished(application: ApplicationSeen, driver: PodSeen | None, end: Ending) -> PodSeen:
    """A driver that ended as somebody else has seen it. Both it and its application may have been deleted."""
    deletions = [each.deleted_at for each in (application, driver) if each is not None and each.deleted_at is not None]
    driver = driver or PodSeen(application.namespace, "", "", run=application.run)
    return replace(driver, ended=end, deleted_at=min(deletions, default=None))


def _without_driver(application: ApplicationSeen, now: float, stopped: Outcome | None) -> Outcome | Stop | None:
    if application.gone:
        return stopped or _DELETED
    if application.state in _FAILED:
        return stopped or _failed(application)
    waited = None if application.created_at is None else now - application.created_at
    if application.deleted_at is not None:
        if now < application.deleted_at + SUBMISSION_SECONDS:
            return None
        return stopped or _stopped_before(application, None) or _DELETED
    if waited is None or waited < application.start_deadline:
        return None
    return Stop(_not_started(application, waited))


def _failed(application: ApplicationSeen) -> Outcome:
    if application.submitted:
        sentence = one_line("lost: its driver was not seen, and the Spark operator says", application.message, None)
    else:
        what = "the Spark operator could not submit it"
        sentence = one_line(what, application.message, Reason.SUBMISSION_FAILED)
    return Outcome(OutcomeClass.INFRASTRUCTURE, sentence)


def _alive(application: ApplicationSeen, driver: PodSeen, now: float) -> Stop | None:
    if driver.deleted_at is not None:
        return None
    if application.deleted_at is not None or application.gone:
        return Stop(_DELETED)  # the Spark operator does it too, where there is one
    ends_at = _deadline(application, driver)
    return Stop(_DEADLINE) if ends_at is not None and now >= ends_at else None


def _stopped_before(application: ApplicationSeen, driver: PodSeen | None) -> Outcome | None:
    """What an earlier process has stopped it for, which can't tell any more."""
    deleted, created = application.deleted_at, application.created_at
    if deleted is None:
        return None
    if driver is None:
        waited = None if created is None else deleted - created
        late = waited is not None and waited >= application.start_deadline
        return _not_started(application, waited or 0.0) if late else None
    ends_at = _deadline(application, driver)
    return _DEADLINE if ends_at is not None and deleted >= ends_at else None


def _deadline(application: ApplicationSeen, driver: PodSeen) -> float | None:
    if application.run_deadline is None or driver.begun_at is None:
        return None
    return driver.begun_at + application.run_deadline


def _may_go_on(application: ApplicationSeen) -> bool:
    """Whether the Spark operator may still submit it, perhaps once more."""
    over = application.state in _COMPLETED or application.state in _FAILED
    return not (over or application.gone or application.deleted_at is not None)


def _not_started(application: ApplicationSeen, waited: float) -> Outcome:
    return Outcome(OutcomeClass.INFRASTRUCTURE, f"not started for {duration(waited)}: {_what_is_missing(application)}")


def _what_is_missing(application: ApplicationSeen) -> str:
    if not application.state:
        return "nobody has picked up its SparkApplication: does a Spark operator watch this namespace?"
    return f"its SparkApplication is {application.state}, and no driver pod of it is there"
