"""What a real API server, and real kubectl, say to the manifests of run pods and to how templates are merged."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from opendataflow.core.kubernetes.pod_template import MERGE_KEYS, merged
from tests.kube.cluster.api import Api
from tests.kube.conftest import Kubectl

CASES = Path(__file__).parents[1] / "unit" / "data" / "pods"


@pytest.mark.parametrize("path", sorted(CASES.glob("*.manifest.yaml")), ids=lambda path: path.name.partition(".")[0])
def test_run_pods_are_accepted_where_the_strictest_standard_is_enforced(
    path: Path, cluster: Api, namespace: str
) -> None:
    strict = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    cluster.patch(f"/api/v1/namespaces/{namespace}", strict)
    cluster.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "loader"}})
    manifest = yaml.safe_load(path.read_text())
    manifest["metadata"]["namespace"] = namespace
    made = cluster.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict", manifest)
    assert made["metadata"]["finalizers"] == ["opendataflow.io/outcome"]


BASE: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "containers": [
            {
                "name": "main",
                "image": "x",
                "args": ["1", "2"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "ports": [{"containerPort": 80, "name": "http"}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}

TEMPLATES: list[dict[str, Any]] = [
    {"metadata": {"labels": {"a": None, "b": "2"}, "annotations": {"n": "x"}}},
    {"spec": {"securityContext": {"seccompProfile": None, "runAsUser": 5}}},
    {"spec": {"securityContext": None}},
    {"spec": {"tolerations": [{"key": "b", "operator": "Exists"}], "nodeSelector": {"d": "f"}}},
    {"spec": {"containers": [{"name": "side", "image": "y"}]}},
    {"spec": {"containers": [{"name": "main", "args": ["3"], "env": [{"name": "B", "value": "9"}]}]}},
    {
        "spec": {
            "containers": [{"name": "main", "env": [{"name": "C", "value": "3"}], "resources": {"limits": {"cpu": 1}}}]
        }
    },
    {"spec": {"containers": [{"name": "main", "volumeMounts": [{"mountPath": "/w", "name": "v", "readOnly": True}]}]}},
    {"spec": {"containers": [{"name": "main", "volumeMounts": [{"mountPath": "/v", "name": "v", "readOnly": True}]}]}},
    {"spec": {"containers": [{"name": "main", "ports": [{"containerPort": 80, "protocol": "UDP"}]}]}},
    {"spec": {"containers": [{"name": "main", "ports": [{"containerPort": 81}]}]}},
    {"spec": {"volumes": [{"name": "w", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}}]}},
    {"spec": {"imagePullSecrets": [{"name": "s"}], "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["h"]}]}},
    {"spec": {"initContainers": [{"name": "i", "image": "z", "command": ["a"]}], "dnsConfig": {"searches": ["x"]}}},
    {"spec": {"topologySpreadConstraints": [{"topologyKey": "z", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}},
    {
        "spec": {
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
        }
    },
]


@pytest.mark.parametrize("template", TEMPLATES, ids=json.dumps)
def test_a_template_is_merged_as_kubectl_patch_does_it(
    template: dict[str, Any], kubectl: Kubectl, tmp_path: Path
) -> None:
    whole = {"apiVersion": "v1", "kind": "Pod", **BASE, "metadata": {"name": "x", **BASE["metadata"]}}
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(whole))
    patched = kubectl.json(
        "patch", "--local", f"--filename={path}", "--type=strategic", f"--patch={json.dumps(template)}"
    )
    assert _in_order(merged(whole, template)) == _in_order(_as_written(patched))


def _as_written(pod: dict[str, Any]) -> dict[str, Any]:
    """Without the empty fields that kubectl adds to what it prints."""
    pod.pop("status", None)
    pod["metadata"].pop("creationTimestamp", None)
    for container in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]:
        if container.get("resources") == {}:
            del container["resources"]
    return pod


def _in_order(value: Any, field: str = "") -> Any:
    """With the items of merged lists by their keys: which is first means nothing in most of them."""
    if isinstance(value, dict):
        return {name: _in_order(inner, name) for name, inner in value.items()}
    if isinstance(value, list) and field in MERGE_KEYS:
        return sorted((_in_order(item) for item in value), key=lambda item: str(item[MERGE_KEYS[field]]))
    return [_in_order(item) for item in value] if isinstance(value, list) else value
