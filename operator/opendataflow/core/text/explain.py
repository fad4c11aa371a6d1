"""Sentences that explain why a task is not running, and name the command that helps. Pure.

The evidence comes from the store. This module reads nothing itself.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opendataflow.core.text.locations import gate_sentence, looks_sentence, times
from opendataflow.core.text.moments import shown
from opendataflow.core.text.project_tests import stopped_by_tests, tests_sentence
from opendataflow.keys import bare
from opendataflow.names import TODAY, ChunkStatus, RunState, TaskState

Evidence = Mapping[str, Any]

_MEANINGS = {
    ChunkStatus.DECLARED: "not made yet",
    ChunkStatus.READY: "there already",
    ChunkStatus.RUNNING: "being written",
    ChunkStatus.FAILED: "not usable",
    ChunkStatus.RESUBMIT: "asked for again",
    ChunkStatus.HOLD: "held by a person",
    ChunkStatus.PENDING: "not accepted yet",
    ChunkStatus.RETIRED: "retired",
}
_MOST_COUNTED = 10_000
"""The number of queued tasks up to which the store counts."""

_MOST_NAMED = 5
"""The number of jobs or runs that a sentence names."""

_OPEN = (TaskState.WAITING, TaskState.QUEUED, TaskState.RETRYING)


def explain(why: Evidence) -> list[str]:
    """Return sentences, the most important first. `why`: the row of opendataflow.why()."""
    state = TaskState(why["state"])
    sentences = [_state_sentence(why, state)]
    if why["forced"] and state in _OPEN:
        sentences.append("it is forced: it waits neither for inputs, nor for locked outputs, nor for their readers")
    if state in (TaskState.WAITING, TaskState.RETRYING):
        sentences += [_blocker_sentence(why, blocker) for blocker in why["blockers"]]
    if state in _OPEN:
        sentences += _limit_sentences(why, state)
    if why["unmanaged_namespaces"]:
        sentences.append(unmanaged_namespace_sentence(why["unmanaged_namespaces"]))
    last = why["last_run"]
    if last and state is TaskState.RUNNING and not why["engine_lives"]:
        sentences.append(
            f"the lease of its engine at {last['host']} has expired: start one there again; "
            f"if nothing of the run is alive any more: dataflow lost {last['run']}"
        )
    if last and state is not TaskState.RUNNING:
        message = f": {last['message']}" if last["message"] else ""
        sentences.append(f"last run: {last['run']}, attempt {last['attempt']}, {last['state']}{message}")
    if why["own_jvm"]:
        sentences.append(f"its run did not share a JVM with other chunks: {why['own_jvm']}")
    if last:
        sentences.append(f"its log: dataflow logs --run {last['run']}")
    if state is TaskState.FAILED:
        sentences.append(f"when the cause is fixed: {_resubmit_command(why['job'], why)}")
    return sentences


def meaning(status: str, reason: str | None = None) -> str:
    """Return a chunk's status with its meaning, such as "HOLD (held by a person: audit)"."""
    words = [] if reason and status == ChunkStatus.RESUBMIT else [_MEANINGS[ChunkStatus(status)]]
    return f"{status} ({': '.join([*words, *([reason] if reason else [])])})"


def shell_command(
    verb: str,
    *arguments: str,
    dataset: bool = False,
    stale: bool = False,
    failed: bool = False,
    incomplete: bool = False,
    cascade: bool = False,
) -> str:
    """Return a `dataflow` command, quoted for a shell.

    `dataset`: whether it is about chunks of a data set. `stale`, `failed`, `incomplete`: whether it is about all that
    is so. `cascade`: whether it is also about all that was made from the chunks.
    """
    options = ["--dataset"] if dataset else []
    marks = {"--stale": stale, "--failed": failed, "--incomplete": incomplete, "--cascade": cascade}
    last = [option for option, wanted in marks.items() if wanted]
    if any(argument.startswith("-") for argument in arguments):  # chunks of a range may begin below zero
        options, last = [*options, *last, "--"], []
    return f"dataflow {shlex.join([verb, *options, *arguments, *last])}"


