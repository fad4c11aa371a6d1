"""From what is known of a job to the status of its DataFlowJob. Pure: whoever knows it hands it in.

What Postgres can't say while it is away stays as it was told last, and DatabaseReachable says so. A text here never
tells how long something takes from now on: it would change, and be written, at every look.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from opendataflow import names
from opendataflow.core.status.conditions import Fault, Said, conditions, fitting
from opendataflow.core.text.explain import (
    breaker_opened,
    counted,
    failed_sentence,
    no_parallelism_sentence,
    shell_command,
    suspended_sentence,
    waiting_sentence,
)
from opendataflow.core.text.project_tests import stopped_by_tests, tests_sentence
from opendataflow.errors import Backpressure, CreateUncertain, NamespaceGone, NoRights, NotCreatable, NotStarted
from opendataflow.model.resources.statuses import DataFlowJobStatus, Failure, Resubmitted, TaskCounts
from opendataflow.names import ConditionType, JobState, OutcomeClass, Reason, TaskState

NAME_BYTES = 253
FAILURE_BYTES = 400
"""Of the message of one of the last failures, as it is stored."""

_STALLING = (Reason.NOT_CREATABLE, Reason.NAMESPACE_TERMINATING, Reason.RIGHTS_MISSING)
"""Why runs can't be started that no waiting helps against."""

_PASSING = (Reason.DATA_SET_MISSING,)
"""Faults that go away by themselves when another resource comes: what is applied together is not to look broken."""


@dataclass(frozen=True)
class JobFacts:
    """What is known of a job.

    `generation`: of the resource; `accepted`: the one that the store has taken over. `found`: what
    opendataflow.job_reports() says of it; None where that is not known now, because Postgres is `away` (a sentence) or
    has no such job. `held_back`: why its runs can't be started. `pods`: why pods that are there do not run yet: reason
    -> (how many, a sentence). `before`: the status that the cluster shows, as JSON.
    """

    job: str
    generation: int
    accepted: int | None = None
    fault: Fault | None = None
    found: Mapping[str, Any] | None = None
    away: str | None = None
    held_back: NotStarted | None = None
    pods: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)

    @property
    def taken_over(self) -> bool:
        """Whether the store has what the resource says now."""
        return self.accepted == self.generation and self.fault is None

    @property
    def observed(self) -> int | None:
        """The generation that was looked at to its end."""
        return observed(self.generation, self.accepted, self.fault, self.before)

    def tasks(self, *states: TaskState) -> int:
        """How many tasks are in these states."""
        counts = (self.found or {}).get("counts", {})
        return sum(counts.get(state, 0) for state in states)


def job_status(facts: JobFacts, now: datetime) -> DataFlowJobStatus:
    """Return the status; less than 32 KiB whatever the facts."""
    said: dict[ConditionType, Said | None] = {
        ConditionType.READY: _ready(facts),
        ConditionType.PROGRESSING: _progressing(facts),
        ConditionType.STALLED: _stalled(facts),
        ConditionType.SUSPENDED: _suspended(facts),
        ConditionType.SUCCEEDED: _succeeded(facts),
        ConditionType.DATABASE_REACHABLE: database(facts.away, known=facts.found is not None),
        ConditionType.BREAKER_OPEN: _breaker(facts),
    }
    if facts.found is None or facts.found["tests"] is not None:
        said[ConditionType.TESTS_PASSED] = _tested(facts)
    told = conditions(said, facts.before, facts.observed, now)
    figures = _figures(facts)
    return DataFlowJobStatus(
        observed_generation=facts.observed,
        conditions=told,
        state=_state(facts),
        selector=f"{names.LABEL_JOB}={names.label_value(facts.job)}",
        **figures,
    )


def observed(generation: int, accepted: int | None, fault: Fault | None, before: Mapping[str, Any]) -> int | None:
    """The generation of a resource that was looked at to its end; what was told of it while it is not known anew."""
    if fault is not None:
        return generation
    told = before.get("observedGeneration")
    return accepted if accepted is not None else told if isinstance(told, int) else None


