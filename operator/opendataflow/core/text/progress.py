"""Lines about the progress of one job: rate, gaps, failures, and what it waits for, with remedies. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

from opendataflow.core.text.explain import (
    breaker_sentence,
    counted,
    declaring_sentence,
    duration,
    failed_sentence,
    limit_sentence,
    missing_output_sentence,
    resubmit_failed_command,
    shell_command,
    stale_sentence,
    unmanaged_namespace_sentence,
    waiting_sentence,
)
from opendataflow.core.text.locations import gate_sentence, missing_sentence
from opendataflow.core.text.moments import rate
from opendataflow.core.text.project_tests import tests_sentence
from opendataflow.names import ChunkStatus, TaskState

Status = dict[str, Any]
"""The row of opendataflow.job_status()."""

_MOST_GROUPS = 2
"""Groups of failures and of blockers in a live display."""


def status_lines(status: Status) -> list[str]:
    """Return the lines below the counts: rate, watermark, running tasks, and problems with a remedy."""
    breaker = (
        [f"breaker    {breaker_sentence(status['breaker']).removeprefix('breaker ')}"] if status["breaker"] else []
    )
    tests = status["tests"]
    tested = [f"tests      {tests_sentence(tests)}"] if tests and tests["failed"] else []
    gate, missing = status["preflight"], status["missing"]
    locations = [f"location   {gate_sentence(gate)}"] if gate else []
    locations += [f"missing    {missing_sentence(missing)}"] if missing else []
    unseen = [f"unseen     {unmanaged_namespace_sentence(found)}" for found in status["unmanaged_namespaces"]]
    sharing = [f"sharing    {status['sharing']}"] if status.get("sharing") else []
    declaring = (
        [f"declaring  {declaring_sentence(status['declaring']).removeprefix('declaring ')}; nothing is complete before"]
        if status.get("declaring")
        else []
    )
    return [
        *unseen,
        *_limits(status),
        *declaring,
        *sharing,
        *breaker,
        *tested,
        *locations,
        *_pace(status),
        *_stale(status),
        *_failed(status),
        *_incomplete(status),
        *_waiting(status),
    ]


def problem_lines(status: Status) -> list[str]:
    """Return what keeps a job from its end, each in one line: gates, failures and blockers, the largest groups only."""
    shortened = {**status, **{name: status[name][:_MOST_GROUPS] for name in ("failed", "waiting")}}
    known = [*_limits(status), *_pace(status), *_stale(status)]
    return [line for line in status_lines(shortened) if line not in known and not line.startswith(" ")]


def _limits(status: Status) -> Iterator[str]:
    for one in status["limits"]:
        sentence = limit_sentence(one["slots"], one["parallelism"], one["host"])
        yield f"limit      {sentence}: dataflow local --parallelism changes that"


def _pace(status: Status) -> Iterator[str]:
    if status["per_minute"]:
        moving = any(status["counts"].get(state) for state in (TaskState.QUEUED, TaskState.RUNNING, TaskState.RETRYING))
        left = f", about {duration(status['eta_seconds'])} left" if moving and status["eta_seconds"] else ""
        yield f"rate       {rate(status['per_minute'])}{left}"
    gaps = _number(status["gaps"], "gap", more=status["gaps"] >= status["sample"])
    gaps = f"{gaps}: {_some(status['gap_examples'], status['gaps'])}"
    if status["watermark"]:
        stale = ", stale ones included" if status["stale"] else ""
        yield f"watermark  all done up to {status['watermark']}{stale}{f'; after it {gaps}' if status['gaps'] else ''}"
    elif status["gaps"]:
        yield f"gaps       {gaps}"
    for run in status["running"]:
        yield f"running    {run['data_id']}, attempt {run['attempt']}, for {duration(run['seconds'])}"
    due = status["next_due"]
    if due is not None and not status["breaker"]:  # an open breaker names its next probe
        yield f"retry      the next {f'in {duration(due)}' if due else 'now'}"


def _stale(status: Status) -> Iterator[str]:
    if status["stale"]:
        yield f"stale      {stale_sentence(status['job'], status['stale'], status['stale_examples'])}"


def _failed(status: Status) -> Iterator[str]:
    total = status["counts"].get(TaskState.FAILED, 0)
    for group in status["failed"]:
        yield f"failed     {failed_sentence(group, status['sample'], total)}"
    if status["failed"]:
        command = resubmit_failed_command(status["job"], status["failed"], total)
        yield f"           when the cause is fixed: {command}"


def _incomplete(status: Status) -> Iterator[str]:
    for group in status["incomplete"]:
        yield missing_output_sentence(status["job"], group)


def _waiting(status: Status) -> Iterator[str]:
    for group in status["waiting"]:
        yield f"waiting    {waiting_sentence(group, status['sample'], status['counts'].get(TaskState.WAITING, 0))}"
        if group["status"] != ChunkStatus.RUNNING:
            yield f"           see: {shell_command('why', status['job'], group['examples'][0])}"


def _number(number: int, word: str, *, more: bool) -> str:
    """Return a number with its noun. `more`: only a sample was counted, so the true number may be higher."""
    return f"{'at least ' if more else ''}{counted(number, word)}"


def _some(examples: Sequence[str], count: int) -> str:
    return ", ".join(examples) + (" …" if count > len(examples) else "")