def duration(seconds: float) -> str:
    """Return a duration for people: 0.2 s, 45 s, 12 min, 3.5 h, 4 days."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"


def breaker_note(job: str, change: Evidence) -> str:
    """Return one line about a breaker that has opened or closed. `change`: a row of update_breakers()."""
    if change["opened"]:
        return (
            f"{job}: {change['chunks']} chunks failed in a row, the last with: {change['message']}. The breaker is "
            f"open: one probe at a time, the first in {duration(change['pause'])}; failures cost no attempts meanwhile"
        )
    failed = f" and {counted(change['probes'], 'failed probe')}" if change["probes"] else ""
    return f"{job}: a run has succeeded: the breaker is closed, after {duration(change['seconds'])}{failed}"


def breaker_sentence(breaker: Evidence) -> str:
    """Return what an open breaker waits for. `breaker`: the row of opendataflow.describe_breaker()."""
    if breaker["probe"] is not None:
        following = f"run {breaker['probe']} is its probe"
    elif breaker["next_in_seconds"]:
        following = f"the next probe in {duration(breaker['next_in_seconds'])}"
    else:
        following = "the next probe now"
    return f"{breaker_opened(breaker)}; {following}"


def breaker_opened(breaker: Evidence) -> str:
    """Return since when and why a breaker is open. The text does not change while time passes."""
    since = shown(breaker["opened_at"])
    probes = f"; {counted(breaker['probes'], 'probe')} failed since then" if breaker["probes"] else ""
    return (
        f"breaker open since {since}: {breaker['chunks']} chunks failed in a row, the last with: "
        f"{breaker['message']}{probes}"
    )


def suspended_sentence(job: str) -> str:
    """Return why a suspended job starts no runs."""
    return f"job {job} is suspended, nothing new starts; to resume it: {shell_command('resume', job)}"


def limit_sentence(slots: int, allowed: int, host: str | None = None) -> str:
    """Return that an engine runs fewer runs at a time than its jobs allow. `host`: None for this process."""
    where = "here" if host is None else f"at {host}"
    return f"at most {counted(slots, 'run')} at a time {where}, of the {allowed} that its jobs allow"


def no_parallelism_sentence(job: str) -> str:
    """Return why a job with parallelism 0 starts no runs."""
    return f"job {job} has parallelism 0, nothing new starts; to let it run: {shell_command('scale', job, '1')}"


def unmanaged_namespace_sentence(unmanaged: Evidence) -> str:
    """Return what is blocked in an unmanaged namespace. `unmanaged`: a row of opendataflow.unmanaged_namespaces()."""
    namespace, jobs, runs = unmanaged["namespace"], unmanaged["jobs"], unmanaged["runs"]
    more = " …" if len(jobs) > _MOST_NAMED else ""
    waits = [f"{', '.join(map(bare, jobs[:_MOST_NAMED]))}{more} start nothing"] if jobs else []
    if runs:
        named = ", ".join(map(str, runs[:_MOST_NAMED])) + (" …" if len(runs) > _MOST_NAMED else "")
        waits.append(f"the end of {counted(len(runs), 'run')} there ({named}) is not seen")
    dead = f"; if nothing of a run is alive any more: {shell_command('lost', str(runs[0]))}" if runs else ""
    return (
        f"the operator does not work in namespace {namespace}, so {' and '.join(waits)}: take {namespace} into its "
        f"namespaces again{dead}"
    )


def waiting_sentence(group: Evidence, sample: int, total: int) -> str:
    """Return what a group of tasks waits for.

    `group`: one of `waiting` of opendataflow.job_status(), counted among the first `sample` of `total` tasks.
    """
    role = "input" if group["itemtype"] == "IN" else "output"
    return f"{some_chunks(group, sample, total)}: {role} {group['dataset']} is {meaning(group['status'])}"


def stale_sentence(job: str, stale: int, examples: Sequence[str] = ()) -> str:
    """Return how many tasks of a job are stale, and the command that makes them again. `examples`: some of them."""
    named = f" ({', '.join(examples)}{' …' if stale > len(examples) else ''})" if examples else ""
    was = "was" if stale == 1 else "were"
    return (
        f"{counted(stale, 'chunk')}{named} {was} made from an older version of an input or of the job; "
        f"to rebuild: {shell_command('resubmit', job, stale=True)}"
    )


def done_sentence(done: int, stale: int) -> str:
    """Return what is done, never without what is stale: "3 chunks done, 1 stale"."""
    return f"{counted(done, 'chunk')} done{f', {stale} stale' if stale else ''}"


def failed_sentence(group: Evidence, sample: int, total: int) -> str:
    """Return why a group of tasks failed. `group`: one of `failed` of opendataflow.job_status()."""
    return f"{some_chunks(group, sample, total)}: {group['reason'] or 'no reason is known'}"


def resubmit_failed_command(job: str, groups: Sequence[Evidence], total: int) -> str:
    """Return the command for all `total` failed tasks: with their ids if the groups name all of them."""
    named = [data_id for group in groups for data_id in group["examples"]]
    return (
        shell_command("resubmit", job, *named) if len(named) == total else shell_command("resubmit", job, failed=True)
    )


def missing_output_sentence(job: str, group: Evidence) -> str:
    """Return which output of DONE tasks was never made, with both remedies."""
    examples = group["examples"]
    one = group["chunks"] == len(examples)
    make, leave = (
        (shell_command(verb, job, *examples) if one else shell_command(verb, job, incomplete=True))
        for verb in ("resubmit", "skip")
    )
    named = f" ({', '.join(examples)}{'' if one else ' …'})"
    return (
        f"incomplete: output {group['dataset']} of {counted(group['chunks'], 'chunk')}{named} was never made; "
        f"to make it: {make}; to exclude it: {leave}"
    )


def some_chunks(group: Evidence, sample: int, total: int) -> str:
    """Return the size of a group with examples: "3 chunks (1, 2, 3)", or "at least 500 chunks (1, 2, 3 …)"."""
    more = " …" if group["chunks"] > len(group["examples"]) else ""
    at_least = "at least " if total > sample else ""
    return f"{at_least}{counted(group['chunks'], 'chunk')} ({', '.join(group['examples'])}{more})"


def describe_reported(it: Evidence) -> str:
    """Return one sentence about a reported result of an expectation."""
    result = f"{it['name']}: {'holds' if it['held'] else 'does not hold'}"
    warning = " (a warning)" if not it["held"] and it["severity"] == "warn" else ""
    return f"{result}{warning}{': ' + it['found'] if it['found'] else ''}"


def counted(number: int, word: str) -> str:
    """Return a number with its noun: "1 chunk", "2 chunks"."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _state_sentence(why: Evidence, state: TaskState) -> str:
    name = f"{why['data_id']} of job {why['job']} is {state}"
    last = why["last_run"]
    match state:
        case TaskState.FAILED:
            return f"{name}: {why['reason'] or 'no reason is known'}"
        case TaskState.RETRYING:
            return f"{name}: {_next_attempt(why)}"
        case TaskState.RUNNING if last:
            again = "; it was asked for again and runs once more after its end" if why["again"] else ""
            return f"{name}: run {last['run']}, attempt {last['attempt']}, for {_run_so_far(last)}{again}"
        case TaskState.HELD | TaskState.SKIPPED:
            again = "; it was asked for again meanwhile" if why["again"] else ""
            reason = f": {why['reason']}" if why["reason"] else ""
            release = shell_command("release", why["job"], why["data_id"])
            return f"{name} by a person (it was {why['held_from']}){reason}{again}; to release it: {release}"
        case TaskState.RETIRED:
            return f"{name}: its id was withdrawn from the inputs of the job; to bring it back, declare the id again"
        case TaskState.DONE if why["missing_outputs"]:
            return f"{name}, but {missing_output_of_task(why)}"
        case TaskState.DONE if why["stale"]:
            resubmit = _resubmit_command(why["job"], why)
            return f"{name}, but made from data that has changed since; to make it again: {resubmit}"
        case _:
            return name


