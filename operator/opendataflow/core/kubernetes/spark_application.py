"""Build the SparkApplication of a run (Kubeflow, v1beta2) from the job's template. Pure: a run always gives the same.

The variables and files of the run are those of any run's pod. Labels are on the driver, annotations on driver and
executors. A role with a `template` gets its variables and the context file there, because the Spark operator passes the
template to Spark. Any other role gets them in `env` and `volumeMounts`, which the webhook of the Spark operator copies
to its pods.
"""

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from opendataflow import names
from opendataflow.core.kubernetes.pod_template import check_tree, is_within, merged
from opendataflow.core.kubernetes.pods import (
    CONTAINER_SECURITY,
    POD_SECURITY,
    Operator,
    PodConfig,
    fill_security,
    run_pod,
)
from opendataflow.core.kubernetes.policy.spark_policy import ROLES
from opendataflow.core.runs.environment import JobFacts, taken_names
from opendataflow.errors import InvalidInput
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.resources.spark import is_secret

APPLICATION_FIELD = "runtime.sparkApplication.template"
"""The field of a job with the template of its SparkApplications."""

_PLACE = APPLICATION_FIELD
_NEEDED = ("type", "sparkVersion", "mainApplicationFile")
_INSTEAD = {
    "schedule": "that is a ScheduledSparkApplication; a job runs when its chunks are ready",
    "suspend": "write the job's suspend",
}
_CONF_VARIABLES = ("spark.kubernetes.driverEnv.", "spark.executorEnv.")
_CONF_SECRETS = re.compile(r"spark\.kubernetes\.(?:driver|executor)\.secretKeyRef\.(.+)")
_CONF_MOUNTS = re.compile(r"spark\.kubernetes\.(?:driver|executor)\.secrets\..+")
_CONF_NAMES = re.compile(r"spark\.kubernetes\.(?:driver|executor)\.(?:label|annotation)\.(.+)")
_POD_NAME = "spark.kubernetes.driver.pod.name"
_OF_DRIVER = (names.LABEL_RUN, names.LABEL_JOB, names.LABEL_ENGINE)
_EXECUTOR_ANNOTATIONS = (
    names.ANNOTATION_JOB,
    names.ANNOTATION_DATA_ID,
    names.ANNOTATION_FENCE,
    names.ANNOTATION_CONTEXT,
)


def spark_application(
    job: JobFacts,
    run: ClaimedRun,
    datasets: Mapping[str, DataSetFacts],
    config: PodConfig,
    operator: Operator,
) -> dict[str, Any]:
    """Return the manifest. `config.template`: of the SparkApplication. The other arguments: as for `run_pod`.

    Raise InvalidInput like `check_application`.
    """
    check_application(job, config)
    pod = run_pod(job, run, datasets, replace(config, template={}, run_deadline=None), operator)
    annotations = pod["metadata"]["annotations"]
    # ASCII only: the Spark operator passes annotations as arguments to a program with an unknown locale.
    annotations[names.ANNOTATION_CONTEXT] = json.dumps(json.loads(annotations[names.ANNOTATION_CONTEXT]))
    template = deepcopy(dict(config.template))
    spec: dict[str, Any] = template["spec"]
    spec |= {"mode": "cluster", "restartPolicy": {"type": "Never"}}
    for role, container in ROLES.items():
        _describe(spec, role, container, pod["spec"])
        _secure(spec[role])
    _add(spec["driver"], "labels", {name: pod["metadata"]["labels"][name] for name in _OF_DRIVER})
    _add(spec["driver"], "annotations", {name: text for name, text in annotations.items() if _is_ours(name)})
    _add(spec["executor"], "annotations", {name: annotations[name] for name in _EXECUTOR_ANNOTATIONS})
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": _metadata(template.get("metadata") or {}, run, pod["metadata"], config, operator.engine),
        "spec": spec,
    }


def _metadata(
    written: Mapping[str, Any], run: ClaimedRun, pod: Mapping[str, Any], config: PodConfig, engine: str
) -> dict[str, Any]:
    annotations = {name: text for name, text in pod["annotations"].items() if _is_ours(name)}
    del annotations[names.ANNOTATION_CONTEXT]  # only pods need it
    annotations[names.ANNOTATION_RUN] = str(run.run)
    if config.run_deadline is not None:
        annotations[names.ANNOTATION_RUN_DEADLINE] = f"{config.run_deadline:g}"
    return {
        "name": pod["name"],
        "namespace": pod["namespace"],
        "labels": {**(written.get("labels") or {}), names.LABEL_APPLICATION: engine},
        "annotations": {**(written.get("annotations") or {}), **annotations},
        "finalizers": [names.FINALIZER],
    }


