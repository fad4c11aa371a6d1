"""Runs as pods on a real API server: created, adopted, judged, released and swept."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from opendataflow import names
from opendataflow.core.kubernetes.pods import Container, Operator, PodConfig, run_pod
from opendataflow.core.runs.environment import JobFacts
from opendataflow.errors import Backpressure, CreateUncertain, NamespaceGone, NotCreatable
from opendataflow.launch.cluster import launcher as launching
from opendataflow.launch.cluster import releases, watch
from opendataflow.launch.cluster.launcher import ClusterLauncher
from opendataflow.model.records.claim import ClaimedRun
from opendataflow.model.records.pod import PodOrder, StoredRun
from opendataflow.model.records.run import Ended
from opendataflow.names import OutcomeClass, Reason
from tests.kube.cluster.api import Api as Admin
from tests.kube.cluster.nodes import add_nodes, remove_node, stop_heartbeat
from tests.kube.cluster.pods import pod, pod_annotations, state
from tests.kube.cluster.proxy import Fault, Proxy, refusal, watch_error
from tests.kube.conftest import OwnCluster
from tests.kube.launching import SECONDS, EnginePlace, end, shorten_pauses
from tests.pods import claimed
from tests.waiting import until


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(watch, "LONGEST_PAUSE", 0.1)
    shorten_pauses(monkeypatch)


class Place(EnginePlace):
    def run(self, number: int) -> ClaimedRun:
        return claimed(number, home=self.namespace)

    def order(
        self, number: int = 1, *, template: dict[str, Any] | None = None, config: Any = None, **annotations: Any
    ) -> PodOrder:
        run = self.run(number)
        whole = {**(template or {}), "metadata": {"annotations": pod_annotations(**annotations)}}
        wished = PodConfig(Container("none/none:1", ("./load.sh",)), template=whole, **(config or {}))
        job = JobFacts("load", "./load.sh", (), (), namespace=self.namespace)
        manifest = run_pod(job, run, {}, wished, Operator(self.namespace, "none/operator:1"))
        return PodOrder(run.identity(self.namespace), manifest)

    def ended(self, number: int) -> dict[int, StoredRun]:
        """What Postgres has of a run whose outcome is committed."""
        return {number: StoredRun(self.run(number).identity(self.namespace), ended=True)}

    def path(self, number: int = 1) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.run(number).identity(self.namespace).name}"

    def pod(self, number: int = 1) -> dict[str, Any] | None:
        return self.admin.find(self.path(number))

    async def until(self, true: Any, number: int = 1, what: str = "it is so") -> dict[str, Any]:
        return await self.wait(self.path(number), true, what)

    async def runs(self, number: int = 1) -> None:
        await self.until(lambda pod: "running" in state(pod), number, "it runs")

    def delete(self, number: int = 1, **options: Any) -> None:
        self.admin.delete(self.path(number), **options)

    def strip(self, number: int = 1) -> None:
        self.admin.patch(self.path(number), {"metadata": {"finalizers": None}})


@pytest.fixture
def place(cluster: Admin, namespace: str) -> Place:
    return Place(cluster, namespace)


async def nothing_ends(launcher: ClusterLauncher, seconds: float = 1.0) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await launcher.ended()


async def pod_problems(launcher: ClusterLauncher, reason: Reason) -> str:
    """Wait until the first run is hindered for a reason; return the sentence."""
    await until(lambda: launcher.pod_problems().get(1, (None, ""))[0] is reason, f"it is hindered: {reason}", SECONDS)
    return launcher.pod_problems()[1][1]


def verdict(ended: Ended) -> tuple[OutcomeClass, str]:
    assert ended.outcome is not None
    return ended.outcome.kind, ended.outcome.message


# Ends -------------------------------------------------------------------------------------------------------


async def test_a_run_that_succeeds_is_reported_once_with_its_report_and_place(place: Place) -> None:
    report = {"rows": 12, "checksum": "ab"}
    async with place.launcher() as launcher:
        await launcher.start(place.order(message=json.dumps(report)))
        ended = await end(launcher)
        pod = place.pod()
        assert pod is not None
        assert verdict(ended) == (OutcomeClass.SUCCESS, "exit code 0")
        assert (ended.run, ended.exit_code, ended.log_tail) == (1, 0, "")
        assert ended.report.metrics == report
        assert (ended.pod_uid, ended.node) == (pod["metadata"]["uid"], pod["spec"]["nodeName"])
        await nothing_ends(launcher)


async def test_a_run_that_fails_brings_the_end_of_its_log(place: Place) -> None:
    async with place.launcher() as launcher:
        await launcher.start(place.order(exit_code=3))
        ended = await end(launcher)
        assert verdict(ended) == (OutcomeClass.APPLICATION, "exit code 3: a container's log")
        assert ended.log_tail == "a container's log\n"


async def test_the_answer_of_a_kubelet_without_the_log_is_not_taken_for_the_log(place: Place, proxy: Proxy) -> None:
    answer = b"unable to retrieve container logs for containerd://3527d5"
    proxy.fail(Fault("GET", "/log", answer=b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer)))
    async with place.launcher(proxy) as launcher:
        await launcher.start(place.order(exit_code=3))
        ended = await end(launcher)
    assert ended.log_tail == ""
    assert ended.outcome is not None
    assert ended.outcome.message == "exit code 3"


async def test_a_run_whose_log_may_not_be_kept_brings_its_exit_code_alone(place: Place) -> None:
    async with place.launcher() as launcher:
        await launcher.start(place.order(config={"keep_log": False}, exit_code=3))
        ended = await end(launcher)
        assert verdict(ended) == (OutcomeClass.APPLICATION, "exit code 3")
        assert ended.log_tail == ""


async def test_an_outcome_does_not_wait_for_a_log_that_can_not_be_had(place: Place, proxy: Proxy) -> None:
    proxy.fail(Fault("GET", "/log", times=100, answer=refusal(500, "InternalError")))
    async with place.launcher(proxy) as launcher:
        await launcher.start(place.order(exit_code=3))
        assert verdict(await end(launcher)) == (OutcomeClass.APPLICATION, "exit code 3")


async def test_a_run_out_of_memory_says_its_limit(place: Place) -> None:
    limits = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "512Mi"}}}]}}
    async with place.launcher() as launcher:
        await launcher.start(place.order(template=limits, reason="OOMKilled"))
        kind, message = verdict(await end(launcher))
        assert (kind, "512Mi" in message) == (OutcomeClass.OUT_OF_MEMORY, True)


async def test_a_sidecar_that_goes_on_keeps_nobody_waiting(place: Place) -> None:
    sidecar = {"spec": {"containers": [{"name": "proxy", "image": "none/none:1"}]}}
    async with place.launcher() as launcher:
        await launcher.start(place.order(template=sidecar, sidecar="keeps-running"))
        assert verdict(await end(launcher)) == (OutcomeClass.SUCCESS, "exit code 0")
        assert (place.pod() or {})["status"]["phase"] == "Running"


async def test_the_deadline_of_a_run_is_kubernetes_own(place: Place) -> None:
    async with place.launcher() as launcher:
        await launcher.start(place.order(config={"run_deadline": 1.0}, run_seconds="forever"))
        assert verdict(await end(launcher)) == (OutcomeClass.DEADLINE, "stopped at its deadline")


async def test_an_evicted_run_is_infrastructure(place: Place) -> None:
    async with place.launcher() as launcher:
        await launcher.start(place.order(exit_code=137, pod_reason="Evicted", pod_message="low on memory"))
        assert verdict(await end(launcher)) == (OutcomeClass.INFRASTRUCTURE, "evicted: low on memory")


async def test_an_init_container_that_fails_is_the_user_s(place: Place) -> None:
    init = {"spec": {"initContainers": [{"name": "fetch", "image": "none/none:1"}]}}
    async with place.launcher() as launcher:
        await launcher.start(place.order(template=init, init_exit_code=4))
        kind, message = verdict(await end(launcher))
        assert kind is OutcomeClass.APPLICATION
        assert message.startswith("init container fetch: exit code 4")


# Others have their hands in it ------------------------------------------------------------------------------


async def test_a_pod_deleted_by_hand_waits_for_us_and_is_infrastructure(place: Place) -> None:
    async with place.launcher() as launcher:
        await launcher.start(place.order(run_seconds="forever"))
        await place.runs()
        place.delete()
        ended = await end(launcher)
        kind, message = verdict(ended)
        assert (kind, "deleted by somebody" in message) == (OutcomeClass.INFRASTRUCTURE, True)
        assert place.pod() is not None


async def test_a_pod_deleted_by_force_waits_for_us_and_is_infrastructure(place: Place) -> None:
    async with place.launcher() as launcher:
        await launcher.start(place.order(run_seconds="forever"))
        await place.runs()
        place.delete(gracePeriodSeconds=0)
        assert verdict(await end(launcher))[0] is OutcomeClass.INFRASTRUCTURE
        assert place.pod() is not None


async def test_a_pod_that_vanished_with_its_finalizer_is_infrastructure(place: Place) -> None:
    async with place.launcher() as launcher:
        await launcher.start(place.order(run_seconds="forever"))
        await place.runs()
        place.strip()
        place.delete(gracePeriodSeconds=0)
        kind, message = verdict(await end(launcher))
        assert (kind, "deleted by somebody" in message) == (OutcomeClass.INFRASTRUCTURE, True)


async def test_a_pod_that_vanished_while_nobody_watched_is_missed_at_the_next_list(place: Place, proxy: Proxy) -> None:
    async with place.launcher(proxy) as launcher:
        await launcher.start(place.order(run_seconds="forever"))
        await place.runs()
        away = proxy.fail(Fault("GET", "pods.*watch=true", times=10**6, answer=refusal(503, "ServiceUnavailable")))
        proxy.cut()
        place.strip()
        place.delete(gracePeriodSeconds=0)
        away.times = 0
        proxy.fail(Fault("GET", "pods.*watch=true", answer=watch_error(410, "Expired")))
        proxy.cut()
        assert verdict(await end(launcher))[0] is OutcomeClass.INFRASTRUCTURE


async def test_a_run_that_ended_while_the_watch_was_refused_is_reported(place: Place, proxy: Proxy) -> None:
    async with place.launcher(proxy) as launcher:
        await launcher.start(place.order(run_seconds="1"))
        away = proxy.fail(Fault("GET", "pods.*watch=true", times=10**6, answer=refusal(500, "InternalError")))
        proxy.cut()
        await place.until(lambda pod: pod["status"]["phase"] == "Succeeded")
        away.times = 0
        assert verdict(await end(launcher)) == (OutcomeClass.SUCCESS, "exit code 0")


async def test_a_copy_of_a_pod_with_our_labels_changes_nothing(place: Place) -> None:
    async with place.launcher() as launcher:
        await launcher.start(place.order(run_seconds="forever"))
        await place.runs()
        copy = dict(place.order(exit_code=9).manifest)
        copy["metadata"] = {**copy["metadata"], "name": "copy"}
        place.admin.create(f"/api/v1/namespaces/{place.namespace}/pods", copy)
        await nothing_ends(launcher, 2.0)


# Nodes that are lost ----------------------------------------------------------------------------------------


@pytest.fixture
def lost(own_cluster: OwnCluster, own_namespace: str) -> Place:
    """A namespace of a cluster whose nodes may be taken away."""
    return Place(own_cluster.api, own_namespace)


@asynccontextmanager
async def on_a_lost_node(place: Place, node: str, **config: Any) -> AsyncIterator[ClusterLauncher]:
    """A run on a node of which nothing is heard any more, and whose pod somebody has deleted since."""
    await asyncio.to_thread(add_nodes, place.admin, [node])
    pinned = {"spec": {"nodeName": node, "terminationGracePeriodSeconds": 1}}
    try:
        async with place.launcher() as launcher:
            await launcher.start(place.order(template=pinned, config=config, run_seconds="forever"))
            await place.runs()
            await asyncio.to_thread(stop_heartbeat, place.admin, node)
            place.delete()
            yield launcher
    finally:
        remove_node(place.admin, node)


async def test_a_run_on_a_lost_node_waits_until_its_node_is_gone(lost: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launching, "LATE_SECONDS", 0.5)
    async with on_a_lost_node(lost, "lost-1") as launcher:
        await nothing_ends(launcher, 4)
        assert await pod_problems(launcher, Reason.NODE_UNREACHABLE) == "node lost-1 does not answer or is slow"
        remove_node(lost.admin, "lost-1")
        kind, message = verdict(await end(launcher))
        assert kind is OutcomeClass.INFRASTRUCTURE
        assert "node" in message or "deleted" in message


async def test_whoever_takes_the_risk_is_not_kept_waiting(lost: Place) -> None:
    async with on_a_lost_node(lost, "lost-2", retry_after=3.0) as launcher:
        kind, message = verdict(await end(launcher))
        assert kind is OutcomeClass.INFRASTRUCTURE
        assert message.startswith("lost: node lost-2 has not ended its pod for ")


async def test_the_risk_can_be_taken_later_for_one_pod(lost: Place) -> None:
    async with on_a_lost_node(lost, "lost-3") as launcher:
        await nothing_ends(launcher, 2)
        lost.admin.patch(lost.path(), {"metadata": {"annotations": {names.ANNOTATION_RETRY_AFTER: "0"}}})
        assert verdict(await end(launcher))[0] is OutcomeClass.INFRASTRUCTURE


# Starting ---------------------------------------------------------------------------------------------------


async def test_a_second_start_does_nothing(place: Place, proxy: Proxy) -> None:
    async with place.launcher(proxy) as launcher:
        await launcher.start(place.order(run_seconds="forever"))
        await launcher.start(place.order(run_seconds="forever"))
        assert [method for method, path in proxy.seen if "/pods" in path].count("POST") == 1


async def test_a_pod_whose_create_was_not_answered_is_ours_at_the_second_try(place: Place, proxy: Proxy) -> None:
    proxy.fail(Fault("POST", "/pods", drop="reply"))
    async with place.launcher(proxy) as launcher:
        with pytest.raises(CreateUncertain):
            await launcher.start(place.order())
        await launcher.start(place.order())
        assert verdict(await end(launcher))[0] is OutcomeClass.SUCCESS
        await nothing_ends(launcher, 0.5)


async def test_a_pod_whose_create_was_not_answered_is_found_before_its_run_is_given_up(
    place: Place, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota that this pod has used up would refuse a second create, whose answer says nothing of the first."""
    monkeypatch.setattr(releases, "TOMBSTONE_SECONDS", SECONDS)
    proxy.fail(Fault("POST", "/pods", drop="reply"))
    async with place.launcher(proxy) as launcher:
        with pytest.raises(CreateUncertain):
            await launcher.start(place.order())
        assert await launcher.wait_for_late_start(place.run(1))
        assert verdict(await end(launcher))[0] is OutcomeClass.SUCCESS


