"""The client of the Kubernetes API against a real API server, and through a proxy that loses and refuses."""

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from opendataflow import names
from opendataflow.errors import (
    Backpressure,
    ClusterRefused,
    ClusterUnreachable,
    CreateUncertain,
    NamespaceGone,
    NotCreatable,
)
from opendataflow.launch.cluster import access, watch
from opendataflow.launch.cluster.access import from_kubeconfig, in_cluster
from opendataflow.launch.cluster.api import EVENTS, NAMESPACES, PODS, Api, Resource, custom, selector
from opendataflow.launch.cluster.watch import ChangeKind, Follower
from tests.kube.cluster.api import Api as Admin
from tests.kube.cluster.pods import has_ended, pod
from tests.kube.cluster.proxy import Fault, Proxy, refusal, watch_error
from tests.kube.conftest import OwnCluster, wait_until_allowed
from tests.waiting import until

MAPS = Resource("api/v1", "configmaps")
QUOTAS = Resource("api/v1", "resourcequotas")


@pytest.fixture
async def api(cluster: Admin) -> AsyncIterator[Api]:
    async with Api(from_kubeconfig([cluster.kubeconfig])) as client:
        yield client


@pytest.fixture
async def behind(proxy: Proxy) -> AsyncIterator[Api]:
    """The client, through the proxy."""
    async with Api(from_kubeconfig([proxy.kubeconfig])) as client:
        yield client


def config_map(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


# Verbs ------------------------------------------------------------------------------------------------------


async def test_an_object_is_created_read_changed_and_deleted(api: Api, namespace: str) -> None:
    made = await api.create(PODS, namespace, pod("a", run_seconds="forever"))
    assert (await api.get(PODS, namespace, "a"))["metadata"]["uid"] == made["metadata"]["uid"]
    changed = await api.patch_merge(PODS, namespace, "a", {"metadata": {"labels": {"x": "1"}}})
    assert changed["metadata"]["labels"] == {"x": "1"}
    await api.delete(PODS, namespace, "a", uid=made["metadata"]["uid"], grace=0)
    with pytest.raises(ClusterRefused) as refused:
        await api.get(PODS, namespace, "a")
    assert refused.value.code == 404


async def test_a_name_that_is_taken_is_told_apart(api: Api, namespace: str) -> None:
    await api.create(MAPS, namespace, config_map("a"))
    with pytest.raises(ClusterRefused) as refused:
        await api.create(MAPS, namespace, config_map("a"))
    assert refused.value.reason == "AlreadyExists"


async def test_a_delete_with_another_uid_deletes_nothing(api: Api, namespace: str) -> None:
    await api.create(MAPS, namespace, config_map("a"))
    with pytest.raises(ClusterRefused) as refused:
        await api.delete(MAPS, namespace, "a", uid="00000000-0000-0000-0000-000000000000")
    assert refused.value.code == 409
    assert await api.get(MAPS, namespace, "a")


async def test_a_strategic_patch_takes_one_finalizer_and_leaves_the_others(api: Api, namespace: str) -> None:
    made = pod("a", run_seconds="forever")
    made["metadata"]["finalizers"] = ["one.io/x", "two.io/y"]
    uid = (await api.create(PODS, namespace, made))["metadata"]["uid"]
    patch = {"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": ["one.io/x"]}}
    await api.patch_strategic(PODS, namespace, "a", patch)
    assert (await api.get(PODS, namespace, "a"))["metadata"]["finalizers"] == ["two.io/y"]


async def test_a_strategic_patch_with_another_uid_changes_nothing(api: Api, namespace: str) -> None:
    await api.create(PODS, namespace, pod("a", run_seconds="forever"))
    patch = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000", "labels": {"x": "1"}}}
    with pytest.raises(ClusterRefused) as refused:
        await api.patch_strategic(PODS, namespace, "a", patch)
    assert refused.value.code == 422


async def test_a_status_is_changed_by_itself(api: Api, namespace: str) -> None:
    await api.create(PODS, namespace, pod("a", image_pull="fail"))
    patch = {"status": {"message": "known"}}
    assert (await api.patch_merge(PODS, namespace, "a", patch, status=True))["status"]["message"] == "known"


