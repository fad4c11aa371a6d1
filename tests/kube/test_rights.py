"""An operator that has rights in some namespaces only, and none in the cluster as a whole.

Seen at others: an operator that lists all namespaces although it is to work in two; one namespace without rights that
stops all of them; a run that is started twice because its pod could not be seen for a while.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.cluster.api import Api
from tests.kube.cluster.pods import pod_annotations, state
from tests.kube.conftest import leave, new_namespace, wait_until_allowed
from tests.kube.jobs import dataset, documents, job
from tests.kube.scene import SECONDS, Running, Scene, new_scene
from tests.waiting import wait_until

DOCUMENTED = Path(__file__).parents[2] / "docs" / "reference" / "operator.md"

DELETED = "SELECT deleted FROM opendataflow.job WHERE opendataflow.bare_id(id) = 'two'"


def documented_rules() -> list[dict[str, Any]]:
    """The rules of the Role that the reference describes."""
    found = re.search(r"^```yaml\n(rules:\n.*?)^```$", DOCUMENTED.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    rules: list[dict[str, Any]] = yaml.safe_load(found[1])["rules"]
    return rules


@dataclass
class Land:
    """Namespaces, and an operator's service account in the first one. It has the rights that it is given."""

    api: Api
    names: list[str]
    kubeconfig: Path

    def allow(self, namespace: str, without: tuple[str, ...] = ()) -> None:
        """Give the documented rights in a namespace. `without`: resources that are left out."""
        rules = [rule for rule in documented_rules() if not set(rule["resources"]) & set(without)]
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        self.api.create(f"{path}/roles", {"metadata": {"name": "opendataflow"}, "rules": rules})
        self.api.create(
            f"{path}/rolebindings",
            {
                "metadata": {"name": "opendataflow"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "opendataflow"},
                "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": self.names[0]}],
            },
        )
        if "pods" not in without:
            wait_until_allowed(self.api, namespace, self._user)

    def forbid(self, namespace: str) -> None:
        """Take them away."""
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        self.api.delete(f"{path}/rolebindings/opendataflow")
        self.api.delete(f"{path}/roles/opendataflow")
        wait_until_allowed(self.api, namespace, self._user, allowed=False)

    @property
    def _user(self) -> str:
        return f"system:serviceaccount:{self.names[0]}:default"

    def flow(self, namespace: str, name: str, chunks: int, pods: dict[str, str] | None = None, **spec: Any) -> None:
        """Apply a job with its data sets."""
        made = [
            dataset(f"{name}-in", chunks),
            dataset(f"{name}-out"),
            job(name, [f"{name}-in"], [f"{name}-out"], pods, **spec),
        ]
        self.api.kubectl(f"--namespace={namespace}", "apply", "-f-", stdin=documents(*made))

    def end(self, pods: str, name: str) -> None:
        """Let a pod end that runs for ever."""
        self.api.patch(f"{pods}/{name}", {"metadata": {"annotations": pod_annotations(run_seconds=0)}})

    def status(self, namespace: str, name: str) -> dict[str, Any]:
        path = f"/apis/opendataflow.io/v1alpha1/namespaces/{namespace}/dataflowjobs/{name}"
        found: dict[str, Any] = self.api.get(path).get("status") or {}
        return found


@pytest.fixture
def land(cluster: Api, tmp_path: Path) -> Iterator[Land]:
    names = [new_namespace(cluster) for _ in range(3)]
    token = cluster.kubectl("create", "token", "default", f"--namespace={names[0]}", "--duration=1h").strip()
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    yield Land(cluster, names, path)
    for name in names:
        leave(cluster, name)


@pytest.fixture
def scene(dsn: str, cluster: Api, land: Land, tmp_path: Path) -> Iterator[Scene]:
    """In the first namespace of the land; its operators have the rights of the land."""
    with new_scene(dsn, cluster, land.names[0], tmp_path, kubeconfig=land.kubeconfig) as made:
        yield made


