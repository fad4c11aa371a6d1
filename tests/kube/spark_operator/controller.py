"""What the stand-in does in one namespace: it submits drivers, writes states, and ends what is deleted.

    "" -> SUBMITTED: a driver pod and, once it runs, one executor; or SUBMISSION_FAILED -> FAILED, where the annotation
          test.opendataflow.io/submission-error of the application says why
    SUBMITTED, RUNNING: as its driver's phase is; a driver that is gone: FAILED, "driver pod not found"
    being deleted: its driver is deleted

Driver and executor are pods of the fake nodes, controlled by their annotations: see `tests.kube.cluster.stages`.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.kube.cluster.annotations import PREFIX
from tests.kube.cluster.api import Api, Object, Refused

CRD = Path(__file__).parent / "crd.yaml"
DRIVER, EXECUTOR = "spark-kubernetes-driver", "spark-kubernetes-executor"
_PAUSE = 0.2


def install(api: Api) -> None:
    """Make SparkApplications known to a cluster."""
    api.kubectl("apply", "--server-side", f"--filename={CRD}")
    api.kubectl("wait", "--for=condition=Established", "--timeout=240s", f"--filename={CRD}")


def applications(namespace: str) -> str:
    """Their path."""
    return f"/apis/sparkoperator.k8s.io/v1beta2/namespaces/{namespace}/sparkapplications"


@contextmanager
def operating(api: Api, namespace: str) -> Iterator[None]:
    """Let it work until the block ends."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(_PAUSE):
            with suppress(Refused, OSError):  # changed or gone meanwhile: the next round sees it
                for application in api.items(applications(namespace)):
                    with suppress(Refused):
                        _look_at(api, application)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _look_at(api: Api, application: Object) -> None:
    metadata, status = application["metadata"], application.get("status") or {}
    pods = f"/api/v1/namespaces/{metadata['namespace']}/pods"
    driver = f"{pods}/{metadata['name']}-driver"
    state = (status.get("applicationState") or {}).get("state", "")
    if "deletionTimestamp" in metadata:
        api.delete(driver)
    elif not state:
        _submit(api, application, pods)
    elif state == "SUBMISSION_FAILED":
        _report(api, application, "FAILED", status["applicationState"]["errorMessage"], ended=True)
    elif state in ("SUBMITTED", "RUNNING"):
        _follow(api, application, pods, state, api.find(driver))


def _submit(api: Api, application: Object, pods: str) -> None:
    error = (application["metadata"].get("annotations") or {}).get(f"{PREFIX}submission-error")
    if error is not None:
        _report(api, application, "SUBMISSION_FAILED", error)
        return
    owner = _owner("sparkoperator.k8s.io/v1beta2", application)
    api.create(pods, _pod(application, "driver", DRIVER, owner))
    _report(api, application, "SUBMITTED", executionAttempts=1, driverInfo={"podName": _name(application, "driver")})


def _follow(api: Api, application: Object, pods: str, state: str, driver: Object | None) -> None:
    phase = driver["status"]["phase"] if driver is not None else ""
    if driver is None:
        _report(api, application, "FAILED", "driver pod not found", ended=True)
    elif phase == "Running" and state == "SUBMITTED":
        api.create(pods, _pod(application, "executor", EXECUTOR, _owner("v1", driver)))
        _report(api, application, "RUNNING")
    elif phase == "Succeeded":
        _report(api, application, "COMPLETED", ended=True)
    elif phase == "Failed":
        _report(api, application, "FAILED", _why(driver), ended=True)


def _why(driver: Object) -> str:
    for status in driver["status"].get("containerStatuses", []):
        ended = status["state"].get("terminated")
        if status["name"] == DRIVER and ended is not None:
            return f"driver container failed with ExitCode: {ended['exitCode']}, Reason: {ended['reason']}"
    return "driver container status missing"


def _report(
    api: Api, application: Object, state: str, message: str | None = None, *, ended: bool = False, **more: Any
) -> None:
    metadata = application["metadata"]
    status = {
        "driverInfo": {},
        **(application.get("status") or {}),
        "applicationState": {"state": state, **({"errorMessage": message} if message else {})},
        **({"terminationTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")} if ended else {}),
        **more,
    }
    api.patch(f"{applications(metadata['namespace'])}/{metadata['name']}/status", {"status": status})


def _pod(application: Object, role: str, container: str, owner: Object) -> Object:
    """A pod as Spark makes it, with what the webhook adds. The labels of the application are on all of its pods."""
    spec, written = application["spec"], application["spec"][role]
    template = (written.get("template") or {}).get("spec") or {"containers": [{"name": container}]}
    containers = [
        {"image": "none/spark:1", **each}
        if each["name"] != container
        else {
            "image": spec.get("image", "none/spark:1"),
            **each,
            "env": [*each.get("env", []), *written.get("env", [])],
            "volumeMounts": [*each.get("volumeMounts", []), *written.get("volumeMounts", [])],
        }
        for each in template["containers"]
    ]
    mounted = {mount["name"] for mount in written.get("volumeMounts", [])}
    volumes = [volume for volume in spec.get("volumes", []) if volume["name"] in mounted]
    annotations: Mapping[str, str] = written.get("annotations") or {}
    if role == "executor":
        annotations = {f"{PREFIX}run-seconds": "forever", **annotations}
    return {
        "metadata": {
            "name": _name(application, role),
            "labels": {
                **(application["metadata"].get("labels") or {}),
                **(written.get("labels") or {}),
                "spark-role": role,
                "sparkoperator.k8s.io/app-name": application["metadata"]["name"],
            },
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": {
            "restartPolicy": "Never",
            **template,
            "containers": containers,
            "volumes": [*template.get("volumes", []), *volumes],
        },
    }


def _name(application: Object, role: str) -> str:
    name: str = application["metadata"]["name"]
    return f"{name}-driver" if role == "driver" else f"{name}-exec-1-{time.monotonic_ns() % 10**6}"


def _owner(version: str, of: Object) -> Object:
    metadata = of["metadata"]
    kind = "Pod" if version == "v1" else "SparkApplication"
    return {"apiVersion": version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}
