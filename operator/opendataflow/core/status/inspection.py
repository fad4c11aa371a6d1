"""Answer the five questions about the chunk of a task, with evidence. Pure: the facts come from the store.

Is the data ready? Is it correct? Is it where it is expected? Is it validated? Is it safe to read and to change?
The answers about an ended run use only data that is never cleaned. So they do not change with time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opendataflow.core.pipelines.expectations import describe_reported
from opendataflow.core.text.explain import counted, duration, meaning, shell_command
from opendataflow.names import ChunkStatus, RunState, TaskState

Evidence = Mapping[str, Any]


@dataclass(frozen=True)
class InspectionAnswer:
    """One answer. `answer`: yes, no or not yet, with restrictions if there are any. `evidence`: sentences."""

    question: str
    answer: str
    evidence: tuple[str, ...]


def inspection_answers(found: Evidence, blocked: Sequence[str] = ()) -> list[InspectionAnswer]:
    """Return the five answers. `found`: the row of opendataflow.inspection(). `blocked`: the sentences of `why`, if the
    task is open."""
    return [
        InspectionAnswer("Is the data ready?", *_ready(found, blocked)),
        InspectionAnswer("Is it the correct data?", *_correct(found)),
        InspectionAnswer("Is it where it is expected?", *_place(found)),
        InspectionAnswer("Is it validated?", *_validated(found)),
        InspectionAnswer("Is it safe to read and to change?", *_safe(found)),
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
    published = [d for d in _outputs(found) if _is_published_by_person(d)]
    sentences = [*_run(found), *(_readiness_origin(found, d) for d in published), *_measurements(found)]
    if run is None and not published:
        return "not yet", ("no run has written it", *sentences)
    changed = [_changed_input(found, d) for d in _inputs(found) if _is_other_version(d)]
    unchanged = [d for d in _inputs(found) if d["used_fence"] is not None and not _is_other_version(d)]
    sentences += [_unchanged_input(found, d) for d in unchanged]
    if run is not None:
        sentences += [_unread_input(found, d) for d in _inputs(found) if d["used_fence"] is None]
    if changed and not published:
        again = f"to make it again: {shell_command('resubmit', found['job'], found['data_id'])}"
        return "not any more: it was made from data that has changed since", (*sentences, *changed, again)
    if published:
        return "as far as the person who published it says", tuple(sentences)
    if found["stale"]:
        return "not any more: the data sets of its job have changed since", tuple(sentences)
    succeeded = run["state"] == RunState.SUCCEEDED
    if succeeded and any(d["used_fence"] is not None and d["status"] != ChunkStatus.READY for d in _inputs(found)):
        return "not certain: what it was made from is not READY any more", tuple(sentences)
    if succeeded:
        return "yes, made from the present versions of its inputs", tuple(sentences)
    return "not yet" if run["state"] == RunState.RUNNING else "no", tuple(sentences)


def _is_published_by_person(dataset: Evidence) -> bool:
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
        yield f"its message: {run['message']}"


def _unchanged_input(found: Evidence, dataset: Evidence) -> str:
    now = "the present one" if dataset["status"] == ChunkStatus.READY else meaning(dataset["status"], dataset["reason"])
    return f"it read version {dataset['used_fence']} of {_chunk(found, dataset)}, which is {now}"


def _unread_input(found: Evidence, dataset: Evidence) -> str:
    why = "it was not READY, and the run was forced" if found["run"]["forced"] else "the job reads it since"
    return f"it read no version of {_chunk(found, dataset)}: {why}"


def _changed_input(found: Evidence, dataset: Evidence) -> str:
    now = f"version {dataset['fence']}" if dataset["status"] == ChunkStatus.READY else dataset["status"]
    return f"it read version {dataset['used_fence']} of {_chunk(found, dataset)}, which is {now} now"


def _measurements(found: Evidence) -> Iterator[str]:
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
    """Return the place of a data set in words. The row may lack columns."""
    table = ".".join(str(declared[c]) for c in ("database", "schemaname", "tablename") if declared.get(c))
    parts = [declared.get("kind"), declared.get("hostname"), table, declared.get("url"), declared.get("format")]
    return " ".join(str(part) for part in parts if part) or "no declared location"


# Validated ---------------------------------------------------------------------------------------------------


def _validated(found: Evidence) -> Answer:
    if any(d["status"] == ChunkStatus.PENDING for d in _outputs(found)):
        pending = [d for d in _outputs(found) if d["status"] == ChunkStatus.PENDING]
        return "not yet: it waits for somebody to accept or reject it", tuple(
            f"when {_chunk(found, d)} is good: {shell_command('accept', d['dataset'], found['data_id'])}; when it is "
            f"not: {shell_command('reject', d['dataset'], found['data_id'])}"
            for d in pending
        )
    ready = [d for d in _outputs(found) if d["status"] == ChunkStatus.READY]
    checked = _expectation_results(found)
    if not ready:
        if not any(not it["held"] and it["severity"] == "fail" for it in checked):
            return "not yet", ("there is nothing to validate",)
        sentence = f"run {found['run']['id']} has checked the rows before writing them"
        return "no: what is expected is not so", (sentence, *_expectation_sentences(checked))
    by_people = [d for d in ready if d["said"] and d["said"]["event"] != "complete"]
    sentences = [_readiness_origin(found, d, checked) for d in ready]
    if len(by_people) == len(ready):
        return "yes, by a person", tuple(sentences)
    if checked:
        warnings = sum(not it["held"] for it in checked)
        restriction = f", with {counted(warnings, 'warning')}" if warnings else ""
        answer = f"yes, by {counted(len(checked), 'expectation')}{restriction}"
        return answer, (*sentences, *_expectation_sentences(checked))
    return "by the exit code of its run only", tuple(sentences)


def _expectation_results(found: Evidence) -> Sequence[Evidence]:
    """Return the results of expectations of the last run, if the run has ended."""
    run = found["run"]
    if run is None or run["state"] == RunState.RUNNING:
        return ()
    return (run["metrics"] or {}).get("expectations") or ()


def _expectation_sentences(checked: Sequence[Evidence]) -> list[str]:
    """Return a sentence for each expectation: failures first, then warnings, then those that hold."""
    return [describe_reported(it) for it in sorted(checked, key=lambda it: (it["held"], it["severity"] == "warn"))]


def _readiness_origin(found: Evidence, dataset: Evidence, checked: Sequence[Evidence] = ()) -> str:
    """Return who or which run made a chunk READY."""
    event = dataset["said"]
    if event is None:
        return f"who made {_chunk(found, dataset)} READY is not known any more"
    if event["event"] == "complete":
        validation = "the checks of the run are below" if checked else "nobody has checked it"
        return f"{_chunk(found, dataset)} is READY because run {event['run']} succeeded; {validation}"
    reason = f": {event['reason']}" if event["reason"] else ""
    word = {"publish": "published", "accept": "accepted"}.get(event["event"], f"made READY by {event['event']}")
    return f"{_chunk(found, dataset)} was {word} by {event['actor']} at {_time(event['at'])}{reason}"


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
    """Return a time of the database's JSON to the second, with its zone."""
    return f"{text[:10]} {text[11:19]} {text[-6:]}" if text else "an unknown time"
