"""Classify the end of a run in a SparkApplication, or decide that it has to be stopped. Pure.

If the driver's pod exists, or its end was observed, the rules of `core.kubernetes.pod_outcome` apply to its container.
Otherwise the state of the application counts:

    COMPLETED, SUCCEEDING                                 as exit code 0, at its terminationTime
    FAILED, FAILING, with an exit code in the message     as that exit code, at its terminationTime
    SUBMISSION_FAILED, FAILED, before any submission      Infrastructure: it never ran
    FAILED, FAILING, after a submission                   Infrastructure: the driver was lost
    any other, and no driver by the start deadline        stop it; the outcome is Infrastructure

An outcome is final: it is returned only if no driver can start any more. An application that the Spark operator may
submit again is deleted first. After a deletion without an observed driver, the time of one submission must pass.
"""

import re
from dataclasses import replace

from opendataflow.core.kubernetes.pod_outcome import REPORT_PENDING_AFTER, find_pod_problem, judge_pod, one_line
from opendataflow.core.text.explain import duration
from opendataflow.model.records.application import ObservedApplication
from opendataflow.model.records.pod import ObservedPod, Stop, Termination
from opendataflow.model.records.run import Outcome
from opendataflow.names import OutcomeClass, Reason

SUBMISSION_SECONDS = 30.0
"""The longest time that a submission continues after its application was deleted."""

_COMPLETED = frozenset({"COMPLETED", "SUCCEEDING"})
_FAILED = frozenset({"FAILED", "FAILING", "SUBMISSION_FAILED"})
_EXIT_CODE = re.compile(r"ExitCode: (-?[0-9]{1,9})(?:, Reason: ([A-Za-z]+))?")
"""Matches messages of the Spark operator: "driver container failed with ExitCode: 3, Reason: Error"."""
_DELETED = Outcome(OutcomeClass.INFRASTRUCTURE, "its SparkApplication was deleted by somebody")
_DEADLINE = Outcome(OutcomeClass.DEADLINE, "stopped at its deadline")


def judge_application(
    application: ObservedApplication,
    driver: ObservedPod | None,
    now: float,
    *,
    stopped: Outcome | None = None,
    node_gone: bool = False,
) -> Outcome | Stop | None:
    """Return the outcome of the run, a `Stop` if its application has to be deleted, or None while it continues.

    `driver`: None if no pod of it was ever observed. The other arguments: as for `judge_pod`.
    """
    reported = _reported_end(application)
    if reported is not None and (driver is None or (driver.gone and driver.ended is None)):
        driver = _driver_with_end(application, driver, reported)
    if driver is None:
        return _judge_without_driver(application, now, stopped)
    stopped = stopped or _outcome_of_earlier_stop(application, driver)
    verdict = judge_pod(driver, now, stopped=stopped, node_gone=node_gone)
    if verdict is None:
        return _stop_if_needed(application, driver, now)
    if isinstance(verdict, Outcome) and driver.ended is None and _may_be_submitted(application):
        return Stop(verdict)
    return verdict


def find_application_problem(
    application: ObservedApplication, driver: ObservedPod | None, now: float
) -> tuple[Reason, str] | None:
    """Return why a run has not started although it should have; None if no problem is known."""
    if driver is not None:
        return find_pod_problem(driver, now)
    if not _may_be_submitted(application) or application.created_at is None:
        return None
    if now - application.created_at < REPORT_PENDING_AFTER:
        return None
    return Reason.SUBMISSION_PENDING, _missing_driver_message(application)


def _reported_end(application: ObservedApplication) -> Termination | None:
    """Return the end of the driver as the Spark operator reports it."""
    if application.state in _COMPLETED:
        return Termination(0, finished_at=application.terminated_at)
    found = _EXIT_CODE.search(application.message or "") if application.state in _FAILED else None
    return Termination(int(found[1]), reason=found[2], finished_at=application.terminated_at) if found else None


def _driver_with_end(application: ObservedApplication, driver: ObservedPod | None, end: Termination) -> ObservedPod:
    """Return a driver with an end that only the Spark operator has observed. Driver and application may be deleted."""
    deletions = [each.deleted_at for each in (application, driver) if each is not None and each.deleted_at is not None]
    driver = driver or ObservedPod(application.namespace, "", "", run=application.run)
    return replace(driver, ended=end, deleted_at=min(deletions, default=None))


def _judge_without_driver(
    application: ObservedApplication, now: float, stopped: Outcome | None
) -> Outcome | Stop | None:
    if application.gone:
        return stopped or _DELETED
    if application.state in _FAILED:
        return stopped or _failed_outcome(application)
    waited = None if application.created_at is None else now - application.created_at
    if application.deleted_at is not None:
        if now < application.deleted_at + SUBMISSION_SECONDS:
            return None
        return stopped or _outcome_of_earlier_stop(application, None) or _DELETED
    if waited is None or waited < application.start_deadline:
        return None
    return Stop(_not_started(application, waited))


def _failed_outcome(application: ObservedApplication) -> Outcome:
    if application.submitted:
        sentence = one_line(
            "lost: its driver was not observed, and the Spark operator reports", application.message, None
        )
    else:
        sentence = one_line("the Spark operator could not submit it", application.message, Reason.SUBMISSION_FAILED)
    return Outcome(OutcomeClass.INFRASTRUCTURE, sentence)


def _stop_if_needed(application: ObservedApplication, driver: ObservedPod, now: float) -> Stop | None:
    if driver.deleted_at is not None:
        return None
    if application.deleted_at is not None or application.gone:
        return Stop(_DELETED)  # a running Spark operator deletes the driver, too
    ends_at = _deadline_of(application, driver)
    return Stop(_DEADLINE) if ends_at is not None and now >= ends_at else None


def _outcome_of_earlier_stop(application: ObservedApplication, driver: ObservedPod | None) -> Outcome | None:
    """Return the outcome for which an earlier process of the operator stopped the application, if it did."""
    deleted, created = application.deleted_at, application.created_at
    if deleted is None:
        return None
    if driver is None:
        waited = None if created is None else deleted - created
        late = waited is not None and waited >= application.start_deadline
        return _not_started(application, waited or 0.0) if late else None
    ends_at = _deadline_of(application, driver)
    return _DEADLINE if ends_at is not None and deleted >= ends_at else None


def _deadline_of(application: ObservedApplication, driver: ObservedPod) -> float | None:
    if application.run_deadline is None or driver.begun_at is None:
        return None
    return driver.begun_at + application.run_deadline


def _may_be_submitted(application: ObservedApplication) -> bool:
    """Return whether the Spark operator may still submit the application, or submit it again."""
    over = application.state in _COMPLETED or application.state in _FAILED
    return not (over or application.gone or application.deleted_at is not None)


def _not_started(application: ObservedApplication, waited: float) -> Outcome:
    return Outcome(
        OutcomeClass.INFRASTRUCTURE, f"not started for {duration(waited)}: {_missing_driver_message(application)}"
    )


def _missing_driver_message(application: ObservedApplication) -> str:
    if not application.state:
        return "nobody has picked up its SparkApplication: does a Spark operator watch this namespace?"
    return f"its SparkApplication is {application.state}, and no driver pod of it is there"