def _describe(spec: dict[str, Any], role: str, container: str, pod: Mapping[str, Any]) -> None:
    """Add the variables and the context file of a run's pod to a role."""
    written = spec[role] = spec.get(role) or {}
    main = pod["containers"][0]
    if written.get("template") is not None:
        inner = merged({"spec": {"containers": [{"name": container}]}}, written["template"])
        home = inner["spec"]
        target = next(each for each in home["containers"] if each["name"] == container)
        written["template"] = inner
    else:
        home, target = spec, written
    target["env"] = [*main["env"], *(target.get("env") or [])]
    target["volumeMounts"] = [*main["volumeMounts"], *(target.get("volumeMounts") or [])]
    volumes = home.get("volumes") or []
    known = {volume["name"] for volume in volumes}
    home["volumes"] = [*(volume for volume in pod["volumes"] if volume["name"] not in known), *volumes]


def _secure(role: dict[str, Any]) -> None:
    """Fill in missing security contexts: in the template of a role, or in its own fields."""
    home = None if role.get("template") is None else role["template"]["spec"]
    if home is not None:
        home["securityContext"] = merged(POD_SECURITY, home.get("securityContext") or {})
        fill_security(home)
    for field, defaults in (("podSecurityContext", POD_SECURITY), ("securityContext", CONTAINER_SECURITY)):
        if home is None or role.get(field) is not None:  # Spark's operator replaces what the template has
            role[field] = merged(defaults, role.get(field) or {})
    fill_security({"initContainers": role.get("initContainers"), "containers": role.get("sidecars")})


def _add(role: dict[str, Any], field: str, ours: Mapping[str, str]) -> None:
    role[field] = {**(role.get(field) or {}), **ours}


def _is_ours(name: str) -> bool:
    return name.partition("/")[0] == names.GROUP


# Checks --------------------------------------------------------------------------------------------------


def check_application(job: JobFacts, config: PodConfig) -> None:
    """Raise InvalidInput for faults that can be found before a run starts. The sentence never contains a value.

    The faults are: fields that would change the life of a run; names, variables and volumes of the framework; settings
    whose names indicate a secret; and encrypted passwords, because the framework can't decrypt passwords before the
    entry point of an image. The API server and the Spark operator find other faults of the template.
    """
    for name, _ in job.roles():
        if name in config.passwords and config.passwords[name].sealed is not None:
            raise InvalidInput(
                f"data set {name}: encryptedPassword can't be opened in a SparkApplication, as its image starts the "
                "program by itself; write credentials.secretRef"
            )
    metadata = _object(config.template, "metadata", _PLACE)
    for field in metadata:
        if field not in ("labels", "annotations"):
            raise InvalidInput(f"{_PLACE}.metadata.{field} can't be set; labels and annotations can")
    _check_names(metadata, f"{_PLACE}.metadata")
    spec, place = _object(config.template, "spec", _PLACE), f"{_PLACE}.spec"
    _check_life(spec, place)
    taken = taken_names(job)
    _check_conf(_object(spec, "sparkConf", place), taken, f"{place}.sparkConf")
    _check_secrets(_object(spec, "hadoopConf", place), f"{place}.hadoopConf")
    _check_volumes(spec, place)
    for role, container in ROLES.items():
        _check_role(_object(spec, role, place), container, taken, f"{place}.{role}")


def _check_life(spec: Mapping[str, Any], place: str) -> None:
    for field in _NEEDED:
        if not spec.get(field):
            raise InvalidInput(f"{place}.{field}: this field is needed")
    for field, instead in _INSTEAD.items():
        if spec.get(field):
            raise InvalidInput(f"{place}.{field} can't be set: {instead}")
    if spec.get("mode", "cluster") != "cluster":
        raise InvalidInput(f"{place}.mode can only be cluster: the driver has to be a pod")
    if _object(spec, "restartPolicy", place).get("type", "Never") != "Never":
        raise InvalidInput(f"{place}.restartPolicy can only be Never: the job's retry says how often a chunk is tried")
    if _object(spec, "driver", place).get("podName"):
        raise InvalidInput(f"{place}.driver.podName can't be set: each run has a driver of its own")


