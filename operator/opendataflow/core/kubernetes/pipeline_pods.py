"""Add a pipeline's project to the pod of a Spark driver (core/kubernetes/spark_pods.py). Pure.

An init container fetches a git repository into a volume. Only this container has the token, and only the driver reads
the volume. A ConfigMap is mounted. Executors get neither, because Spark sends them the code of functions.
"""

import copy
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from opendataflow import names
from opendataflow.core.kubernetes.pods import CONTAINER_SECURITY, SecretKey, from_secret
from opendataflow.core.kubernetes.spark_pods import SCRATCH_FOLDER, add_file, main_of
from opendataflow.core.pipelines.pipeline_order import FETCH_MODULE, TOKEN_VARIABLE, pod_order
from opendataflow.core.text.project_tests import Tests
from opendataflow.model.resources.pipeline_runtime import PipelineRuntime

_SIZE = "1Gi"
_RESOURCES = {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables of `main` that the fetching container gets, too. The names of proxies may also be in lower case."""


def with_project(pod: dict[str, Any], pipeline: PipelineRuntime, tests: Tests, owner: str) -> dict[str, Any]:
    """Return the driver's pod with the project of the pipeline. The template of its executors must be made before.

    `tests`: the stored results of the project's unit tests. `owner`: of the written chunks.
    """
    spec, place = pod["spec"], pipeline.project
    pod["metadata"]["annotations"][names.ANNOTATION_PIPELINE] = pod_order(pipeline, tests, owner).to_json()
    add_file(spec, names.PIPELINE_FILE, names.ANNOTATION_PIPELINE)
    if place.path is not None:
        return pod
    main = main_of(spec)
    mount = {"name": names.PROJECT_VOLUME, "mountPath": names.PROJECT_FOLDER}
    main["volumeMounts"].append({**mount, "readOnly": True})
    if place.config_map is not None:
        spec["volumes"].append({"name": names.PROJECT_VOLUME, "configMap": {"name": place.config_map}})
        return pod
    spec["volumes"].append({"name": names.PROJECT_VOLUME, "emptyDir": {"sizeLimit": _SIZE}})
    before = spec.get("initContainers", [])
    opener = [each for each in before if each["name"] == names.OPENER_CONTAINER]
    others = [each for each in before if each["name"] != names.OPENER_CONTAINER]
    spec["initContainers"] = [*opener, _fetch(pipeline, main, mount), *others]
    return pod


def _fetch(pipeline: PipelineRuntime, main: Mapping[str, Any], mount: Mapping[str, Any]) -> dict[str, Any]:
    git = pipeline.project.git
    assert git is not None  # the project is neither a path nor a ConfigMap
    secret = git.secret_ref
    token = [] if secret is None else [from_secret(TOKEN_VARIABLE, SecretKey(secret.name, secret.key))]
    context = {"name": names.CONTEXT_VOLUME, "mountPath": names.CONTEXT_FOLDER, "readOnly": True}
    scratch = next(each for each in main["volumeMounts"] if each["mountPath"].rstrip("/") == SCRATCH_FOLDER)
    known = [item for item in main["env"] if item["name"].upper() in _PROXIES or item["name"] in _AUTHORITIES]
    trusted = [item["value"] for item in known if item["name"] in _AUTHORITIES and "value" in item]
    authorities = [each for each in main["volumeMounts"] if any(_is_in(file, each["mountPath"]) for file in trusted)]
    policy = {"imagePullPolicy": pipeline.image_pull_policy} if pipeline.image_pull_policy is not None else {}
    return {
        "name": names.FETCH_CONTAINER,
        "image": main["image"],
        **policy,
        "command": ["python", "-m", FETCH_MODULE, f"{names.CONTEXT_FOLDER}/{names.PIPELINE_FILE}"],
        "env": [{"name": "HOME", "value": SCRATCH_FOLDER}, *known, *token],
        "resources": copy.deepcopy(_RESOURCES),
        "securityContext": {**CONTAINER_SECURITY, "readOnlyRootFilesystem": True},
        "terminationMessagePolicy": "File",
        "volumeMounts": [context, dict(mount), dict(scratch), *authorities],
    }


def _is_in(file: str, folder: str) -> bool:
    return PurePosixPath(file).is_relative_to(folder)