async def test_a_run_of_which_nothing_was_sent_is_given_up_at_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "TOMBSTONE_SECONDS", 3600.0)
    async with place.launcher() as launcher, asyncio.timeout(SECONDS):
        assert not await launcher.wait_for_late_start(place.run(1))


async def test_a_pod_of_this_run_that_is_there_already_is_ours(place: Place, proxy: Proxy) -> None:
    proxy.fail(Fault("GET", "pods.*watch=true", times=10**6, delay=3600))
    async with place.launcher(proxy) as launcher:
        place.admin.create(f"/api/v1/namespaces/{place.namespace}/pods", place.order(run_seconds="forever").manifest)
        await launcher.start(place.order(run_seconds="forever"))
        assert launcher.unknown_runs() == ()


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("labels", names.LABEL_RUN),
        ("labels", names.LABEL_ENGINE),
        ("annotations", names.ANNOTATION_FENCE),
        ("annotations", names.ANNOTATION_NONCE),
    ],
)
async def test_a_foreign_pod_of_the_same_name_is_never_taken(place: Place, field: str, name: str) -> None:
    foreign = json.loads(json.dumps(place.order(run_seconds="forever").manifest))
    foreign["metadata"][field][name] = "77"
    async with place.launcher() as launcher:
        place.admin.create(f"/api/v1/namespaces/{place.namespace}/pods", foreign)
        with pytest.raises(NotCreatable, match="is not of this run: it is left alone, and the next run gets another"):
            await launcher.start(place.order())
        await nothing_ends(launcher, 0.5)
    pod = place.pod()
    assert pod is not None
    assert (pod["metadata"][field], names.FINALIZER in pod["metadata"]["finalizers"]) == (
        foreign["metadata"][field],
        True,
    )
    assert "deletionTimestamp" not in pod["metadata"]


