"""Build the manifest of a run's pod. Pure: the same run gives the same pod.

The framework's required fields override the user's `podTemplate`, and the `podTemplate` overrides its defaults. The
defaults are the pod security standard *restricted*, no service account token, and no variables of services. `$` is
doubled in values, because Kubernetes would expand `$(X)`.

Passwords: `secretRef` becomes a variable from a Secret. A ciphertext is decrypted inside the pod. An init container
reads the user's passkey from a Secret and writes the passwords to a volume in memory. In `main`, a static shell reads
them from there and then executes the command. Neither the manifest nor this program ever contains a plain password.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from opendataflow import names
from opendataflow.core.kubernetes.pod_template import check_template, containers_of, merged
from opendataflow.core.kubernetes.policy.pod_security import PodPolicy
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
"""Variable of the init container. JSON: variable to set -> {"sealed": ciphertext, "passkey": variable with the
passkey}."""

_BUSYBOX = f"{names.DATA_FOLDER}/busybox"
WITH_PASSWORDS = (_BUSYBOX, "sh", "-c", f'. {names.DATA_FOLDER}/env && exec "$@"', "sh")
"""The prefix of a command that needs decrypted passwords."""
_OPENER = ("python", "-m", "opendataflow.runtime.open_passwords", names.DATA_FOLDER)
_OPENER_RESOURCES = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}
POD_SECURITY = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
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
    """The source of a data set's password: a Secret, or a ciphertext with the Secret of its passkey."""

    secret: SecretKey | None = None
    sealed: str | None = None
    passkey: SecretKey | None = None


@dataclass(frozen=True)
class Container:
    """The container `main`. `command`: empty for the entry point of the image. `runtime`: the job's kind of runtime."""

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_directory: str | None = None
    image_pull_policy: str | None = None
    resources: Mapping[str, Any] = field(default_factory=dict)
    runtime: Literal["script", "spark", "pipeline"] = "script"


@dataclass(frozen=True)
class PodConfig:
    """The configuration of a job's pods. `template`: the `podTemplate`. `passwords`: by data set id.

    Times are in seconds. `run_deadline`: None for no limit. `retry_after`: None to wait without limit for a node that
    does not answer. `keep_log`: whether the operator may read the log of the pods.
    """

    main: Container
    template: Mapping[str, Any] = field(default_factory=dict)
    passwords: Mapping[str, Password] = field(default_factory=dict)
    run_deadline: float | None = None
    start_deadline: float = 600.0
    retry_after: float | None = None
    keep_log: bool = True


@dataclass(frozen=True)
class Operator:
    """The operator's settings for pods. `engine`: the identity of its database. `image`: its own image, which also
    decrypts passwords in pods. `spark_image`, `spark_account`: defaults for the image and service account of drivers.
    `policy`: what pods may ask for.
    """

    engine: str
    image: str
    spark_image: str = ""
    spark_account: str = ""
    policy: PodPolicy = field(default_factory=PodPolicy)


def run_pod(
    job: JobFacts,
    run: ClaimedRun,
    datasets: Mapping[str, DataSetFacts],
    config: PodConfig,
    operator: Operator,
) -> dict[str, Any]:
    """Return the manifest of a pod. `job`: its namespace must be known. `datasets`: by id, at least those of the job.

    Raise InvalidInput like `check_config`.
    """
    check_config(job, config)
    sealed = {name: each for name, each in _passwords(job, config).items() if each.sealed is not None}
    base = {"metadata": {"annotations": {_DEFAULT_CONTAINER: names.MAIN_CONTAINER}}, "spec": _defaults()}
    pod = merged(base, {part: written for part, written in config.template.items() if written is not None})
    spec = pod["spec"]
    spec["restartPolicy"] = "Never"
    if config.run_deadline is not None:
        spec["activeDeadlineSeconds"] = max(1, math.ceil(config.run_deadline))
    if sealed:
        spec["initContainers"] = [_opener(sealed, operator.image), *spec.get("initContainers", [])]
    spec["volumes"] = [*_volumes(bool(sealed)), *spec.get("volumes", [])]
    main = next(each for each in spec["containers"] if each["name"] == names.MAIN_CONTAINER)
    main |= _command(config.main, bool(sealed))
    main["env"] = [*_variables(job, run, datasets, config), *main.get("env", [])]
    main["volumeMounts"] = [*_mounts(bool(sealed)), *main.get("volumeMounts", [])]
    if config.main.resources:
        main["resources"] = merged(main.get("resources", {}), config.main.resources)
    fill_security(spec)
    metadata = _metadata(pod["metadata"], job, run, datasets, config, operator.engine)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def fill_security(spec: Mapping[str, Any]) -> None:
    """Fill in what is missing in the security contexts of the containers of a pod's spec."""
    for container in containers_of(spec):
        container["securityContext"] = merged(CONTAINER_SECURITY, container.get("securityContext") or {})


def check_config(job: JobFacts, config: PodConfig) -> None:
    """Raise InvalidInput for faults that can be found before a run starts. The sentence never contains a value.

    The faults are: a variable that is set twice, a `podTemplate` with fields of the framework, a ciphertext without the
    Secret of its passkey, and a ciphertext for a job without a command. The framework can't decrypt passwords before
    the entry point of an image.
    """
    check_template(config.template, taken_names(job), config.main.runtime)
    for name, password in _passwords(job, config).items():
        if password.sealed is None:
            continue
        if password.passkey is None:
            raise InvalidInput(
                f"data set {name}: encryptedPassword is opened with a passkey from a Secret; write passkeySecretRef"
            )
        if not config.main.command:
            raise InvalidInput(
                f"job {job.id}: the password of data set {name} is opened before the command starts, so the command "
                "has to be known; write runtime.script.command"
            )


