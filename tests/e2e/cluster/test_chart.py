"""The chart on real nodes: a first try with nothing but the images, where only restricted pods may run."""

from opendataflow.names import LABEL_RUN
from tests.e2e.cluster.conftest import left_out_when_unavailable
from tests.e2e.cluster.installing import RELEASE, STRICT, WAITS_FOR_A_FILE, install, run_pods, uninstall
from tests.e2e.cluster.real_cluster import RealCluster
from tests.e2e.cluster.times import Times
from tests.kube.conftest import Kubectl
from tests.kube.jobs import dataset, documents, job
from tests.waiting import wait_until

STARTED = "{.items[*].status.containerStatuses[0].state.terminated.startedAt}"


def test_a_first_try_runs_a_job_outlives_an_upgrade_and_leaves_nothing_that_hangs(
    cluster: RealCluster, namespace: str, busybox: str, kubectl: Kubectl, times: Times
) -> None:
    cluster.api.patch(f"/api/v1/namespaces/{namespace}", STRICT)
    with left_out_when_unavailable():
        begun = install(cluster, namespace)
    short = {"script": {"image": busybox, "command": ["sh", "-c", "echo $dataid"]}}
    kubectl(
        "apply",
        "-f-",
        stdin=documents(dataset("raw", 3), dataset("clean"), job("wash", ["raw"], ["clean"], runtime=short)),
    )
    kubectl("wait", "dfj/wash", "--for=condition=Succeeded", "--timeout=300s")
    washing = kubectl("get", "pods", f"--selector={LABEL_RUN}", f"--output=jsonpath={STARTED}").split()
    times.between("helm install -> first chunk running", begun.isoformat(), min(washing))

    long = {"script": {"image": busybox, "command": ["sh", "-c", WAITS_FOR_A_FILE]}}
    kubectl("apply", "-f-", stdin=documents(dataset("dry"), job("iron", ["clean"], ["dry"], runtime=long)))
    kubectl("wait", "dfj/iron", "--for=jsonpath={.status.counts.running}=3", "--timeout=300s")
    running, _ = run_pods(cluster, namespace)
    assert len(running) == 3

    install(cluster, namespace, "--set=replicas=2")
    assert run_pods(cluster, namespace)[0] == running

    uninstall(cluster, namespace)
    kept, free = run_pods(cluster, namespace)
    assert kept == set()
    assert running <= free
    kubectl("get", f"secret/{RELEASE}-postgres", f"pvc/data-{RELEASE}-postgres-0", "dfj/wash")
    kubectl("delete", f"namespace/{namespace}", "--wait=false")
    wait_until(lambda: cluster.api.find(f"/api/v1/namespaces/{namespace}") is None, "the namespace is gone", 300)
