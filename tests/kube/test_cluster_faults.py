"""What a test can do to a cluster: take away its API server, a node, or the answer to a request."""

import asyncio
import http.client
import json
import ssl
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.kube.cluster.api import Api, Object
from tests.kube.cluster.nodes import start_heartbeat, stop_heartbeat, wait_until_unreachable
from tests.kube.cluster.pods import phase, pod, pod_annotations
from tests.kube.cluster.proxy import Fault, Proxy, refusal, watch_error
from tests.kube.conftest import OwnCluster
from tests.waiting import until


def test_an_api_server_that_was_killed_is_back_with_all_it_had(own_cluster: OwnCluster, own_namespace: str) -> None:
    api, pods = own_cluster.api, f"/api/v1/namespaces/{own_namespace}/pods"
    api.create(pods, pod("run-1", run_seconds="forever"))
    api.wait(f"{pods}/run-1", lambda found: phase(found) == "Running", "the pod runs")
    before = own_cluster.plane.server
    own_cluster.plane.api_server.kill()
    with pytest.raises(subprocess.CalledProcessError) as away:
        api.kubectl("get", "namespaces", "--request-timeout=240s")
    assert "refused" in away.value.stderr
    own_cluster.plane.restart_api_server()
    assert own_cluster.plane.server == before
    assert phase(api.get(f"{pods}/run-1")) == "Running"


def test_a_paused_api_server_says_nothing_until_it_goes_on(own_cluster: OwnCluster) -> None:
    own_cluster.plane.api_server.pause()
    with pytest.raises(subprocess.TimeoutExpired):
        own_cluster.api.kubectl("get", "--raw=/version", seconds=1)
    own_cluster.plane.api_server.resume()
    assert json.loads(own_cluster.api.kubectl("get", "--raw=/version"))["major"] == "1"


def test_a_node_without_heartbeat_is_unreachable_and_its_pods_stay(own_cluster: OwnCluster, own_namespace: str) -> None:
    api, pods = own_cluster.api, f"/api/v1/namespaces/{own_namespace}/pods"
    api.create(pods, pod("run-1", run_seconds="forever", spec={"nodeName": "node-1"}))
    api.wait(f"{pods}/run-1", lambda found: phase(found) == "Running", "the pod runs")
    stop_heartbeat(api, "node-1")
    wait_until_unreachable(api, "node-1")
    api.patch(f"{pods}/run-1", {"metadata": {"annotations": pod_annotations(run_seconds=0)}})
    api.delete(f"{pods}/run-1")
    left = api.get(f"{pods}/run-1")
    assert phase(left) == "Running"
    assert left["metadata"]["deletionGracePeriodSeconds"] == 30
    start_heartbeat(api, "node-1")
    api.wait_gone(f"{pods}/run-1")


def _send(kubeconfig: Path, method: str, path: str, body: Object | None) -> tuple[int, str, Object]:
    config = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
    address = config["server"].removeprefix("https://")
    trust = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection(address, context=trust, timeout=240)
    try:
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        with connection.getresponse() as answer:
            return answer.status, answer.headers.get("Retry-After", ""), json.loads(answer.readline())
    finally:
        connection.close()


async def _ask(proxy: Proxy, method: str, path: str, body: Object | None = None) -> tuple[int, str, Object]:
    """Status, Retry-After and the first line of the answer (API servers answer with one)."""
    return await asyncio.to_thread(_send, proxy.kubeconfig, method, path, body)


async def test_what_goes_through_the_proxy_is_what_the_api_server_says(proxy: Proxy, namespace: str) -> None:
    status, _, created = await _ask(proxy, "POST", f"/api/v1/namespaces/{namespace}/pods", pod("run-1"))
    assert (status, created["metadata"]["name"]) == (201, "run-1")
    assert proxy.seen == [("POST", f"/api/v1/namespaces/{namespace}/pods")]


async def test_kubectl_works_through_the_proxy(proxy: Proxy, cluster: Api, namespace: str) -> None:
    through = f"--kubeconfig={proxy.kubeconfig}"
    output = await asyncio.to_thread(cluster.kubectl, through, f"--namespace={namespace}", "get", "serviceaccounts")
    assert "default" in output


async def test_a_lost_reply_leaves_the_object_that_was_created(proxy: Proxy, cluster: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    lost = proxy.fail(Fault("POST", "/pods", drop="reply"))
    with pytest.raises((OSError, http.client.HTTPException)):
        await _ask(proxy, "POST", pods, pod("run-1"))
    assert lost.met == 1
    assert cluster.find(f"{pods}/run-1") is not None
    status, _, again = await _ask(proxy, "POST", pods, pod("run-1"))
    assert (status, again["reason"]) == (409, "AlreadyExists")


async def test_a_lost_request_has_created_nothing(proxy: Proxy, cluster: Api, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    proxy.fail(Fault("POST", "/pods", drop="request"))
    with pytest.raises((OSError, http.client.HTTPException)):
        await _ask(proxy, "POST", pods, pod("run-1"))
    assert cluster.find(f"{pods}/run-1") is None


async def test_the_proxy_refuses_as_often_as_a_test_orders(proxy: Proxy) -> None:
    proxy.fail(Fault("GET", "/version", times=2, answer=refusal(429, "TooManyRequests", Retry_After="1")))
    status, later, answer = await _ask(proxy, "GET", "/version")
    assert (status, later, answer["reason"]) == (429, "1", "TooManyRequests")
    assert (await _ask(proxy, "GET", "/version"))[0] == 429
    status, _, _ = await _ask(proxy, "GET", "/api/v1/namespaces/default")
    assert status == 200


async def test_a_watch_goes_through_the_proxy(proxy: Proxy, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts?watch=true&timeoutSeconds=30"
    status, _, event = await _ask(proxy, "GET", path)
    assert (status, event["type"]) == (200, "ADDED")


async def test_a_watch_can_be_answered_that_its_version_is_gone(proxy: Proxy, namespace: str) -> None:
    proxy.fail(Fault("GET", "watch=", answer=watch_error(410, "Expired")))
    status, _, event = await _ask(proxy, "GET", f"/api/v1/namespaces/{namespace}/pods?watch=true")
    assert (status, event["type"], event["object"]["code"]) == (200, "ERROR", 410)


async def test_a_watch_can_be_cut(proxy: Proxy, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods?watch=true&timeoutSeconds=30"
    waiting = asyncio.create_task(_ask(proxy, "GET", path))
    await until(lambda: proxy.streaming, "an answer has begun")
    assert proxy.cut() == 1
    with pytest.raises((OSError, ValueError, http.client.HTTPException)):
        await waiting
