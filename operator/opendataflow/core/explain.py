"""Says in sentences why a work is not running, and what to do about it. Pure: the evidence comes from the store."""

from collections.abc import Iterator, Mapping
from typing import Any

from opendataflow.names import ChunkStatus, WorkState

Evidence = Mapping[str, Any]

_UNTOUCHED = (ChunkStatus.DECLARED, ChunkStatus.RESUBMIT)


def explain(why: Evidence) -> list[str]:
    """Return sentences, the most important first. `why`: the answer of opendataflow.why()."""
    state = WorkState(why["state"])
    sentences = [_state(why, state)]
    if state in (WorkState.WAITING, WorkState.READY, WorkState.RETRY):
        sentences += [_blocker(why, blocker) for blocker in why["blockers"]]
        sentences += _limits(why, state)
    last = why["last_run"]
    if last and state is not WorkState.RUNNING:
        sentences.append(f"last run: {last['run']}, attempt {last['attempt']}, {last['state']}{_message(last)}")
    if state is WorkState.FAILED:
        sentences.append(f"when the cause is mended: dataflow resubmit {why['job']} {why['data_id']}")
    return sentences


def _state(why: Evidence, state: WorkState) -> str:
    name = f"{why['data_id']} of job {why['job']} is {state}"
    last = why["last_run"]
    match state:
        case WorkState.FAILED:
            return f"{name}: {why['reason'] or 'no reason is known'}"
        case WorkState.RETRY:
            return f"{name}: tried again in {why['due_in_seconds']:.0f} s ({why['reason']})"
        case WorkState.RUNNING if last:
            again = "; it runs again after its end" if why["again"] else ""
            run = f"run {last['run']}, attempt {last['attempt']}, for {last['seconds']:.0f} s at {last['host']}"
            return f"{name}: {run}{again}"
        case WorkState.HELD:
            again = "; it was asked for again meanwhile" if why["again"] else ""
            return f"{name} (it was {why['held_from']}){again}: dataflow release {why['job']} {why['data_id']}"
        case WorkState.DONE if why["stale"]:
            return f"{name}, but stale: what it was made from has changed"
        case _:
            return name


def _blocker(why: Evidence, blocker: Evidence) -> str:
    status, chunk = blocker["status"], f"chunk {why['data_id']} of {blocker['dataset']}"
    if blocker["itemtype"] == "IN":
        return f"waits for input {chunk}, which is {status}{_origin(why, blocker)}"
    if blocker["readers"] and (status in _UNTOUCHED or status == ChunkStatus.FAILED):
        return f"waits until {blocker['readers']} running reader(s) of its output {chunk} have ended"
    return f"its output {chunk} is {status} and so locked{_because(blocker['reason'])}{_unlock(why, blocker)}"


def _origin(why: Evidence, blocker: Evidence) -> str:
    producer = blocker["producer"]
    if producer is None:
        if blocker["status"] in _UNTOUCHED:
            return f": no job makes it; when it is there: dataflow publish {blocker['dataset']} {why['data_id']}"
        return _because(blocker["reason"]) + _unlock(why, blocker)
    state = blocker["producer_state"]
    if state is None:
        return f": job {producer}, which makes it, has no work for {why['data_id']}"
    remedy = f"; then: dataflow resubmit {producer} {why['data_id']}" if state == WorkState.FAILED else ""
    return f": job {producer}, which makes it, is {state}{_because(blocker['producer_reason'])}{remedy}"


def _unlock(why: Evidence, blocker: Evidence) -> str:
    if blocker["status"] == ChunkStatus.HOLD:
        return f"; dataflow release --dataset {blocker['dataset']} {why['data_id']}"
    if blocker["itemtype"] == "OUT" and blocker["status"] in (ChunkStatus.FAILED, ChunkStatus.PENDING):
        return f"; dataflow resubmit {why['job']} {why['data_id']}"
    return ""


def _limits(why: Evidence, state: WorkState) -> Iterator[str]:
    if why["deleted"]:
        yield f"job {why['job']} is deleted: apply it again"
    if why["suspended"]:
        yield f"job {why['job']} is suspended: nothing new starts"
    if state is WorkState.READY:
        if why["running"] >= why["parallelism"]:
            yield f"all {why['parallelism']} slot(s) of job {why['job']} are taken"
        if why["before_it"]:
            yield f"{why['before_it']} other ready chunk(s) come before it"
        if not why["engines"]:
            yield "no engine is running: dataflow local -f FILE"


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def _message(run: Evidence) -> str:
    return f": {run['message']}" if run["message"] else ""
