"""Compute the status of a DataFlowJob. Pure.

While Postgres is unreachable, its values in the status do not change, and DatabaseReachable is False. No text contains
a remaining time: it would change, and so be written, at every update.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from opendataflow import names
from opendataflow.core.kubernetes.passwords import describe_location, location_hash
from opendataflow.core.status.conditions import ConditionValue, Fault, conditions, truncated
from opendataflow.core.text.explain import (
    breaker_opened,
    counted,
    declaring_sentence,
    done_sentence,
    failed_sentence,
    missing_output_sentence,
    no_parallelism_sentence,
    resubmit_failed_command,
    shell_command,
    stale_sentence,
    suspended_sentence,
    waiting_sentence,
)
from opendataflow.core.text.locations import gate_sentence, missing_sentence
from opendataflow.core.text.plan import plan_lines
from opendataflow.core.text.project_tests import stopped_by_tests, tests_sentence
from opendataflow.errors import Backpressure, CreateUncertain, NamespaceGone, NoRights, NotCreatable, NotStarted
from opendataflow.keys import seen_from, sentence_seen_from
from opendataflow.model.records.plan import Plan
from opendataflow.model.resources.statuses import (
    LONGEST_SPEC,
    MOST_LINES,
    DataFlowJobStatus,
    Failure,
    PlanStatus,
    Resubmitted,
    SharedInput,
    TaskCounts,
)
from opendataflow.names import COUNTED_TASKS, ConditionType, JobState, OutcomeClass, Reason, TaskState

NAME_BYTES = 253
LOCATION_BYTES = 200
PLAN_LINE_BYTES = 200
"""The most bytes of a line of a plan, as JSON."""
FAILURE_BYTES = 400
"""The most bytes of the message of one of the last failures, as JSON."""

_STALLING = (Reason.NOT_CREATABLE, Reason.NAMESPACE_TERMINATING, Reason.RIGHTS_MISSING)
"""Reasons why runs can't be started that only a person can resolve."""

_TEMPORARY = (Reason.DATA_SET_MISSING,)
"""Faults that end when another resource is created. Resources that are applied together must not become Stalled."""


@dataclass(frozen=True)
class ObservedJob:
    """The known facts of a job.

    `generation`: of the resource. `accepted`: the generation that the store has taken over. `found`: the row of
    opendataflow.job_reports(); None if Postgres is unreachable or has no such job. `unreachable`: a sentence if
    Postgres is unreachable. `start_error`: why runs can't be started. `pods`: problems of existing pods, reason ->
    (number of pods, sentence). `before`: the status in the cluster, as JSON. `plan`: the plan that was refused.
    `accepted_spec`: the spec in force, as JSON; None if unknown.
    """

    job: str
    generation: int
    accepted: int | None = None
    fault: Fault | None = None
    found: Mapping[str, Any] | None = None
    unreachable: str | None = None
    start_error: NotStarted | None = None
    pods: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)
    plan: Plan | None = None
    accepted_spec: str | None = None

    @property
    def taken_over(self) -> bool:
        """Whether the store has taken over the present generation."""
        return self.accepted == self.generation and self.fault is None

    @property
    def observed_generation(self) -> int | None:
        """The value of status.observedGeneration."""
        return observed_generation(self.generation, self.accepted, self.fault, self.before)

    def tasks(self, *states: TaskState) -> int:
        """Return the number of tasks in these states."""
        counts = (self.found or {}).get("counts", {})
        return sum(counts.get(state, 0) for state in states)

    @property
    def stale(self) -> int:
        """The number of DONE tasks that are stale."""
        return int((self.found or {}).get("stale", 0))