async def test_a_quota_holds_a_run_back_and_not_for_ever(place: Place) -> None:
    quotas = f"/api/v1/namespaces/{place.namespace}/resourcequotas"
    place.admin.create(quotas, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}})
    await asyncio.to_thread(place.admin.wait, f"{quotas}/q", lambda q: "hard" in q.get("status", {}), "it counts")
    async with place.launcher() as launcher:
        with pytest.raises(Backpressure):
            await launcher.start(place.order())
        place.admin.delete(f"{quotas}/q")
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    await launcher.start(place.order())
                    break
                except Backpressure:
                    await asyncio.sleep(0.1)
        assert verdict(await end(launcher))[0] is OutcomeClass.SUCCESS


async def test_in_a_namespace_that_is_being_deleted_nothing_starts(place: Place) -> None:
    async with place.launcher() as launcher:
        await launcher.start(place.order(1, run_seconds="forever"))
        place.admin.delete(f"/api/v1/namespaces/{place.namespace}")
        with pytest.raises(NamespaceGone):
            await launcher.start(place.order(2))
        await launcher.kill(1, cancelled=True)
        await end(launcher)
        await launcher.release(place.run(1))
        await asyncio.to_thread(place.admin.wait_gone, place.path(1))


async def test_the_next_process_adopts_what_runs_and_what_has_ended(place: Place) -> None:
    async with place.launcher() as first:
        await first.start(place.order(1))
        await first.start(place.order(2, run_seconds="forever"))
        await place.runs(2)
        await place.until(lambda pod: pod["status"]["phase"] == "Succeeded", 1)
    async with place.launcher() as second:
        assert sorted(second.unknown_runs()) == [1, 2]
        assert await second.adopt(place.run(1))
        assert await second.adopt(place.run(2))
        assert not await second.adopt(place.run(3))
        assert (await end(second)).run == 1
        await second.kill(2, cancelled=True)
        ended = await end(second)
        assert (ended.run, ended.cancelled) == (2, True)


