"""The test cluster itself: what the annotations of a pod promise is what a client sees of it."""

import http.client
import socket
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from opendataflow.names import FINALIZER
from tests.kube.cluster.api import Api, Object, Refused
from tests.kube.cluster.logs import OF_ALL, set_log
from tests.kube.cluster.pods import has_ended, phase, pod, pod_annotations, state
from tests.kube.conftest import Kubectl
from tests.waiting import wait_until


@pytest.fixture
def pods(namespace: str) -> str:
    """The path of the pods of the fresh namespace."""
    return f"/api/v1/namespaces/{namespace}/pods"


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _until_running(cluster: Api, path: str) -> Object:
    return cluster.wait(path, lambda found: phase(found) == "Running", "the pod runs")


def _until_ended(cluster: Api, path: str) -> Object:
    return cluster.wait(path, has_ended, "the pod has ended")


def test_a_pod_without_annotations_succeeds_at_once(cluster: Api, pods: str) -> None:
    cluster.create(pods, pod("run-1"))
    ended = _until_ended(cluster, f"{pods}/run-1")
    assert phase(ended) == "Succeeded"
    assert state(ended)["terminated"]["exitCode"] == 0
    assert state(ended)["terminated"]["reason"] == "Completed"


def test_a_pod_runs_as_long_as_it_says_and_ends_with_its_exit_code_and_message(cluster: Api, pods: str) -> None:
    message = '{"rows": 3}\nand "quotes"'
    cluster.create(pods, pod("run-1", run_seconds=2, exit_code=3, message=message))
    ended = _until_ended(cluster, f"{pods}/run-1")
    assert phase(ended) == "Failed"
    terminated = state(ended)["terminated"]
    assert (terminated["exitCode"], terminated["reason"], terminated["message"]) == (3, "Error", message)
    assert _moment(terminated["finishedAt"]) - _moment(terminated["startedAt"]) >= timedelta(seconds=2)


def test_a_pod_that_runs_for_ever_ends_when_its_annotation_says_so(cluster: Api, pods: str) -> None:
    cluster.create(pods, pod("run-1", run_seconds="forever"))
    _until_running(cluster, f"{pods}/run-1")
    cluster.patch(f"{pods}/run-1", {"metadata": {"annotations": pod_annotations(run_seconds=0, exit_code=7)}})
    assert state(_until_ended(cluster, f"{pods}/run-1"))["terminated"]["exitCode"] == 7


def test_a_container_out_of_memory_says_so(cluster: Api, pods: str) -> None:
    cluster.create(pods, pod("run-1", reason="OOMKilled"))
    terminated = state(_until_ended(cluster, f"{pods}/run-1"))["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (137, "OOMKilled")


def test_an_evicted_pod_says_so(cluster: Api, pods: str) -> None:
    cluster.create(pods, pod("run-1", exit_code=137, pod_reason="Evicted", pod_message="The node was low on memory."))
    status = _until_ended(cluster, f"{pods}/run-1")["status"]
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "Evicted",
        "The node was low on memory.",
    )


def test_a_pod_past_its_deadline_has_failed(cluster: Api, pods: str) -> None:
    cluster.create(pods, pod("run-1", run_seconds="forever", spec={"activeDeadlineSeconds": 1}))
    status = _until_ended(cluster, f"{pods}/run-1")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")


def test_an_image_that_cannot_be_pulled_leaves_the_pod_pending(cluster: Api, pods: str) -> None:
    cluster.create(pods, pod("run-1", image_pull="fail"))
    stuck = cluster.wait(f"{pods}/run-1", lambda found: "waiting" in state(found), "the container waits")
    assert phase(stuck) == "Pending"
    assert state(stuck)["waiting"]["reason"] == "ImagePullBackOff"


def test_init_containers_run_first(cluster: Api, pods: str) -> None:
    spec = {"initContainers": [{"name": "open-passwords", "image": "none/none:1"}]}
    cluster.create(pods, pod("run-1", init_seconds=3600, run_seconds="forever", spec=spec))
    first = cluster.wait(f"{pods}/run-1", lambda found: "running" in state(found, "open-passwords"), "init runs")
    assert state(first)["waiting"]["reason"] == "PodInitializing"
    cluster.patch(f"{pods}/run-1", {"metadata": {"annotations": pod_annotations(init_seconds=0)}})
    then = _until_running(cluster, f"{pods}/run-1")
    assert state(then, "open-passwords")["terminated"]["exitCode"] == 0


