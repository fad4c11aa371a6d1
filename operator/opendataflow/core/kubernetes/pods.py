"""Makes the manifest of a run's pod. Pure: the same run gives the same pod.

What the framework needs is put on top of the user's `podTemplate`, and its defaults below it: the pod security standard
*restricted*, no service account token, no variables of services. Values reach the program untouched: `$` is doubled,
because Kubernetes would expand `$(X)`.

Passwords: `secretRef` is a variable from a Secret. A ciphertext is opened inside the pod, by an init container that
reads the user's passkey from a Secret and writes to a volume in memory; `main` reads it by a static shell beside it and
becomes the command. Neither the manifest nor this program ever has one of them.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from opendataflow import names
from opendataflow.core.kubernetes.pod_template import check_template, containers_of, merged
from opendataflow.core.runs.environment import (
    CONTEXT_FILE,
    JobFacts,
    RunFacts,
    context,
    environment,
    password_variable,
    taken_names,
)
from opendataflow.errors import InvalidInput
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.dataset import DataSetFacts

SEALED_VARIABLE = "DATAFLOW_SEALED"
"""Of the init container: JSON, variable to set -> {"sealed": ciphertext, "passkey": variable that has the passkey}."""

_BUSYBOX = f"{names.DATA_FOLDER}/busybox"
WITH_PASSWORDS = (_BUSYBOX, "sh", "-c", f'. {names.DATA_FOLDER}/env && exec "$@"', "sh")
"""What is before a command that gets opened passwords."""
_OPENER = ("python", "-m", "opendataflow.runtime.open_passwords", names.DATA_FOLDER)
_OPENER_RESOURCES = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}
_POD_SECURITY = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
_DATA_SIZE = "16Mi"
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@dataclass(frozen=True)
class SecretKey:
    """A key of a Secret in the namespace of the job."""

    name: str
    key: str


@dataclass(frozen=True)
class Password:
    """How a data set's password reaches a pod: from a Secret, or as a ciphertext with the Secret of its passkey."""

    secret: SecretKey | None = None
    sealed: str | None = None
    passkey: SecretKey | None = None


@dataclass(frozen=True)
class Container:
    """What `main` is. No command: the image's own entry point. `runtime`: which one of the job it is made of."""

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_directory: str | None = None
    image_pull_policy: str | None = None
    resources: Mapping[str, Any] = field(default_factory=dict)
    runtime: Literal["script", "spark", "pipeline"] = "script"


@dataclass(frozen=True)
class PodWishes:
    """What a job says of its pods. `passwords`: by data set. Times in seconds; None: no limit, or wait for ever.
    `keep_log`: whether the operator may read what they print."""

    main: Container
    template: Mapping[str, Any] = field(default_factory=dict)
    passwords: Mapping[str, Password] = field(default_factory=dict)
    run_deadline: float | None = None
    start_deadline: float = 600.0
    retry_after: float | None = None
    keep_log: bool = True


@dataclass(frozen=True)
class Operator:
    """`engine`: the identity of its database. `image`: its own image, which also opens passwords in pods.

    `spark_image`, `spark_account`: the image and the service account of Spark drivers, where a job names none.
    """

    engine: str
    image: str
    spark_image: str = ""
    spark_account: str = ""


def run_pod(
    job: JobFacts,
    run: ClaimedRun,
    datasets: Mapping[str, DataSetFacts],
    wishes: PodWishes,
    operator: Operator,
) -> dict[str, Any]:
    """Return the manifest. `datasets`: by id, at least those of the job, whose namespace is known.

    Raises InvalidInput with a sentence for what the user has to change, see `check_wishes`.
    """
    check_wishes(job, wishes)
    opened = {name: each for name, each in _passwords(job, wishes).items() if each.sealed is not None}
    base = {"metadata": {"annotations": {_DEFAULT_CONTAINER: names.MAIN_CONTAINER}}, "spec": _defaults()}
    pod = merged(base, {part: written for part, written in wishes.template.items() if written is not None})
    spec = pod["spec"]
    spec["restartPolicy"] = "Never"
    if wishes.run_deadline is not None:
        spec["activeDeadlineSeconds"] = max(1, math.ceil(wishes.run_deadline))
    if opened:
        spec["initContainers"] = [_opener(opened, operator.image), *spec.get("initContainers", [])]
    spec["volumes"] = [*_volumes(bool(opened)), *spec.get("volumes", [])]
    main = next(each for each in spec["containers"] if each["name"] == names.MAIN_CONTAINER)
    main |= _command(wishes.main, bool(opened))
    main["env"] = [*_variables(job, run, datasets, wishes), *main.get("env", [])]
    main["volumeMounts"] = [*_mounts(bool(opened)), *main.get("volumeMounts", [])]
    if wishes.main.resources:
        main["resources"] = merged(main.get("resources", {}), wishes.main.resources)
    for container in containers_of(spec):
        container["securityContext"] = merged(CONTAINER_SECURITY, container.get("securityContext", {}))
    metadata = _metadata(pod["metadata"], job, run, datasets, wishes, operator.engine)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def check_wishes(job: JobFacts, wishes: PodWishes) -> None:
    """Check what can be known before there is a run. Raises InvalidInput: one sentence, without the value of anything.

    Two things that set one variable, a `podTemplate` that takes what the framework needs, a ciphertext without the
    Secret of its passkey, and one for a job that leaves the command to its image: nothing could go before it.
    """
    check_template(wishes.template, taken_names(job), wishes.main.runtime)
    for name, password in _passwords(job, wishes).items():
        if password.sealed is None:
            continue
        if password.passkey is None:
            raise InvalidInput(
                f"data set {name}: encryptedPassword is opened with a passkey from a Secret; write passkeySecretRef"
            )
        if not wishes.main.command:
            raise InvalidInput(
                f"job {job.id}: the password of data set {name} is opened before the command starts, so the command "
                "has to be known; write runtime.script.command"
            )


