"""Answers the five questions about the chunk of a task, with the evidence. Pure: what it judges comes from the store.

Is the data ready? Is it correct? Is it where it is expected? Is it validated? Is it safe to read and to change?
The answers about a run that has ended rest on what is never cleaned, so that they are the same a year later.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opendataflow.core.pipelines.expectations import told
from opendataflow.core.text.explain import counted, duration, meaning, shell_command
from opendataflow.names import ChunkStatus, RunState, TaskState

Evidence = Mapping[str, Any]


@dataclass(frozen=True)
class Answered:
    """One answer. `answer`: yes, no, not yet, or with what it is limited by; `evidence`: sentences."""

    question: str
    answer: str
    evidence: tuple[str, ...]


def inspection_answers(found: Evidence, blocked: Sequence[str] = ()) -> list[Answered]:
    """Return the five answers. `found`: what opendataflow.inspection() returns; `blocked`: what `why` says of an open
    task."""
    return [
        Answered("Is the data ready?", *_ready(found, blocked)),
        Answered("Is it the correct data?", *_correct(found)),
        Answered("Is it where it is expected?", *_place(found)),
        Answered("Is it validated?", *_validated(found)),
        Answered("Is it safe to read and to change?", *_safe(found)),
    ]


Answer = tuple[str, tuple[str, ...]]


def _outputs(found: Evidence) -> list[Evidence]:
    return [d for d in found["datasets"] if d["itemtype"] == "OUT"]


def _inputs(found: Evidence) -> list[Evidence]:
    return [d for d in found["datasets"] if d["itemtype"] == "IN"]


def _chunk(found: Evidence, dataset: Evidence) -> str:
    return f"chunk {found['data_id']} of {dataset['dataset']}"


# Ready -------------------------------------------------------------------------------------------------------


def _ready(found: Evidence, blocked: Sequence[str]) -> Answer:
    sentences = tuple(_status(found, d) for d in [*_outputs(found), *_inputs(found)])
    outputs = [ChunkStatus(d["status"]) for d in _outputs(found)]
    if all(status is ChunkStatus.READY for status in outputs) and (outputs or found["state"] == TaskState.DONE):
        return "yes", sentences
    failed = found["state"] in (TaskState.FAILED, TaskState.SKIPPED)
    return "no" if failed else "not yet", (*sentences, *blocked)


def _status(found: Evidence, dataset: Evidence) -> str:
    role = "input" if dataset["itemtype"] == "IN" else "output"
    if dataset["status"] == ChunkStatus.READY:
        version = f" in version {dataset['fence']} since {_time(dataset['published_at'])}"
        return f"{role} {_chunk(found, dataset)} is READY{version}"
    return f"{role} {_chunk(found, dataset)} is {meaning(dataset['status'], dataset['reason'])}"


# Correct -----------------------------------------------------------------------------------------------------


def _correct(found: Evidence) -> Answer:
    run = found["run"]
    outside = [d for d in _outputs(found) if _from_outside(d)]
    sentences = [*_run(found), *(_said(found, d) for d in outside), *_measures(found)]
    if run is None and not outside:
        return "not yet", ("no run has made it", *sentences)
    changed = [_changed(found, d) for d in _inputs(found) if _is_other_version(d)]
    sentences += [_used(found, d) for d in _inputs(found) if d["used_fence"] is not None and not _is_other_version(d)]
    if run is not None:
        sentences += [_unread(found, d) for d in _inputs(found) if d["used_fence"] is None]
    if changed and not outside:
        again = f"to make it again: {shell_command('resubmit', found['job'], found['data_id'])}"
        return "not any more: it was made from data that has changed since", (*sentences, *changed, again)
    if outside:
        return "as far as the person says who has published it", tuple(sentences)
    if found["stale"]:
        return "not any more: its job was given other data sets since", tuple(sentences)
    succeeded = run["state"] == RunState.SUCCEEDED
    if succeeded and any(d["used_fence"] is not None and d["status"] != ChunkStatus.READY for d in _inputs(found)):
        return "not certain: what it was made from is not READY any more", tuple(sentences)
    if succeeded:
        return "yes, made from the present versions of its inputs", tuple(sentences)
    return "not yet" if run["state"] == RunState.RUNNING else "no", tuple(sentences)


def _from_outside(dataset: Evidence) -> bool:
    return dataset["status"] == ChunkStatus.READY and dataset["run"] is None


def _is_other_version(dataset: Evidence) -> bool:
    return dataset["used_fence"] is not None and dataset["fence"] != dataset["used_fence"]


def _run(found: Evidence) -> Iterator[str]:
    run = found["run"]
    if run is None:
        return
    forced = ", forced" if run["forced"] else ""
    name = f"run {run['id']}, attempt {run['attempt']}{forced}, at {run['host']}"
    if run["state"] == RunState.RUNNING:
        yield f"{name}: running since {_time(run['claimed_at'])}"
        return
    code = "" if run["exit_code"] is None else f", exit code {run['exit_code']}"
    yield (
        f"{name}: {run['state']}{code}, from {_time(run['claimed_at'])} to {_time(run['finished_at'])} "
        f"({duration(found['seconds'])})"
    )
    if run["state"] != RunState.SUCCEEDED and run["message"]:
        yield f"it said: {run['message']}"


def _used(found: Evidence, dataset: Evidence) -> str:
    now = "the present one" if dataset["status"] == ChunkStatus.READY else meaning(dataset["status"], dataset["reason"])
    return f"it read version {dataset['used_fence']} of {_chunk(found, dataset)}, which is {now}"


def _unread(found: Evidence, dataset: Evidence) -> str:
    why = "it was not READY, and the run was forced" if found["run"]["forced"] else "the job reads it since"
    return f"it read no version of {_chunk(found, dataset)}: {why}"


def _changed(found: Evidence, dataset: Evidence) -> str:
    now = f"version {dataset['fence']}" if dataset["status"] == ChunkStatus.READY else dataset["status"]
    return f"it read version {dataset['used_fence']} of {_chunk(found, dataset)}, which is {now} now"


def _measures(found: Evidence) -> Iterator[str]:
    for dataset in found["datasets"]:
        known = [f"{dataset[name]} {name}" for name in ("rows", "bytes") if dataset[name] is not None]
        if dataset["checksum"]:
            known.append(f"checksum {dataset['checksum']}")
        if known:
            yield f"{_chunk(found, dataset)} has {', '.join(known)}"


# Where it is expected ----------------------------------------------------------------------------------------


def _place(found: Evidence) -> Answer:
    sentences, moved = [], False
    for dataset in [*_outputs(found), *_inputs(found)]:
        now, then = dataset["now"], dataset["then"]
        place_now = place(now) if now else "not declared"
        if dataset["used_fence"] is None or then is None:
            sentences.append(f"{dataset['dataset']} is declared at {place_now}")
        elif _where(then) == _where(now or {}):
            sentences.append(f"the run found {dataset['dataset']} at {place_now}, where it is declared now")
        else:
            moved = moved or dataset["itemtype"] == "OUT"
            sentences.append(f"the run found {dataset['dataset']} at {place(then)}; now it is declared at {place_now}")
    if not any(d["status"] == ChunkStatus.READY for d in _outputs(found)):
        return "not yet", tuple(sentences)
    if moved:
        return "no: it is where its data set was declared then", tuple(sentences)
    unknown = all(d["used_fence"] is None or d["then"] is None for d in _outputs(found))
    return "as far as the declarations say" if unknown else "yes", tuple(sentences)


_PLACE = ("kind", "hostname", "database", "schemaname", "tablename", "url", "format")


def _where(declared: Evidence) -> list[Any]:
    return [declared.get(column) for column in (*_PLACE, "options")]


def place(declared: Evidence) -> str:
    """Where a data set is, in words; the row may lack columns."""
    table = ".".join(str(declared[c]) for c in ("database", "schemaname", "tablename") if declared.get(c))
    parts = [declared.get("kind"), declared.get("hostname"), table, declared.get("url"), declared.get("format")]
    return " ".join(str(part) for part in parts if part) or "no place that was written down"


# Validated ---------------------------------------------------------------------------------------------------


def _validated(found: Evidence) -> Answer:
    if any(d["status"] == ChunkStatus.PENDING for d in _outputs(found)):
        pending = [d for d in _outputs(found) if d["status"] == ChunkStatus.PENDING]
        return "not yet: it waits for a person's word", tuple(
            f"when {_chunk(found, d)} is good: {shell_command('accept', d['dataset'], found['data_id'])}; when it is "
            f"not: {shell_command('reject', d['dataset'], found['data_id'])}"
            for d in pending
        )
    ready = [d for d in _outputs(found) if d["status"] == ChunkStatus.READY]
    checked = _checked(found)
    if not ready:
        unmet = [it for it in checked if not it["held"] and it["severity"] == "fail"]
        why = [f"run {found['run']['id']} has checked what it would write", *_all_told(checked)] if checked else []
        return (
            ("no: what is expected is not so", tuple(why)) if unmet else ("not yet", ("there is nothing to validate",))
        )
    people = [d for d in ready if d["said"] and d["said"]["event"] != "complete"]
    sentences = [_said(found, d, checked) for d in ready]
    if len(people) == len(ready):
        return "yes, by a person's word", tuple(sentences)
    if checked:
        warned = sum(not it["held"] for it in checked)
        but = f", with {counted(warned, 'warning')}" if warned else ""
        return f"yes, by {counted(len(checked), 'expectation')}{but}", (*sentences, *_all_told(checked))
    return "by the exit code of its run only", tuple(sentences)


def _checked(found: Evidence) -> Sequence[Evidence]:
    """What the last run has found out about the rows that it was to write, if it is over."""
    run = found["run"]
    if run is None or run["state"] == RunState.RUNNING:
        return ()
    return (run["metrics"] or {}).get("expectations") or ()


def _all_told(checked: Sequence[Evidence]) -> list[str]:
    """What does not hold comes first, warnings behind it."""
    return [told(it) for it in sorted(checked, key=lambda it: (it["held"], it["severity"] == "warn"))]


def _said(found: Evidence, dataset: Evidence, checked: Sequence[Evidence] = ()) -> str:
    said = dataset["said"]
    if said is None:
        return f"who made {_chunk(found, dataset)} READY is not known any more"
    if said["event"] == "complete":
        and_so = "what it has checked is below" if checked else "nobody has looked at it"
        return f"{_chunk(found, dataset)} is READY because run {said['run']} succeeded; {and_so}"
    reason = f": {said['reason']}" if said["reason"] else ""
    word = {"publish": "published", "accept": "accepted"}.get(said["event"], f"made READY by {said['event']}")
    return f"{_chunk(found, dataset)} was {word} by {said['actor']} at {_time(said['at'])}{reason}"


# Safe --------------------------------------------------------------------------------------------------------


def _safe(found: Evidence) -> Answer:
    sentences = []
    readable, changeable = True, True
    for dataset in _outputs(found):
        status, chunk = ChunkStatus(dataset["status"]), _chunk(found, dataset)
        readable = readable and status is ChunkStatus.READY
        changeable = changeable and status not in (ChunkStatus.RUNNING, ChunkStatus.HOLD) and not dataset["readers"]
        if status is ChunkStatus.RUNNING:
            sentences.append(f"run {dataset['run']} writes {chunk} right now")
        elif status is ChunkStatus.HOLD:
            sentences.append(f"{chunk} is {meaning(status, dataset['reason'])}")
        elif dataset["readers"]:
            runs = ", ".join(f"run {r['run']} of {r['job']}" for r in dataset["readers"])
            sentences.append(f"{counted(len(dataset['readers']), 'running run')} may read {chunk}: {runs}")
        else:
            sentences.append(f"nobody reads or writes {chunk}")
    if readable:
        return "yes" if changeable else "to read it, yes; to change it, no", tuple(sentences)
    return "to read it, no" + ("; to change it, yes" if changeable else "; nor to change it"), tuple(sentences)


def _time(text: str | None) -> str:
    """A time of the database's JSON, to the second, with its zone."""
    return f"{text[:10]} {text[11:19]} {text[-6:]}" if text else "an unknown time"
