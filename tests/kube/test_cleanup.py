"""`opendataflow cleanup`: the operator was deleted first, and what it has left can be deleted all the same."""

import os
import subprocess
import sys

from opendataflow.names import FINALIZER
from tests.kube.cluster.api import Api
from tests.kube.cluster.pods import phase, pod
from tests.kube.conftest import new_namespace
from tests.kube.recorder import with_finalizer
from tests.kube.scene import SECONDS, Scene
from tests.waiting import wait_until

OPENDATAFLOW = [sys.executable, "-c", "from opendataflow.control.main import main; main()"]


def cleanup(scene: Scene, *arguments: str, dsn: str | None = None) -> tuple[int, str]:
    """Run it; return its exit code and its output. `dsn`: "" for none."""
    environ = {**os.environ, "KUBECONFIG": str(scene.api.kubeconfig), "DATAFLOW_DSN": scene.operators.dsn}
    environ |= {} if dsn is None else {"DATAFLOW_DSN": dsn}
    command = [*OPENDATAFLOW, "cleanup", *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stderr


def stopped_with_runs_alive(scene: Scene, runs: int = 2) -> None:
    operator = scene.start()
    scene.flow("load", runs, {"run-seconds": "forever"}, parallelism=runs)
    scene.running("load", runs)
    operator.operator.stop()


def test_an_operator_deleted_first_leaves_nothing_that_cleanup_does_not_free(scene: Scene) -> None:
    stopped_with_runs_alive(scene)
    path = f"/api/v1/namespaces/{scene.namespace}"
    scene.api.delete(path)
    wait_until(lambda: all(phase(pod) == "Failed" for pod in scene.pods("load")), "the pods were stopped", SECONDS)
    assert scene.api.get(path)["status"]["phase"] == "Terminating"
    code, output = cleanup(scene, "--namespace", scene.namespace)
    assert code == 0, output
    assert f"namespace {scene.namespace}: 2 run pods freed" in output
    scene.api.wait_gone(path)


def test_pods_that_run_go_on_and_the_next_operator_goes_on_with_them(scene: Scene) -> None:
    stopped_with_runs_alive(scene)
    code, output = cleanup(scene, "--namespace", scene.namespace)
    assert code == 0, output
    assert with_finalizer(scene.api, scene.namespace) == []
    assert [phase(pod) for pod in scene.pods("load")] == ["Running"] * 2
    operator = scene.start()
    for one in scene.running("load", 2):
        scene.annotate(one, run_seconds=0)
    scene.until_done("load", 2)
    assert len(scene.runs("load")) == 2
    scene.is_right()
    assert operator.healthy


def test_it_refuses_while_an_operator_leads(scene: Scene) -> None:
    operator = scene.start()
    scene.flow("load", 1, {"run-seconds": "forever"})
    scene.running("load")
    code, output = cleanup(scene, "--namespace", scene.namespace)
    assert code == 1
    assert "an operator leads: stop it first" in output
    assert "--force" in output
    assert "Traceback" not in output
    assert len(with_finalizer(scene.api, scene.namespace)) == 1
    assert operator.healthy


def test_without_a_database_it_asks_for_force(scene: Scene) -> None:
    stopped_with_runs_alive(scene)
    code, output = cleanup(scene, "--namespace", scene.namespace, dsn="")
    assert (code, "DATAFLOW_DSN is not set" in output, "--force" in output) == (2, True, True)
    nobody = "postgresql://nobody@127.0.0.1:1/nothing"
    code, output = cleanup(scene, "--namespace", scene.namespace, dsn=nobody)
    assert (code, "does not answer" in output, "--force" in output) == (4, True, True)
    assert "Traceback" not in output
    code, output = cleanup(scene, "--namespace", scene.namespace, "--force", dsn="")
    assert (code, "2 run pods freed" in output) == (0, True)


def test_pods_of_other_databases_and_other_finalizers_are_left_alone(scene: Scene) -> None:
    stopped_with_runs_alive(scene, 1)
    (one,) = scene.pods("load")
    scene.api.patch(scene.pod_path(one["metadata"]["name"]), {"metadata": {"finalizers": [FINALIZER, "a.test/b"]}})
    pods = f"/api/v1/namespaces/{scene.namespace}/pods"
    labels = {"opendataflow.io/run": "7", "opendataflow.io/engine": "another"}
    other = pod("other", finalizer=True, run_seconds="forever")
    scene.api.create(pods, {**other, "metadata": {**other["metadata"], "labels": labels}})
    scene.api.create(pods, pod("stranger", finalizer=True, run_seconds="forever"))
    code, output = cleanup(scene, "--namespace", scene.namespace)
    assert (code, "1 run pod freed" in output) == (0, True), output
    kept = {one["metadata"]["name"]: one["metadata"].get("finalizers") for one in scene.api.items(pods)}
    assert kept == {one["metadata"]["name"]: ["a.test/b"], "other": [FINALIZER], "stranger": [FINALIZER]}
    scene.api.patch(scene.pod_path(one["metadata"]["name"]), {"metadata": {"finalizers": None}})
    code, output = cleanup(scene, "--namespace", scene.namespace, "--force")
    assert (code, "1 run pod freed" in output) == (0, True), output
    assert with_finalizer(scene.api, scene.namespace) == ["stranger"]
    assert "no run pod" in cleanup(scene, "--namespace", scene.namespace)[1]


def test_the_whole_cluster_is_freed_at_once(scene: Scene, cluster: Api) -> None:
    stopped_with_runs_alive(scene, 3)
    other = new_namespace(cluster)
    labels = scene.pods("load")[0]["metadata"]["labels"]
    for number in range(3):
        one = pod(f"copy-{number}", finalizer=True, run_seconds="forever")
        body = {**one, "metadata": {**one["metadata"], "labels": labels}}
        cluster.create(f"/api/v1/namespaces/{other}/pods", body)
    code, output = cleanup(scene, "--all-namespaces")
    assert code == 0, output
    assert f"namespace {scene.namespace}: 3 run pods freed" in output
    assert f"namespace {other}: 3 run pods freed" in output
    assert with_finalizer(cluster, other) == []
    cluster.delete(f"/api/v1/namespaces/{other}")
