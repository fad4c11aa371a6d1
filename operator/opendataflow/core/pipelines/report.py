"""Parse the report of a run: a JSON object in the pod's termination message, or in a file beside the context. Pure.

    {"rows": 118, "rowsIn": 120, "bytes": 4711, "checksum": "sha256:…", "commit": "4f0c…", "failure": "a sentence",
     "expectations": {"keys": true, "paid": {"held": false, "severity": "warn", "found": "2 rows"}},
     "tests": {"subject": "…", "commit": "4f0c…", "passed": true}, "preflight": "passed",
     "looks": [{"dataset": "delays", "place": "/data/delays", "found": "yes", "sentence": "has written 118 rows to …"}],
     "steps": [["read flights", "DONE", 120, 0.6], 3, ["write", "FAILED", null, 1.2, "a sentence", "what it printed"]],
     "unfinished": true}

All fields are optional, and one is required. Additional fields are kept. `commit`: the executed version. `failure`: the
run has failed. `unfinished`: the run goes on. Neither of these two reports the run as done. An expectation that is
false, or does not hold with severity `fail` (the default), fails the run.

A step is a list: name, status, rows, seconds, error, end of its output. Unknown values at the end are left out. A
number stands for that many omitted steps. `tests`: whether the unit tests pass; if not, the run did nothing. `gone` in
`tests`: an earlier version that passed and can't be used any more. `preflight`: whether the run found its locations; if
not, it did nothing.

`looks`: the places of data sets that the run has read or written, or has not found. They are evidence for
`dataflow inspect`.

A message that is no report is text for people, and no error. Invalid steps, expectations and looks are ignored. The
metric `ignored` then names the reason.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from opendataflow.model.records.run import Report, StepReport
from opendataflow.names import Answer, Preflight, StepStatus

LARGEST = 4096
"""Bytes of a termination message that Kubernetes keeps."""
LARGEST_FILE = 256 * 1024
"""Bytes of a report that is a file."""
MOST_STEPS = 1000
MOST_EXPECTATIONS = 1000
MOST_LOOKS = 100
LONGEST_NAME = 200
LONGEST_TEXT = 16 * 1024
"""Maximum length of an error and of a step's output, in characters."""
_LARGEST_BIGINT = 2**63 - 1
_LONGEST_CHECKSUM = 200


def read_report(message: str | None, largest: int = LARGEST) -> Report | None:
    """Return the report, or None if the message is no JSON object, has no known field, or has an invalid value."""
    if message is None or not message.lstrip().startswith("{") or len(message.encode(errors="replace")) > largest:
        return None
    try:
        fields = _map_texts(json.loads(message, parse_constant=_reject_constant), _make_storable)
    except (ValueError, RecursionError):
        return None
    fields = {name: value for name, value in fields.items() if value is not None}
    if not fields.keys() & _KNOWN or not all(valid(fields[name]) for name, valid in _VALID.items() if name in fields):
        return None
    return _parse_fields(fields)


def redact_report(report: Report, redact: Callable[[str], str]) -> Report:
    """Return a report with redacted texts. `redact`: removes secrets from a text."""
    steps = tuple(
        replace(
            step,
            name=redact(step.name),
            error=None if step.error is None else redact(step.error)[:LONGEST_TEXT],
            stdout=None if step.stdout is None else redact(step.stdout)[-LONGEST_TEXT:],
        )
        for step in report.steps
    )
    return replace(report, metrics=_map_texts(report.metrics, redact), steps=steps)


def _parse_fields(fields: dict[str, Any]) -> Report:
    written, unfinished = fields.pop("steps", None), fields.pop("unfinished", False)
    ignored: list[str] = []
    steps: tuple[StepReport, ...] = ()
    try:
        steps = _parse_steps(written)
    except ValueError as error:
        ignored.append(str(error))
    try:
        if "expectations" in fields:
            fields["expectations"] = _parse_expectations(fields["expectations"])
    except ValueError as error:
        del fields["expectations"]
        ignored.append(str(error))
    if "looks" in fields and not _are_looks(fields["looks"]):
        del fields["looks"]
        ignored.append(f"looks is no list of at most {MOST_LOOKS} objects with dataset, place, found and sentence")
    if ignored:
        fields["ignored"] = "; ".join(ignored)
    return Report(fields, steps, unfinished)


