"""Build the pod of a Spark driver from a run's pod (core/kubernetes/pods.py), and the template of its executors. Pure.

Executors get the variables, secrets and volumes of the driver, and the init container that decrypts passwords. They are
not runs: they have no finalizer, and a label with the name of their run instead of a run's own labels. The driver
(`opendataflow.spark.driver`) reads its order from an annotation, as programs read their context. So no part of the
order is on a command line, and the service account of the driver needs rights on pods only.
"""

import copy
import json
from collections.abc import Mapping
from typing import Any, Literal

from opendataflow import names
from opendataflow.core.kubernetes.pods import WITH_PASSWORDS, Container
from opendataflow.core.runs.spark_settings import EXECUTOR_CONTAINER, driver_mebibytes, driver_settings
from opendataflow.model.resources.spark import SparkRuntime

ENTRY_POINT = "/opt/opendataflow/entrypoint"
"""The entry point of the Spark image. It starts an executor if its argument is `executor`, which Spark adds."""
UI_PORT = 4040
SCRATCH_FOLDER = "/tmp"
"""A writable volume of the pod."""

_DRIVER = ("python", "-m", "opendataflow.spark.driver")
_KEPT_ANNOTATIONS = (
    names.ANNOTATION_JOB,
    names.ANNOTATION_DATA_ID,
    names.ANNOTATION_FENCE,
    names.ANNOTATION_CONTEXT,
)
_DRIVERS_OWN = ("args", "command", "lifecycle", "livenessProbe", "ports", "readinessProbe", "resources", "startupProbe")


def driver_container(spark: SparkRuntime, image: str, runtime: Literal["spark", "pipeline"] = "spark") -> Container:
    """Return the container `main` of a driver's pod. `runtime`: the job's kind of runtime.

    It has no CPU request: a `podTemplate` may set it, see `driver_pod`.
    """
    memory = f"{driver_mebibytes(spark)}Mi"
    return Container(
        image=image,
        command=_DRIVER,
        image_pull_policy=spark.image_pull_policy,
        resources={"requests": {"memory": memory}, "limits": {"memory": memory}},
        runtime=runtime,
    )


def driver_pod(
    pod: Mapping[str, Any], spark: SparkRuntime, program: Mapping[str, Any], account: str, patience: float
) -> dict[str, Any]:
    """Return the pod of a driver.

    `pod`: of a run whose `main` is a `driver_container`. `program`: a `main` with its `arguments`, or a `module` of the
    framework. `account`: the service account of drivers with executors, unless the job or its template names one.
    `patience`: how many seconds the driver waits for executors to start.
    """
    made = copy.deepcopy(dict(pod))
    metadata, spec = made["metadata"], made["spec"]
    main = main_of(spec)
    if spark.service_account is not None or spark.has_executors:
        spec["serviceAccountName"] = spark.service_account or spec.get("serviceAccountName") or account
    _add_scratch(spec, main)
    executor = executor_template(made) if spark.has_executors else None
    title = f"{metadata['annotations'][names.ANNOTATION_JOB]} {metadata['annotations'][names.ANNOTATION_DATA_ID]}"
    order = {
        **program,
        # Sessions of pipelines have no web page by default, see spark/pipeline/measure/session.py.
        "settings": ({"spark.ui.enabled": "true"} if "module" in program else {})
        | driver_settings(spark, metadata["name"], title, metadata["namespace"], main["image"]),
        "executor": executor,
        "patience": patience,
    }
    metadata["annotations"][names.ANNOTATION_SPARK] = json.dumps(order, ensure_ascii=False)
    add_file(spec, names.SPARK_FILE, names.ANNOTATION_SPARK)
    main["env"].append({"name": "DATAFLOW_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    if not any(port.get("name") == "ui" or port["containerPort"] == UI_PORT for port in main.get("ports", [])):
        main["ports"] = [*main.get("ports", []), {"name": "ui", "containerPort": UI_PORT}]
    main["resources"].setdefault("requests", {}).setdefault("cpu", str(spark.driver_size.cores))
    if spark.has_executors:
        metadata["annotations"][names.ANNOTATION_EXECUTORS] = "true"
        spec["automountServiceAccountToken"] = True
    return made


def executor_template(driver: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template of the executors of a driver's pod."""
    metadata, spec = driver["metadata"], copy.deepcopy(driver["spec"])
    main = main_of(spec)
    has_passwords = main["command"][: len(WITH_PASSWORDS)] == list(WITH_PASSWORDS)
    for field in _DRIVERS_OWN:
        main.pop(field, None)
    if has_passwords:
        main |= {"command": list(WITH_PASSWORDS), "args": [ENTRY_POINT]}
    main |= {"name": EXECUTOR_CONTAINER, "workingDir": SCRATCH_FOLDER}  # Spark copies the files there
    spec.pop("activeDeadlineSeconds", None)
    spec["containers"] = [main]  # a sidecar would keep the executor's pod running
    ours = f"{names.GROUP}/"
    labels = {name: value for name, value in metadata["labels"].items() if not name.startswith(ours)}
    annotations = {
        name: value
        for name, value in metadata["annotations"].items()
        if not name.startswith(ours) or name in _KEPT_ANNOTATIONS
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "labels": {**labels, names.LABEL_EXECUTOR_OF: metadata["name"]},
            "annotations": annotations,
        },
        "spec": spec,
    }


def main_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container `main` of a pod's spec."""
    return next(each for each in spec["containers"] if each["name"] == names.MAIN_CONTAINER)


def _add_scratch(spec: dict[str, Any], main: dict[str, Any]) -> None:
    """Add a writable folder, because the root file system may be read-only, unless the template has mounted one."""
    if any(mount["mountPath"].rstrip("/") == SCRATCH_FOLDER for mount in main["volumeMounts"]):
        return
    spec["volumes"].append({"name": names.SCRATCH_VOLUME, "emptyDir": {}})
    main["volumeMounts"].append({"name": names.SCRATCH_VOLUME, "mountPath": SCRATCH_FOLDER})


def add_file(spec: dict[str, Any], name: str, annotation: str) -> None:
    """Mount an annotation of the pod as a file next to the context."""
    files = next(volume for volume in spec["volumes"] if volume["name"] == names.CONTEXT_VOLUME)
    source = {"fieldPath": f"metadata.annotations['{annotation}']"}
    files["downwardAPI"]["items"].append({"path": name, "fieldRef": source})