def report_seen_from(namespace: str, report: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row of opendataflow.job_reports() with ids as people of a namespace write them."""
    groups = {
        name: [{**group, "dataset": seen_from(namespace, group["dataset"])} for group in report[name]]
        for name in ("waiting", "incomplete")
    }
    return {**report, **groups, "sharing": sentence_seen_from(namespace, report["sharing"] or "") or None}


def job_status(facts: ObservedJob, now: datetime) -> DataFlowJobStatus:
    """Return the status. It is always smaller than 32 KiB, without the accepted spec."""
    values: dict[ConditionType, ConditionValue | None] = {
        ConditionType.READY: _ready(facts),
        ConditionType.PROGRESSING: _progressing(facts),
        ConditionType.STALLED: _stalled(facts),
        ConditionType.SUSPENDED: _suspended(facts),
        ConditionType.SUCCEEDED: _succeeded(facts),
        ConditionType.DATABASE_REACHABLE: database_condition(facts.unreachable, known=facts.found is not None),
        ConditionType.BREAKER_OPEN: _breaker(facts),
    }
    if facts.found is None or facts.found["tests"] is not None:
        values[ConditionType.TESTS_PASSED] = _tested(facts)
    return DataFlowJobStatus(
        observed_generation=facts.observed_generation,
        conditions=conditions(values, facts.before, facts.observed_generation, now),
        state=_state(facts),
        plan=plan_status(facts.plan),
        selector=f"{names.LABEL_JOB}={names.label_value(facts.job)}",
        accepted_spec=_accepted_spec(facts),
        **_figures(facts),
    )


def _accepted_spec(facts: ObservedJob) -> str | None:
    """Return the spec in force; None if it is too long. While it is unknown, return that of the status before."""
    text = facts.before.get("acceptedSpec") if facts.accepted_spec is None else facts.accepted_spec
    return text if isinstance(text, str) and len(text) <= LONGEST_SPEC else None


def plan_status(plan: Plan | None) -> PlanStatus | None:
    """Return a refused plan for a status, bounded in size."""
    if plan is None:
        return None
    lines = [truncated(line.strip(), PLAN_LINE_BYTES) for line in plan_lines(plan)[1:]]
    shown = (
        lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], f"… and {len(lines) - MOST_LINES + 1} lines"]
    )
    return PlanStatus(hash=plan.hash, needs=tuple(plan.needs), lines=tuple(shown))


def observed_generation(
    generation: int, accepted: int | None, fault: Fault | None, before: Mapping[str, Any]
) -> int | None:
    """Return the last generation that the operator has processed; while unknown, the value of the status before."""
    if fault is not None:
        return generation
    reported = before.get("observedGeneration")
    return accepted if accepted is not None else reported if isinstance(reported, int) else None


def start_error_reason(error: NotStarted) -> Reason:
    """Return the reason, in one word, for which runs can't be started."""
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


def database_condition(unreachable: str | None, *, known: bool = True) -> ConditionValue | None:
    """Return the value of DatabaseReachable. `known`: whether the database has answered a query."""
    if unreachable is not None:
        message = f"{unreachable}; this status shows the values from before"
        return ConditionValue(False, Reason.DATABASE_UNREACHABLE, message)
    return ConditionValue(True, Reason.DATABASE_ANSWERS) if known else ConditionValue(None, Reason.NOT_TAKEN_OVER)


def ready_condition(fault: Fault | None, unreachable: str | None, *, taken_over: bool) -> ConditionValue:
    """Return the value of Ready: the present generation is taken over, and Postgres is reachable."""
    if fault is not None:
        return ConditionValue(False, fault.reason, fault.message)
    if not taken_over:
        return ConditionValue(False, Reason.NOT_TAKEN_OVER, "the operator has not taken over the present spec yet")
    if unreachable is not None:
        return ConditionValue(False, Reason.DATABASE_UNREACHABLE, unreachable)
    return ConditionValue(True, Reason.TAKEN_OVER)


def stalled_condition(fault: Fault | None) -> ConditionValue:
    """Return the value of Stalled: nothing happens until a person changes something."""
    if fault is not None and fault.reason not in _TEMPORARY:
        return ConditionValue(True, fault.reason, fault.message)
    return ConditionValue(False, Reason.NOT_STALLED)


def _ready(facts: ObservedJob) -> ConditionValue:
    return ready_condition(facts.fault, facts.unreachable, taken_over=facts.taken_over)


def _stalled(facts: ObservedJob) -> ConditionValue:
    if facts.fault is None and facts.start_error is not None:
        reason = start_error_reason(facts.start_error)
        if reason in _STALLING:
            return ConditionValue(True, reason, str(facts.start_error))
    if facts.fault is None and facts.found is not None and facts.found.get("sharing"):
        return ConditionValue(True, Reason.NOT_SHARED, facts.found["sharing"])
    return stalled_condition(facts.fault)


def _unknown(facts: ObservedJob) -> ConditionValue | None:
    """Return the value of a condition while Postgres does not provide it: None, to keep it, or unknown at first."""
    return None if facts.before.get("conditions") else ConditionValue(None, Reason.NOT_TAKEN_OVER)


def _suspended(facts: ObservedJob) -> ConditionValue | None:
    if facts.found is None:
        return _unknown(facts)
    if facts.found["suspended"]:
        return ConditionValue(True, Reason.SUSPENDED, suspended_sentence(facts.job))
    return ConditionValue(False, Reason.ACTIVE)


def _breaker(facts: ObservedJob) -> ConditionValue | None:
    if facts.found is None:
        return _unknown(facts)
    if facts.found["breaker"]:
        return ConditionValue(True, Reason.BREAKER_OPENED, breaker_opened(facts.found["breaker"]))
    return ConditionValue(False, Reason.BREAKER_CLOSED)


def _tested(facts: ObservedJob) -> ConditionValue | None:
    """Return the value of TestsPassed for a job that requires the unit tests of its project; None to keep it."""
    if facts.found is None:
        return None
    tests = facts.found["tests"]
    message = tests_sentence(tests)
    if tests["failed"] is not None:
        return ConditionValue(False, Reason.TESTS_FAIL, message)
    if tests["passed"]:
        return ConditionValue(True, Reason.TESTS_PASS, message)
    return ConditionValue(None, Reason.NOT_TESTED, message)


def _succeeded(facts: ObservedJob) -> ConditionValue | None:
    if facts.found is None:
        return _unknown(facts)
    if (found := facts.found.get("declaring")) is not None:
        done, known = facts.tasks(TaskState.DONE), sum(facts.found["counts"].values())
        message = f"{declaring_sentence(found)}; {done} of {counted(known, 'known chunk')} done"
        return ConditionValue(False, Reason.DECLARING, message)
    total, skipped = sum(facts.found["counts"].values()), facts.tasks(TaskState.SKIPPED)
    done = facts.tasks(TaskState.DONE)
    if total and done + skipped == total and facts.found["incomplete"]:
        groups = facts.found["incomplete"]
        sentences = "; ".join(missing_output_sentence(facts.job, group) for group in groups[:3])
        return ConditionValue(False, Reason.OUTPUTS_MISSING, sentences)
    if total and done + skipped == total:
        also = f", {skipped} skipped" if skipped else ""
        if facts.stale:
            sentence = stale_sentence(facts.job, facts.stale, facts.found["stale_examples"])
            return ConditionValue(False, Reason.STALE, f"{done_sentence(done, facts.stale)}{also}: {sentence}")
        return ConditionValue(True, Reason.DONE, f"{done_sentence(done, 0)}{also}")
    if facts.tasks(TaskState.RUNNING, TaskState.QUEUED, TaskState.RETRYING):
        also = f", {facts.stale} stale" if facts.stale else ""
        return ConditionValue(False, Reason.RUNNING, f"{done} of {counted(total, 'chunk')} done{also}")
    return _not_succeeded(facts)


def _not_succeeded(facts: ObservedJob) -> ConditionValue:
    """Return why a job that can't run any task is not done."""
    assert facts.found is not None
    sample = facts.found["sample"]
    if (failed := facts.tasks(TaskState.FAILED)) > 0:
        groups = facts.found["failed"]
        causes = "; ".join(failed_sentence(group, sample, failed) for group in groups[:3])
        remedy = f"; when the cause is fixed: {resubmit_failed_command(facts.job, groups, failed)}"
        unmet = groups and all(group.get("class") == OutcomeClass.EXPECTATION for group in groups)
        reason = Reason.EXPECTATION_FAILED if unmet else Reason.CHUNKS_FAILED
        return ConditionValue(False, reason, f"{counted(failed, 'chunk')} failed: {causes}{remedy}")
    if (waiting := facts.tasks(TaskState.WAITING)) > 0:
        groups = facts.found["waiting"]
        causes = "; ".join(waiting_sentence(group, sample, waiting) for group in groups[:3])
        see = f"; see: {shell_command('why', facts.job, groups[0]['examples'][0])}" if groups else ""
        return ConditionValue(False, Reason.WAITING, f"{counted(waiting, 'chunk')} waiting: {causes}{see}")
    if (held := facts.tasks(TaskState.HELD)) > 0:
        return ConditionValue(False, Reason.CHUNKS_HELD, f"{counted(held, 'chunk')} held by a person")
    return ConditionValue(False, Reason.NO_CHUNKS, "no chunk of its inputs or outputs is known yet")


def _progressing(facts: ObservedJob) -> ConditionValue:
    if facts.fault is not None:
        return ConditionValue(False, facts.fault.reason, facts.fault.message)
    if facts.unreachable is not None:
        return ConditionValue(None, Reason.DATABASE_UNREACHABLE, facts.unreachable)
    if facts.found is None:
        return ConditionValue(None, Reason.NOT_TAKEN_OVER, "the operator has not taken over the present spec yet")
    running = facts.tasks(TaskState.RUNNING)
    obstacle = _obstacle(facts)
    if obstacle is not None:
        reason, message = obstacle
        runs = f"; {counted(running, 'run')} under way" if running else ""
        return ConditionValue(running > 0, reason, f"{message}{runs}")
    missing = facts.found.get("missing")
    if missing and missing["chunks"] >= facts.tasks(TaskState.RUNNING, TaskState.QUEUED, TaskState.RETRYING):
        return ConditionValue(True, Reason.LOCATION_MISSING, missing_sentence(missing))
    found = facts.found.get("declaring")
    more = "" if found is None else f"; {declaring_sentence(found)}"
    if running:
        message = f"{counted(running, 'run')} of at most {facts.found['parallelism']}"
        return ConditionValue(True, Reason.RUNNING, message + more)
    if queued := facts.tasks(TaskState.QUEUED):
        return ConditionValue(True, Reason.QUEUED, f"{counted(queued, 'chunk')} may start{more}")
    if retrying := facts.tasks(TaskState.RETRYING):
        message = f"{counted(retrying, 'chunk')} failed and will be tried again after a pause"
        return ConditionValue(True, Reason.RETRYING, message + more)
    done = _succeeded(facts)
    assert done is not None
    return ConditionValue(done.reason == Reason.DECLARING, done.reason, done.message)


def _obstacle(facts: ObservedJob) -> tuple[str, str] | None:
    """Return reason and message of an obstacle that prevents runs of open tasks; None if there is none."""
    assert facts.found is not None
    open_tasks = facts.tasks(*(state for state in COUNTED_TASKS if state not in (TaskState.DONE, TaskState.SKIPPED)))
    if facts.found["deleted"]:
        return Reason.DELETED, f"job {facts.job} is deleted"
    if not open_tasks:
        return None
    if facts.found["suspended"]:
        draining = facts.tasks(TaskState.RUNNING) > 0
        return (Reason.DRAINING if draining else Reason.SUSPENDED), suspended_sentence(facts.job)
    if facts.found["breaker"]:
        return Reason.BREAKER_OPEN, breaker_opened(facts.found["breaker"])
    if (closed := _closed_gate(facts.found)) is not None:
        return closed
    if facts.start_error is not None:
        return start_error_reason(facts.start_error), str(facts.start_error)
    if facts.pods:
        reason, (pods, sentence) = max(facts.pods.items(), key=lambda item: (item[1][0], item[0]))
        return reason, f"{counted(pods, 'pod')} can't run: {sentence}"
    if facts.found["parallelism"] == 0:
        return Reason.NO_PARALLELISM, no_parallelism_sentence(facts.job)
    return None


def _closed_gate(found: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return reason and message of what must hold before any run starts, and does not."""
    if found.get("sharing"):
        return Reason.NOT_SHARED, found["sharing"]
    if found.get("preflight"):
        return Reason.LOCATION_MISSING, gate_sentence(found["preflight"])
    if stopped_by_tests(found["tests"]):
        return Reason.TESTS_FAIL, tests_sentence(found["tests"])
    return None


def _state(facts: ObservedJob) -> str | None:
    """Return the state of the job by the rules of opendataflow.list_jobs(); kept while Postgres is unreachable."""
    if _stalled(facts).holds:
        return JobState.STALLED
    if facts.found is None:
        before = facts.before.get("state")
        return before if isinstance(before, str) and before != JobState.STALLED else JobState.PENDING
    total = sum(facts.found["counts"].values())
    finished = facts.tasks(TaskState.DONE, TaskState.SKIPPED)
    states = (
        (facts.found["deleted"], JobState.DELETED),
        (facts.found["suspended"], JobState.SUSPENDED),
        (facts.found["breaker"], JobState.BREAKER_OPEN),
        (facts.tasks(TaskState.RUNNING), JobState.RUNNING),
        (facts.tasks(TaskState.FAILED), JobState.FAILED),
        (facts.found.get("declaring") and not facts.tasks(TaskState.QUEUED), JobState.DECLARING),
        (total and finished == total and facts.found["incomplete"], JobState.INCOMPLETE),
        (total and finished == total, _done_state(facts)),
        (facts.tasks(TaskState.QUEUED), JobState.QUEUED),
    )
    return next((state for holds, state in states if holds), JobState.WAITING)


def _done_state(facts: ObservedJob) -> JobState:
    return JobState.STALE if facts.stale else JobState.DONE


_FIGURES = (
    "counts", "progress", "rate", "eta", "watermark", "last_failures", "shared_inputs", "resubmit", "replicas",
)  # fmt: skip


def _figures(facts: ObservedJob) -> dict[str, Any]:
    """Return the fields of the status from Postgres; those of the status before if they are unknown."""
    found = facts.found
    if found is None:
        return kept_fields(DataFlowJobStatus, facts.before, _FIGURES)
    by_state = {state.value.lower(): facts.tasks(state) for state in COUNTED_TASKS}
    total, done, running = sum(by_state.values()), by_state["done"], by_state["running"]
    active = facts.tasks(TaskState.QUEUED, TaskState.RUNNING, TaskState.RETRYING) > 0
    rate = found["per_minute"] * 60 if found["per_minute"] else None
    more = (f", {facts.stale} stale" if facts.stale else "") + (", declaring" if found.get("declaring") else "")
    return {
        "counts": TaskCounts(total=total, stale=facts.stale, **by_state),
        "progress": f"{done}/{total}{more}",
        "rate": None if rate is None else float(f"{rate:.3g}"),
        "eta": short_duration(found["eta_seconds"]) if active and found["eta_seconds"] else None,
        "watermark": _name(found["watermark"]),
        "last_failures": tuple(_failure(failure) for failure in found.get("last_failures", ())),
        "shared_inputs": tuple(map(_shared_input, found.get("shared_inputs", ()))),
        "resubmit": _resubmitted(found.get("resubmit")),
        "replicas": running,
    }


def _shared_input(row: Mapping[str, Any]) -> SharedInput:
    location = truncated(describe_location(row), LOCATION_BYTES)
    return SharedInput(dataset=truncated(row["id"], NAME_BYTES), location=location, hash=location_hash(row))


def kept_fields(model: type[BaseModel], before: Mapping[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """Return some fields of the status in the cluster; empty if the status is invalid."""
    try:
        known = model.model_validate(dict(before))
    except ValidationError:
        return {}
    return {name: getattr(known, name) for name in fields}


def short_duration(seconds: float) -> str:
    """Return a duration with at most two units: 45s, 12m, 3h20m, 4d6h. It is rounded up, and never 0s."""
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
        data_id=truncated(failure["data_id"], NAME_BYTES),
        run=failure["run"],
        reason=failure.get("reason") or "",
        message=truncated(failure["message"], FAILURE_BYTES),
        at=datetime.fromisoformat(failure["at"]).replace(microsecond=0),
        forced=True if failure.get("forced") else None,
    )


def _resubmitted(request: Mapping[str, Any] | None) -> Resubmitted | None:
    if request is None:
        return None
    answer = request["answer"]
    message = answer["message"] if answer.get("refusal") else ""
    # The id is never truncated: the API server refuses a new request until the status has the id of the one before.
    return Resubmitted(id=request["id"], chunks=answer["counts"]["done"], message=truncated(message, FAILURE_BYTES))


def _name(name: str | None) -> str | None:
    return None if name is None else truncated(name, NAME_BYTES)