async def test_a_list_comes_in_pages(api: Api, namespace: str) -> None:
    for number in range(5):
        await api.create(MAPS, namespace, config_map(f"m{number}", mine="1"))
    pages = [
        [item["metadata"]["name"] for item in items]
        async for items, _ in api.pages(MAPS, namespace, selector="mine=1", size=2)
    ]
    assert pages == [["m0", "m1"], ["m2", "m3"], ["m4"]]


async def test_many_objects_are_deleted_by_their_labels(api: Api, namespace: str) -> None:
    for name, minute in (("old", "10"), ("new", "12"), ("other", None)):
        await api.create(MAPS, namespace, config_map(name, mine="1", **({"done": minute} if minute else {})))
    await api.delete_collection(MAPS, namespace, selector({"mine": "1"}, ["done,done notin (12,11)"]))
    left = [
        item["metadata"]["name"] async for items, _ in api.pages(MAPS, namespace, selector="mine=1") for item in items
    ]
    assert sorted(left) == ["new", "other"]


async def test_everything_is_never_deleted_by_mistake(api: Api, namespace: str) -> None:
    with pytest.raises(ValueError, match="selector"):
        await api.delete_collection(MAPS, namespace, "")


async def test_the_end_of_a_log(api: Api, cluster: Admin, namespace: str) -> None:
    await api.create(PODS, namespace, pod("a", exit_code=3))
    cluster.wait(f"/api/v1/namespaces/{namespace}/pods/a", has_ended, "it has ended")
    assert await api.log_tail(namespace, "a", "main", size=1000) == "a container's log\n"
    assert await api.log_tail(namespace, "a", "main", size=5) == " log\n"


async def test_an_event_is_created(api: Api, namespace: str) -> None:
    about = {"apiVersion": "v1", "kind": "Namespace", "name": namespace, "namespace": namespace}
    event = {
        "metadata": {"name": "e1"},
        "eventTime": "2026-11-28T10:00:00.000000Z",
        "reportingController": "opendataflow.io/operator",
        "reportingInstance": "test",
        "action": "Breaker",
        "reason": "BreakerOpen",
        "type": "Warning",
        "note": "5 chunks failed in a row",
        "regarding": about,
    }
    made = await api.create(EVENTS, namespace, event)
    series = {"series": {"count": 2, "lastObservedTime": "2026-11-28T10:01:00.000000Z"}}
    assert (await api.patch_merge(EVENTS, namespace, made["metadata"]["name"], series))["series"]["count"] == 2


async def test_a_custom_resource_and_its_status(api: Api, namespace: str) -> None:
    jobs = custom("dataflowjobs")
    job = {
        "apiVersion": names.API_VERSION,
        "kind": "DataFlowJob",
        "metadata": {"name": "load"},
        "spec": {"outputs": ["out"], "runtime": {"script": {"image": "none/none:1"}}},
    }
    await api.create(jobs, namespace, job)
    changed = await api.patch_merge(jobs, namespace, "load", {"status": {"state": "Running"}}, status=True)
    assert changed["status"]["state"] == "Running"
    with pytest.raises(ClusterRefused) as refused:
        await api.patch_merge(jobs, namespace, "load", {"spec": {"parallelism": -1}})
    assert refused.value.code == 422


# Refusals ---------------------------------------------------------------------------------------------------


async def test_an_unknown_field_is_refused_and_not_dropped(api: Api, namespace: str) -> None:
    with pytest.raises(NotCreatable, match=r'create pods .*/a: .*unknown field "spec.restartPolcy"'):
        await api.create(PODS, namespace, pod("a", spec={"restartPolcy": "Never"}))


async def test_an_invalid_object_is_refused_with_the_api_s_sentence(api: Api, namespace: str) -> None:
    with pytest.raises(NotCreatable, match=r"spec.restartPolicy: Unsupported value"):
        await api.create(PODS, namespace, pod("a", spec={"restartPolicy": "Sometimes"}))


async def test_an_account_that_is_not_there_is_not_creatable(api: Api, namespace: str) -> None:
    with pytest.raises(NotCreatable, match=r'serviceaccount "nobody" not found; .* spark\.namespaces$'):
        await api.create(PODS, namespace, pod("a", spec={"serviceAccountName": "nobody"}))