# Stopping ---------------------------------------------------------------------------------------------------


async def test_a_cancelled_run_gets_its_grace_and_is_cancelled(place: Place) -> None:
    async with place.launcher() as launcher:
        await launcher.start(place.order(run_seconds="forever", stop_seconds=1))
        await place.runs()
        await launcher.kill(1, cancelled=True)
        ended = await end(launcher)
        assert verdict(ended) == (OutcomeClass.CANCELLED, "cancelled")
        assert (ended.cancelled, ended.exit_code) == (True, 143)


async def test_a_run_that_can_not_get_its_image_is_stopped_and_infrastructure(place: Place) -> None:
    later = 0.0
    async with place.launcher(clock=lambda: time.time() + later) as launcher:
        await launcher.start(place.order(config={"start_deadline": 900.0}, image_pull="fail"))
        await pod_problems(launcher, Reason.IMAGE_PULL)
        later = 900.0
        kind, message = verdict(await end(launcher))
        assert kind is OutcomeClass.INFRASTRUCTURE
        assert message.startswith("image pull: ")
        assert message.endswith("(ImagePullBackOff)")


async def test_a_run_that_finds_no_node_is_stopped_and_infrastructure(place: Place) -> None:
    nowhere = {"spec": {"nodeSelector": {"no": "where"}}}
    later = 0.0
    async with place.launcher(clock=lambda: time.time() + later) as launcher:
        await launcher.start(place.order(template=nowhere, config={"start_deadline": 900.0}))
        await pod_problems(launcher, Reason.UNSCHEDULABLE)
        later = 900.0
        kind, message = verdict(await end(launcher))
        assert kind is OutcomeClass.INFRASTRUCTURE
        assert re.match(r"unschedulable for 1[5-9] min: 0/", message)


