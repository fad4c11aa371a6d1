"""Explain from pods why a driver has no running executor. Pure.

Spark itself waits for ever for executors that can't be scheduled, or whose image can't be pulled.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

_LONGEST = 300


@dataclass(frozen=True)
class MissingExecutor:
    """No executor runs. `since`: seconds since the epoch. `why`: the reason for the executor that waits longest."""

    since: float
    why: str


def find_missing_executor(pods: Iterable[Mapping[str, Any]]) -> MissingExecutor | None:
    """Return why no executor runs, or None if one runs or none waits. `pods`: of the executors, as JSON."""
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
    return MissingExecutor(since, f"{name} {_explain(pod.get('status', {}))}")


def _explain(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _describe("is unschedulable", condition)
    for container in [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]:
        state = container.get("state", {}).get("waiting", {})
        if state.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return _describe(f"can't start ({state['reason']})", state)
    return "has not started; its events say why"


def _describe(what: str, state: Mapping[str, Any]) -> str:
    message = " ".join(str(state.get("message") or state.get("reason") or "").split())[:_LONGEST]
    return f"{what}: {message}" if message else what