async def test_a_namespace_too_new_for_its_account_is_only_a_matter_of_time(api: Api, cluster: Admin) -> None:
    name = f"new-{secrets.token_hex(5)}"
    await api.create(NAMESPACES, None, {"metadata": {"name": name}})
    try:
        async with asyncio.timeout(240):
            while True:
                try:
                    await api.create(PODS, name, pod("a", run_seconds="forever"))
                    break
                except Backpressure:
                    await asyncio.sleep(0.05)
    finally:
        cluster.delete(f"/api/v1/namespaces/{name}")


async def quota(api: Api, cluster: Admin, namespace: str, **hard: str) -> None:
    body = {
        "metadata": {"name": "q"},
        "spec": {"hard": {name.replace("_", "."): value for name, value in hard.items()}},
    }
    await api.create(QUOTAS, namespace, body)
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/q"
    await asyncio.to_thread(
        cluster.wait, path, lambda seen: seen.get("status", {}).get("hard") is not None, "it counts"
    )


async def test_a_quota_that_is_used_up_is_backpressure(api: Api, cluster: Admin, namespace: str) -> None:
    await quota(api, cluster, namespace, pods="0")
    with pytest.raises(Backpressure, match="exceeded quota: q"):
        await api.create(PODS, namespace, pod("a"))


async def test_a_quota_that_wants_limits_never_gets_better(api: Api, cluster: Admin, namespace: str) -> None:
    await quota(api, cluster, namespace, limits_memory="1Gi")
    with pytest.raises(NotCreatable, match=r"must specify limits\.memory"):
        await api.create(PODS, namespace, pod("a"))


async def test_a_missing_namespace_is_gone(api: Api) -> None:
    with pytest.raises(NamespaceGone, match="not found"):
        await api.create(PODS, "no-such-namespace", pod("a"))


async def test_a_namespace_that_is_being_deleted_is_gone(api: Api, cluster: Admin, namespace: str) -> None:
    await api.create(PODS, namespace, pod("a", finalizer=True, run_seconds="forever"))
    await api.delete(NAMESPACES, None, namespace)
    with pytest.raises(NamespaceGone, match="terminated"):
        await api.create(PODS, namespace, pod("b"))
    cluster.patch(f"/api/v1/namespaces/{namespace}/pods/a", {"metadata": {"finalizers": None}})


async def test_a_rate_limit_is_backpressure_with_its_pause(behind: Api, proxy: Proxy, namespace: str) -> None:
    proxy.fail(Fault("POST", "/pods", answer=refusal(429, "TooManyRequests", Retry_After="7")))
    with pytest.raises(Backpressure) as refused:
        await behind.create(PODS, namespace, pod("a"))
    assert refused.value.retry_after == 7


@pytest.mark.parametrize("code", [500, 502, 503, 504])
async def test_after_a_server_error_a_create_is_uncertain(behind: Api, proxy: Proxy, namespace: str, code: int) -> None:
    proxy.fail(Fault("POST", "/pods", answer=refusal(code, "InternalError")))
    with pytest.raises(CreateUncertain):
        await behind.create(PODS, namespace, pod("a"))


@pytest.mark.parametrize("drop", ["request", "reply"])
async def test_a_create_without_an_answer_is_sent_once_and_uncertain(
    behind: Api, proxy: Proxy, api: Api, namespace: str, drop: str
) -> None:
    proxy.fail(Fault("POST", "/pods", drop=drop))
    with pytest.raises(CreateUncertain):
        await behind.create(PODS, namespace, pod("a", run_seconds="forever"))
    assert [method for method, path in proxy.seen if "/pods" in path] == ["POST"]
    found = [item async for items, _ in api.pages(PODS, namespace) for item in items]
    assert len(found) == (1 if drop == "reply" else 0)