def missing_output_of_task(why: Evidence) -> str:
    """Return which outputs of one DONE task were never made, with both remedies."""
    outputs, skip = ", ".join(why["missing_outputs"]), shell_command("skip", why["job"], why["data_id"])
    return (
        f"its output {outputs} was never made; to make it: {_resubmit_command(why['job'], why)}; to exclude it: {skip}"
    )


def _next_attempt(why: Evidence) -> str:
    due = why["due_in_seconds"]
    when = f"in {duration(due)}" if due else "now"
    if why["looks"]:
        again = _resubmit_command(why["job"], why)
        return (
            f"{why['reason']}; it was looked at {times(why['looks'])}, which consumes no retry; the next look is due "
            f"{when}; to look at once: {again}"
        )
    if why["last_run"] and why["last_run"]["state"] == RunState.GIVEN_BACK:
        return f"its last run did not start, which consumes no retry; the next one is due {when}"
    left = max(why["retry_limit"] - why["attempts"], 0)
    return f"the last attempt failed, the next one is due {when}; {left} more may fail after it"


def _run_so_far(run: Evidence) -> str:
    return f"{duration(run['seconds'])} at {run['host']}"


def _blocker_sentence(why: Evidence, blocker: Evidence) -> str:
    chunk = f"chunk {why['data_id']} of {blocker['dataset']}"
    status, reason = ChunkStatus(blocker["status"]), blocker["reason"]
    if blocker["itemtype"] == "IN":
        if blocker["producer_state"] in (TaskState.FAILED, TaskState.RETRYING):
            reason = None  # the producer's own reason is more precise
        return f"waits for input {chunk}, which is {meaning(status, reason)}; {_origin(why, blocker)}"
    if blocker["readers"]:
        return f"waits for {counted(blocker['readers'], 'running run')} to end reading its output {chunk}"
    return f"may not write its output {chunk}, which is {meaning(status, reason)}{_unlock_command(why, blocker)}"