def _passwords(job: JobFacts, wishes: PodWishes) -> dict[str, Password]:
    """The passwords of the job's own data sets, in the order of the job."""
    return {name: wishes.passwords[name] for name, _ in job.roles() if name in wishes.passwords}


def _defaults() -> dict[str, Any]:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": _POD_SECURITY,
        "containers": [{"name": names.MAIN_CONTAINER}],
    }


def _metadata(
    written: Mapping[str, Any],
    job: JobFacts,
    run: ClaimedRun,
    datasets: Mapping[str, DataSetFacts],
    wishes: PodWishes,
    engine: str,
) -> dict[str, Any]:
    labels = {names.LABEL_RUN: str(run.run), names.LABEL_JOB: names.label_value(job.id), names.LABEL_ENGINE: engine}
    told = context(job, _facts(run), datasets, run.bounds)
    annotations = {
        names.ANNOTATION_JOB: job.id,
        names.ANNOTATION_DATA_ID: run.data_id,
        names.ANNOTATION_FENCE: str(run.fence),
        names.ANNOTATION_START_DEADLINE: f"{wishes.start_deadline:g}",
        names.ANNOTATION_CONTEXT: json.dumps(told, ensure_ascii=False),
    }
    if wishes.retry_after is not None:
        annotations[names.ANNOTATION_RETRY_AFTER] = f"{wishes.retry_after:g}"
    if not wishes.keep_log:
        annotations[names.ANNOTATION_KEEP_LOG] = "false"
    return {
        "name": run.name,
        "namespace": job.namespace,
        "labels": {**written.get("labels", {}), **labels},
        "annotations": {**written.get("annotations", {}), **annotations},
        "finalizers": [names.FINALIZER],
    }


def _command(container: Container, opened: bool) -> dict[str, Any]:
    words = [*container.command, *container.args]
    made: dict[str, Any] = {
        "image": container.image,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",  # the other one copies the log, and so its secrets, into the status
    }
    if opened:
        made["command"] = [*WITH_PASSWORDS, *map(_literal, words)]
    else:
        made |= {"command": [*map(_literal, container.command)]} if container.command else {}
        made |= {"args": [*map(_literal, container.args)]} if container.args else {}
    optional = {"workingDir": container.working_directory, "imagePullPolicy": container.image_pull_policy}
    return made | {name: value for name, value in optional.items() if value is not None}


def _variables(
    job: JobFacts, run: ClaimedRun, datasets: Mapping[str, DataSetFacts], wishes: PodWishes
) -> list[dict[str, Any]]:
    values = environment(job, _facts(run), datasets) | {"DATAFLOW_CONTEXT": f"{names.CONTEXT_FOLDER}/{CONTEXT_FILE}"}
    return [
        *({"name": name, "value": _literal(value)} for name, value in values.items()),
        *(
            from_secret(password_variable(name), password.secret)
            for name, password in _passwords(job, wishes).items()
            if password.secret is not None
        ),
    ]


def _opener(opened: Mapping[str, Password], image: str) -> dict[str, Any]:
    keys = list(dict.fromkeys(password.passkey for password in opened.values() if password.passkey is not None))
    variable = {key: f"PASSKEY_{number}" for number, key in enumerate(keys)}
    sealed = {
        password_variable(name): {"sealed": password.sealed, "passkey": variable[password.passkey]}
        for name, password in opened.items()
        if password.passkey is not None
    }
    return {
        "name": names.OPENER_CONTAINER,
        "image": image,
        "command": list(_OPENER),
        "env": [
            {"name": SEALED_VARIABLE, "value": _literal(json.dumps(sealed, ensure_ascii=False))},
            *(from_secret(variable[key], key) for key in keys),
        ],
        "resources": _OPENER_RESOURCES,
        "volumeMounts": [{"name": names.DATA_VOLUME, "mountPath": names.DATA_FOLDER}],
    }


def _volumes(opened: bool) -> list[dict[str, Any]]:
    source = {"fieldPath": f"metadata.annotations['{names.ANNOTATION_CONTEXT}']"}
    told = {"name": names.CONTEXT_VOLUME, "downwardAPI": {"items": [{"path": CONTEXT_FILE, "fieldRef": source}]}}
    memory = {"name": names.DATA_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": _DATA_SIZE}}
    return [told, memory] if opened else [told]


def _mounts(opened: bool) -> list[dict[str, Any]]:
    told = {"name": names.CONTEXT_VOLUME, "mountPath": names.CONTEXT_FOLDER, "readOnly": True}
    memory = {"name": names.DATA_VOLUME, "mountPath": names.DATA_FOLDER, "readOnly": True}
    return [told, memory] if opened else [told]


def from_secret(variable: str, secret: SecretKey) -> dict[str, Any]:
    """Return a variable of a container whose value only the kubelet looks up."""
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}}


def _facts(run: ClaimedRun) -> RunFacts:
    return RunFacts(run.run, run.data_id, run.attempt, run.fence)


def _literal(text: str) -> str:
    """Return a text that Kubernetes turns into the given one: it expands `$(X)` and `$$`."""
    return text.replace("$", "$$")