async def test_a_create_that_takes_too_long_is_uncertain(
    behind: Api, proxy: Proxy, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opendataflow.launch.cluster.api.REQUEST_SECONDS", 0.3)
    proxy.fail(Fault("POST", "/pods", delay=30))
    with pytest.raises(CreateUncertain, match="no answer in time"):
        await behind.create(PODS, namespace, pod("a"))


async def test_what_is_no_kubernetes_api_is_reported(behind: Api, proxy: Proxy, namespace: str) -> None:
    page = b"<html>Please sign in</html>"
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(page)}\r\nConnection: close\r\n\r\n".encode()
    proxy.fail(Fault("GET", "/pods", answer=head + page))
    with pytest.raises(ClusterUnreachable, match="is this the Kubernetes API"):
        await behind.get(PODS, namespace, "a")


async def test_an_api_server_that_is_not_there_does_not_answer(cluster: Admin, tmp_path: Path) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    async with Api(from_kubeconfig([path])) as client:
        with pytest.raises(ClusterUnreachable, match=r"127\.0\.0\.1:9 does not answer"):
            await client.get(PODS, "default", "a")
        with pytest.raises(CreateUncertain):
            await client.create(PODS, "default", pod("a"))


async def test_a_server_of_another_authority_is_not_spoken_to(cluster: Admin, proxy: Proxy, tmp_path: Path) -> None:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = yaml.safe_load(proxy.kubeconfig.read_text())["clusters"][0]["cluster"][
        "server"
    ]
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    async with Api(from_kubeconfig([path])) as client:
        with pytest.raises(ClusterUnreachable, match="certificate"):
            await client.get(PODS, "default", "a")
    assert proxy.seen == []


# Who we are -------------------------------------------------------------------------------------------------


def token(cluster: Admin, namespace: str) -> str:
    cluster.kubectl(
        "create",
        "rolebinding",
        "all",
        "--clusterrole=admin",
        f"--serviceaccount={namespace}:default",
        f"--namespace={namespace}",
    )
    wait_until_allowed(cluster, namespace, f"system:serviceaccount:{namespace}:default")
    return cluster.kubectl("create", "token", "default", f"--namespace={namespace}").strip()


def service_account(cluster: Admin, namespace: str, folder: Path, content: str) -> dict[str, str]:
    """Make the folder that a pod finds its account in; return the variables that it finds."""
    settings = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"][0]["cluster"]
    (folder / "ca.crt").write_bytes(base64.b64decode(settings["certificate-authority-data"]))
    (folder / "namespace").write_text(namespace)
    (folder / "token").write_text(content)
    host, _, port = settings["server"].removeprefix("https://").partition(":")
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


async def test_a_pod_uses_its_service_account(cluster: Admin, namespace: str, tmp_path: Path) -> None:
    environ = service_account(cluster, namespace, tmp_path, token(cluster, namespace))
    found = in_cluster(environ, tmp_path)
    assert found.namespace == namespace
    async with Api(found) as client:
        await client.create(MAPS, namespace, config_map("a"))


async def test_a_token_that_is_refused_is_read_anew_at_once(cluster: Admin, namespace: str, tmp_path: Path) -> None:
    environ = service_account(cluster, namespace, tmp_path, "an.old.token")
    good = token(cluster, namespace)
    async with Api(in_cluster(environ, tmp_path)) as client:
        with pytest.raises(CreateUncertain, match="Unauthorized"):
            await client.create(MAPS, namespace, config_map("a"))
        (tmp_path / "token").write_text(good)
        await client.create(MAPS, namespace, config_map("a"))


async def test_a_token_is_read_anew_when_it_gets_old(
    cluster: Admin, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "TOKEN_SECONDS", 0.0)
    environ = service_account(cluster, namespace, tmp_path, token(cluster, namespace))
    found = in_cluster(environ, tmp_path)
    first = await found.header()
    (tmp_path / "token").write_text("another")
    assert await found.header() == "Bearer another" != first


