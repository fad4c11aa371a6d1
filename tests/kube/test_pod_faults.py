"""What happens to single pods while the operator works: deleted by hand, evicted, out of memory, never started, held up
by a quota or by a sidecar. Each chunk is published once; the user sees why it takes long; and only what the program has
done itself consumes its retries.

Seen at others: the pod's phase judged instead of the named container; image pull errors and unschedulable pods stuck
for ever; results lost because the pod vanished first; infrastructure that consumes the user's retries.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from opendataflow.names import FINALIZER
from tests.conftest import fresh_database
from tests.kube.cluster.api import Api
from tests.kube.conftest import fresh_namespace
from tests.kube.lasting import Lasting
from tests.kube.scene import AT_ONCE, SECONDS, Scene, new_scene
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def lasting(
    postgres_server: str, template_database: str, cluster: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lasting]:
    @contextmanager
    def make() -> Iterator[Scene]:
        with (
            fresh_database(postgres_server, template_database) as dsn,
            contextmanager(fresh_namespace)(cluster) as namespace,
            new_scene(dsn, cluster, namespace, tmp_path_factory.mktemp("operators")) as scene,
        ):
            yield scene

    made = Lasting(make)
    yield made
    made.leave()


@pytest.fixture
def scene(lasting: Lasting, request: pytest.FixtureRequest) -> Iterator[Scene]:
    yield from lasting.lend(request)


FOREVER = {"run-seconds": "forever"}


def test_a_pod_deleted_by_hand_is_tried_again_at_no_cost_for_the_program(scene: Scene) -> None:
    scene.flow("deleted", 1, FOREVER, retry={"limit": 0, **AT_ONCE})
    (first,) = scene.running("deleted")
    scene.api.kubectl(f"--namespace={scene.namespace}", "delete", "pod", first, "--wait=false")
    scene.until_ended("deleted")
    assert scene.classes("deleted")[0] == "Infrastructure"
    assert "deleted by somebody" in scene.runs("deleted")[0]["message"]
    second = scene.another("deleted", first)
    scene.annotate(second, run_seconds=0)
    scene.until_done("deleted", 1)
    scene.is_right()


def test_a_pod_deleted_by_force_is_tried_again_when_it_is_certainly_gone(scene: Scene) -> None:
    scene.flow("forced", 1, FOREVER, retry={"limit": 0, **AT_ONCE})
    (first,) = scene.running("forced")
    scene.api.kubectl(f"--namespace={scene.namespace}", "delete", "pod", first, "--force", "--wait=false")
    scene.until_ended("forced")
    assert scene.classes("forced")[0] == "Infrastructure"
    second = scene.another("forced", first)
    scene.annotate(second, run_seconds=0)
    scene.until_done("forced", 1)
    scene.is_right()


def test_a_pod_that_somebody_strips_and_deletes_is_missed(scene: Scene) -> None:
    scene.flow("stripped", 1, FOREVER)
    (first,) = scene.running("stripped")
    scene.api.patch(scene.pod_path(first), {"metadata": {"finalizers": None}})
    scene.api.delete(scene.pod_path(first), gracePeriodSeconds=0)
    scene.until_ended("stripped")
    second = scene.another("stripped", first)
    scene.annotate(second, run_seconds=0)
    scene.until_done("stripped", 1)
    assert scene.classes("stripped") == ["Infrastructure", None]
    scene.is_right()


def test_a_pod_that_succeeded_before_it_was_deleted_has_succeeded(scene: Scene) -> None:
    scene.flow("raced", 3, FOREVER, parallelism=3)
    for name in scene.running("raced", 3):
        scene.annotate(name, run_seconds=0)
        scene.api.wait(scene.pod_path(name), lambda pod: pod["status"]["phase"] == "Succeeded", "it succeeded")
        scene.api.delete(scene.pod_path(name))
    scene.until_done("raced", 3)
    assert scene.classes("raced") == [None] * 3
    scene.is_right()


def test_an_evicted_run_consumes_the_infrastructure_s_budget_only(scene: Scene) -> None:
    scene.flow("evicted", 1, FOREVER, retry={"limit": 0, **AT_ONCE})
    (first,) = scene.running("evicted")
    scene.annotate(first, pod_reason="Evicted", pod_message="The node was low on memory.", exit_code=137, run_seconds=0)
    scene.until_ended("evicted")
    assert scene.runs("evicted")[0]["message"] == "evicted: The node was low on memory."
    second = scene.another("evicted", first)
    assert scene.consumed("evicted") == [(0, 1)]
    scene.annotate(second, run_seconds=0)
    scene.until_done("evicted", 1)
    scene.is_right()


def test_a_run_out_of_memory_says_its_limit_and_consumes_the_program_s_budget(scene: Scene) -> None:
    greedy = {"script": {"image": "busybox", "command": ["true"], "resources": {"limits": {"memory": "64Mi"}}}}
    spec = {"runtime": greedy, "retry": {"limit": 1, **AT_ONCE}}
    scene.flow("greedy", 1, {"reason": "OOMKilled"}, **spec)
    scene.until_failed("greedy")
    assert scene.classes("greedy") == ["OOMKilled"] * 2
    assert scene.runs("greedy")[1]["message"] == "out of memory: its limit is 64Mi"
    assert scene.consumed("greedy") == [(2, 0)]
    seen = scene.sees("greedy", "Succeeded", "False", "ChunksFailed")
    assert "out of memory: its limit is 64Mi" in seen
    scene.until_event("greedy", "RunsFailing")
    scene.is_right()


def test_an_image_that_can_not_be_pulled_is_seen_and_ends_at_the_start_deadline(scene: Scene) -> None:
    spec = {"startDeadline": "30s", "retry": {"limit": 0, "infrastructureLimit": 0}}
    scene.flow("imageless", 1, {"image-pull": "fail"}, **spec)
    seen = scene.sees("imageless", "Progressing", "True", "ImagePull")
    assert "busybox" in seen
    scene.until_event("imageless", "ImagePull")
    scene.until_failed("imageless")
    assert scene.consumed("imageless") == [(0, 1)]
    assert scene.classes("imageless") == ["Infrastructure"]
    assert "image pull" in scene.sees("imageless", "Succeeded", "False", "ChunksFailed")
    scene.is_right()


def test_a_pod_that_finds_no_node_is_seen_and_goes_on_when_there_is_one(scene: Scene) -> None:
    template = {"spec": {"nodeSelector": {"opendataflow.test/room": scene.namespace}}}
    scene.flow("roomless", 1, podTemplate=template)
    seen = scene.sees("roomless", "Progressing", "True", "Unschedulable")
    assert "nodes are available" in seen
    node = scene.api.items("/api/v1/nodes")[0]["metadata"]["name"]
    path = f"/api/v1/nodes/{node}"
    scene.api.patch(path, {"metadata": {"labels": {"opendataflow.test/room": scene.namespace}}})
    scene.until_done("roomless", 1)
    scene.api.patch(path, {"metadata": {"labels": {"opendataflow.test/room": None}}})
    assert scene.consumed("roomless") == [(0, 0)]
    scene.sees("roomless", "Progressing", "False", "Done")
    scene.is_right()


def test_a_pod_that_never_finds_a_node_is_given_up_at_its_start_deadline(scene: Scene) -> None:
    template = {"spec": {"nodeSelector": {"opendataflow.test/room": "nowhere"}}}
    retry = {"limit": 0, "infrastructureLimit": 1, **AT_ONCE}
    scene.flow("homeless", 1, podTemplate=template, startDeadline="5s", retry=retry)
    scene.until_failed("homeless")
    assert scene.classes("homeless") == ["Infrastructure"] * 2
    assert "unschedulable" in scene.sees("homeless", "Succeeded", "False", "ChunksFailed")
    scene.is_right()


@contextmanager
def quota(scene: Scene, **hard: str) -> Iterator[None]:
    """A quota of the namespace, for the time of the block."""
    quotas = f"/api/v1/namespaces/{scene.namespace}/resourcequotas"
    scene.api.create(quotas, {"metadata": {"name": "small"}, "spec": {"hard": hard}})
    scene.api.wait(f"{quotas}/small", lambda found: "hard" in found.get("status", {}), "the quota counts")
    try:
        yield
    finally:
        scene.api.delete(f"{quotas}/small")


def test_a_quota_holds_the_job_back_until_there_is_room_and_consumes_nothing(scene: Scene) -> None:
    with quota(scene, pods="0"):
        scene.flow("limited", 5)
        seen = scene.sees("limited", "Progressing", "True", "QuotaExceeded")
        assert "exceeded quota: small" in seen
        assert scene.condition("limited", "Stalled")[0] == "False"
        scene.until_event("limited", "QuotaExceeded")
    scene.until_done("limited", 5)
    assert scene.consumed("limited") == [(0, 0)] * 5
    assert len(scene.runs("limited")) == 5
    scene.sees("limited", "Progressing", "False", "Done")
    scene.is_right()


def test_a_job_suspended_while_a_quota_holds_it_back_keeps_nothing(scene: Scene) -> None:
    with quota(scene, pods="0"):
        scene.flow("waiting", 3)
        scene.sees("waiting", "Progressing", "True", "QuotaExceeded")
        scene.patch("waiting", suspend=True)
        wait_until(lambda: scene.database.running("waiting") == 0, "no slot is taken", SECONDS)
        scene.sees("waiting", "Suspended", "True", "Suspended")
        scene.is_right()
    scene.patch("waiting", suspend=False)
    scene.until_done("waiting", 3)
    assert scene.consumed("waiting") == [(0, 0)] * 3
    scene.is_right()


def test_a_pod_that_the_cluster_does_not_accept_stalls_the_job_until_it_is_fixed(scene: Scene) -> None:
    limits = f"/api/v1/namespaces/{scene.namespace}/limitranges"
    maximum = {"type": "Container", "max": {"memory": "1Mi"}}
    scene.api.create(limits, {"metadata": {"name": "tiny"}, "spec": {"limits": [maximum]}})
    script = {"image": "busybox", "command": ["true"], "resources": {"limits": {"memory": "64Mi"}}}
    scene.flow("refused", 2, runtime={"script": script})
    seen = scene.sees("refused", "Stalled", "True", "NotCreatable")
    assert "maximum memory usage per Container is 1Mi" in seen
    scene.api.delete(f"{limits}/tiny")
    fixed = {"limits": {"memory": "65Mi"}}
    scene.patch("refused", runtime={"script": {"resources": fixed}})
    scene.until_done("refused", 2)
    assert scene.consumed("refused") == [(0, 0)] * 2
    scene.sees("refused", "Stalled", "False", "NotStalled")
    scene.is_right()


def test_a_sidecar_that_goes_on_keeps_neither_the_chunk_nor_its_slot(scene: Scene) -> None:
    beside = {"containers": [{"name": "proxy", "image": "none/proxy:1"}]}
    template = {"metadata": {"annotations": {"test.opendataflow.io/sidecar": "keeps-running"}}, "spec": beside}
    scene.flow("attended", 3, podTemplate=template, parallelism=1)
    scene.until_done("attended", 3)
    assert [pod["status"]["phase"] for pod in scene.pods("attended")] == ["Running"] * 3
    scene.is_right()

    def released() -> bool:
        return not any(FINALIZER in pod["metadata"].get("finalizers", []) for pod in scene.pods("attended"))

    wait_until(released, "its pods are released", SECONDS)
    assert len(scene.pods("attended")) == 3


def test_nothing_of_all_this_is_left(scene: Scene) -> None:
    scene.is_released()
    scene.is_right()
