"""Extracts facts of a pod, or of a SparkApplication, from its JSON. It never raises, for any JSON:
an object that can't be parsed would stop the watch of all others. It never judges the facts.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, overload

from opendataflow import names
from opendataflow.model.records.application import ObservedApplication
from opendataflow.model.records.pod import Condition, ObservedPod, Termination, Waiting

START_DEADLINE = 600.0
"""Seconds, for a pod whose annotation is missing or invalid."""


def parse_pod(pod: Mapping[str, Any]) -> ObservedPod:
    """Return the facts of a pod. Missing or invalid fields become None or empty."""
    metadata, spec, status = _map(pod, "metadata"), _map(pod, "spec"), _map(pod, "status")
    labels = _map(metadata, "labels")
    annotations = _map(metadata, "annotations")
    name = names.DRIVER_CONTAINER if names.LABEL_APPLICATION in labels else names.MAIN_CONTAINER
    main = _named(status, "containerStatuses", name)
    limits = _map(_map(_named(spec, "containers", name), "resources"), "limits")
    state = _map(main, "state")
    inits = [(_text(found, "name") or "", found) for found in _list(status, "initContainerStatuses")]
    endings = ((name, _ending(_map(found, "state"))) for name, found in inits)
    failed = next(((name, end) for name, end in endings if end is not None and end.exit_code != 0), None)
    waiting = next(((name, why) for name, found in inits if (why := _waiting(found)) is not None), None)
    deleted, grace = _time(metadata, "deletionTimestamp"), _number(metadata, "deletionGracePeriodSeconds") or 0.0
    return ObservedPod(
        namespace=_text(metadata, "namespace") or "",
        name=_text(metadata, "name") or "",
        uid=_text(metadata, "uid") or "",
        run=_decimal(labels, names.LABEL_RUN),
        fence=_decimal(annotations, names.ANNOTATION_FENCE),
        nonce=_text(annotations, names.ANNOTATION_NONCE),
        job=_text(annotations, names.ANNOTATION_JOB),
        data_id=_text(annotations, names.ANNOTATION_DATA_ID),
        engine=_text(labels, names.LABEL_ENGINE),
        owner=_application_owner(metadata),
        submission=_text(labels, names.LABEL_SUBMISSION),
        done=_decimal(labels, names.LABEL_DONE),
        phase=_text(status, "phase") or "",
        reason=_text(status, "reason"),
        message=_text(status, "message"),
        node=_text(spec, "nodeName"),
        created_at=_time(metadata, "creationTimestamp"),
        begun_at=_time(status, "startTime"),
        deadline=_number(spec, "activeDeadlineSeconds"),
        started="running" in state or main.get("started") is True,
        ended=_ending(state),
        waiting=_waiting(main),
        failed_init=failed,
        waiting_init=waiting,
        unscheduled=_condition(status, "PodScheduled", "False"),
        disrupted=_condition(status, "DisruptionTarget", "True"),
        # The timestamp is the time of the request plus the grace period.
        deleted_at=None if deleted is None else deleted - grace,
        grace=grace,
        finalizer=names.FINALIZER in _any_list(metadata, "finalizers"),
        start_deadline=_seconds(annotations, names.ANNOTATION_START_DEADLINE, START_DEADLINE),
        retry_after=_seconds(annotations, names.ANNOTATION_RETRY_AFTER, None),
        keep_log=annotations.get(names.ANNOTATION_KEEP_LOG) != "false",
        memory_limit=_text(limits, "memory"),
        executors=names.ANNOTATION_EXECUTORS in annotations,
        unheard=_unheard(spec, status),
        main=name,
    )


def parse_application(application: Mapping[str, Any]) -> ObservedApplication:
    """Return the facts of a SparkApplication. Missing or invalid fields become None or empty."""
    metadata, status = _map(application, "metadata"), _map(application, "status")
    labels, annotations = _map(metadata, "labels"), _map(metadata, "annotations")
    state = _map(status, "applicationState")
    return ObservedApplication(
        namespace=_text(metadata, "namespace") or "",
        name=_text(metadata, "name") or "",
        uid=_text(metadata, "uid") or "",
        run=_decimal(annotations, names.ANNOTATION_RUN),
        fence=_decimal(annotations, names.ANNOTATION_FENCE),
        nonce=_text(annotations, names.ANNOTATION_NONCE),
        job=_text(annotations, names.ANNOTATION_JOB),
        data_id=_text(annotations, names.ANNOTATION_DATA_ID),
        engine=_text(labels, names.LABEL_APPLICATION),
        done=_decimal(labels, names.LABEL_DONE),
        finalizer=names.FINALIZER in _any_list(metadata, "finalizers"),
        state=_text(state, "state") or "",
        message=_text(state, "errorMessage"),
        driver=_text(_map(status, "driverInfo"), "podName"),
        submission=_text(status, "submissionID"),
        submitted=(_number(status, "executionAttempts") or 0) > 0,
        created_at=_time(metadata, "creationTimestamp"),
        terminated_at=_time(status, "terminationTime"),
        deleted_at=_time(metadata, "deletionTimestamp"),
        start_deadline=_seconds(annotations, names.ANNOTATION_START_DEADLINE, START_DEADLINE),
        run_deadline=_seconds(annotations, names.ANNOTATION_RUN_DEADLINE, None),
    )


def _application_owner(metadata: Mapping[str, Any]) -> str | None:
    owners = (owner for owner in _list(metadata, "ownerReferences") if owner.get("kind") == "SparkApplication")
    return next((_text(owner, "uid") for owner in owners), None)


def _ending(state: Mapping[str, Any]) -> Termination | None:
    ended = state.get("terminated")
    if not isinstance(ended, Mapping):
        return None
    code, signal = ended.get("exitCode"), ended.get("signal")
    return Termination(
        exit_code=code if type(code) is int else -1,
        signal=signal if type(signal) is int and signal > 0 else None,
        reason=_text(ended, "reason"),
        message=_text(ended, "message"),
        finished_at=_time(ended, "finishedAt"),
    )


def _waiting(container: Mapping[str, Any]) -> Waiting | None:
    """Return why a container waits. `container`: its status."""
    waiting = _map(_map(container, "state"), "waiting")
    reason = _text(waiting, "reason")
    return None if reason is None else Waiting(reason, _text(waiting, "message"), _text(container, "image"))


def _condition(status: Mapping[str, Any], kind: str, value: str) -> Condition | None:
    for found in _list(status, "conditions"):
        if found.get("type") == kind and found.get("status") == value:
            return Condition(_text(found, "reason"), _text(found, "message"), _time(found, "lastTransitionTime"))
    return None


def _unheard(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Return whether the node of a pod is unreachable: Ready is False, although ContainersReady is True.

    The node controller marks the pod as not ready; the rest stays as the kubelet reported it. An open readiness gate
    looks the same, so pods with readiness gates are excluded."""
    unready, ready = _condition(status, "Ready", "False"), _condition(status, "ContainersReady", "True")
    return unready is not None and ready is not None and not _any_list(spec, "readinessGates")


