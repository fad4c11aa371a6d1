"""The cluster itself: what all other tests here take for granted."""

import urllib.request

import pytest

from tests.e2e.cluster.conftest import left_out_when_unavailable
from tests.e2e.cluster.installing import STRICT
from tests.e2e.cluster.real_cluster import RealCluster, restricted_pod
from tests.kube.cluster.api import Object, Refused
from tests.kube.conftest import Kubectl
from tests.waiting import wait_until

_API = "https://kubernetes.default.svc"
_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"


def _run(cluster: RealCluster, namespace: str, pod: Object) -> None:
    cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)


def _running(cluster: RealCluster, namespace: str, image: str, name: str = "waits") -> Object:
    _run(cluster, namespace, restricted_pod(name, image, ["sleep", "600"]))
    return cluster.wait_pod(namespace, name, "Running")


def test_a_pod_runs_to_its_end_and_its_log_can_be_read(
    cluster: RealCluster, namespace: str, busybox: str, kubectl: Kubectl
) -> None:
    _run(cluster, namespace, restricted_pod("says", busybox, ["echo", "hello from a node"]))
    cluster.wait_pod(namespace, "says", "Succeeded")
    assert kubectl("logs", "says") == "hello from a node\n"


def test_commands_run_inside_a_pod_and_its_ports_are_forwarded(
    cluster: RealCluster, namespace: str, busybox: str, kubectl: Kubectl
) -> None:
    script = "echo served > /tmp/file && exec httpd -f -p 8080 -h /tmp"
    _run(cluster, namespace, restricted_pod("serves", busybox, ["sh", "-c", script]))
    cluster.wait_pod(namespace, "serves", "Running")
    assert kubectl("exec", "serves", "--", "id", "-u") == "65532\n"
    with cluster.forwarded(namespace, "serves", 8080) as port:
        wait_until(lambda: _served(port) == "served\n", "the forwarded port answers")


def _served(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/file", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def test_names_of_services_are_found_and_their_pods_answer(
    cluster: RealCluster, namespace: str, busybox: str, kubectl: Kubectl
) -> None:
    pod = restricted_pod("serves", busybox, ["sh", "-c", "echo hello > /tmp/file && exec httpd -f -p 8080 -h /tmp"])
    pod["metadata"]["labels"] = {"app": "web"}
    _run(cluster, namespace, pod)
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": 8080}]}
    cluster.api.create(f"/api/v1/namespaces/{namespace}/services", {"metadata": {"name": "web"}, "spec": spec})
    cluster.wait_pod(namespace, "serves", "Running")
    ask = f"until wget -q -O - http://web.{namespace}.svc/file; do sleep 0.2; done"
    _run(cluster, namespace, restricted_pod("asks", busybox, ["sh", "-c", ask]))
    cluster.wait_pod(namespace, "asks", "Succeeded")
    assert kubectl("logs", "asks") == "hello\n"


def _asking_api(image: str) -> Object:
    ask = (
        f'wget -q -O - --no-check-certificate --header "Authorization: Bearer $(cat {_TOKEN})" '
        f"{_API}/api/v1/namespaces/$NAMESPACE/pods/asks"
    )
    field = {"fieldRef": {"fieldPath": "metadata.namespace"}}
    return restricted_pod("asks", image, ["sh", "-c", ask], env=[{"name": "NAMESPACE", "valueFrom": field}])


def test_a_service_account_may_do_at_the_api_server_what_its_role_says(
    cluster: RealCluster, namespace: str, busybox: str, kubectl: Kubectl
) -> None:
    kubectl("create", "role", "looks", "--verb=get", "--resource=pods")
    kubectl("create", "rolebinding", "looks", "--role=looks", f"--serviceaccount={namespace}:default")
    _run(cluster, namespace, _asking_api(busybox))
    cluster.wait_pod(namespace, "asks", "Succeeded")
    assert '"name": "asks"' in kubectl("logs", "asks")


def test_a_service_account_without_a_role_is_refused(
    cluster: RealCluster, namespace: str, busybox: str, kubectl: Kubectl
) -> None:
    _run(cluster, namespace, _asking_api(busybox))
    cluster.wait_pod(namespace, "asks", "Failed")
    assert "403 Forbidden" in kubectl("logs", "asks")