async def test_what_hinders_a_living_run_can_be_asked(place: Place) -> None:
    async with place.launcher() as launcher:
        await launcher.start(place.order(image_pull="fail"))
        assert await pod_problems(launcher, Reason.IMAGE_PULL)


async def test_a_stop_that_was_not_answered_is_asked_for_again(place: Place, proxy: Proxy) -> None:
    proxy.fail(Fault("DELETE", "/pods", times=2, answer=refusal(500, "InternalError")))
    async with place.launcher(proxy) as launcher:
        await launcher.start(place.order(run_seconds="forever"))
        await launcher.kill(1, cancelled=True)
        assert (await end(launcher)).cancelled


async def test_a_stop_that_was_not_allowed_is_reported_once_and_asked_for_again(place: Place, proxy: Proxy) -> None:
    proxy.fail(Fault("DELETE", "/pods", times=2, answer=refusal(403, "Forbidden", "no rights")))
    async with place.launcher(proxy) as launcher:
        await launcher.start(place.order(run_seconds="forever"))
        await launcher.kill(1, cancelled=True)
        assert (await end(launcher)).cancelled
    [note] = place.notes
    assert note.startswith(f"{place.namespace}/load-r1-")
    assert " can't be stopped, and it is tried again: " in note


# Releasing --------------------------------------------------------------------------------------------------