def start(scene: Scene, *namespaces: str) -> Running:
    return scene.start(DATAFLOW_NAMESPACES=",".join(namespaces), DATAFLOW_LOG_FORMAT="text")


def figure(operator: Running, namespace: str) -> str:
    found = re.search(
        rf'^opendataflow_rights_missing{{namespace="{namespace}"}} (\S+)$', operator.probe("/metrics")[1], re.M
    )
    return found[1] if found else ""


def test_roles_in_two_namespaces_of_three_are_enough_for_the_jobs_of_both(scene: Scene, land: Land) -> None:
    first, second, third = land.names
    for name in (first, second):
        land.allow(name)
    operator = start(scene, first, second)
    for namespace, name in ((first, "one"), (second, "two"), (third, "three")):
        land.flow(namespace, name, 3)
    scene.until_done("one", 3)
    scene.until_done("two", 3)
    for namespace, name in ((first, "one"), (second, "two")):
        land.api.kubectl(
            f"--namespace={namespace}", "wait", f"dfj/{name}", "--for=condition=Succeeded", "--timeout=240s"
        )
    assert land.status(third, "three") == {}
    assert scene.tasks("three") == []
    wait_until(lambda: operator.probe("/readyz") == (200, "ok\n"), "nothing is missing", SECONDS)
    log = operator.operator.output()
    assert not re.search(r"403|[Ff]orbidden|may not|Traceback| ERROR ", log), log


def test_a_namespace_without_rights_is_named_while_the_other_one_works_and_recovers(scene: Scene, land: Land) -> None:
    first, second, _ = land.names
    land.allow(first)
    operator = start(scene, first, second)
    for namespace, name in ((first, "one"), (second, "two")):
        land.flow(namespace, name, 3)
    scene.until_done("one", 3)
    lacks = rf"this operator may not list, watch dataflowactions\.opendataflow\.io; .* create, .* in namespace {second}"
    wait_until(lambda: re.search(lacks, operator.probe("/readyz")[1]) is not None, "it says what is missing", SECONDS)
    status, text = operator.probe("/readyz")
    assert status == 200
    assert "a Role and a RoleBinding" in text
    wait_until(lambda: re.search(lacks, operator.operator.output()) is not None, "its log says so", SECONDS)
    assert len(re.findall(lacks, operator.operator.output())) == 1
    assert figure(operator, first) == "0.0"
    assert figure(operator, second) == "1.0"
    assert land.status(second, "two") == {}
    land.allow(second)
    scene.until_done("two", 3)
    wait_until(lambda: operator.probe("/readyz") == (200, "ok\n"), "nothing is missing", SECONDS)
    assert figure(operator, second) == "0.0"
    wait_until(lambda: f"all its rights in {second} now" in operator.operator.output(), "its log says so", SECONDS)
    assert "Traceback" not in operator.operator.output()


def test_a_job_where_no_pods_may_be_made_says_so_and_starts_once_they_may(scene: Scene, land: Land) -> None:
    first, second, _ = land.names
    land.allow(first)
    land.allow(second, without=("pods",))
    operator = start(scene, first, second)
    land.flow(second, "two", 2)

    def stalled() -> dict[str, Any]:
        found = land.status(second, "two").get("conditions", [])
        return next((one for one in found if one["type"] == "Stalled"), {})

    wait_until(lambda: stalled().get("reason") == "RightsMissing", "it says what is missing", SECONDS)
    assert stalled()["status"] == "True"
    assert re.search(r"may not get, list, watch, create, .* pods in namespace", stalled()["message"])
    land.forbid(second)
    land.allow(second)
    scene.until_done("two", 2)
    assert scene.consumed("two") == [(0, 0)] * 2
    assert operator.healthy


