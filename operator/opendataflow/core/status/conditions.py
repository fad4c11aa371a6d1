"""Conditions of a status, after the conventions of the Kubernetes API. Pure; it does not know the kinds of resources.

`kubectl wait --for=condition=…` and tools with kstatus (sigs.k8s.io/cli-utils) read conditions. For kstatus a resource
is Failed if Stalled is True. It is InProgress if status.observedGeneration differs from metadata.generation, or if
Ready is not True. Otherwise it is Current. kstatus ignores Progressing.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import ValidationError

from opendataflow.model.resources.statuses import Condition
from opendataflow.names import ConditionType

Truth = Literal["True", "False", "Unknown"]

MESSAGE_BYTES = 1000
"""The most bytes of a condition's message as JSON. A status has eight conditions, and must be smaller than 32 KiB."""


@dataclass(frozen=True)
class Fault:
    """Why a resource can't be accepted: a reason in CamelCase, and a sentence with the place and the remedy."""

    reason: str
    message: str


@dataclass(frozen=True)
class ConditionValue:
    """The present value of a condition. `holds`: None if unknown."""

    holds: bool | None
    reason: str
    message: str = ""

    @property
    def status(self) -> Truth:
        """The status in the spelling of Kubernetes."""
        return "Unknown" if self.holds is None else "True" if self.holds else "False"


def conditions(
    values: Mapping[ConditionType, ConditionValue | None],
    before: Mapping[str, Any],
    observed: int | None,
    now: datetime,
) -> tuple[Condition, ...]:
    """Return the conditions of a status.

    `values`: in the order of the result; None for a condition that does not change. `before`: the status in the
    cluster, as JSON. A condition keeps its transition time until its status changes. `observed`: the generation.
    """
    known = {condition.type: condition for condition in read_conditions(before)}
    found = (_condition(kind, value, known.get(kind), observed, now) for kind, value in values.items())
    return tuple(condition for condition in found if condition is not None)


def _condition(
    kind: ConditionType, value: ConditionValue | None, before: Condition | None, observed: int | None, now: datetime
) -> Condition | None:
    if value is None:
        return before
    same = before is not None and before.status == value.status
    return Condition(
        type=kind,
        status=value.status,
        observed_generation=observed,
        last_transition_time=before.last_transition_time if before is not None and same else now.replace(microsecond=0),
        reason=value.reason,
        message=truncated(value.message, MESSAGE_BYTES),
    )


def read_conditions(status: Mapping[str, Any]) -> list[Condition]:
    """Return the conditions of a status in the cluster. Invalid conditions are left out."""
    read = []
    listed = status.get("conditions")
    for body in listed if isinstance(listed, list) else []:
        try:
            read.append(Condition.model_validate(body))
        except ValidationError:
            continue
    return read


def condition(of: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """Return the condition of a type; None if there is none."""
    return next((one for one in of if one.type == kind), None)


def truncated(text: str, size: int) -> str:
    """Return a text as one line, truncated to at most `size` bytes of JSON."""
    line = " ".join(text.split())
    if _stored(line) <= size:
        return line
    kept, room = [], size - _stored("…")
    for letter in line:
        room -= _stored(letter)
        if room < 0:
            break
        kept.append(letter)
    return "".join(kept) + "…"


def _stored(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")) - 2