async def test_a_released_pod_stays_as_a_tombstone_and_keeps_the_finalizers_of_others(place: Place) -> None:
    async with place.launcher() as launcher:
        order = place.order()
        order.manifest["metadata"]["finalizers"].append("other.io/keep")
        await launcher.start(order)
        await end(launcher)
        before = time.time() // 60
        await launcher.release(place.run(1))
        pod = await place.until(lambda pod: names.LABEL_DONE in pod["metadata"]["labels"])
        assert pod["metadata"]["finalizers"] == ["other.io/keep"]
        assert before <= int(pod["metadata"]["labels"][names.LABEL_DONE]) <= time.time() // 60
        place.strip()


async def test_a_release_that_was_not_answered_is_done_again(place: Place, proxy: Proxy) -> None:
    proxy.fail(Fault("PATCH", "/pods", times=3, answer=refusal(500, "InternalError")))
    async with place.launcher(proxy) as launcher:
        await launcher.start(place.order())
        await end(launcher)
        await launcher.release(place.run(1))
        await place.until(lambda pod: names.LABEL_DONE in pod["metadata"]["labels"])


async def test_a_conflict_with_somebody_else_s_change_lets_nothing_stay_behind(place: Place, proxy: Proxy) -> None:
    for method in ("DELETE", "PATCH"):
        proxy.fail(Fault(method, "/pods", times=2, answer=refusal(409, "Conflict", "the object has been modified")))
    async with place.launcher(proxy) as launcher:
        await launcher.start(place.order(run_seconds="forever"))
        await place.runs()
        await launcher.kill(1, cancelled=True)
        assert (await end(launcher)).cancelled
        await launcher.release(place.run(1))
        await asyncio.to_thread(place.admin.wait_gone, place.path(1))


async def test_a_release_that_is_not_allowed_is_reported_once(place: Place, proxy: Proxy) -> None:
    proxy.fail(Fault("PATCH", "/pods", times=5, answer=refusal(403, "Forbidden", "no rights")))
    async with place.launcher(proxy) as launcher:
        await launcher.start(place.order())
        await end(launcher)
        await launcher.release(place.run(1))
        await place.until(lambda pod: names.LABEL_DONE in pod["metadata"]["labels"])
    assert place.notes == ["pods of runs that have ended can't be released: patch pods load-r1-c0ffee: no rights"]


async def test_the_pod_of_another_that_has_the_name_now_is_left_alone(place: Place, proxy: Proxy) -> None:
    proxy.fail(Fault("GET", "pods.*watch=true", times=10**6, delay=3600))
    async with place.launcher(proxy) as launcher:
        # On no node: an update by its kubelet that the API server ends by removing it may be late, and goes by name.
        await launcher.start(place.order(template={"spec": {"schedulerName": "nobody"}}))
        place.strip()
        place.delete(gracePeriodSeconds=0)
        place.admin.create(f"/api/v1/namespaces/{place.namespace}/pods", pod("load-r1-c0ffee", run_seconds="forever"))
        await launcher.kill(1, cancelled=True)
        assert (await end(launcher)).cancelled
        found = place.pod()
        assert found is not None
        assert "deletionTimestamp" not in found["metadata"]