def _passwords(job: JobFacts, config: PodConfig) -> dict[str, Password]:
    """Return the passwords of the job's data sets, in the order of the job."""
    return {name: config.passwords[name] for name, _ in job.roles() if name in config.passwords}


def _defaults() -> dict[str, Any]:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "containers": [{"name": names.MAIN_CONTAINER}],
    }


def _metadata(
    written: Mapping[str, Any],
    job: JobFacts,
    run: ClaimedRun,
    datasets: Mapping[str, DataSetFacts],
    config: PodConfig,
    engine: str,
) -> dict[str, Any]:
    labels = {names.LABEL_RUN: str(run.run), names.LABEL_JOB: names.label_value(job.id), names.LABEL_ENGINE: engine}
    run_context = context(job, _facts(run), datasets, run.bounds)
    annotations = {
        names.ANNOTATION_JOB: job.id,
        names.ANNOTATION_DATA_ID: run.data_id,
        names.ANNOTATION_FENCE: str(run.fence),
        names.ANNOTATION_NONCE: run.nonce,
        names.ANNOTATION_START_DEADLINE: f"{config.start_deadline:g}",
        names.ANNOTATION_CONTEXT: json.dumps(run_context, ensure_ascii=False),
    }
    if config.retry_after is not None:
        annotations[names.ANNOTATION_RETRY_AFTER] = f"{config.retry_after:g}"
    if not config.keep_log:
        annotations[names.ANNOTATION_KEEP_LOG] = "false"
    return {
        "name": run.identity(job.namespace or "").name,
        "namespace": job.namespace,
        "labels": {**written.get("labels", {}), **labels},
        "annotations": {**written.get("annotations", {}), **annotations},
        "finalizers": [names.FINALIZER],
    }


def _command(container: Container, has_passwords: bool) -> dict[str, Any]:
    words = [*container.command, *container.args]
    made: dict[str, Any] = {
        "image": container.image,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",  # the other policy copies the log, with its secrets, into the status
    }
    if has_passwords:
        made["command"] = [*WITH_PASSWORDS, *map(_literal, words)]
    else:
        made |= {"command": [*map(_literal, container.command)]} if container.command else {}
        made |= {"args": [*map(_literal, container.args)]} if container.args else {}
    optional = {"workingDir": container.working_directory, "imagePullPolicy": container.image_pull_policy}
    return made | {name: value for name, value in optional.items() if value is not None}


def _variables(
    job: JobFacts, run: ClaimedRun, datasets: Mapping[str, DataSetFacts], config: PodConfig
) -> list[dict[str, Any]]:
    values = environment(job, _facts(run), datasets) | {"DATAFLOW_CONTEXT": f"{names.CONTEXT_FOLDER}/{CONTEXT_FILE}"}
    return [
        *({"name": name, "value": _literal(value)} for name, value in values.items()),
        *(
            from_secret(password_variable(name), password.secret)
            for name, password in _passwords(job, config).items()
            if password.secret is not None
        ),
    ]


def _opener(sealed: Mapping[str, Password], image: str) -> dict[str, Any]:
    """Return the init container that decrypts passwords."""
    keys = list(dict.fromkeys(password.passkey for password in sealed.values() if password.passkey is not None))
    variable = {key: f"PASSKEY_{number}" for number, key in enumerate(keys)}
    ciphertexts = {
        password_variable(name): {"sealed": password.sealed, "passkey": variable[password.passkey]}
        for name, password in sealed.items()
        if password.passkey is not None
    }
    return {
        "name": names.OPENER_CONTAINER,
        "image": image,
        "command": list(_OPENER),
        "env": [
            {"name": SEALED_VARIABLE, "value": _literal(json.dumps(ciphertexts, ensure_ascii=False))},
            *(from_secret(variable[key], key) for key in keys),
        ],
        "resources": _OPENER_RESOURCES,
        "volumeMounts": [{"name": names.DATA_VOLUME, "mountPath": names.DATA_FOLDER}],
    }


def _volumes(has_passwords: bool) -> list[dict[str, Any]]:
    source = {"fieldPath": f"metadata.annotations['{names.ANNOTATION_CONTEXT}']"}
    files = {"name": names.CONTEXT_VOLUME, "downwardAPI": {"items": [{"path": CONTEXT_FILE, "fieldRef": source}]}}
    memory = {"name": names.DATA_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": _DATA_SIZE}}
    return [files, memory] if has_passwords else [files]


def _mounts(has_passwords: bool) -> list[dict[str, Any]]:
    files = {"name": names.CONTEXT_VOLUME, "mountPath": names.CONTEXT_FOLDER, "readOnly": True}
    memory = {"name": names.DATA_VOLUME, "mountPath": names.DATA_FOLDER, "readOnly": True}
    return [files, memory] if has_passwords else [files]


def from_secret(variable: str, secret: SecretKey) -> dict[str, Any]:
    """Return a variable of a container with a reference to a Secret. Only the kubelet reads its value."""
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}}


def _facts(run: ClaimedRun) -> RunFacts:
    return RunFacts(run.run, run.data_id, run.attempt, run.fence)


def _literal(text: str) -> str:
    """Return a text that Kubernetes expands to `text`. Kubernetes expands `$(X)` and `$$`."""
    return text.replace("$", "$$")