def test_a_namespace_that_comes_later_is_worked_in(scene: Scene, land: Land) -> None:
    first, second, _ = land.names
    land.allow(first)
    later = f"{second}-later"
    operator = start(scene, first, later)
    operator.until_ready()
    land.api.create("/api/v1/namespaces", {"metadata": {"name": later}})
    land.names.append(later)
    land.api.wait(f"/api/v1/namespaces/{later}/serviceaccounts/default", lambda _: True, "it has its account")
    land.allow(later)
    land.flow(later, "two", 2)
    scene.until_done("two", 2)
    assert operator.healthy


def test_a_run_whose_pod_can_not_be_seen_is_neither_given_up_nor_started_again(scene: Scene, land: Land) -> None:
    first, second, _ = land.names
    for name in (first, second):
        land.allow(name)
    before = start(scene, first, second)
    land.flow(second, "two", 2, {"run-seconds": "forever"}, parallelism=2)
    pods = f"/api/v1/namespaces/{second}/pods"
    wait_until(lambda: len(land.api.items(pods)) == 2, "both pods are there", SECONDS)
    wait_until(lambda: scene.database.running("two") == 2, "both run", SECONDS)
    assert before.operator.stop() == 0
    land.forbid(second)
    after = start(scene, first, second)
    land.flow(first, "one", 3)
    scene.until_done("one", 3)
    assert [run["state"] for run in scene.runs("two")] == ["RUNNING"] * 2
    land.allow(second)
    for pod in land.api.items(pods):
        land.end(pods, pod["metadata"]["name"])
    scene.until_done("two", 2)
    assert len(scene.runs("two")) == 2
    assert scene.database.problems() == []
    assert after.healthy


def test_rights_that_are_taken_away_are_named_without_a_traceback_and_count_again_when_they_are_back(
    scene: Scene, land: Land
) -> None:
    first, second, _ = land.names
    for name in (first, second):
        land.allow(name)
    scene.operators.often = True
    operator = start(scene, first, second)
    land.flow(second, "two", 2, {"run-seconds": "forever"}, parallelism=1)
    pods = f"/api/v1/namespaces/{second}/pods"
    wait_until(lambda: len(going(land, pods)) == 1, "a pod runs", SECONDS)
    land.forbid(second)
    wait_until(lambda: f"in namespace {second}" in operator.probe("/readyz")[1], "it is seen", SECONDS)
    land.flow(first, "one", 3)
    scene.until_done("one", 3)
    land.allow(second)
    for done in (1, 2):
        wait_until(lambda: len(going(land, pods)) == 1, "a pod runs", SECONDS)
        land.end(pods, going(land, pods)[0])
        scene.until_done("two", done)
    assert [run["state"] for run in scene.runs("two") if "may not" not in str(run["message"])] == ["SUCCEEDED"] * 2
    assert operator.healthy
    wait_until(lambda: operator.probe("/readyz") == (200, "ok\n"), "nothing is missing", SECONDS)
    assert "Traceback" not in operator.operator.output()


def test_a_namespace_that_leaves_the_list_while_runs_live_there_loses_no_outcome(scene: Scene, land: Land) -> None:
    first, second, _ = land.names
    for name in (first, second):
        land.allow(name)
    before = start(scene, first, second)
    land.flow(second, "two", 3, {"run-seconds": "forever"}, parallelism=3)
    moved = job("moved", [f"{first}/shared-in"], [], {"run-seconds": "forever"})
    shared = documents(dataset("shared-in", 1, shareWith=[second]))
    land.api.kubectl(f"--namespace={first}", "apply", "-f-", stdin=shared)
    land.api.kubectl(f"--namespace={second}", "apply", "-f-", stdin=documents(moved))
    pods = f"/api/v1/namespaces/{second}/pods"
    wait_until(lambda: len(going(land, pods)) == 4, "their pods run", SECONDS)
    land.api.kubectl(f"--namespace={second}", "delete", "dfj/moved")
    wait_until(lambda: "is gone: nothing new of it starts" in before.operator.output(), "it is taken note of", SECONDS)
    assert before.operator.stop() == 0
    without = start(scene, first)
    land.flow(first, "one", 3)
    scene.until_done("one", 3)
    sentence = f"in namespace {second}, so two start nothing and the end of 4 runs there"
    wait_until(lambda: sentence in without.probe("/readyz")[1], "it is reported where a person looks", SECONDS)
    assert without.probe("/readyz")[0] == 200
    assert without.operator.output().count(sentence) == 1
    assert [run["state"] for run in scene.runs("two") + scene.runs("moved")] == ["RUNNING"] * 4
    assert scene.database.rows(DELETED) == [{"deleted": False}]
    for pod in going(land, pods):
        land.end(pods, pod)
    assert without.operator.stop() == 0
    after = start(scene, first, second)
    scene.until_done("two", 3)
    scene.until_done("moved", 1)
    assert [run["state"] for run in scene.runs("two") + scene.runs("moved")] == ["SUCCEEDED"] * 4
    wait_until(lambda: after.probe("/readyz") == (200, "ok\n"), "nothing is left to say", SECONDS)


