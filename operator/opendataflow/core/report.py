"""Reads what a program tells of its work: a JSON object in its pod's termination message. Pure.

    {"rows": 118, "rowsIn": 120, "bytes": 4711, "checksum": "sha256:…", "expectations": {"not null": true},
     "commit": "4f0c…", "tests": {"subject": "…", "commit": "4f0c…", "passed": true}, "failure": "a sentence"}

Each of these may be left out, one has to be there; what a program adds is kept beside them. What is no report is plain
text for people, never an error. `commit` says what was run. With `failure` it is the report of a run that has failed:
it never says that the run was done. `tests`: whether what was run passes its unit tests; where it does not, nothing was
done. `gone` in it: the version that has passed before, where that can't be used any more.
"""

import json
from typing import Any

from opendataflow.model.run import Report

LARGEST = 4096
"""Bytes of a termination message that Kubernetes keeps."""
_LARGEST_BIGINT = 2**63 - 1
_LONGEST_CHECKSUM = 200


def read_report(message: str | None) -> Report | None:
    """Return the report, or None where the message is none: no JSON object, nothing known in it, or a wrong value."""
    if message is None or not message.lstrip().startswith("{") or len(message.encode(errors="replace")) > LARGEST:
        return None
    try:
        told = json.loads(message, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    known = {name: told[name] for name in _VALID if told.get(name) is not None}
    if not known or not all(_VALID[name](value) for name, value in known.items()):
        return None
    return Report({name: value for name, value in told.items() if value is not None})


def _refuse(constant: str) -> None:
    """NaN and Infinity are no JSON, and Postgres does not take them."""
    raise ValueError(constant)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_BIGINT


def _is_sentence(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_checksum(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_CHECKSUM and value.isprintable()


def _are_expectations(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(held, bool) for held in value.values())


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
    "expectations": _are_expectations,
    "commit": _is_checksum,
    "tests": _are_tests,
    "failure": _is_sentence,
}
