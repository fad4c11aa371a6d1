"""Answer the five questions about the chunk of a task, with evidence. Pure: the facts come from the store.

Is the data ready? Is it correct? Is it where it is expected? Is it validated? Is it safe to read and to change?
Each answer is yes, no or unknown. It is unknown unless somebody has looked.
The answers about an ended run use only data that is never cleaned. So they do not change with time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from opendataflow.core.status.evidence import (
    DATABASE,
    NOBODY,
    Evidence,
    Facts,
    chunk_name,
    inputs_of,
    not_yet,
    outputs_of,
    run_name,
    shown_time,
    writer_name,
)
from opendataflow.core.status.forced_runs import FORCED, doubt, forced_evidence
from opendataflow.core.status.inputs_behind import changes_evidence, outdated_inputs, unsettled_inputs
from opendataflow.core.status.places import where_expected
from opendataflow.core.text.explain import counted, describe_reported, duration, meaning, shell_command
from opendataflow.model.records.look import Look
from opendataflow.names import TODAY, Answer, ChunkStatus, RunState, TaskState

_BY_PERSONS = {"publish": "published", "accept": "accepted", "set": "set to READY"}
"""Events of people who vouch for a chunk."""


@dataclass(frozen=True)
class InspectionAnswer:
    """One answer. `qualification`: a restriction or a reason, in a few words; empty if there is none."""

    question: str
    answer: Answer
    qualification: str
    evidence: tuple[Evidence, ...]

    @property
    def text(self) -> str:
        """The answer in words, such as "Unknown: no expectation and no person"."""
        return f"{self.answer.capitalize()}: {self.qualification}" if self.qualification else self.answer.capitalize()


def inspection_answers(found: Facts, blocked: Sequence[str] = (), looks: Sequence[Look] = ()) -> list[InspectionAnswer]:
    """Return the five answers.

    `found`: the row of opendataflow.inspection(). `blocked`: the sentences of `why`, if the task is open. `looks`: what
    `dataflow inspect --check` has found just now.
    """
    return [
        _with_forced_runs(found, _answer("Is the data ready?", _ready(found, blocked))),
        _with_forced_runs(found, _answer("Is it the correct data?", _correct(found))),
        _answer("Is it where it is expected?", where_expected(found, looks)),
        _with_forced_runs(found, _answer("Is it validated?", _validated(found))),
        _with_forced_runs(found, _answer("Is it safe to read and to change?", _safe(found))),
    ]


_Found = tuple[Answer, str, Sequence[Evidence]]


def _answer(question: str, found: _Found) -> InspectionAnswer:
    answer, qualification, evidence = found
    return InspectionAnswer(question, answer, qualification, tuple(evidence))


def _with_forced_runs(found: Facts, answer: InspectionAnswer) -> InspectionAnswer:
    """Mark an answer about data that a forced run has made, or that was made from such data."""
    run, outputs = found["run"], outputs_of(found)
    is_published = bool(outputs) and all(_is_published_outside(dataset) for dataset in outputs)
    if is_published or (run is not None and run["state"] != RunState.SUCCEEDED):
        return answer
    words = FORCED if found["behind"]["forced"] and answer.qualification != doubt(found["behind"]) else ""
    qualification = "; ".join(filter(None, (answer.qualification, words)))
    return replace(answer, qualification=qualification, evidence=(*answer.evidence, *forced_evidence(found["behind"])))


# Ready -------------------------------------------------------------------------------------------------------


def _ready(found: Facts, blocked: Sequence[str]) -> _Found:
    evidence = [_status(found, dataset) for dataset in (*outputs_of(found), *inputs_of(found))]
    outputs = [ChunkStatus(dataset["status"]) for dataset in outputs_of(found)]
    if outputs and all(status is ChunkStatus.READY for status in outputs):
        return Answer.YES, "", evidence
    if not outputs and found["state"] == TaskState.DONE:
        return Answer.YES, "its task is DONE, and the job has no outputs", evidence
    if found["missing_outputs"]:
        return Answer.NO, _never_made(found["missing_outputs"]), evidence
    ended = found["state"] in (TaskState.FAILED, TaskState.SKIPPED)
    evidence += [Evidence(sentence) for sentence in blocked]
    return Answer.NO, f"its task is {found['state']}" if ended else not_yet(found), evidence


def _never_made(names: Sequence[str]) -> str:
    return f"output{'s' * (len(names) > 1)} {', '.join(names)} {'were' if len(names) > 1 else 'was'} never made"


def _status(found: Facts, dataset: Facts) -> Evidence:
    role = "input" if dataset["itemtype"] == "IN" else "output"
    if dataset["status"] == ChunkStatus.READY:
        version, at = f"version {dataset['fence']}", dataset["published_at"]
        sentence = f"{role} {chunk_name(found, dataset)} is READY in {version} since {shown_time(at)}"
        return Evidence(sentence, _maker(dataset), at, version)
    return Evidence(f"{role} {chunk_name(found, dataset)} is {meaning(dataset['status'], dataset['reason'])}")


def _maker(dataset: Facts) -> str:
    """Return who made the present version READY."""
    event = dataset["publication"]
    if event is None:
        return DATABASE
    if event["event"] != "complete":
        return str(event["actor"])
    return writer_name(dataset) if event["run"] == dataset["run"] else f"run {event['run']}"


# Correct -----------------------------------------------------------------------------------------------------


def _correct(found: Facts) -> _Found:
    run = found["run"]
    published = [dataset for dataset in outputs_of(found) if _is_published_outside(dataset)]
    foreign = [dataset for dataset in outputs_of(found) if _is_of_another_job(found, dataset)]
    evidence = [*_run(found), *(_readiness_origin(found, d) for d in (*published, *foreign)), *_measurements(found)]
    if run is None and not published and not foreign:
        return Answer.NO, not_yet(found), (Evidence("no run has written it"), *evidence)
    changed = [dataset for dataset in inputs_of(found) if _is_other_version(dataset)]
    if run is not None:
        evidence += [_input_evidence(found, dataset) for dataset in inputs_of(found)]
    if found["missing_outputs"]:
        remedy = f"to make it: {shell_command('resubmit', found['job'], found['data_id'])}"
        return Answer.NO, _never_made(found["missing_outputs"]), (*evidence, Evidence(remedy))
    if foreign:
        return Answer.UNKNOWN, f"{writer_name(foreign[0])} has written it, and no run of this job", evidence
    evidence += changes_evidence(found["behind"]["changes"])
    by_run = run is not None and (len(published) < len(outputs_of(found)) or not published)
    if changed and by_run:
        again = f"to make it again: {shell_command('resubmit', found['job'], found['data_id'])}"
        return Answer.NO, "it was made from data that has changed since", (*evidence, Evidence(again))
    if found["stale"]:
        return Answer.NO, "the data sets of its job have changed since", evidence
    return (*(_by_run(found, published) if by_run else _published(published)), evidence)


def _by_run(found: Facts, published: Sequence[Facts]) -> tuple[Answer, str]:
    """Judge what the last run has made, beside outputs that were published."""
    vouched, words = _published(published) if published else (Answer.YES, "")
    if vouched is not Answer.YES:
        return vouched, words
    run = found["run"]
    if run["state"] == RunState.RUNNING:
        return Answer.NO, not_yet(found)
    if run["state"] != RunState.SUCCEEDED:
        return Answer.NO, f"run {run['id']} ended as {run['state']}"
    answer, made = _made(found)
    if published and answer is Answer.YES:
        return answer, f"{', '.join(d['dataset'] for d in published)} {words}, and {made}"
    return answer, made


def _published(published: Sequence[Facts]) -> tuple[Answer, str]:
    """Judge chunks that no run has written: only the word of a person is evidence."""
    people = [d["publication"]["actor"] for d in published if _is_published_by_person(d)]
    if len(people) < len(published):
        return Answer.UNKNOWN, "it was declared READY, and nobody vouches for it"
    return Answer.YES, f"as {', '.join(dict.fromkeys(people))} says"


def _made(found: Facts) -> tuple[Answer, str]:
    """Judge what a successful run has made from versions that are still the newest."""
    if any(dataset["status"] == ChunkStatus.RESUBMIT for dataset in outputs_of(found)):
        return Answer.NO, "it was asked for again"
    unmade = [d["dataset"] for d in outputs_of(found) if d["status"] == ChunkStatus.DECLARED]
    if unmade:
        return Answer.NO, _never_made(unmade)
    outdated = outdated_inputs(found["behind"]["changes"])
    if outdated is not None:
        return Answer.NO, outdated
    doubtful = doubt(found["behind"])
    if doubtful is not None:
        return Answer.UNKNOWN, doubtful
    used = [dataset for dataset in inputs_of(found) if dataset["used_fence"] is not None]
    if any(dataset["status"] != ChunkStatus.READY for dataset in used):
        return Answer.UNKNOWN, "what it was made from is not READY any more"
    if not used:
        return Answer.UNKNOWN, "its run read no versions that can be compared"
    unsettled = unsettled_inputs(found["behind"]["changes"])
    if unsettled is not None:
        return Answer.UNKNOWN, unsettled
    return Answer.YES, "made from the present versions of its inputs"


def _is_published_outside(dataset: Facts) -> bool:
    return dataset["status"] == ChunkStatus.READY and dataset["run"] is None


def _is_of_another_job(found: Facts, dataset: Facts) -> bool:
    return dataset["status"] == ChunkStatus.READY and dataset["run_job"] not in (None, found["job"])


def _is_published_by_person(dataset: Facts) -> bool:
    return dataset["publication"] is not None and dataset["publication"]["event"] in _BY_PERSONS


def _is_other_version(dataset: Facts) -> bool:
    return dataset["used_fence"] is not None and dataset["fence"] != dataset["used_fence"]


def _run(found: Facts) -> Iterator[Evidence]:
    run = found["run"]
    if run is None:
        return
    forced = ", forced" if run["forced"] else ""
    name, who = f"run {run['id']}, attempt {run['attempt']}{forced}, at {run['host']}", run_name(found)
    if run["state"] == RunState.RUNNING:
        yield Evidence(f"{name}: running since {shown_time(run['claimed_at'])}", who, run["claimed_at"])
        return
    code = "" if run["exit_code"] is None else f", exit code {run['exit_code']}"
    sentence = (
        f"{name}: {run['state']}{code}, from {shown_time(run['claimed_at'])} to {shown_time(run['finished_at'])} "
        f"({duration(found['seconds'])})"
    )
    yield Evidence(sentence, who, run["finished_at"])
    if run["state"] != RunState.SUCCEEDED and run["message"]:
        yield Evidence(f"its message: {run['message']}", who, run["finished_at"])


def _input_evidence(found: Facts, dataset: Facts) -> Evidence:
    """Return which version of an input the last run read, and whether it is the newest."""
    chunk, who, at = chunk_name(found, dataset), run_name(found), found["run"]["claimed_at"]
    if dataset["used_fence"] is None:
        if dataset["dataset"] == TODAY:
            return Evidence(f"it read {chunk}, and a day has no versions", who, at)
        forced = found["run"]["forced"]
        why = "it was not READY, and the run was forced" if forced else "the job reads it since"
        return Evidence(f"it read no version of {chunk}: {why}", who, at)
    version = f"version {dataset['used_fence']}"
    is_ready = dataset["status"] == ChunkStatus.READY
    if _is_other_version(dataset):
        now = f"version {dataset['fence']} now" if is_ready else f"{dataset['status']} now"
    else:
        now = "the present one" if is_ready else meaning(dataset["status"], dataset["reason"])
    return Evidence(f"it read {version} of {chunk}, which is {now}", who, at, version)


def _measurements(found: Facts) -> Iterator[Evidence]:
    for dataset in found["datasets"]:
        known = [f"{dataset[name]} {name}" for name in ("rows", "bytes") if dataset[name] is not None]
        if dataset["checksum"]:
            known.append(f"checksum {dataset['checksum']}")
        if known:
            words = ", ".join(known)
            sentence = f"{chunk_name(found, dataset)} has {words}"
            yield Evidence(sentence, _maker(dataset), dataset["published_at"], words)


# Validated ---------------------------------------------------------------------------------------------------


def _validated(found: Facts) -> _Found:
    outputs = outputs_of(found)
    pending = [dataset for dataset in outputs if dataset["status"] == ChunkStatus.PENDING]
    if pending:
        evidence = [_pending(found, dataset) for dataset in pending]
        return Answer.NO, "not yet: it waits for somebody to accept or reject it", evidence
    ready = [dataset for dataset in outputs if dataset["status"] == ChunkStatus.READY]
    checked = _expectation_results(found)
    if not ready:
        return _not_ready_validated(found, checked)
    evidence = [_readiness_origin(found, dataset, checked) for dataset in ready]
    if all(_is_published_by_person(dataset) for dataset in ready):
        return Answer.YES, "by a person", evidence
    if checked and all(_is_published_by_person(d) or d["run"] == found["run"]["id"] for d in ready):
        unmet = sum(not it["held"] for it in checked)
        words = counted(len(checked), "expectation")
        evidence += _expectation_evidence(found, checked)
        if unmet == len(checked):
            return Answer.NO, f"none of {words} holds", evidence
        warnings = f", with {counted(unmet, 'warning')}" if unmet else ""
        return Answer.YES, f"by {words}{warnings}", evidence
    return Answer.UNKNOWN, "no expectation and no person", evidence


def _not_ready_validated(found: Facts, checked: Sequence[Facts]) -> _Found:
    if any(not it["held"] and it["severity"] == "fail" for it in checked):
        sentence = f"run {found['run']['id']} has checked the rows before writing them"
        evidence = Evidence(sentence, run_name(found), found["run"]["finished_at"])
        return Answer.NO, "an expectation does not hold", (evidence, *_expectation_evidence(found, checked))
    if not outputs_of(found):
        return Answer.UNKNOWN, "the job has no outputs", ()
    return Answer.NO, not_yet(found), (Evidence("there is nothing to validate"),)


def _pending(found: Facts, dataset: Facts) -> Evidence:
    accept, reject = (shell_command(verb, dataset["dataset"], found["data_id"]) for verb in ("accept", "reject"))
    return Evidence(f"when {chunk_name(found, dataset)} is good: {accept}; when it is not: {reject}", NOBODY)


def _expectation_results(found: Facts) -> Sequence[Facts]:
    """Return the results of expectations of the last run, if the run has ended."""
    run = found["run"]
    if run is None or run["state"] == RunState.RUNNING:
        return ()
    return (run["metrics"] or {}).get("expectations") or ()


def _expectation_evidence(found: Facts, checked: Sequence[Facts]) -> list[Evidence]:
    """Return the results of expectations: failures first, then warnings, then those that hold."""
    who, at = run_name(found), found["run"]["finished_at"]
    in_order = sorted(checked, key=lambda it: (it["held"], it["severity"] == "warn"))
    return [Evidence(describe_reported(it), who, at, it["name"]) for it in in_order]


def _readiness_origin(found: Facts, dataset: Facts, checked: Sequence[Facts] = ()) -> Evidence:
    """Return who or which run made a chunk READY."""
    event, chunk, version = dataset["publication"], chunk_name(found, dataset), f"version {dataset['fence']}"
    if event is None:
        return Evidence(f"who made {chunk} READY is not known any more", NOBODY, None, version)
    if event["event"] == "complete":
        validation = "the checks of the run are below" if checked else "nobody has checked it"
        sentence = f"{chunk} is READY because run {event['run']} succeeded; {validation}"
    else:
        reason = f": {event['reason']}" if event["reason"] else ""
        word = _BY_PERSONS.get(event["event"], f"made READY by {event['event']}")
        sentence = f"{chunk} was {word} by {event['actor']} at {shown_time(event['at'])}{reason}"
    return Evidence(sentence, _maker(dataset), event["at"], version)


# Safe --------------------------------------------------------------------------------------------------------


def _safe(found: Facts) -> _Found:
    """Judge what the runs of this database do. Other programs may read and write the data."""
    outputs = outputs_of(found)
    if not outputs:
        return Answer.UNKNOWN, "the job has no outputs", ()
    evidence = [_use(found, dataset) for dataset in outputs]
    readable = all(dataset["status"] == ChunkStatus.READY for dataset in outputs)
    changeable = not any(
        dataset["status"] in (ChunkStatus.RUNNING, ChunkStatus.HOLD) or dataset["readers"] for dataset in outputs
    )
    if readable and changeable:
        return Answer.YES, "", evidence
    if readable:
        return Answer.NO, "it is safe to read, but not to change", evidence
    return (
        Answer.NO,
        "it is safe to change, but not to read" if changeable else "neither to read nor to change",
        evidence,
    )


def _use(found: Facts, dataset: Facts) -> Evidence:
    status, chunk = ChunkStatus(dataset["status"]), chunk_name(found, dataset)
    if status is ChunkStatus.RUNNING:
        return Evidence(f"run {dataset['run']} writes {chunk} right now")
    if status is ChunkStatus.HOLD:
        return Evidence(f"{chunk} is {meaning(status, dataset['reason'])}")
    if dataset["readers"]:
        runs = ", ".join(f"run {reader['run']} of {reader['job']}" for reader in dataset["readers"])
        return Evidence(f"{counted(len(dataset['readers']), 'running run')} may read {chunk}: {runs}")
    return Evidence(f"no run reads or writes {chunk}")