def held_back_reason(error: NotStarted) -> Reason:
    """Why runs can't be started, in one word."""
    match error:
        case Backpressure() if "exceeded quota" in str(error):  # the API has no field for it
            return Reason.QUOTA_EXCEEDED
        case Backpressure():
            return Reason.THROTTLED
        case NoRights():
            return Reason.RIGHTS_MISSING
        case NotCreatable():
            return Reason.NOT_CREATABLE
        case NamespaceGone():
            return Reason.NAMESPACE_TERMINATING
        case CreateUncertain():
            return Reason.API_UNREACHABLE
        case _:
            return Reason.API_UNREACHABLE


def database(away: str | None, *, known: bool = True) -> Said | None:
    """DatabaseReachable. `known`: something was asked of it."""
    if away is not None:
        message = f"{away}; what is told here is how it was before"
        return Said(False, Reason.DATABASE_UNREACHABLE, message)
    return Said(True, Reason.DATABASE_ANSWERS) if known else Said(None, Reason.NOT_TAKEN_OVER)


def ready(fault: Fault | None, away: str | None, *, taken_over: bool) -> Said:
    """Ready: what the resource says now is taken over, and somebody works by it."""
    if fault is not None:
        return Said(False, fault.reason, fault.message)
    if not taken_over:
        return Said(False, Reason.NOT_TAKEN_OVER, "the operator has not taken over what it says now")
    if away is not None:
        return Said(False, Reason.DATABASE_UNREACHABLE, away)
    return Said(True, Reason.TAKEN_OVER)


def stalled(fault: Fault | None) -> Said:
    """Stalled: nothing goes on until a person changes something."""
    if fault is not None and fault.reason not in _PASSING:
        return Said(True, fault.reason, fault.message)
    return Said(False, Reason.NOT_STALLED)


def _ready(facts: JobFacts) -> Said:
    return ready(facts.fault, facts.away, taken_over=facts.taken_over)


def _stalled(facts: JobFacts) -> Said:
    if facts.fault is None and facts.held_back is not None:
        reason = held_back_reason(facts.held_back)
        if reason in _STALLING:
            return Said(True, reason, str(facts.held_back))
    return stalled(facts.fault)


def _unknown(facts: JobFacts) -> Said | None:
    """What a condition says that only Postgres knows, where that does not say anything: what it said before."""
    return None if facts.before.get("conditions") else Said(None, Reason.NOT_TAKEN_OVER)


def _suspended(facts: JobFacts) -> Said | None:
    if facts.found is None:
        return _unknown(facts)
    if facts.found["suspended"]:
        return Said(True, Reason.SUSPENDED, suspended_sentence(facts.job))
    return Said(False, Reason.ACTIVE)


def _breaker(facts: JobFacts) -> Said | None:
    if facts.found is None:
        return _unknown(facts)
    if facts.found["breaker"]:
        return Said(True, Reason.BREAKER_OPENED, breaker_opened(facts.found["breaker"]))
    return Said(False, Reason.BREAKER_CLOSED)


def _tested(facts: JobFacts) -> Said | None:
    """TestsPassed, of a job that wants the unit tests of its project to pass; None: it stays as it was."""
    if facts.found is None:
        return None
    tests = facts.found["tests"]
    message = tests_sentence(tests)
    if tests["failed"] is not None:
        return Said(False, Reason.TESTS_FAIL, message)
    return Said(True, Reason.TESTS_PASS, message) if tests["passed"] else Said(None, Reason.NOT_TESTED, message)


def _succeeded(facts: JobFacts) -> Said | None:
    if facts.found is None:
        return _unknown(facts)
    total, skipped = sum(facts.found["counts"].values()), facts.tasks(TaskState.SKIPPED)
    done = facts.tasks(TaskState.DONE)
    if total and done + skipped == total:
        beside = f", {skipped} skipped" if skipped else ""
        return Said(True, Reason.DONE, f"{counted(done, 'chunk')} done{beside}")
    if facts.tasks(TaskState.RUNNING, TaskState.QUEUED, TaskState.RETRYING):
        return Said(False, Reason.RUNNING, f"{done} of {counted(total, 'chunk')} done")
    return _standing(facts)


