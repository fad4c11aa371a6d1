"""Judge what reaches pods through Spark: settings, and the roles of a SparkApplication. Pure.

Spark and its operator make these pods, so a setting that can't be judged is a violation: the name of a file, for
example. The pods that a program starts by itself with the rights of its driver are not known here.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from opendataflow import names
from opendataflow.core.kubernetes.pods import CONTAINER_SECURITY, POD_SECURITY
from opendataflow.core.kubernetes.policy.pod_security import (
    PodPolicy,
    Violation,
    judge_account,
    judge_pod_security,
    judge_priority,
    judge_volume,
)

ROLES = {"driver": names.DRIVER_CONTAINER, "executor": names.EXECUTOR_CONTAINER}
"""The roles of a SparkApplication, with the names of their containers."""

_ACCOUNT = re.compile(r"spark\.kubernetes\.authenticate\.(?:[a-z]+\.)?serviceAccountName")
_VOLUME = re.compile(r"(spark\.kubernetes\.(?:driver|executor)\.volumes)\.([^.]+)\..*")
_REFUSED = (
    (r"spark\.kubernetes\.namespace", "pods run in the namespace of the job"),
    (r"spark\.master|spark\.submit\.deployMode|spark\.kubernetes\.context", "pods run in the cluster of the job"),
    (r"spark\.kubernetes\.authenticate\..*", "pods are created with the rights of the job's service account"),
    (r"spark\.kubernetes\..*[tT]emplateFile", "a file can't be judged; write the template in the job"),
    (r"spark\.kubernetes\.(?:driver|executor)\.pod\.featureSteps", "code that changes pods can't be judged"),
    (r"spark\.kubernetes\.(?:driver|executor)\.annotation\.container\.apparmor\..*", "write it in a security context"),
)
_OF_TEMPLATE = {"podSecurityContext": POD_SECURITY, "securityContext": CONTAINER_SECURITY}
"""Stands for the security contexts of a role's template, which is judged by itself."""

_CONTAINER_FIELDS = ("securityContext", "ports", "lifecycle")
_POD_FIELDS = {
    "hostNetwork": "hostNetwork",
    "initContainers": "initContainers",
    "podSecurityContext": "securityContext",
    "serviceAccount": "serviceAccountName",
    "priorityClassName": "priorityClassName",
}
"""Fields of a role, and the fields of a pod's spec that they become."""


def judge_settings(settings: Mapping[str, Any], place: str, policy: PodPolicy) -> Iterator[Violation]:
    """Yield the violations of Spark's settings. `place`: the field with the settings."""
    if policy.profile is names.PodProfile.ANY:
        return
    for name, value in settings.items():
        if _ACCOUNT.fullmatch(name):
            yield from judge_account(f"{place}.{name}", value, policy)
        elif volume := _VOLUME.fullmatch(name):
            yield from judge_volume(f"{place}.{volume[1]}", [volume[2]], policy)
        else:
            yield from (
                Violation(f"{place}.{name}", sentence) for pattern, sentence in _REFUSED if re.fullmatch(pattern, name)
            )


def judge_application(spec: Mapping[str, Any], place: str, policy: PodPolicy) -> Iterator[Violation]:
    """Yield the violations of a SparkApplication's `spec`, in the form in which it is sent. `place`: its field."""
    if policy.profile is names.PodProfile.ANY:
        return
    yield from judge_settings(spec.get("sparkConf") or {}, f"{place}.sparkConf", policy)
    if spec.get("sparkConfigMap") is not None:
        yield Violation(f"{place}.sparkConfigMap", "settings in a ConfigMap can't be judged; write sparkConf")
    scheduling = spec.get("batchSchedulerOptions")
    if isinstance(scheduling, Mapping):
        field = f"{place}.batchSchedulerOptions.priorityClassName"
        yield from judge_priority(field, scheduling.get("priorityClassName"))
    for role, container in ROLES.items():
        written = {field: value for field, value in (spec.get(role) or {}).items() if value is not None}
        template = written.get("template")
        whole = written if template is None else {**_OF_TEMPLATE, **written}
        for each in judge_pod_security(_pod_of(spec, whole, container), policy):
            yield Violation(f"{place}.{_field(role, container, each.field)}", each.sentence)
        for each in [] if template is None else judge_pod_security(template, policy):
            yield Violation(f"{place}.{role}.template.{each.field}", each.sentence)


def _pod_of(spec: Mapping[str, Any], role: Mapping[str, Any], container: str) -> dict[str, Any]:
    """Return what a role adds to the pods that Spark makes."""
    main = {"name": container, **{field: role.get(field) for field in _CONTAINER_FIELDS}}
    return {
        "metadata": {"annotations": role.get("annotations") or {}},
        "spec": {
            **{of_pod: role.get(field) for field, of_pod in _POD_FIELDS.items()},
            "containers": [main, *(role.get("sidecars") or [])],
            "volumes": spec.get("volumes") or [],
        },
    }


def _field(role: str, container: str, of_pod: str) -> str:
    """Return the field of an application that has become a field of a pod. `of_pod`: of the pod of `_pod_of`."""
    if of_pod.startswith("spec.volumes["):
        return of_pod.removeprefix("spec.")
    path = of_pod.removeprefix("metadata.").removeprefix("spec.").replace(f"containers[{container}].", "", 1)
    path = re.sub(r"\Acontainers\[", "sidecars[", path)
    for field, pods_field in _POD_FIELDS.items():
        if of_pod.startswith(f"spec.{pods_field}"):
            path = field + path.removeprefix(pods_field)
    return f"{role}.{path}"
