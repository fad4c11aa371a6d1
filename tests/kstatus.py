"""What kstatus (sigs.k8s.io/cli-utils, pkg/kstatus/status) makes of a custom resource: its rules, in their order."""

from collections.abc import Mapping
from typing import Any


def kstatus(generation: int, status: Mapping[str, Any]) -> str:
    """Current, InProgress or Failed; of a resource that is not being deleted."""
    observed = status.get("observedGeneration")
    if observed is not None and observed != generation:
        return "InProgress"
    conditions = status.get("conditions", [])
    for condition in conditions:
        if condition["type"] == "Reconciling" and condition["status"] == "True":
            return "InProgress"
        if condition["type"] == "Stalled" and condition["status"] == "True":
            return "Failed"
    for condition in conditions:
        if condition["type"] == "Ready":
            return "Current" if condition["status"] == "True" else "InProgress"
    return "Current"
