"""Derive events from the changes of a resource's status. Pure. No other module makes status events.

A status is written at most every two seconds and contains no single chunks. So there is never one event per chunk.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from opendataflow.core.status.conditions import condition, read_conditions
from opendataflow.model.resources.statuses import Condition, DataFlowJobStatus, Status
from opendataflow.names import ConditionType, OutcomeClass, Reason


@dataclass(frozen=True)
class StatusEvent:
    """One event. `reason`: one word for programs. `message`: a sentence for people."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


_REPORTED_PROBLEMS = frozenset(
    {
        Reason.QUOTA_EXCEEDED,
        Reason.THROTTLED,
        Reason.IMAGE_PULL,
        Reason.UNSCHEDULABLE,
        Reason.NODE_UNREACHABLE,
        Reason.POD_PENDING,
        Reason.SUBMISSION_PENDING,
        Reason.LOCATION_MISSING,
    }
)
"""Reasons of Progressing that may need the attention of a person.

States that a person has requested are not among them. An unreachable API server is not either: it could not accept the
event.
"""


def status_events(before: Mapping[str, Any], after: Status) -> list[StatusEvent]:
    """Return the events between two statuses. `before`: the status written last, as JSON; empty if there was none."""
    was = read_conditions(before)
    found = [*_accepted(before, after), *_stalled(was, after)]
    if isinstance(after, DataFlowJobStatus):
        found += [
            *_turned(was, after),
            *_tested(was, after),
            *_not_progressing(was, after),
            *_failing(before, after),
            *_resubmitted(before, after),
        ]
    return found


def scale_events(before: int | None, after: int) -> list[StatusEvent]:
    """Return the event for a changed parallelism. `before`: None if it was unknown."""
    if before is None or before == after:
        return []
    return [StatusEvent("Normal", Reason.SCALED, f"parallelism {before} -> {after}")]


def _accepted(before: Mapping[str, Any], after: Status) -> Iterator[StatusEvent]:
    ready, was = (
        condition(after.conditions, ConditionType.READY),
        condition(read_conditions(before), ConditionType.READY),
    )
    declared = was is not None and (was.reason == Reason.DECLARING or was.status == "Unknown")
    if _is_true(ready) and (declared or after.observed_generation != before.get("observedGeneration")):
        yield StatusEvent("Normal", Reason.ACCEPTED, f"generation {after.observed_generation} is taken over")


def _stalled(was: list[Condition], after: Status) -> Iterator[StatusEvent]:
    old, new = condition(was, ConditionType.STALLED), condition(after.conditions, ConditionType.STALLED)
    if new is not None and _is_true(new) and not (_is_true(old) and old is not None and old.reason == new.reason):
        yield StatusEvent("Warning", new.reason, new.message)


_TURNS: tuple[tuple[ConditionType, bool, Literal["Normal", "Warning"], Reason, str], ...] = (
    (ConditionType.BREAKER_OPEN, True, "Warning", Reason.BREAKER_OPENED, ""),
    (ConditionType.BREAKER_OPEN, False, "Normal", Reason.BREAKER_CLOSED, "a run has succeeded: the breaker is closed"),
    (ConditionType.SUSPENDED, True, "Normal", Reason.SUSPENDED, ""),
    (ConditionType.SUSPENDED, False, "Normal", Reason.RESUMED, "the job continues"),
    (ConditionType.SUCCEEDED, True, "Normal", Reason.SUCCEEDED, ""),
)
"""A condition, its new value, and the type, reason and message of the event. An empty message stands for the message
of the condition."""


def _turned(was: list[Condition], after: Status) -> Iterator[StatusEvent]:
    for kind, holds, severity, reason, message in _TURNS:
        old, new = condition(was, kind), condition(after.conditions, kind)
        turned = new is not None and new.status == str(holds) and (old is None or old.status != new.status)
        if turned and new is not None and (holds or (old is not None and old.status == "True")):
            yield StatusEvent(severity, reason, message or new.message)


def _tested(was: list[Condition], after: Status) -> Iterator[StatusEvent]:
    """Yield an event if another version of the project fails its tests, or if a version passes after a failure."""
    old, new = condition(was, ConditionType.TESTS_PASSED), condition(after.conditions, ConditionType.TESTS_PASSED)
    failing = old is not None and old.status == "False"
    if new is not None and new.status == "False" and not (failing and old is not None and old.message == new.message):
        yield StatusEvent("Warning", new.reason, new.message)
    if new is not None and _is_true(new) and failing:
        yield StatusEvent("Normal", new.reason, new.message)


def _not_progressing(was: list[Condition], after: Status) -> Iterator[StatusEvent]:
    old, new = condition(was, ConditionType.PROGRESSING), condition(after.conditions, ConditionType.PROGRESSING)
    if new is not None and new.reason in _REPORTED_PROBLEMS and (old is None or old.reason != new.reason):
        yield StatusEvent("Warning", new.reason, new.message)


def _failing(before: Mapping[str, Any], after: DataFlowJobStatus) -> Iterator[StatusEvent]:
    """Yield one event for all runs that have failed since the last status, with the newest of them."""
    reported = before.get("lastFailures")
    failures = reported if isinstance(reported, list) else []
    known = {failure.get("run") for failure in failures if isinstance(failure, Mapping)}
    new = [failure for failure in after.last_failures if failure.run not in known]
    if new:
        last = new[0]
        more = f"; {len(new)} runs since the last update" if len(new) > 1 else ""
        unmet = last.reason == OutcomeClass.EXPECTATION
        reason = Reason.EXPECTATION_FAILED if unmet else Reason.RUNS_FAILING
        yield StatusEvent("Warning", reason, f"{last.data_id}, run {last.run}: {last.message}{more}")


def _resubmitted(before: Mapping[str, Any], after: DataFlowJobStatus) -> Iterator[StatusEvent]:
    reported = before.get("resubmit")
    known = reported.get("id") if isinstance(reported, Mapping) else None
    request = after.resubmit
    if request is not None and request.id != known:
        message = f": {request.message}" if request.message else ""
        sentence = f"{request.id}: {request.chunks} chunks resubmitted{message}"
        yield StatusEvent("Normal", Reason.RESUBMITTED, sentence)


def _is_true(one: Condition | None) -> bool:
    return one is not None and one.status == "True"
