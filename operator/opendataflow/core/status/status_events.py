"""What has happened to a resource, out of what its status was and is: the one place that makes events of it. Pure.

A status is told at most every two seconds and says nothing of single chunks, so there is never an event for each.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from opendataflow.core.status.conditions import condition, read_conditions
from opendataflow.model.resources.statuses import Condition, DataFlowJobStatus, Status
from opendataflow.names import ConditionType, OutcomeClass, Reason


@dataclass(frozen=True)
class Happening:
    """One event: for people, in a sentence; `reason` in one word for programs."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


_HINDRANCES = frozenset(
    {
        Reason.QUOTA_EXCEEDED,
        Reason.THROTTLED,
        Reason.IMAGE_PULL,
        Reason.UNSCHEDULABLE,
        Reason.NODE_UNREACHABLE,
        Reason.POD_PENDING,
        Reason.SUBMISSION_PENDING,
    }
)
"""Reasons of Progressing that somebody may have to do something about. What a person has asked for is none of them,
and neither is an API server that is away: it could not take the event."""


def happenings(before: Mapping[str, Any], after: Status) -> list[Happening]:
    """Return what has happened. `before`: the status that was told last, as JSON; empty where there was none."""
    was = read_conditions(before)
    found = [*_accepted(before, after), *_stalled(was, after)]
    if isinstance(after, DataFlowJobStatus):
        found += [
            *_turned(was, after),
            *_tested(was, after),
            *_hindered(was, after),
            *_failing(before, after),
            *_resubmitted(before, after),
        ]
    return found


def scaled(before: int | None, after: int) -> list[Happening]:
    """The parallelism of a job has changed; `before`: None where it was not known."""
    if before is None or before == after:
        return []
    return [Happening("Normal", Reason.SCALED, f"parallelism {before} -> {after}")]


def _accepted(before: Mapping[str, Any], after: Status) -> Iterator[Happening]:
    ready = condition(after.conditions, ConditionType.READY)
    if _is(ready) and after.observed_generation != before.get("observedGeneration"):
        yield Happening("Normal", Reason.ACCEPTED, f"generation {after.observed_generation} is taken over")


def _stalled(was: list[Condition], after: Status) -> Iterator[Happening]:
    old, new = condition(was, ConditionType.STALLED), condition(after.conditions, ConditionType.STALLED)
    if new is not None and _is(new) and not (_is(old) and old is not None and old.reason == new.reason):
        yield Happening("Warning", new.reason, new.message)


_TURNS: tuple[tuple[ConditionType, bool, Literal["Normal", "Warning"], Reason, str], ...] = (
    (ConditionType.BREAKER_OPEN, True, "Warning", Reason.BREAKER_OPENED, ""),
    (ConditionType.BREAKER_OPEN, False, "Normal", Reason.BREAKER_CLOSED, "a run has succeeded: the breaker is closed"),
    (ConditionType.SUSPENDED, True, "Normal", Reason.SUSPENDED, ""),
    (ConditionType.SUSPENDED, False, "Normal", Reason.RESUMED, "the job goes on"),
    (ConditionType.SUCCEEDED, True, "Normal", Reason.SUCCEEDED, ""),
)
"""A condition, what it has become, and the event: its message, or the condition's own where that is empty."""


def _turned(was: list[Condition], after: Status) -> Iterator[Happening]:
    for kind, so, weight, reason, message in _TURNS:
        old, new = condition(was, kind), condition(after.conditions, kind)
        turned = new is not None and new.status == str(so) and (old is None or old.status != new.status)
        if turned and new is not None and (so or (old is not None and old.status == "True")):
            yield Happening(weight, reason, message or new.message)


def _tested(was: list[Condition], after: Status) -> Iterator[Happening]:
    """Another version of the project fails its tests, or one passes them after that."""
    old, new = condition(was, ConditionType.TESTS_PASSED), condition(after.conditions, ConditionType.TESTS_PASSED)
    failing = old is not None and old.status == "False"
    if new is not None and new.status == "False" and not (failing and old is not None and old.message == new.message):
        yield Happening("Warning", new.reason, new.message)
    if new is not None and _is(new) and failing:
        yield Happening("Normal", new.reason, new.message)


def _hindered(was: list[Condition], after: Status) -> Iterator[Happening]:
    old, new = condition(was, ConditionType.PROGRESSING), condition(after.conditions, ConditionType.PROGRESSING)
    if new is not None and new.reason in _HINDRANCES and (old is None or old.reason != new.reason):
        yield Happening("Warning", new.reason, new.message)


def _failing(before: Mapping[str, Any], after: DataFlowJobStatus) -> Iterator[Happening]:
    """Runs have failed since: told once at a look, with the newest of them."""
    told = before.get("lastFailures")
    known = (
        {failure.get("run") for failure in told if isinstance(failure, Mapping)} if isinstance(told, list) else set()
    )
    new = [failure for failure in after.last_failures if failure.run not in known]
    if new:
        last = new[0]
        more = f"; {len(new)} runs since the last look" if len(new) > 1 else ""
        unmet = last.reason == OutcomeClass.EXPECTATION
        reason = Reason.EXPECTATION_FAILED if unmet else Reason.RUNS_FAILING
        yield Happening("Warning", reason, f"{last.data_id}, run {last.run}: {last.message}{more}")


def _resubmitted(before: Mapping[str, Any], after: DataFlowJobStatus) -> Iterator[Happening]:
    told = before.get("resubmit")
    known = told.get("id") if isinstance(told, Mapping) else None
    request = after.resubmit
    if request is not None and request.id != known:
        message = f": {request.message}" if request.message else ""
        yield Happening("Normal", Reason.RESUBMITTED, f"{request.id}: {request.chunks} chunks asked for again{message}")


def _is(one: Condition | None) -> bool:
    return one is not None and one.status == "True"
