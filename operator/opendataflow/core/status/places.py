"""Answer whether the chunk of a task is where it is expected. Pure.

Only a look at the place is evidence: of a run that reported what it wrote or read, or of `dataflow inspect --check`.
The exit code of a script is not a look.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from opendataflow.core.status.evidence import NOBODY, Evidence, Facts, inputs_of, not_yet, outputs_of, run_name
from opendataflow.keys import bare
from opendataflow.model.records.look import Look
from opendataflow.names import Answer, ChunkStatus, RunState

_COLUMNS = ("kind", "hostname", "database", "schemaname", "tablename", "url", "format")
_LOCATION = ("hostname", "database", "schemaname", "tablename", "url")


def place(declared: Facts) -> str:
    """Return the place of a data set in words. The row may lack columns."""
    table = ".".join(str(declared[c]) for c in ("database", "schemaname", "tablename") if declared.get(c))
    parts = [declared.get("kind"), declared.get("hostname"), table, declared.get("url"), declared.get("format")]
    return " ".join(str(part) for part in parts if part) or "no declared location"


def is_database_url(url: str) -> bool:
    """Return whether a URL names a database, and no files."""
    return re.match(r"(jdbc|postgres(ql)?|bigquery):", url) is not None


def has_location(declared: Facts) -> bool:
    """Return whether a data set declares where it is."""
    return any(declared.get(column) for column in _LOCATION)


def where_expected(found: Facts, looks: Sequence[Look]) -> tuple[Answer, str, list[Evidence]]:
    """Return answer, qualification and evidence. `looks`: what `dataflow inspect --check` has found just now."""
    written = {dataset["dataset"]: _placed(found, dataset, looks) for dataset in outputs_of(found)}
    read = {dataset["dataset"]: _placed(found, dataset, looks) for dataset in inputs_of(found)}
    evidence = list(chain.from_iterable(one.evidence for one in (*written.values(), *read.values())))
    answer, qualification = _combine(found, written)
    missing = [name for name, one in read.items() if one.found is Answer.NO]
    if missing:
        qualification = "; ".join(filter(None, (qualification, f"its input {', '.join(missing)} was not found")))
    return answer, qualification, evidence


@dataclass(frozen=True)
class _Placed:
    """What is known about the place of one data set.

    `moved`: it is declared at another place since the run. `checked`: only its location was looked at, not its rows.
    """

    found: Answer
    evidence: list[Evidence]
    moved: bool = False
    checked: bool = False


def _combine(found: Facts, written: Mapping[str, _Placed]) -> tuple[Answer, str]:
    if not written:
        return Answer.UNKNOWN, "the job has no outputs"
    if not any(dataset["status"] == ChunkStatus.READY for dataset in outputs_of(found)):
        return Answer.NO, not_yet(found)
    if any(one.moved for one in written.values()):
        return Answer.NO, "its data set is declared at another place since it was made"
    for answer, words in ((Answer.NO, "was not found"), (Answer.UNKNOWN, "was not looked at")):
        names = [name for name, one in written.items() if one.found is answer]
        if names:
            return answer, f"the place of {', '.join(names)} {words}"
    checked = any(one.checked for one in written.values())
    return Answer.YES, "its location exists, and nobody looked for the rows of the chunk" if checked else ""


def _placed(found: Facts, dataset: Facts, checks: Sequence[Look]) -> _Placed:
    name, now, then = dataset["dataset"], dataset["now"] or {}, dataset["then"]
    own = _is_of_last_run(found, dataset)
    seen = [look for look in _reported(found) if own and look.dataset in (name, bare(name))]
    checked = [look for look in checks if look.dataset == name]
    evidence = [_look_evidence(look) for look in (*seen, *checked)]
    moved = own and dataset["used_fence"] is not None and then is not None and _where(then) != _where(now)
    if moved:
        sentence = f"the run got {name} at {place(then)}; now it is declared at {place(now)}"
        evidence.insert(0, Evidence(sentence, run_name(found), found["run"]["claimed_at"], place(then)))
        return _Placed(_last(checked), evidence, moved=dataset["itemtype"] == "OUT", checked=True)
    elsewhere = [look for look in seen if has_location(now) and not _is_at(look.place, now)]
    if elsewhere:
        sentence = f"{name} is declared at {place(now)}; whether that is the place of the run is not known"
        evidence.append(Evidence(sentence, NOBODY, None, place(now)))
    evidence += [] if evidence else [_unseen(found, dataset, now)]
    reported = [look for look in seen if look not in elsewhere]
    return _Placed(_last([*reported, *checked]), evidence, checked=_last(reported) is not Answer.YES)


def _is_of_last_run(found: Facts, dataset: Facts) -> bool:
    """Return whether the last run read the data set, or made its present version."""
    return dataset["itemtype"] == "IN" or (found["run"] is not None and dataset["run"] == found["run"]["id"])


def _last(looks: Sequence[Look]) -> Answer:
    """Return the answer of the newest look that could be made. Later looks come last."""
    return next((look.found for look in reversed(looks) if look.found is not Answer.UNKNOWN), Answer.UNKNOWN)


def _unseen(found: Facts, dataset: Facts, now: Facts) -> Evidence:
    name = dataset["dataset"]
    if dataset["now"] is None:
        return Evidence(f"{name} is not declared any more, and nobody looked for it", NOBODY)
    if not has_location(now):
        return Evidence(f"{name} declares no location, so nobody can look there", NOBODY)
    passed = dataset["used_fence"] is not None and dataset["then"] is not None
    words = f", as it was for {run_name(found)}" if passed else ""
    return Evidence(f"{name} is declared at {place(now)}{words}; nobody looked there", NOBODY, None, place(now))


def _look_evidence(look: Look) -> Evidence:
    return Evidence(f"{look.who}: {look.sentence}", look.who, look.at.isoformat(timespec="seconds"), look.place)


def _reported(found: Facts) -> Iterator[Look]:
    """Yield the looks that the last run reported, if it has succeeded. Invalid ones are ignored."""
    run = found["run"]
    if run is None or run["state"] != RunState.SUCCEEDED:
        return
    for document in (run["metrics"] or {}).get("looks") or ():
        try:
            yield Look.parse({"at": run["finished_at"], **document, "who": run_name(found)})
        except (KeyError, TypeError, ValueError):
            continue


def _where(declared: Facts) -> list[object]:
    return [declared.get(column) for column in (*_COLUMNS, "options")]


def _is_at(seen: str, declared: Facts) -> bool:
    """Return whether a place that a run reported is in the declared location. A relative path may be anywhere."""
    url = declared.get("url")
    if url and not is_database_url(url):
        path = url.removeprefix("file://").rstrip("/").removeprefix("./")
        return f"{seen}/".startswith(f"{path}/") or ("://" not in path and f"/{path}/" in f"{seen}/")
    words = set(re.split(r"[^\w$-]+", seen))
    return all(
        set(re.split(r"[^\w$-]+", str(declared[column]))) - {""} <= words
        for column in _LOCATION
        if declared.get(column)
    )