def _standing(facts: JobFacts) -> Said:
    """Why a job is not done of which nothing can run."""
    assert facts.found is not None
    sample = facts.found["sample"]
    if (failed := facts.tasks(TaskState.FAILED)) > 0:
        groups = facts.found["failed"]
        causes = "; ".join(failed_sentence(group, sample, failed) for group in groups[:3])
        examples = groups[0]["examples"] if groups else []
        mended = f"; when the cause is mended: {shell_command('resubmit', facts.job, *examples)}"
        unmet = groups and all(group.get("class") == OutcomeClass.EXPECTATION for group in groups)
        reason = Reason.EXPECTATION_FAILED if unmet else Reason.CHUNKS_FAILED
        return Said(False, reason, f"{counted(failed, 'chunk')} failed: {causes}{mended}")
    if (waiting := facts.tasks(TaskState.WAITING)) > 0:
        groups = facts.found["waiting"]
        causes = "; ".join(waiting_sentence(group, sample, waiting) for group in groups[:3])
        see = f"; see: {shell_command('why', facts.job, groups[0]['examples'][0])}" if groups else ""
        return Said(False, Reason.WAITING, f"{counted(waiting, 'chunk')} waiting: {causes}{see}")
    if (held := facts.tasks(TaskState.HELD)) > 0:
        return Said(False, Reason.CHUNKS_HELD, f"{counted(held, 'chunk')} held by a person")
    return Said(False, Reason.NO_CHUNKS, "no chunk of its inputs or outputs is known yet")


def _progressing(facts: JobFacts) -> Said:
    if facts.fault is not None:
        return Said(False, facts.fault.reason, facts.fault.message)
    if facts.away is not None:
        return Said(None, Reason.DATABASE_UNREACHABLE, facts.away)
    if facts.found is None:
        return Said(None, Reason.NOT_TAKEN_OVER, "the operator has not taken over what it says now")
    running = facts.tasks(TaskState.RUNNING)
    hindrance = _hindrance(facts)
    if hindrance is not None:
        reason, message = hindrance
        runs = f"; {counted(running, 'run')} under way" if running else ""
        return Said(running > 0, reason, f"{message}{runs}")
    if running:
        return Said(True, Reason.RUNNING, f"{counted(running, 'run')} of at most {facts.found['parallelism']}")
    if waiting := facts.tasks(TaskState.QUEUED):
        return Said(True, Reason.QUEUED, f"{counted(waiting, 'chunk')} may start")
    if retry := facts.tasks(TaskState.RETRYING):
        return Said(True, Reason.RETRYING, f"{counted(retry, 'chunk')} failed and will be tried again after a pause")
    done = _succeeded(facts)
    assert done is not None
    return Said(False, done.reason, done.message)


def _hindrance(facts: JobFacts) -> tuple[str, str] | None:
    """What keeps runs from being started that could be otherwise; None where nothing does."""
    assert facts.found is not None
    open_tasks = facts.tasks(*(state for state in TaskState if state not in (TaskState.DONE, TaskState.SKIPPED)))
    if facts.found["deleted"]:
        return Reason.DELETED, f"job {facts.job} is deleted"
    if not open_tasks:
        return None
    if facts.found["suspended"]:
        draining = facts.tasks(TaskState.RUNNING) > 0
        return (Reason.DRAINING if draining else Reason.SUSPENDED), suspended_sentence(facts.job)
    if facts.found["breaker"]:
        return Reason.BREAKER_OPEN, breaker_opened(facts.found["breaker"])
    if stopped_by_tests(facts.found["tests"]):
        return Reason.TESTS_FAIL, tests_sentence(facts.found["tests"])
    if facts.held_back is not None:
        return held_back_reason(facts.held_back), str(facts.held_back)
    if facts.pods:
        reason, (pods, sentence) = max(facts.pods.items(), key=lambda item: (item[1][0], item[0]))
        return reason, f"{counted(pods, 'pod')} can't run: {sentence}"
    if facts.found["parallelism"] == 0:
        return Reason.NO_PARALLELISM, no_parallelism_sentence(facts.job)
    return None