def _origin(why: Evidence, blocker: Evidence) -> str:
    """Return where an input chunk comes from, and which command provides it."""
    dataset, producer, state = blocker["dataset"], blocker["producer"], blocker["producer_state"]
    publish, accept, reject = (shell_command(v, dataset, why["data_id"]) for v in ("publish", "accept", "reject"))
    match ChunkStatus(blocker["status"]):
        case ChunkStatus.HOLD:
            return _release_command(why, blocker)
        case ChunkStatus.PENDING:
            return f"when it is good: {accept}; when it is not: {reject}"
    if dataset == TODAY:
        return f"it comes with that day, by an engine or RunJob; to have it before: {publish}"
    if state is None:
        maker = "no job makes it" if producer is None else f"job {producer} makes {dataset}, but not this chunk"
        return f"{maker}; when it is there: {publish}"
    makes = f"job {producer}, which makes it, is {state}"
    if state in (TaskState.FAILED, TaskState.DONE):
        reason = f" ({blocker['producer_reason']})" if blocker["producer_reason"] else ""
        return f"{makes}{reason}; when the cause is fixed: {_resubmit_command(producer, why)}"
    return f"{makes}; see: {shell_command('why', producer, why['data_id'])}"


def _unlock_command(why: Evidence, blocker: Evidence) -> str:
    """Return the command that makes an output chunk writable."""
    match ChunkStatus(blocker["status"]):
        case ChunkStatus.HOLD:
            return f"; {_release_command(why, blocker)}"
        case ChunkStatus.FAILED | ChunkStatus.PENDING | ChunkStatus.READY:
            return f"; to write it anew: {_resubmit_command(why['job'], why)}"
        case _:
            return ""


def orphan_sentence(orphan: Evidence) -> str:
    """Return what a pod of a forgotten run keeps back, and the remedy. `orphan`: a row of opendataflow.orphan."""
    return (
        f"pod {orphan['namespace']}/{orphan['name']} of run {orphan['run']}, which the database does not know any "
        f"more, may still write chunk {orphan['data_id']}: it is being deleted; if its node is gone: "
        "kubectl delete node NODE"
    )


def _limit_sentences(why: Evidence, state: TaskState) -> Iterator[str]:
    job = why["job"]
    if why["deleted"]:
        yield f"job {job} is deleted: apply its file again"
    if why["suspended"]:
        yield suspended_sentence(job)
    if why["breaker"]:
        force = shell_command("force", job, why["data_id"])
        yield f"{breaker_sentence(why['breaker'])}; to check at once whether it is healthy again: {force}"
    yield from _gate_sentences(why)
    if state is not TaskState.QUEUED:
        return
    if why.get("orphan"):
        yield orphan_sentence(why["orphan"])
    if why["parallelism"] == 0:
        yield no_parallelism_sentence(job)
    elif why["running"] >= why["parallelism"]:
        yield f"job {job} runs {why['running']} at a time (its parallelism) and all of them are busy: it has to wait"
    if why["before_it"]:
        at_least = "at least " if why["before_it"] >= _MOST_COUNTED else ""
        yield f"before it: {at_least}{counted(why['before_it'], 'queued task')} of the job"
    if not why["engines"]:
        yield "no engine is running; to start one: dataflow local -f FILE"


def _gate_sentences(why: Evidence) -> Iterator[str]:
    """Yield what must hold before any run of the job starts, and does not."""
    if why.get("sharing"):
        yield why["sharing"]
    again = _resubmit_command(why["job"], why)
    if why["preflight"]:
        due = why["preflight"]["next_in_seconds"]
        looks = looks_sentence(why["preflight"], f"in {duration(due)}" if due else "now")
        yield f"{gate_sentence(why['preflight'])}; {looks}; to look at once: {again}"
    if stopped_by_tests(why["tests"]):
        yield f"{tests_sentence(why['tests'])}; to test again at once: {again}"


def _resubmit_command(job: str, why: Evidence) -> str:
    return shell_command("resubmit", job, why["data_id"])


def _release_command(why: Evidence, blocker: Evidence) -> str:
    return f"to release it: {shell_command('release', blocker['dataset'], why['data_id'], dataset=True)}"


def declaring_sentence(found: Mapping[str, int]) -> str:
    """Return how far a declaration of many chunks is. `found`: the JSON of opendataflow.declaring_behind()."""
    return f"declaring {found['declared']} of {found['total']} chunks"