def _named(status: Mapping[str, Any], field: str, name: str) -> Mapping[str, Any]:
    return next((found for found in _list(status, field) if found.get("name") == name), {})


def _map(of: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = of.get(field)
    return value if isinstance(value, Mapping) else {}


def _any_list(of: Mapping[str, Any], field: str) -> list[Any]:
    value = of.get(field)
    return value if isinstance(value, list) else []


def _list(of: Mapping[str, Any], field: str) -> list[Mapping[str, Any]]:
    return [item for item in _any_list(of, field) if isinstance(item, Mapping)]


def _text(of: Mapping[str, Any], field: str) -> str | None:
    value = of.get(field)
    return value if isinstance(value, str) and value else None


def _number(of: Mapping[str, Any], field: str) -> float | None:
    value = of.get(field)
    return float(value) if type(value) is int and abs(value) < 2**53 else None


def _decimal(of: Mapping[str, Any], field: str) -> int | None:
    value = of.get(field)
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20 else None


@overload
def _seconds(of: Mapping[str, Any], field: str, default: float) -> float: ...
@overload
def _seconds(of: Mapping[str, Any], field: str, default: None) -> float | None: ...
def _seconds(of: Mapping[str, Any], field: str, default: float | None) -> float | None:
    value = of.get(field)
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value, re.ASCII):
        return default
    return float(value)


def _time(of: Mapping[str, Any], field: str) -> float | None:
    value = of.get(field)
    try:
        return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None