def _parse_steps(value: Any) -> tuple[StepReport, ...]:
    """Parse the steps. Raises ValueError with a sentence."""
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MOST_STEPS:
        raise ValueError(f"steps is no list of at most {MOST_STEPS}")
    return tuple(_parse_items(value))


def _parse_items(items: list[Any]) -> Iterator[StepReport]:
    ordinal = 1
    for item in items:
        if type(item) is int and 0 < item <= MOST_STEPS:
            ordinal += item
            continue
        if not isinstance(item, list) or not 2 <= len(item) <= 6:
            raise ValueError(f"step {ordinal} is no list of name, status, rows, seconds, error and output")
        name, status, rows, seconds, error, stdout = (*item, None, None, None, None)[:6]
        is_valid = (
            isinstance(name, str)
            and bool(name)
            and isinstance(status, str)
            and status in set(StepStatus)
            and (rows is None or _is_count(rows))
            and (seconds is None or _is_time(seconds))
            and all(text is None or isinstance(text, str) for text in (error, stdout))
        )
        if not is_valid:
            raise ValueError(f"step {ordinal} has a value that can't be: {str(item)[:LONGEST_NAME]}")
        first, last = error and error[:LONGEST_TEXT], stdout and stdout[-LONGEST_TEXT:]
        yield StepReport(ordinal, name[:LONGEST_NAME], StepStatus(status), rows, seconds, first or None, last or None)
        ordinal += 1


def _parse_expectations(value: Any) -> list[dict[str, Any]]:
    """Parse the expectations. Raises ValueError with a sentence."""
    if not isinstance(value, dict) or len(value) > MOST_EXPECTATIONS:
        raise ValueError(f"expectations is no object of at most {MOST_EXPECTATIONS}")
    return [_parse_expectation(name, item) for name, item in value.items()]


def _parse_expectation(name: str, value: Any) -> dict[str, Any]:
    given = {"held": value} if isinstance(value, bool) else value
    if isinstance(given, dict) and given.keys() <= {"held", "severity", "found"}:
        held, severity, found = given.get("held", True), given.get("severity", "fail"), given.get("found", "")
        if isinstance(held, bool) and severity in ("fail", "warn") and isinstance(found, str):
            found = found[:LONGEST_TEXT]
            return {"name": name[:LONGEST_NAME], "held": held, "severity": severity, "found": found}
    raise ValueError(f"expectation {name[:LONGEST_NAME]} is neither true, false, nor {{held, severity, found}}")


def _are_looks(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MOST_LOOKS and all(_is_look(it) for it in value)


def _is_look(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() != {"dataset", "place", "found", "sentence"}:
        return False
    texts = (value["dataset"], value["place"], value["sentence"])
    return (
        isinstance(value["found"], str)
        and value["found"] in set(Answer)
        and all(isinstance(it, str) and len(it) <= LONGEST_TEXT for it in texts)
    )


def _reject_constant(constant: str) -> None:
    """Reject NaN and Infinity, which are no JSON and which Postgres refuses."""
    raise ValueError(constant)


def _make_storable(text: str) -> str:
    """Return a text without the characters that Postgres refuses: NUL, and lone surrogates."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with all texts changed. Raises ValueError for an infinite number."""
    if isinstance(value, float) and not math.isfinite(value):  # 1e999
        raise ValueError(value)
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_map_texts(item, change) for item in value]
    if isinstance(value, Mapping):
        return {change(name): _map_texts(item, change) for name, item in value.items()}
    return value


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_BIGINT


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= _LARGEST_BIGINT and math.isfinite(value)


def _is_sentence(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_checksum(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_CHECKSUM and value.isprintable()


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_test_verdict(value: Any) -> bool:
    if not isinstance(value, dict) or type(value.get("passed")) is not bool:
        return False
    return all(_is_checksum(value.get(name)) for name in ("subject", "commit")) and (
        value.get("gone") is None or _is_checksum(value["gone"])
    )


def _is_preflight(value: Any) -> bool:
    return isinstance(value, str) and value in set(Preflight)


_VALID = {
    "rows": _is_count,
    "rowsIn": _is_count,
    "bytes": _is_count,
    "checksum": _is_checksum,
    "commit": _is_checksum,
    "tests": _is_test_verdict,
    "preflight": _is_preflight,
    "failure": _is_sentence,
    "unfinished": _is_flag,
}
_KNOWN = _VALID.keys() | {"expectations", "steps", "looks"}