def test_a_run_of_a_namespace_off_the_list_that_a_person_calls_lost_is_waited_for_no_more(
    scene: Scene, land: Land
) -> None:
    first, second, _ = land.names
    for name in (first, second):
        land.allow(name)
    before = start(scene, first, second)
    land.flow(second, "two", 1, {"run-seconds": "forever"})
    wait_until(lambda: scene.database.running("two") == 1, "it runs", SECONDS)
    assert before.operator.stop() == 0
    without = start(scene, first)
    wait_until(lambda: live_runs(without) == "1.0", "it waits for the run", SECONDS)
    [run] = scene.runs("two")
    program = "from opendataflow.cli.main import main; main()"
    environ = {**os.environ, "DATAFLOW_DSN": scene.operators.dsn}
    subprocess.run([sys.executable, "-c", program, "lost", str(run["id"]), "--yes"], env=environ, check=True)
    wait_until(lambda: live_runs(without) == "0.0", "it does not any more", SECONDS)
    assert [run["state"] for run in scene.runs("two")] == ["LOST"]
    assert scene.database.problems() == []
    assert without.healthy


def live_runs(operator: Running) -> str:
    found = re.search(r"^opendataflow_live_runs (\S+)$", operator.probe("/metrics")[1], re.M)
    return found[1] if found else ""


def going(land: Land, pods: str) -> list[str]:
    """Names of the pods that run."""
    return [pod["metadata"]["name"] for pod in land.api.items(pods) if "running" in state(pod)]


def test_a_job_deleted_while_its_namespace_could_not_be_seen_is_taken_note_of(scene: Scene, land: Land) -> None:
    first, second, _ = land.names
    for name in (first, second):
        land.allow(name)
    before = start(scene, first, second)
    land.flow(second, "two", 1)
    scene.until_done("two", 1)
    assert before.operator.stop() == 0
    land.forbid(second)
    start(scene, first, second).until_ready()
    land.flow(first, "one", 1)
    scene.until_done("one", 1)
    assert scene.database.rows(DELETED) == [{"deleted": False}]
    land.api.kubectl(f"--namespace={second}", "delete", "dfj/two")
    land.allow(second)
    wait_until(lambda: scene.database.rows(DELETED) == [{"deleted": True}], "it is deleted", SECONDS)


def test_without_any_right_in_the_cluster_it_waits_and_says_which_one_it_needs(scene: Scene) -> None:
    operator = scene.start(DATAFLOW_NAMESPACES="", DATAFLOW_LOG_FORMAT="text")
    wait_until(lambda: "ClusterRole" in operator.probe("/readyz")[1], "it says so", SECONDS)
    assert operator.probe("/readyz")[0] == 503
    assert operator.healthy
    words = "in all namespaces, so nothing"
    wait_until(lambda: words in operator.operator.output(), "its log says so", SECONDS)
    assert operator.operator.output().count(words) == 1
    assert "Traceback" not in operator.operator.output()
    assert operator.operator.stop() == 0
