"""Conditions of a status, after the conventions of the Kubernetes API. Pure; what they are about is elsewhere.

`kubectl wait --for=condition=…` and tools that go by kstatus (sigs.k8s.io/cli-utils) read them. kstatus says Failed
where Stalled is True; InProgress where status.observedGeneration is not metadata.generation, or Ready is not True;
else Current. It never looks at Progressing.
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
"""Of a condition's message, as it is stored: a status has eight of them and stays below 32 KiB."""


@dataclass(frozen=True)
class Fault:
    """Why a resource can't be honoured: a reason in CamelCase, and a sentence with the place and the remedy."""

    reason: str
    message: str


@dataclass(frozen=True)
class Said:
    """What a condition says now; None for what nobody knows."""

    so: bool | None
    reason: str
    message: str = ""

    @property
    def status(self) -> Truth:
        """As Kubernetes spells it."""
        return "Unknown" if self.so is None else "True" if self.so else "False"


def conditions(
    said: Mapping[ConditionType, Said | None],
    before: Mapping[str, Any],
    observed: int | None,
    now: datetime,
) -> tuple[Condition, ...]:
    """Return the conditions. `said`: in their order, None for one that stays as it was. `before`: the status that the
    cluster shows, as JSON. A condition keeps its time for as long as it is what it was."""
    known = {condition.type: condition for condition in read_conditions(before)}
    told = (_condition(kind, one, known.get(kind), observed, now) for kind, one in said.items())
    return tuple(condition for condition in told if condition is not None)


def _condition(
    kind: ConditionType, said: Said | None, before: Condition | None, observed: int | None, now: datetime
) -> Condition | None:
    if said is None:
        return before
    same = before is not None and before.status == said.status
    return Condition(
        type=kind,
        status=said.status,
        observed_generation=observed,
        last_transition_time=before.last_transition_time if before is not None and same else now.replace(microsecond=0),
        reason=said.reason,
        message=fitting(said.message, MESSAGE_BYTES),
    )


def read_conditions(status: Mapping[str, Any]) -> list[Condition]:
    """The conditions of a status as the cluster shows it; those that can't be read are left out."""
    read = []
    listed = status.get("conditions")
    for body in listed if isinstance(listed, list) else []:
        try:
            read.append(Condition.model_validate(body))
        except ValidationError:
            continue
    return read


def condition(of: Iterable[Condition], kind: ConditionType) -> Condition | None:
    """One of some conditions."""
    return next((one for one in of if one.type == kind), None)


def fitting(text: str, size: int) -> str:
    """Return a text in one line that takes at most `size` bytes where it is stored as JSON; the rest is cut."""
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
