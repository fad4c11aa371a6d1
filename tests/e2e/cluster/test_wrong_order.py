"""Taking things away in an order that nobody has thought of, with runs alive: all of it ends, and nothing is kept.

One of these tests deletes the definitions of the cluster, and with them all resources of all namespaces.
"""

from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster.conftest import left_out_when_unavailable
from tests.e2e.cluster.installing import (
    KEEP_DEFINITIONS,
    RELEASE,
    install,
    long_job,
    run_pods,
    running,
    uninstall,
)
from tests.e2e.cluster.real_cluster import RealCluster
from tests.e2e.cluster.times import Times
from tests.kube.conftest import Kubectl, apply_resources
from tests.waiting import wait_until

CRDS = Path(__file__).parents[3] / "crds"


def with_runs_alive(cluster: RealCluster, kubectl: Kubectl, busybox: str) -> set[str]:
    """Install an operator with the built-in Postgres, and let it run three pods; return their names."""
    apply_resources(cluster.api)
    with left_out_when_unavailable():
        install(cluster, kubectl.namespace, KEEP_DEFINITIONS)
    kubectl("apply", "-f-", stdin=long_job("long", busybox, 3))
    return running(cluster, kubectl.namespace, 3)


def delete_namespace(kubectl: Kubectl) -> None:
    """It ends: within the grace periods and a minute on an idle machine; a limit costs nothing."""
    kubectl("delete", f"namespace/{kubectl.namespace}", "--timeout=240s")


def test_an_operator_deleted_by_hand_is_uninstalled_and_its_pods_are_free(
    cluster: RealCluster, kubectl: Kubectl, busybox: str
) -> None:
    pods = with_runs_alive(cluster, kubectl, busybox)
    kubectl("delete", f"deployment/{RELEASE}")
    assert run_pods(cluster, kubectl.namespace) == (pods, set())
    uninstall(cluster, kubectl.namespace)
    assert run_pods(cluster, kubectl.namespace) == (set(), pods)
    assert running(cluster, kubectl.namespace, 3) == pods
    delete_namespace(kubectl)


def test_an_operator_whose_database_went_first_is_uninstalled_and_its_pods_are_free(
    cluster: RealCluster, kubectl: Kubectl, busybox: str
) -> None:
    pods = with_runs_alive(cluster, kubectl, busybox)
    postgres = f"{RELEASE}-postgres"
    kubectl("delete", f"statefulset/{postgres}", f"service/{postgres}", f"secret/{postgres}", f"pvc/data-{postgres}-0")
    uninstall(cluster, kubectl.namespace)
    assert run_pods(cluster, kubectl.namespace) == (set(), pods)
    delete_namespace(kubectl)


def test_a_namespace_deleted_with_operator_and_postgres_in_it_goes(
    cluster: RealCluster, kubectl: Kubectl, busybox: str, times: Times
) -> None:
    with_runs_alive(cluster, kubectl, busybox)
    with times.measured_as("namespace with operator, Postgres and three runs deleted -> gone"):
        delete_namespace(kubectl)


def test_definitions_that_are_older_are_named_and_those_that_are_deleted_first_hold_nothing_up(
    cluster: RealCluster, kubectl: Kubectl, busybox: str
) -> None:
    if cluster.provider.name == "kubeconfig":
        pytest.skip("the definitions of a cluster of yours may have resources of yours")
    try:
        older = yaml.safe_load((CRDS / "opendataflow.io_dataflowjobs.yaml").read_text())
        del older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["priority"]
        apply_resources(cluster.api)
        cluster.api.kubectl("apply", "--server-side", "--force-conflicts", "-f-", stdin=yaml.safe_dump(older))
        with left_out_when_unavailable():
            install(cluster, kubectl.namespace, KEEP_DEFINITIONS)
        lacks = "it lacks spec.priority"
        wait_until(lambda: lacks in kubectl("logs", f"deployment/{RELEASE}"), "its log names what is missing", 300)
        kubectl("apply", "-f-", stdin=long_job("long", busybox, 3))
        running(cluster, kubectl.namespace, 3)
        cluster.api.kubectl("delete", "--wait", f"--filename={CRDS}")
        uninstall(cluster, kubectl.namespace)
        kept, _ = run_pods(cluster, kubectl.namespace)
        assert kept == set()
        delete_namespace(kubectl)
    finally:
        apply_resources(cluster.api)
