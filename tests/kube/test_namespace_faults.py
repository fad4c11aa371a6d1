"""Namespaces and resources that go while runs are alive: nothing keeps them, and nothing of others is held up.

Seen at others: namespaces that can't be deleted because of finalizers nobody strips; leftovers that pile up.
"""

from pathlib import Path

import yaml

from tests.kube.cluster.api import Api
from tests.kube.conftest import new_namespace
from tests.kube.jobs import dataset, documents, job
from tests.kube.recorder import with_finalizer
from tests.kube.scene import SECONDS, Running, Scene
from tests.waiting import wait_until


def test_a_namespace_deleted_with_runs_alive_goes_and_others_go_on(
    scene: Scene, cluster: Api, other_namespace: str
) -> None:
    """The deleted one keeps its pods for a while: their names must not be free earlier."""
    doomed = new_namespace(cluster)
    operator = scene.start(DATAFLOW_NAMESPACES=f"{other_namespace},{doomed}")
    flow = [dataset("bad-in", 6), dataset("bad-out"), job("bad", ["bad-in"], ["bad-out"], {"run-seconds": "forever"})]
    cluster.kubectl(f"--namespace={doomed}", "apply", "-f-", stdin=documents(*flow))
    wait_until(lambda: scene.database.running("bad") == 3, "three run", SECONDS)
    wait_until(lambda: len(with_finalizer(cluster, doomed)) == 3, "three pods are there", SECONDS)
    cluster.delete(f"/api/v1/namespaces/{doomed}")
    flow = [dataset("good-in", 4), dataset("good-out"), job("good", ["good-in"], ["good-out"])]
    cluster.kubectl(f"--namespace={other_namespace}", "apply", "-f-", stdin=documents(*flow))
    scene.until_done("good", 4)
    cluster.wait_gone(f"/api/v1/namespaces/{doomed}")
    wait_until(lambda: scene.database.running("bad") == 0, "no slot is taken", SECONDS)
    assert all(consumed == 0 for consumed, _ in scene.consumed("bad"))
    assert scene.database.problems() == []
    assert operator.healthy
    assert "Traceback" not in operator.operator.output()


def with_three_runs_beside_it(scene: Scene, folder: Path) -> Running:
    """An operator whose own namespace is that of its runs."""
    config = yaml.safe_load(scene.api.kubeconfig.read_text())
    for context in config["contexts"]:
        context["context"]["namespace"] = scene.namespace
    inside = folder / "inside"
    inside.write_text(yaml.safe_dump(config))
    operator = scene.start(KUBECONFIG=str(inside))
    scene.flow("load", 3, {"run-seconds": "forever"})
    scene.running("load", 3)
    return operator


def test_a_namespace_deleted_with_its_operator_in_it_goes_and_keeps_no_run_pod(scene: Scene, tmp_path: Path) -> None:
    """What a kubelet does to the operator's pod is done to its process here."""
    operator = with_three_runs_beside_it(scene, tmp_path)
    scene.api.delete(f"/api/v1/namespaces/{scene.namespace}")
    assert operator.operator.stop() == 0
    scene.api.wait_gone(f"/api/v1/namespaces/{scene.namespace}")
    assert f"namespace {scene.namespace}: 3 run pods freed" in operator.operator.output()


def test_an_operator_that_ends_in_a_namespace_that_stays_frees_nothing(scene: Scene, tmp_path: Path) -> None:
    operator = with_three_runs_beside_it(scene, tmp_path)
    assert operator.operator.stop() == 0
    assert len(with_finalizer(scene.api, scene.namespace)) == 3


def test_a_namespace_that_is_made_anew_goes_on_where_it_was(scene: Scene, cluster: Api) -> None:
    again = new_namespace(cluster)
    operator = scene.start(DATAFLOW_NAMESPACES=again)
    flow = [dataset("in", 4), dataset("out"), job("load", ["in"], ["out"], {"run-seconds": "2"}, parallelism=2)]
    cluster.kubectl(f"--namespace={again}", "apply", "-f-", stdin=documents(*flow))
    scene.until_done("load", 2, at_least=True)
    cluster.delete(f"/api/v1/namespaces/{again}")
    cluster.wait_gone(f"/api/v1/namespaces/{again}")
    wait_until(lambda: scene.database.running("load") == 0, "nothing runs", SECONDS)
    done = scene.database.done("load")
    cluster.create("/api/v1/namespaces", {"metadata": {"name": again}})
    cluster.wait(f"/api/v1/namespaces/{again}/serviceaccounts/default", lambda _: True, "it has its service account")
    cluster.kubectl(f"--namespace={again}", "apply", "-f-", stdin=documents(*flow))
    scene.until_done("load", 4)
    assert done >= 2
    assert scene.database.published_more_than_once() == []
    assert scene.database.problems() == []
    assert operator.healthy
    cluster.delete(f"/api/v1/namespaces/{again}")


def test_a_job_deleted_with_runs_alive_drains_and_keeps_nothing(scene: Scene) -> None:
    operator = scene.start()
    scene.flow("load", 5, {"run-seconds": "forever"}, parallelism=2)
    pods = scene.running("load", 2)
    scene.api.kubectl(f"--namespace={scene.namespace}", "delete", "dfj/load")
    wait_until(lambda: "is gone: nothing new of it starts" in operator.operator.output(), "it is noted", SECONDS)
    for pod in pods:
        scene.annotate(pod, run_seconds=0)
    wait_until(lambda: scene.database.done("load") == 2, "its runs commit", SECONDS)
    scene.is_released()
    assert len(scene.runs("load")) == 2
    scene.is_right()
    assert operator.healthy


def test_a_job_deleted_while_a_quota_holds_it_back_keeps_neither_slot_nor_lock(scene: Scene) -> None:
    operator = scene.start()
    quotas = f"/api/v1/namespaces/{scene.namespace}/resourcequotas"
    scene.api.create(quotas, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    scene.api.wait(f"{quotas}/none", lambda found: "hard" in found.get("status", {}), "the quota counts")
    scene.flow("load", 5, parallelism=3)
    scene.sees("load", "Progressing", "True", "QuotaExceeded")
    scene.api.kubectl(f"--namespace={scene.namespace}", "delete", "dfj/load")
    wait_until(lambda: scene.database.running("load") == 0, "no slot is taken", SECONDS)
    assert set(scene.consumed("load")) <= {(0, 0)}
    scene.is_right()
    assert operator.healthy


def test_an_operator_deleted_first_and_installed_again_finds_what_was_deleted_meanwhile(scene: Scene) -> None:
    first = scene.start()
    scene.flow("load", 4, {"run-seconds": "forever"}, parallelism=2)
    pods = scene.running("load", 2)
    first.operator.stop()
    scene.api.kubectl(f"--namespace={scene.namespace}", "delete", "dfj/load", "dset/load-in", "dset/load-out")
    for pod in pods:
        scene.api.kubectl(f"--namespace={scene.namespace}", "delete", "pod", pod, "--wait=false")
    second = scene.start()
    wait_until(lambda: scene.database.running("load") == 0, "their ends are committed", SECONDS)
    scene.is_released()
    scene.is_right()
    assert len(scene.runs("load")) == 2
    assert second.healthy