async def test_a_credential_plugin_is_asked(cluster: Admin, namespace: str, tmp_path: Path) -> None:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token(cluster, namespace)},
    }
    plugin = tmp_path / "plugin"
    plugin.write_text('#!/bin/sh\nprintf %s "$CREDENTIAL"\n')
    plugin.chmod(0o755)
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    variables = [{"name": "CREDENTIAL", "value": json.dumps(credential)}]
    config["users"][0]["user"] = {
        "exec": {"command": "./plugin", "apiVersion": credential["apiVersion"], "env": variables}
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    async with Api(from_kubeconfig([path])) as client:
        await client.create(MAPS, namespace, config_map("a"))


# Following --------------------------------------------------------------------------------------------------


class Seen:
    """Follows the config maps of a namespace, and notes what it sees."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.changes: list[tuple[str, str | None]] = []
        self.notes: list[str] = []
        follower = Follower(api, MAPS, _name, note=self.notes.append, namespace=namespace, selector="mine=1")
        self._future = asyncio.create_task(self._follow(follower))

    async def _follow(self, follower: Follower[str]) -> None:
        async for change in follower.changes():
            self.changes.append((change.kind.value, change.object))

    async def until(self, kind: ChangeKind, what: str | None = None, times: int = 1) -> None:
        def there() -> bool:
            if self._future.done():
                self._future.result()
            return self.changes.count((kind.value, what)) >= times

        await until(there)

    async def __aenter__(self) -> "Seen":
        await self.until(ChangeKind.SYNCED)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._future.cancel()
        await asyncio.gather(self._future, return_exceptions=True)


def _name(found: dict[str, Any]) -> str:
    return str(found["metadata"]["name"])


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(watch, "LONGEST_PAUSE", 0.1)


async def test_what_is_there_and_what_changes_is_seen(api: Api, namespace: str) -> None:
    await api.create(MAPS, namespace, config_map("a", mine="1"))
    await api.create(MAPS, namespace, config_map("hidden", mine="0"))
    async with Seen(api, namespace) as seen:
        assert seen.changes == [("LISTING", None), ("LISTED", "a"), ("SYNCED", None)]
        await api.create(MAPS, namespace, config_map("b", mine="1"))
        await seen.until(ChangeKind.CHANGED, "b")
        await api.delete(MAPS, namespace, "b")
        await seen.until(ChangeKind.DELETED, "b")


async def test_an_empty_list_is_a_list(api: Api, namespace: str) -> None:
    async with Seen(api, namespace) as seen:
        assert seen.changes == [("LISTING", None), ("SYNCED", None)]


async def test_after_a_cut_it_goes_on_where_it_was(behind: Api, proxy: Proxy, api: Api, namespace: str) -> None:
    async with Seen(behind, namespace) as seen:
        await until(lambda: any("watch=true" in path for _, path in proxy.seen))
        proxy.fail(Fault("GET", "watch=true", answer=refusal(503, "ServiceUnavailable")))
        proxy.cut()
        await api.create(MAPS, namespace, config_map("b", mine="1"))
        await seen.until(ChangeKind.CHANGED, "b")
    assert [change for change in seen.changes if change[0] == "LISTING"] == [("LISTING", None)]
    assert seen.notes == []


@pytest.mark.parametrize("answer", [watch_error(410, "Expired"), refusal(410, "Expired")])
async def test_where_it_was_is_gone_everything_is_listed_anew(
    behind: Api, proxy: Proxy, api: Api, namespace: str, answer: bytes
) -> None:
    async with Seen(behind, namespace) as seen:
        await until(lambda: any("watch=true" in path for _, path in proxy.seen))
        await api.create(MAPS, namespace, config_map("b", mine="1"))
        await seen.until(ChangeKind.CHANGED, "b")
        proxy.fail(Fault("GET", "watch=true", answer=answer))
        proxy.cut()
        await seen.until(ChangeKind.SYNCED, times=2)
        assert ("LISTED", "b") in seen.changes


async def test_an_api_server_that_stays_unreachable_is_reported_once_and_survived(
    own_cluster: OwnCluster, own_namespace: str
) -> None:
    async with Api(from_kubeconfig([own_cluster.api.kubeconfig])) as client, Seen(client, own_namespace) as seen:
        own_cluster.plane.api_server.kill()
        await until(lambda: seen.notes)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(own_cluster.plane.restart_api_server)
        await asyncio.to_thread(
            own_cluster.api.create, f"/api/v1/namespaces/{own_namespace}/configmaps", config_map("b", mine="1")
        )
        await until(lambda: ("CHANGED", "b") in seen.changes or ("LISTED", "b") in seen.changes)
    assert len(seen.notes) == 2
    assert "does not answer" in seen.notes[0]
    assert seen.notes[1] == "The Kubernetes API answers again."