def test_a_failed_init_container_fails_the_pod_whose_main_container_never_runs(cluster: Api, pods: str) -> None:
    spec = {"initContainers": [{"name": "open-passwords", "image": "none/none:1"}]}
    cluster.create(pods, pod("run-1", init_exit_code=2, spec=spec))
    ended = _until_ended(cluster, f"{pods}/run-1")
    assert phase(ended) == "Failed"
    assert state(ended, "open-passwords")["terminated"]["exitCode"] == 2
    assert "waiting" in state(ended)


def test_a_sidecar_keeps_the_pod_running_when_the_main_container_has_ended(cluster: Api, pods: str) -> None:
    containers = [{"name": "proxy", "image": "none/none:1"}, {"name": "main", "image": "none/none:1"}]
    cluster.create(pods, pod("run-1", exit_code=4, sidecar="keeps-running", spec={"containers": containers}))
    found = cluster.wait(f"{pods}/run-1", lambda found: "terminated" in state(found), "the main container has ended")
    assert state(found)["terminated"]["exitCode"] == 4
    assert "running" in state(found, "proxy")
    assert phase(found) == "Running"
    cluster.delete(f"{pods}/run-1")
    cluster.wait_gone(f"{pods}/run-1")


def test_a_pod_is_ready_when_it_says_so(cluster: Api, pods: str) -> None:
    def ready(found: Object) -> bool:
        return any(one["type"] == "Ready" and one["status"] == "True" for one in found["status"].get("conditions", []))

    cluster.create(pods, pod("run-1", ready_seconds=3600, run_seconds="forever"))
    assert not ready(_until_running(cluster, f"{pods}/run-1"))
    cluster.patch(f"{pods}/run-1", {"metadata": {"annotations": pod_annotations(ready_seconds=0)}})
    cluster.wait(f"{pods}/run-1", ready, "the pod is ready")


def test_a_deleted_pod_has_its_grace_period(cluster: Api, pods: str) -> None:
    spec = {"terminationGracePeriodSeconds": 5}
    cluster.create(pods, pod("run-1", run_seconds="forever", stop_seconds=2, finalizer=True, spec=spec))
    _until_running(cluster, f"{pods}/run-1")
    deleted = cluster.delete(f"{pods}/run-1")
    assert "running" in state(deleted)
    terminated = state(_until_ended(cluster, f"{pods}/run-1"))["terminated"]
    assert terminated["exitCode"] == 143
    last = _moment(deleted["metadata"]["deletionTimestamp"])
    assert last - timedelta(seconds=3) <= _moment(terminated["finishedAt"])


def test_a_container_that_ignores_the_signal_is_killed_after_the_grace_period(cluster: Api, pods: str) -> None:
    spec = {"terminationGracePeriodSeconds": 1}
    cluster.create(pods, pod("run-1", run_seconds="forever", stop_seconds=60, finalizer=True, spec=spec))
    _until_running(cluster, f"{pods}/run-1")
    cluster.delete(f"{pods}/run-1")
    assert state(_until_ended(cluster, f"{pods}/run-1"))["terminated"]["exitCode"] == 137


def test_a_pod_with_a_finalizer_stays_until_it_is_stripped(cluster: Api, pods: str) -> None:
    cluster.create(pods, pod("run-1", run_seconds="forever", finalizer=True))
    _until_running(cluster, f"{pods}/run-1")
    cluster.delete(f"{pods}/run-1")

    def removed_by_the_kubelet(found: Object) -> bool:
        return bool(found["metadata"].get("deletionGracePeriodSeconds") == 0)

    left = cluster.wait(f"{pods}/run-1", removed_by_the_kubelet, "the kubelet has released the pod")
    assert left["metadata"]["finalizers"] == [FINALIZER]
    assert has_ended(left)
    cluster.patch(f"{pods}/run-1", {"metadata": {"finalizers": None}})
    cluster.wait_gone(f"{pods}/run-1")