def _state(facts: JobFacts) -> str | None:
    """As opendataflow.list_jobs() has it, where Postgres knows."""
    stalls = _stalled(facts)
    if stalls.so:
        return JobState.STALLED
    if facts.found is None:
        before = facts.before.get("state")
        return before if isinstance(before, str) and before != JobState.STALLED else JobState.PENDING
    total = sum(facts.found["counts"].values())
    states = (
        (facts.found["deleted"], JobState.DELETED),
        (facts.found["suspended"], JobState.SUSPENDED),
        (facts.found["breaker"], JobState.BREAKER_OPEN),
        (facts.tasks(TaskState.RUNNING), JobState.RUNNING),
        (facts.tasks(TaskState.FAILED), JobState.FAILED),
        (total and facts.tasks(TaskState.DONE, TaskState.SKIPPED) == total, JobState.DONE),
        (facts.tasks(TaskState.QUEUED), JobState.QUEUED),
    )
    return next((state for so, state in states if so), JobState.WAITING)


_FIGURES = ("counts", "progress", "rate", "eta", "watermark", "last_failures", "resubmit", "replicas")


def _figures(facts: JobFacts) -> dict[str, Any]:
    """The fields of a status that only Postgres knows; those of before where it says nothing."""
    found = facts.found
    if found is None:
        return kept(DataFlowJobStatus, facts.before, _FIGURES)
    by_state = {state.value.lower(): facts.tasks(state) for state in TaskState}
    total, done, running = sum(by_state.values()), by_state["done"], by_state["running"]
    moving = facts.tasks(TaskState.QUEUED, TaskState.RUNNING, TaskState.RETRYING) > 0
    rate = found["per_minute"] * 60 if found["per_minute"] else None
    return {
        "counts": TaskCounts(total=total, stale=found.get("stale", 0), **by_state),
        "progress": f"{done}/{total}",
        "rate": None if rate is None else float(f"{rate:.3g}"),
        "eta": short_duration(found["eta_seconds"]) if moving and found["eta_seconds"] else None,
        "watermark": _name(found["watermark"]),
        "last_failures": tuple(_failure(failure) for failure in found.get("last_failures", ())),
        "resubmit": _resubmitted(found.get("resubmit")),
        "replicas": running,
    }


def kept(model: type[BaseModel], before: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """Some fields of a status as the cluster shows it; nothing where it can't be read."""
    try:
        known = model.model_validate(dict(before))
    except ValidationError:
        return {}
    return {name: getattr(known, name) for name in fields}


def short_duration(seconds: float) -> str:
    """How long something takes, in two parts at most: 45s, 12m, 3h20m, 4d6h. Rounded up: never 0s."""
    if seconds < 60:
        return f"{max(1, round(seconds))}s"
    minutes = -(-int(seconds) // 60)
    if minutes < 60:
        return f"{minutes}m"
    if minutes < 48 * 60:
        hours, minutes = divmod(minutes, 60)
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    days, hours = divmod(-(-minutes // 60), 24)
    return f"{days}d{hours}h" if hours else f"{days}d"


def _failure(failure: Mapping[str, Any]) -> Failure:
    return Failure(
        data_id=fitting(failure["data_id"], NAME_BYTES),
        run=failure["run"],
        reason=failure.get("reason") or "",
        message=fitting(failure["message"], FAILURE_BYTES),
        at=datetime.fromisoformat(failure["at"]).replace(microsecond=0),
    )


def _resubmitted(request: Mapping[str, Any] | None) -> Resubmitted | None:
    if request is None:
        return None
    answer = request["answer"]
    message = answer["message"] if answer.get("refusal") else ""
    # The id is whole: a new request waits until it is told.
    return Resubmitted(id=request["id"], chunks=answer["counts"]["done"], message=fitting(message, FAILURE_BYTES))


def _name(name: str | None) -> str | None:
    return None if name is None else fitting(name, NAME_BYTES)