async def test_many_are_released_at_once(place: Place) -> None:
    async with place.launcher() as launcher:
        for number in range(1, 31):
            await launcher.start(place.order(number))
        for _ in range(30):
            ended = await end(launcher)
            await launcher.release(place.run(ended.run))
    pods = place.admin.items(f"/api/v1/namespaces/{place.namespace}/pods?labelSelector={names.LABEL_DONE}")
    assert len(pods) == 30
    assert not any(pod["metadata"].get("finalizers") for pod in pods)


async def test_tombstones_are_swept_when_they_are_old_and_not_before(place: Place) -> None:
    later = 0.0
    async with place.launcher(clock=lambda: time.time() + later) as launcher:
        await launcher.start(place.order(1))
        await launcher.start(place.order(2, run_seconds="forever"))
        await end(launcher)
        await launcher.release(place.run(1))
        await place.until(lambda pod: names.LABEL_DONE in pod["metadata"]["labels"])
        await asyncio.sleep(1)  # time to see it itself
        await launcher.sweep()
        assert place.pod(1) is not None
        later = 130.0
        async with asyncio.timeout(SECONDS):
            while place.pod(1) is not None:  # it may not have seen it yet
                await launcher.sweep()
                await asyncio.sleep(0.1)
        assert place.pod(2) is not None


async def test_the_next_process_sweeps_the_tombstones_that_it_finds(place: Place) -> None:
    async with place.launcher() as first:
        await first.start(place.order(1))
        await end(first)
        await first.release(place.run(1))
    async with place.launcher(clock=lambda: time.time() + 130) as second:
        await second.settle(second.unknown_runs(), place.ended(1))
        await second.sweep()
        await asyncio.to_thread(place.admin.wait_gone, place.path(1))


async def test_a_pod_whose_run_is_committed_but_not_released_is_found_by_the_next_process(place: Place) -> None:
    async with place.launcher() as first:
        await first.start(place.order(1))
        await end(first)
    async with place.launcher() as second:
        assert second.unknown_runs() == (1,)
        await second.settle([1], place.ended(1))
        await place.until(lambda pod: names.LABEL_DONE in pod["metadata"]["labels"])


async def cancelled(launcher: ClusterLauncher, place: Place) -> None:
    """Cancel the first run, and release it."""
    await launcher.kill(1, cancelled=True)
    await end(launcher)
    await launcher.release(place.run(1))


async def test_a_deleted_pod_keeps_its_name_for_a_while_so_that_a_late_create_can_not_bring_it_back(
    place: Place, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "TOMBSTONE_SECONDS", 4.0)
    proxy.fail(Fault("POST", "/pods", drop="reply"))
    async with place.launcher(proxy) as launcher:
        began = time.time()
        order = place.order(run_seconds="forever")
        with pytest.raises(CreateUncertain):
            await launcher.start(order)
        await launcher.start(order)
        await cancelled(launcher, place)
        await asyncio.to_thread(place.admin.wait_gone, place.path(1))
        assert time.time() - began > 3.0


async def test_a_deleted_pod_that_an_earlier_process_may_have_created_keeps_its_name_for_a_while(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "TOMBSTONE_SECONDS", 4.0)
    async with place.launcher() as launcher:
        began = time.time()
        assert not await launcher.adopt(place.run(1))
        await launcher.start(place.order(run_seconds="forever"))
        await cancelled(launcher, place)
        await asyncio.to_thread(place.admin.wait_gone, place.path(1))
        assert time.time() - began > 3.0


async def test_a_deleted_pod_whose_create_was_answered_goes_at_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "TOMBSTONE_SECONDS", 3600.0)
    async with place.launcher() as launcher:
        await launcher.start(place.order(run_seconds="forever"))
        await cancelled(launcher, place)
        await asyncio.to_thread(place.admin.wait_gone, place.path(1))
