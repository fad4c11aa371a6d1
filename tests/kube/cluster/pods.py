"""Pods for the tests: made with the annotations of `stages`, and read."""

from typing import Any

from opendataflow.names import FINALIZER
from tests.kube.cluster.annotations import PREFIX
from tests.kube.cluster.api import Object


def pod_annotations(**annotations: object) -> dict[str, str]:
    """Annotations for `stages`: run_seconds=2 is `test.opendataflow.io/run-seconds: "2"`."""
    return {PREFIX + name.replace("_", "-"): str(value) for name, value in annotations.items()}


def pod(name: str, *, spec: dict[str, Any] | None = None, finalizer: bool = False, **annotations: object) -> Object:
    """A pod with a container `main`; `spec`: more of its spec, `annotations`: see `pod_annotations`."""
    metadata: Object = {"name": name, "annotations": pod_annotations(**annotations)}
    if finalizer:
        metadata["finalizers"] = [FINALIZER]
    container = {"name": "main", "image": "none/none:1", "command": ["true"]}
    whole = {"restartPolicy": "Never", "containers": [container], **(spec or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": whole}


MAIN = ("main", "spark-kubernetes-driver")
"""The containers that count."""


def state(pod: Object, *container: str) -> Object:
    """The state of a container, of the one that counts where none is named: {"terminated": {...}}, {"running": {...}},
    {"waiting": {...}}, or nothing yet."""
    statuses = pod.get("status", {})
    for status in [*statuses.get("containerStatuses", []), *statuses.get("initContainerStatuses", [])]:
        if status["name"] in (container or MAIN):
            found: Object = status["state"]
            return found
    return {}


def phase(pod: Object) -> str:
    """Pending, Running, Succeeded, Failed."""
    return str(pod["status"]["phase"])


def has_ended(pod: Object) -> bool:
    """Whether its phase is final."""
    return phase(pod) in {"Succeeded", "Failed"}