def _check_conf(conf: Mapping[str, Any], taken: Mapping[str, str], place: str) -> None:
    if _POD_NAME in conf:
        raise InvalidInput(f"{place}: {_POD_NAME} can't be set: each run has a driver of its own")
    _check_secrets(conf, place)
    for name in conf:
        for prefix in _CONF_VARIABLES:
            if name.startswith(prefix):
                _check_variable(name.removeprefix(prefix), taken, place)
        if found := _CONF_SECRETS.fullmatch(name):
            _check_variable(found[1], taken, place)
        if (found := _CONF_NAMES.fullmatch(name)) and _is_ours(found[1]):
            raise InvalidInput(f"{place}: {found[1]} is the framework's; choose another name")


def _check_secrets(conf: Mapping[str, Any], place: str) -> None:
    for name in conf:
        if is_secret(name) and not (_CONF_SECRETS.fullmatch(name) or _CONF_MOUNTS.fullmatch(name)):
            raise InvalidInput(
                f"{place}: {name} can't be set: a password is never written in plain text; give it to driver and "
                "executor as a variable from a Secret (env), or with the credentials of a data set"
            )


def _check_role(role: Mapping[str, Any], container: str, taken: Mapping[str, str], place: str) -> None:
    _check_names(role, place)
    _check_container(role, taken, place)
    for field in ("envVars", "envSecretKeyRefs"):
        for name in _object(role, field, place):
            _check_variable(name, taken, f"{place}.{field}")
    for field in ("sidecars", "initContainers"):
        for each in _items(role, field, place):
            _object(each, "securityContext", f"{place}.{field}[{each['name']}]")
    for field in ("securityContext", "podSecurityContext"):
        _object(role, field, place)
    template, place = _object(role, "template", place), f"{place}.template"
    _check_names(_object(template, "metadata", place), f"{place}.metadata")
    _check_not_null(template, "spec", place)
    inner, place = _object(template, "spec", place), f"{place}.spec"
    _check_not_null(inner, "containers", place)
    check_tree(inner, place)
    _check_volumes(inner, place)
    for each in _items(inner, "containers", place):
        if each["name"] == container:
            _check_container(each, taken, f"{place}.containers[{container}]")


def _check_container(container: Mapping[str, Any], taken: Mapping[str, str], place: str) -> None:
    if container.get("envFrom"):
        raise InvalidInput(
            f"{place}.envFrom can't be set: its variables can't be distinguished from those of the framework: name "
            "each in env"
        )
    for each in _items(container, "env", place):
        _check_variable(each["name"], taken, f"{place}.env")
    for each in _items(container, "volumeMounts", place, key="mountPath"):
        if is_within(names.CONTEXT_FOLDER, each["mountPath"]):
            path = each["mountPath"]
            raise InvalidInput(f"{place}.volumeMounts: {path} is the framework's; choose another path")


def _check_variable(name: str, taken: Mapping[str, str], place: str) -> None:
    if name in taken:
        raise InvalidInput(f"{place}: {taken[name]} sets the variable {name}; choose another name")
    if name.startswith(names.RESERVED_PREFIX):
        raise InvalidInput(f"{place}: the names {names.RESERVED_PREFIX}* are the framework's, also {name}; rename it")


def _check_volumes(of: Mapping[str, Any], place: str) -> None:
    for volume in _items(of, "volumes", place):
        if volume["name"] == names.CONTEXT_VOLUME:
            raise InvalidInput(f"{place}.volumes: {volume['name']} is the framework's; choose another name")


def _check_names(of: Mapping[str, Any], place: str) -> None:
    for field in ("labels", "annotations"):
        for name in _object(of, field, place):
            if _is_ours(name):
                raise InvalidInput(f"{place}.{field}: {name} is the framework's; choose another name")


def _check_not_null(of: Mapping[str, Any], field: str, place: str) -> None:
    """Raise InvalidInput for a null, because it would remove the fields into which the framework merges."""
    if field in of and of[field] is None:
        raise InvalidInput(f"{place}.{field} can't be null; leave it out")


def _object(of: Mapping[str, Any], field: str, place: str) -> Mapping[str, Any]:
    value = of.get(field)
    if value is not None and not isinstance(value, Mapping):
        raise InvalidInput(f"{place}.{field} has to be an object")
    return value or {}


def _items(of: Mapping[str, Any], field: str, place: str, *, key: str = "name") -> Iterator[Mapping[str, Any]]:
    value = of.get(field)
    if value is not None and not isinstance(value, list):
        raise InvalidInput(f"{place}.{field} has to be a list")
    for number, item in enumerate(value or []):
        if not isinstance(item, Mapping) or not isinstance(item.get(key), str):
            raise InvalidInput(f"{place}.{field}[{number}] has no {key}; it identifies the item")
        yield item
