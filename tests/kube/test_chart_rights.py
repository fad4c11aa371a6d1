"""The roles of the chart are enough for the programs that have them: run jobs to their end, clean up before all goes.

The programs are the real ones, with tokens of the chart's service accounts.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from psycopg.sql import SQL, Identifier

from opendataflow.names import LABEL_DONE, LABEL_ENGINE
from tests.helm.chart import Helm, of_kind
from tests.kube.cluster.api import Api
from tests.kube.cluster.proxy import Fault, Proxy
from tests.kube.conftest import OwnCluster, fresh_namespace, new_namespace, wait_until_allowed
from tests.kube.jobs import dataset, documents, job
from tests.kube.recorder import with_finalizer
from tests.kube.scene import SECONDS, Running, Scene, new_scene
from tests.waiting import wait_until

OPENDATAFLOW = [sys.executable, "-c", "from opendataflow.control.main import main; main()"]


@pytest.fixture
def home(cluster: Api) -> Iterator[str]:
    """The namespace of the release."""
    yield from fresh_namespace(cluster)


def install(api: Api, helm_program: Path, namespace: str, values: Mapping[str, Any]) -> None:
    """Create what the chart renders to, but for what would run: the tests run that themselves."""
    chosen = {"crds": {"install": False}, "replicas": 0, "database": {"existingSecret": "ours"}, **values}
    objects = Helm(helm_program).objects(namespace=namespace, values=chosen)
    kept = of_kind(objects, "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Deployment")
    api.kubectl("apply", "--server-side", "-f-", stdin=yaml.safe_dump_all(kept))
    for namespace_of_runs in values.get("namespaces") or [namespace]:
        wait_until_allowed(api, namespace_of_runs, f"system:serviceaccount:{namespace}:dataflow")


def account(api: Api, namespace: str, name: str, folder: Path) -> Path:
    """A kubeconfig of a service account."""
    token = api.kubectl(f"--namespace={namespace}", "create", "token", name, "--duration=1h").strip()
    config = yaml.safe_load(api.kubeconfig.read_text())
    config["users"] = [{"name": "account", "user": {"token": token}}]
    config["contexts"] = [{"name": "it", "context": {"cluster": config["clusters"][0]["name"], "user": "account"}}]
    config["current-context"] = "it"
    path = folder / f"{name}.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def nothing_was_forbidden(operator: Running) -> None:
    """Neither did an answer say so, nor a log."""
    text = operator.probe("/metrics")[1]
    codes = {
        sample.labels["code"]
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "opendataflow_api_requests_total"
    }
    assert {"200", "201"} <= codes
    assert not {"401", "403"} & codes
    assert "orbidden" not in operator.operator.output()
    assert "Not enough permissions" not in operator.operator.output()  # as kopf says it


def work_through_everything(scene: Scene, operator: Running) -> None:
    """Let an operator do all that it does to an API server: runs go well, fail, are asked for again, and go."""
    scene.flow("load", 3)
    scene.until_done("load", 3)
    scene.flow("wrong", 1, {"exit-code": "3"}, retry={"limit": 0})
    scene.until_failed("wrong")
    scene.sees("wrong", "Succeeded", "False", "ChunksFailed")
    resubmit = {"apiVersion": "opendataflow.io/v1alpha1", "kind": "DataFlowAction", "metadata": {"name": "again"}}
    scene.apply({**resubmit, "spec": {"job": "load", "action": "resubmit", "chunks": ["0-0"], "ttl": "1s"}})
    wait_until(lambda: len(scene.runs("load")) == 4, "one runs again", SECONDS)
    scene.until_done("load", 3)
    path = f"/apis/opendataflow.io/v1alpha1/namespaces/{scene.namespace}/dataflowactions/again"
    wait_until(lambda: scene.api.find(path) is None, "the action was deleted in its time", SECONDS)
    scene.is_released()
    for pod in scene.pods("load"):  # what two minutes do
        scene.api.patch(scene.pod_path(pod["metadata"]["name"]), {"metadata": {"labels": {LABEL_DONE: "1"}}})
    wait_until(lambda: not scene.pods("load"), "pods were deleted in their time", SECONDS)
    scene.is_right()
    nothing_was_forbidden(operator)


@contextmanager
def with_rights_of_the_chart(dsn: str, api: Api, namespace: str, home: str, folder: Path) -> Iterator[Scene]:
    kubeconfig = account(api, home, "dataflow", folder)
    with new_scene(dsn, api, namespace, folder, kubeconfig=kubeconfig) as scene:
        scene.operators.often = True
        yield scene


def test_the_roles_in_one_namespace_are_enough(
    dsn: str, cluster: Api, helm_program: Path, namespace: str, home: str, tmp_path: Path
) -> None:
    install(cluster, helm_program, home, {"namespaces": [namespace]})
    with with_rights_of_the_chart(dsn, cluster, namespace, home, tmp_path) as scene:
        operator = scene.start()
        work_through_everything(scene, operator)


def test_the_roles_in_two_namespaces_are_enough(
    dsn: str, cluster: Api, helm_program: Path, namespace: str, other_namespace: str, home: str, tmp_path: Path
) -> None:
    both = [namespace, other_namespace]
    install(cluster, helm_program, home, {"namespaces": both})
    with with_rights_of_the_chart(dsn, cluster, namespace, home, tmp_path) as scene:
        operator = scene.start(DATAFLOW_NAMESPACES=",".join(both))
        scene.flow("load", 3)
        theirs = documents(dataset("theirs-in", 3), dataset("theirs-out"), job("theirs", ["theirs-in"], ["theirs-out"]))
        cluster.kubectl(f"--namespace={other_namespace}", "apply", "-f-", stdin=theirs)
        scene.until_done("load", 3)
        scene.until_done("theirs", 3)
        scene.is_right()
        nothing_was_forbidden(operator)


def test_the_roles_in_the_whole_cluster_are_enough(
    dsn: str, own_cluster: OwnCluster, helm_program: Path, own_namespace: str, tmp_path: Path
) -> None:
    home = new_namespace(own_cluster.api)
    install(own_cluster.api, helm_program, home, {})
    with with_rights_of_the_chart(dsn, own_cluster.api, own_namespace, home, tmp_path) as scene:
        operator = scene.start(DATAFLOW_NAMESPACES="")
        work_through_everything(scene, operator)


# -- before everything is deleted --------------------------------------------------------------------------


def cleaning(scene: Scene, kubeconfig: Path, home: str, *where: str, dsn: str | None = None) -> subprocess.Popen[str]:
    """Start what the chart's hook runs."""
    database = scene.operators.dsn if dsn is None else dsn
    environ = {**os.environ, "KUBECONFIG": str(kubeconfig), "DATAFLOW_DSN": database}
    command = [*OPENDATAFLOW, "cleanup", f"--uninstall={home}/dataflow", *where]
    return subprocess.Popen(command, env=environ, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, output = process.communicate(timeout=300)
    return process.returncode, output


def replicas(api: Api, home: str) -> int:
    return int(api.get(f"/apis/apps/v1/namespaces/{home}/deployments/dataflow")["spec"]["replicas"])


def pods_of_two_namespaces(scene: Scene, other: str) -> None:
    """A run in each of two namespaces, of one operator each; none of them is there any more."""
    operator = scene.start()
    scene.flow("load", 1, {"run-seconds": "forever"})
    scene.running("load")
    operator.operator.stop()
    body = scene.pods("load")[0]
    metadata = {key: body["metadata"][key] for key in ("labels", "finalizers")} | {"name": "load-r99"}
    copy = {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    scene.api.create(f"/api/v1/namespaces/{other}/pods", copy)


def test_the_cleanup_stops_the_operator_waits_for_its_end_and_frees_its_pods(
    scene: Scene, helm_program: Path, home: str, tmp_path: Path
) -> None:
    api, path = scene.api, f"/apis/apps/v1/namespaces/{home}/deployments/dataflow"
    install(api, helm_program, home, {"namespaces": [scene.namespace], "nodeSelector": {"nowhere": "yes"}})
    api.patch(path, {"spec": {"replicas": 1}})
    operator = scene.start()
    scene.flow("load", 2, {"run-seconds": "forever"}, parallelism=2)
    scene.running("load", 2)
    process = cleaning(scene, account(api, home, "dataflow-cleanup", tmp_path), home, f"--namespace={scene.namespace}")
    wait_until(lambda: replicas(api, home) == 0, "the operator is to stop", SECONDS)
    assert len(with_finalizer(api, scene.namespace)) == 2
    assert operator.operator.stop() == 0
    code, output = ended(process)
    assert code == 0, output
    assert f"Deployment {home}/dataflow is stopped" in output
    assert f"namespace {scene.namespace}: 2 run pods freed" in output
    assert with_finalizer(api, scene.namespace) == []
    scene.start()  # and one that is installed again goes on with them
    for one in scene.running("load", 2):
        scene.annotate(one, run_seconds=0)
    scene.until_done("load", 2)
    assert len(scene.runs("load")) == 2
    scene.is_right()


def test_the_cleanup_ends_well_in_whatever_order_things_were_deleted_before(
    scene: Scene, helm_program: Path, home: str, other_namespace: str, tmp_path: Path
) -> None:
    api = scene.api
    install(api, helm_program, home, {"namespaces": [scene.namespace, other_namespace]})
    kubeconfig = account(api, home, "dataflow-cleanup", tmp_path)
    pods_of_two_namespaces(scene, other_namespace)
    api.delete(f"/apis/apps/v1/namespaces/{home}/deployments/dataflow")
    for kind in ("rolebindings", "roles"):
        api.delete(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{other_namespace}/{kind}/dataflow-cleanup")
    where = (f"--namespace={other_namespace}", f"--namespace={scene.namespace}")
    nobody = "postgresql://nobody@127.0.0.1:1/nothing"
    code, output = ended(cleaning(scene, kubeconfig, home, *where, "--wait=1s", dsn=nobody))
    assert code == 0, output
    assert "the operator could not be stopped" in output
    assert "does not answer" in output
    assert "so the run pods of every database are freed" in output
    assert "Traceback" not in output
    assert f"namespace {scene.namespace}: 1 run pod freed" in output
    assert "forbidden" in output
    assert with_finalizer(api, scene.namespace) == []
    code, output = ended(cleaning(scene, kubeconfig, home, f"--namespace={scene.namespace}", dsn=""))
    assert (code, "DATAFLOW_DSN is not set" in output) == (0, True), output


def test_the_cleanup_asks_a_postgres_that_does_not_answer_again_before_it_frees_the_pods_of_every_database(
    scene: Scene, helm_program: Path, home: str, tmp_path: Path
) -> None:
    api = scene.api
    install(api, helm_program, home, {"namespaces": [scene.namespace]})
    pods_of_two_namespaces(scene, scene.namespace)
    api.patch(scene.pod_path("load-r99"), {"metadata": {"labels": {LABEL_ENGINE: "another"}}})
    kubeconfig = account(api, home, "dataflow-cleanup", tmp_path)
    with psycopg.connect(scene.operators.dsn, autocommit=True) as admin:
        away = SQL("ALTER ROLE CURRENT_USER IN DATABASE {} ").format(Identifier(admin.info.dbname))
        admin.execute(away + SQL("SET default_transaction_read_only = on"))
        process = cleaning(scene, kubeconfig, home, f"--namespace={scene.namespace}", "--wait=10m")
        output = process.stderr
        assert output is not None
        wait_until(lambda: "it is asked again, for 600 s" in output.readline(), "it waits", SECONDS)
        admin.execute(away + SQL("RESET ALL"))
    code, rest = ended(process)
    assert code == 0, rest
    assert f"namespace {scene.namespace}: 1 run pod freed" in rest
    assert with_finalizer(api, scene.namespace) == ["load-r99"]
    api.patch(scene.pod_path("load-r99"), {"metadata": {"finalizers": None}})


def two_operators(api: Api, helm_program: Path, home: str, namespace: str) -> None:
    """A Deployment of two pods, which never run."""
    path = f"/apis/apps/v1/namespaces/{home}/deployments/dataflow"
    install(api, helm_program, home, {"namespaces": [namespace], "nodeSelector": {"nowhere": "yes"}})
    api.patch(path, {"spec": {"replicas": 2}})
    api.wait(path, lambda found: found.get("status", {}).get("replicas") == 2, "both pods are there")


def test_a_cleanup_that_is_ended_before_its_end_starts_the_operator_again(
    scene: Scene, helm_program: Path, home: str, tmp_path: Path
) -> None:
    api = scene.api
    two_operators(api, helm_program, home, scene.namespace)
    scene.start().until_ready()  # it goes on to lead, and so the cleanup waits
    process = cleaning(scene, account(api, home, "dataflow-cleanup", tmp_path), home, f"--namespace={scene.namespace}")
    wait_until(lambda: replicas(api, home) == 0, "the operator is to stop", SECONDS)
    process.terminate()
    code, output = ended(process)
    assert (code, replicas(api, home)) == (1, 2), output
    assert f"Deployment {home}/dataflow is started again" in output
    assert "Traceback" not in output


def test_a_cleanup_that_is_ended_while_it_stops_the_operator_starts_it_again(
    scene: Scene, helm_program: Path, home: str, proxy: Proxy
) -> None:
    two_operators(scene.api, helm_program, home, scene.namespace)
    asked = proxy.fail(Fault("PATCH", "/scale", delay=1))
    process = cleaning(scene, proxy.kubeconfig, home, f"--namespace={scene.namespace}")
    wait_until(lambda: asked.met == 1, "the operator is to stop", SECONDS)
    process.terminate()
    code, output = ended(process)
    assert (code, replicas(scene.api, home)) == (1, 2), output
    assert f"Deployment {home}/dataflow is started again" in output
