"""Why a driver gets no executors, seen in their pods. Pure: what the API server tells, and the time, in; words out.

Spark itself waits without an end for executors that can't be scheduled, or whose image can't be pulled.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

_LONGEST = 300


@dataclass(frozen=True)
class Trouble:
    """No executor runs. `since`: seconds since the epoch. `why`: what is said of the one that waits longest."""

    since: float
    why: str


def trouble(pods: Iterable[Mapping[str, Any]]) -> Trouble | None:
    """Return what keeps a driver waiting: pods of executors that wait, and none that runs. `pods`: as JSON."""
    waiting = []
    for pod in pods:
        phase = pod.get("status", {}).get("phase")
        if phase == "Running":
            return None
        if phase == "Pending" and "deletionTimestamp" not in pod["metadata"]:
            created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"]).timestamp()
            waiting.append((created, pod["metadata"]["name"], pod))
    if not waiting:
        return None
    since, name, pod = min(waiting, key=lambda each: each[:2])
    return Trouble(since, f"{name} {_why(pod.get('status', {}))}")


def _why(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _line("is unschedulable", condition)
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        state = container.get("state", {}).get("waiting", {})
        if state.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return _line(f"can't start ({state['reason']})", state)
    return "has not started; its events say why"


def _line(what: str, told: Mapping[str, Any]) -> str:
    said = " ".join(str(told.get("message") or told.get("reason") or "").split())[:_LONGEST]
    return f"{what}: {said}" if said else what
