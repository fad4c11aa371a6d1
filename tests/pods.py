"""Pods as Kubernetes reports them, for tests: JSON with what matters, and nothing else."""

from collections.abc import Mapping
from typing import Any

from opendataflow import names
from opendataflow.keys import bare
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.run import Host

NONCE = "c0ffee00-0000-4000-8000-000000000000"
BEGAN = "2026-11-28T10:00:00Z"
BEGAN_AT = 1795860000.0


def pod_of(run: Mapping[str, Any]) -> str:
    """The name of a run's pod, by its row in Postgres."""
    return names.pod_name(bare(run["job"]), run["id"], str(run["nonce"]))


def claimed(number: int, job: str = "load", home: str = "team") -> ClaimedRun:
    """A claimed run. `home`: the namespace of its pod, or the folder of its files."""
    host = Host("kubernetes", "")
    return ClaimedRun(number, job, f"2013-02-{number:02}", 34 + number, 1, 0, 0, {}, "lease", host, home, NONCE)


def at(second: int) -> str:
    """A moment so many seconds after the pod was created, as Kubernetes writes it."""
    return f"2026-11-28T{10 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


def terminated(code: int, second: int = 60, **more: Any) -> dict[str, Any]:
    """The state of a container that has ended."""
    return {"terminated": {"exitCode": code, "finishedAt": at(second), **more}}


def waiting(reason: str, message: str | None = None) -> dict[str, Any]:
    """The state of a container that does not run yet."""
    return {"waiting": {"reason": reason} | ({"message": message} if message else {})}


RUNNING: dict[str, Any] = {"running": {"startedAt": at(5)}}


def container(name: str, state: dict[str, Any]) -> dict[str, Any]:
    """The status of a container."""
    return {"name": name, "state": state}


def deleted(second: int, grace: int = 30) -> dict[str, Any]:
    """The metadata of a pod that somebody asked to delete at this second."""
    return {"deletionTimestamp": at(second + grace), "deletionGracePeriodSeconds": grace}


def pod(
    main: dict[str, Any] | None = None,
    *,
    phase: str = "Running",
    metadata: dict[str, Any] | None = None,
    spec: dict[str, Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """A run's pod on node n1; `main`: the state of its main container."""
    statuses = {} if main is None else {"containerStatuses": [container(names.MAIN_CONTAINER, main)]}
    return {
        "metadata": {
            "name": "load-r7-c0ffee",
            "namespace": "team",
            "uid": "u7",
            "creationTimestamp": BEGAN,
            "labels": {names.LABEL_RUN: "7", names.LABEL_ENGINE: "e1"},
            "annotations": {names.ANNOTATION_FENCE: "41", names.ANNOTATION_NONCE: NONCE},
            "finalizers": [names.FINALIZER],
            **(metadata or {}),
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "main", "resources": {"limits": {"memory": "512Mi"}}}],
            **(spec or {}),
        },
        "status": {"phase": phase, "startTime": at(1), **statuses, **status},
    }
