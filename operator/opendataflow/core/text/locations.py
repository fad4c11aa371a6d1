"""Sentences about locations that are missing, so that runs do not start. Pure.

The evidence comes from sql/functions/58_gates.sql. Without `remaining`, no text changes while time passes.
"""

from collections.abc import Mapping
from typing import Any

from opendataflow.core.text.moments import shown

Gate = Mapping[str, Any]
"""A row of the table `gate`, as describe_gate() returns it."""


def gate_sentence(gate: Gate) -> str:
    """Return why no run of a job starts, and what happens next."""
    return f"{gate['failure']}; no run of the job starts until this location is there; one run at a time looks again"


def looks_sentence(gate: Gate, remaining: str) -> str:
    """Return since when a job looks for a location. `remaining`: the time until the next look."""
    since = shown(gate["failing_since"])
    return f"it was looked at {times(gate['looks'])} since {since}; the next look is due {remaining}"


def missing_sentence(missing: Mapping[str, Any]) -> str:
    """Return which chunks wait for their location. `missing`: the row of missing_locations()."""
    chunks, examples = missing["chunks"], ", ".join(missing["examples"])
    more = " …" if chunks > len(missing["examples"]) else ""
    wait = "1 chunk waits for its location" if chunks == 1 else f"{chunks} chunks wait for their locations"
    return f"{wait} ({examples}{more}), which consumes no retry: {missing['reason']}"


def times(looks: int) -> str:
    """Return a number of looks in words."""
    return "once" if looks == 1 else f"{looks} times"
