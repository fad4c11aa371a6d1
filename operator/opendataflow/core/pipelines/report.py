"""Reads what a program tells of its work: a JSON object in its pod's termination message, or in the file beside the
context of a run on one machine. Pure.

    {"rows": 118, "rowsIn": 120, "bytes": 4711, "checksum": "sha256:…", "commit": "4f0c…", "failure": "a sentence",
     "expectations": {"keys": true, "paid": {"held": false, "severity": "warn", "found": "2 rows"}},
     "tests": {"subject": "…", "commit": "4f0c…", "passed": true},
     "steps": [["read flights", "DONE", 120, 0.6], 3, ["write", "FAILED", null, 1.2, "a sentence", "what it printed"]],
     "unfinished": true}

Each of these may be left out, one has to be there; what a program adds is kept beside them. `commit` says what was run.
With `failure` it is the report of a run that has failed, and with `unfinished` of one that is under way: they never say
that the run was done. An expectation that is false, or of the severity `fail`, which is the default, fails the run. A
step is its name, status, rows, seconds, error and the end of what it printed, without what is not known at the end; a
number says how many steps were left out. `tests`: whether what was run passes its unit tests; where it does not,
nothing was done. `gone` in it: the version that has passed before, where that can't be used any more.

What is no report is plain text for people, never an error. Steps and expectations that can't be read are ignored, and
`ignored` among the metrics says why: the rest of the report is good all the same.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from opendataflow.model.records.run import Report, StepTold
from opendataflow.names import StepStatus

LARGEST = 4096
"""Bytes of a termination message that Kubernetes keeps."""
LARGEST_FILE = 256 * 1024
"""Bytes of a report that is a file."""
MOST_STEPS = 1000
MOST_EXPECTATIONS = 1000
LONGEST_NAME = 200
LONGEST_TEXT = 16 * 1024
"""Of what is kept of an error, and of what a step has printed, in letters."""
_LARGEST_BIGINT = 2**63 - 1
_LONGEST_CHECKSUM = 200


def read_report(message: str | None, largest: int = LARGEST) -> Report | None:
    """Return the report, or None where the message is none: no JSON object, nothing known in it, or a wrong value."""
    if message is None or not message.lstrip().startswith("{") or len(message.encode(errors="replace")) > largest:
        return None
    try:
        told = _each_text(json.loads(message, parse_constant=_refuse), _storable)
    except (ValueError, RecursionError):
        return None
    told = {name: value for name, value in told.items() if value is not None}
    if not told.keys() & _KNOWN or not all(valid(told[name]) for name, valid in _VALID.items() if name in told):
        return None
    return _report(told)


def redacted(report: Report, redact: Callable[[str], str]) -> Report:
    """Return a report whose texts went through `redact`, which takes secrets out."""
    steps = tuple(
        replace(
            step,
            name=redact(step.name),
            error=None if step.error is None else redact(step.error)[:LONGEST_TEXT],
            stdout=None if step.stdout is None else redact(step.stdout)[-LONGEST_TEXT:],
        )
        for step in report.steps
    )
    return replace(report, metrics=_each_text(report.metrics, redact), steps=steps)


def _report(told: dict[str, Any]) -> Report:
    steps, unfinished = told.pop("steps", None), told.pop("unfinished", False)
    ignored: list[str] = []
    read: tuple[StepTold, ...] = ()
    try:
        read = _steps(steps)
    except ValueError as error:
        ignored.append(str(error))
    try:
        if "expectations" in told:
            told["expectations"] = _expectations(told["expectations"])
    except ValueError as error:
        del told["expectations"]
        ignored.append(str(error))
    if ignored:
        told["ignored"] = "; ".join(ignored)
    return Report(told, read, unfinished)


def _steps(told: Any) -> tuple[StepTold, ...]:
    """Read the steps. Raises ValueError with a sentence."""
    if told is None:
        return ()
    if not isinstance(told, list) or len(told) > MOST_STEPS:
        raise ValueError(f"steps is no list of at most {MOST_STEPS}")
    return tuple(_each_step(told))


def _each_step(told: list[Any]) -> Iterator[StepTold]:
    ordinal = 1
    for item in told:
        if type(item) is int and 0 < item <= MOST_STEPS:
            ordinal += item
            continue
        if not isinstance(item, list) or not 2 <= len(item) <= 6:
            raise ValueError(f"step {ordinal} is no list of name, status, rows, seconds, error and output")
        name, status, rows, seconds, error, stdout = (*item, None, None, None, None)[:6]
        good = (
            isinstance(name, str)
            and bool(name)
            and isinstance(status, str)
            and status in set(StepStatus)
            and (rows is None or _is_count(rows))
            and (seconds is None or _is_time(seconds))
            and all(text is None or isinstance(text, str) for text in (error, stdout))
        )
        if not good:
            raise ValueError(f"step {ordinal} has a value that can't be: {str(item)[:LONGEST_NAME]}")
        first, last = error and error[:LONGEST_TEXT], stdout and stdout[-LONGEST_TEXT:]
        yield StepTold(ordinal, name[:LONGEST_NAME], StepStatus(status), rows, seconds, first or None, last or None)
        ordinal += 1


def _expectations(told: Any) -> list[dict[str, Any]]:
    """Read the expectations. Raises ValueError with a sentence."""
    if not isinstance(told, dict) or len(told) > MOST_EXPECTATIONS:
        raise ValueError(f"expectations is no object of at most {MOST_EXPECTATIONS}")
    return [_expectation(name, value) for name, value in told.items()]


def _expectation(name: str, value: Any) -> dict[str, Any]:
    given = {"held": value} if isinstance(value, bool) else value
    if isinstance(given, dict) and given.keys() <= {"held", "severity", "found"}:
        held, severity, found = given.get("held", True), given.get("severity", "fail"), given.get("found", "")
        if isinstance(held, bool) and severity in ("fail", "warn") and isinstance(found, str):
            found = found[:LONGEST_TEXT]
            return {"name": name[:LONGEST_NAME], "held": held, "severity": severity, "found": found}
    raise ValueError(f"expectation {name[:LONGEST_NAME]} is neither true, false, nor {{held, severity, found}}")


def _refuse(constant: str) -> None:
    """NaN and Infinity are no JSON, and Postgres does not take them."""
    raise ValueError(constant)


def _storable(text: str) -> str:
    """Return a text without the letters that Postgres does not take: NUL, and halves of a pair."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _each_text(value: Any, change: Callable[[str], str]) -> Any:
    """Return a value of JSON with its texts changed. Raises ValueError for a number that Postgres does not take."""
    if isinstance(value, float) and not math.isfinite(value):  # 1e999
        raise ValueError(value)
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_each_text(item, change) for item in value]
    if isinstance(value, Mapping):
        return {change(name): _each_text(item, change) for name, item in value.items()}
    return value


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_BIGINT


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= _LARGEST_BIGINT and math.isfinite(value)


def _is_sentence(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_checksum(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_CHECKSUM and value.isprintable()


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _are_tests(value: Any) -> bool:
    if not isinstance(value, dict) or type(value.get("passed")) is not bool:
        return False
    return all(_is_checksum(value.get(name)) for name in ("subject", "commit")) and (
        value.get("gone") is None or _is_checksum(value["gone"])
    )


_VALID = {
    "rows": _is_count,
    "rowsIn": _is_count,
    "bytes": _is_count,
    "checksum": _is_checksum,
    "commit": _is_checksum,
    "tests": _are_tests,
    "failure": _is_sentence,
    "unfinished": _is_truth,
}
_KNOWN = _VALID.keys() | {"expectations", "steps"}