def test_a_pod_whose_image_cannot_be_pulled_can_be_deleted(cluster: Api, pods: str) -> None:
    cluster.create(pods, pod("run-1", image_pull="fail"))
    cluster.wait(f"{pods}/run-1", lambda found: "waiting" in state(found), "the container waits")
    cluster.delete(f"{pods}/run-1")
    cluster.wait_gone(f"{pods}/run-1")


def test_a_quota_refuses_a_pod(cluster: Api, namespace: str, pods: str) -> None:
    quota = f"/api/v1/namespaces/{namespace}/resourcequotas"
    cluster.create(quota, {"metadata": {"name": "one"}, "spec": {"hard": {"pods": "1"}}})
    cluster.wait(f"{quota}/one", lambda found: "used" in found.get("status", {}), "the quota counts")
    cluster.create(pods, pod("run-1", run_seconds="forever"))
    with pytest.raises(Refused, match="exceeded quota: one") as refused:
        cluster.create(pods, pod("run-2"))
    assert refused.value.status == 403


def test_a_pod_that_fits_nowhere_is_unschedulable(cluster: Api, pods: str) -> None:
    cluster.create(pods, pod("run-1", spec={"nodeSelector": {"disk": "none-has-it"}}))

    def unschedulable(found: Object) -> bool:
        return any(one.get("reason") == "Unschedulable" for one in found["status"].get("conditions", []))

    assert phase(cluster.wait(f"{pods}/run-1", unschedulable, "the scheduler has given up")) == "Pending"


def test_the_log_of_a_container_can_be_read(cluster: Api, pods: str, kubectl: Kubectl) -> None:
    cluster.create(pods, pod("run-1"))
    _until_ended(cluster, f"{pods}/run-1")
    assert kubectl("logs", "run-1", "--container=main", "--tail=1") == f"{OF_ALL}\n"


def test_a_test_says_what_a_container_has_printed(cluster: Api, pods: str, kubectl: Kubectl, tmp_path: Path) -> None:
    set_log(cluster, kubectl.namespace, "run-1", tmp_path / "log", "first\nsecond\nthird")
    cluster.create(pods, pod("run-1"))
    _until_ended(cluster, f"{pods}/run-1")
    wait_until(lambda: kubectl("logs", "run-1", "--tail=2") == "second\nthird\n", "the log is what was written")


def test_an_indexed_job_runs_to_its_end(cluster: Api, namespace: str) -> None:
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    template = pod("", run_seconds=0)
    del template["metadata"]["name"]
    spec = {"completionMode": "Indexed", "completions": 5, "parallelism": 5}
    cluster.create(jobs, {"metadata": {"name": "five"}, "spec": {**spec, "template": template}})
    done = cluster.wait(f"{jobs}/five", lambda found: found["status"].get("succeeded") == 5, "five have succeeded")
    assert done["status"]["completedIndexes"] == "0-4"


def test_a_namespace_goes_with_what_is_in_it(cluster: Api, namespace: str, pods: str) -> None:
    cluster.create(pods, pod("run-1", run_seconds="forever"))
    _until_running(cluster, f"{pods}/run-1")
    cluster.delete(f"/api/v1/namespaces/{namespace}")
    cluster.wait_gone(f"/api/v1/namespaces/{namespace}")


def test_an_answer_that_breaks_off_leaves_no_connection_to_whoever_keeps_the_error(tmp_path: Path) -> None:
    over = threading.Event()
    left: list[bytes] = []

    def break_off(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(240)
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf")
            connection.shutdown(socket.SHUT_WR)
            over.wait(240)
            connection.setblocking(False)
            left.append(connection.recv(4096))

    api = Api(tmp_path / "kubectl", tmp_path / "config")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(api.socket))
        listener.listen()
        server = threading.Thread(target=break_off, args=(listener,))
        server.start()
        with pytest.raises(http.client.IncompleteRead) as kept:
            api.text("GET", "/")
        over.set()
        server.join()
    api.__exit__()
    assert left == [b""], kept.value