def test_a_pod_that_takes_more_memory_than_its_limit_is_oom_killed(
    cluster: RealCluster, namespace: str, busybox: str
) -> None:
    limits = {"limits": {"memory": "32Mi"}, "requests": {"memory": "32Mi"}}
    _run(cluster, namespace, restricted_pod("takes", busybox, ["tail", "/dev/zero"], resources=limits))
    ended = cluster.wait_pod(namespace, "takes", "Failed")
    state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (state["reason"], state["exitCode"]) == ("OOMKilled", 137)


def test_an_image_that_does_not_exist_is_reported(cluster: RealCluster, namespace: str) -> None:
    pod = restricted_pod("lacks", "registry.invalid/nothing:1", ["true"])
    _run(cluster, namespace, pod)

    def reported(found: Object) -> bool:
        states = found["status"].get("containerStatuses") or [{}]
        return states[0].get("state", {}).get("waiting", {}).get("reason") in {"ErrImagePull", "ImagePullBackOff"}

    cluster.api.wait(f"/api/v1/namespaces/{namespace}/pods/lacks", reported, "the missing image is reported")


def test_the_restricted_level_of_pod_security_refuses_a_privileged_pod(
    cluster: RealCluster, namespace: str, busybox: str
) -> None:
    cluster.api.patch(f"/api/v1/namespaces/{namespace}", STRICT)
    privileged = restricted_pod("wants", busybox, ["true"], securityContext={"privileged": True})
    with pytest.raises(Refused, match="violates PodSecurity"):
        _run(cluster, namespace, privileged)
    _run(cluster, namespace, restricted_pod("admitted", busybox, ["true"]))
    cluster.wait_pod(namespace, "admitted", "Succeeded")


def test_a_quota_and_limits_of_a_namespace_are_kept(cluster: RealCluster, namespace: str, busybox: str) -> None:
    core = f"/api/v1/namespaces/{namespace}"
    default = {"type": "Container", "default": {"memory": "64Mi"}, "defaultRequest": {"memory": "32Mi"}}
    cluster.api.create(f"{core}/limitranges", {"metadata": {"name": "small"}, "spec": {"limits": [default]}})
    cluster.api.create(f"{core}/resourcequotas", {"metadata": {"name": "one"}, "spec": {"hard": {"pods": "1"}}})
    cluster.api.wait(f"{core}/resourcequotas/one", lambda quota: "hard" in quota.get("status", {}), "the quota counts")
    pod = _running(cluster, namespace, busybox)
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"memory": "64Mi"}
    with pytest.raises(Refused, match="exceeded quota"):
        _run(cluster, namespace, restricted_pod("second", busybox, ["true"]))


def test_a_claim_gets_a_volume_that_outlives_its_pod(
    cluster: RealCluster, namespace: str, busybox: str, kubectl: Kubectl
) -> None:
    if not cluster.api.items("/apis/storage.k8s.io/v1/storageclasses"):
        pytest.skip("the cluster has no storage")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    cluster.api.create(path, {"metadata": {"name": "data"}, "spec": claim})
    for name, script in (("writes", "echo kept > /data/file"), ("reads", "cat /data/file")):
        pod = restricted_pod(name, busybox, ["sh", "-c", script], volumeMounts=[{"name": "data", "mountPath": "/data"}])
        pod["spec"]["securityContext"]["fsGroup"] = 65532
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        _run(cluster, namespace, pod)
        cluster.wait_pod(namespace, name, "Succeeded")
    assert kubectl("logs", "reads") == "kept\n"


def test_a_command_runs_on_a_node(cluster: RealCluster, namespace: str, busybox: str) -> None:
    with left_out_when_unavailable():
        nodes = cluster.nodes
    node = _running(cluster, namespace, busybox)["spec"]["nodeName"]
    seen = nodes.run(node, "sh", "-c", "cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '")
    assert "sleep 600" in seen


def test_the_operator_s_image_starts_restricted_with_nothing_to_write_to(
    cluster: RealCluster, namespace: str, operator_image: str, kubectl: Kubectl
) -> None:
    cluster.api.patch(f"/api/v1/namespaces/{namespace}", STRICT)
    pod = restricted_pod("helps", operator_image, ["opendataflow", "--help"])
    pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = True
    cluster.api.create(f"/api/v1/namespaces/{namespace}/pods", pod)
    cluster.wait_pod(namespace, "helps", "Succeeded")
    assert "operator" in kubectl("logs", "helps")
