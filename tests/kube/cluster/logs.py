"""What a container has printed, as its fake kubelet reports it: one line, until a test writes something else."""

from pathlib import Path
from typing import Any

from tests.kube.cluster.api import Api

OF_ALL = "a container's log"
_WHEN = "2013-02-01T00:00:00.000000000Z"

RESOURCE: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "logs.kwok.x-k8s.io"},
    "spec": {
        "group": "kwok.x-k8s.io",
        "names": {"kind": "Logs", "listKind": "LogsList", "plural": "logs", "singular": "logs"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""kwok's Logs: where the log of one pod is, by the pod's name. kwok watches it."""


def write_log(path: Path, text: str) -> None:
    """Write a file as container runtimes do: a time, a stream and a flag before each line."""
    path.write_text("".join(f"{_WHEN} stdout F {line}\n" for line in text.splitlines()))


def set_log(api: Api, namespace: str, pod: str, path: Path, text: str) -> None:
    """From now on (a moment later) `text` is what all containers of a pod have printed; it is kept in `path`."""
    write_log(path, text)
    spec = {"logs": [{"logsFile": str(path)}]}
    body = {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Logs", "metadata": {"name": pod}, "spec": spec}
    api.create(f"/apis/kwok.x-k8s.io/v1alpha1/namespaces/{namespace}/logs", body)
