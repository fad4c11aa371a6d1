"""Reads what a program tells of its work: a JSON object in its pod's termination message. Pure.

    {"rowsIn": 120, "rowsOut": 118, "bytes": 4711, "checksum": "sha256:…", "expectations": {"not null": true}}

Each field may be left out, other fields are ignored. What is no report is plain text for people, never an error.
"""

import json
from collections.abc import Mapping
from typing import Any

from opendataflow.model.run import Report

LARGEST = 4096
"""Bytes of a termination message that Kubernetes keeps."""
_LARGEST_BIGINT = 2**63 - 1
_LONGEST_CHECKSUM = 200
_MOST_EXPECTATIONS = 100


def read_report(message: str | None) -> Report | None:
    """Return the report, or None where the message is none: no JSON object, nothing known in it, a wrong value."""
    if message is None or len(message.encode(errors="replace")) > LARGEST or not message.lstrip().startswith("{"):
        return None
    try:
        told = json.loads(message)
    except (ValueError, RecursionError):
        return None
    try:
        report = Report(
            rows_in=_count(told, "rowsIn"),
            rows_out=_count(told, "rowsOut"),
            bytes=_count(told, "bytes"),
            checksum=_checksum(told),
            expectations=_expectations(told),
        )
    except ValueError:
        return None
    return report if report != Report() else None


def _count(told: Mapping[str, Any], name: str) -> int | None:
    value = told.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= _LARGEST_BIGINT:
        raise ValueError(name)
    return value


def _checksum(told: Mapping[str, Any]) -> str | None:
    value = told.get("checksum")
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_CHECKSUM or not value.isprintable():
        raise ValueError("checksum")
    return value


def _expectations(told: Mapping[str, Any]) -> dict[str, bool]:
    value = told.get("expectations")
    if value is None:
        return {}
    if not isinstance(value, dict) or len(value) > _MOST_EXPECTATIONS:
        raise ValueError("expectations")
    if not all(isinstance(held, bool) for held in value.values()):
        raise ValueError("expectations")
    return value
