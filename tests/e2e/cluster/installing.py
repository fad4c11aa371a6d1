"""The chart as tests on real nodes install it: with the images of the tests, for some namespaces and no others."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from opendataflow.names import FINALIZER, LABEL_RUN
from tests.e2e.cluster.real_cluster import RealCluster
from tests.helm.chart import CHART
from tests.kube.conftest import Kubectl
from tests.kube.jobs import dataset, documents, job
from tests.waiting import wait_until

RELEASE = "dataflow"
_SMALL = "--set=database.builtIn.persistence.size=100Mi"
"""As large as the volumes of the nodes are, or smaller."""

STRICT = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
"""What lets only restricted pods run in a namespace."""
KEEP_DEFINITIONS = "--set=crds.install=false"
"""Those of the cluster serve others, too: the test sees to them."""
_SECONDS = 300


def image_values(cluster: RealCluster, **images: str) -> list[str]:
    """The values that name images which the nodes have then. `images`: the value, with `_` for `.`, and which image."""
    values = []
    for value, which in images.items():
        repository, _, tag = cluster.image(which).rpartition(":")
        place = value.replace("_", ".")
        values += [f"--set={place}.repository={repository}", f"--set-string={place}.tag={tag}"]
    return values


def install(cluster: RealCluster, namespace: str, *values: str, watched: Sequence[str] = ()) -> datetime:
    """Install or upgrade the chart in a namespace, for it or for those that are `watched`, and wait until it is ready.

    Return when helm began. Raises Unavailable where its images can't be had, CalledProcessError where helm refuses it.
    """
    images = image_values(cluster, image="operator", database_builtIn_image="postgres")
    whole = ("upgrade", "--install", RELEASE, str(CHART), "--take-ownership", "--wait", f"--timeout={_SECONDS}s")
    namespaces = f"--set=namespaces={{{','.join(watched or [namespace])}}}"
    begun = datetime.now(UTC)
    cluster.helm(namespace, *whole, namespaces, _SMALL, *images, *values, seconds=_SECONDS + 60)
    return begun


def uninstall(cluster: RealCluster, namespace: str) -> None:
    """Uninstall the chart, and wait until its objects are gone. Raises CalledProcessError."""
    cluster.helm(namespace, "uninstall", RELEASE, "--wait", f"--timeout={_SECONDS}s", seconds=_SECONDS + 60)


def run_pods(cluster: RealCluster, namespace: str) -> tuple[set[str], set[str]]:
    """The names of the run pods of a namespace that are kept until their outcome is committed, and of all others."""
    found = cluster.api.items(f"/api/v1/namespaces/{namespace}/pods?labelSelector={LABEL_RUN}")
    kept = {pod["metadata"]["name"] for pod in found if FINALIZER in pod["metadata"].get("finalizers", ())}
    return kept, {pod["metadata"]["name"] for pod in found} - kept


WAITS_FOR_A_FILE = 'trap "exit 1" TERM; until [ -e /tmp/go ]; do sleep 0.2; done; echo "$dataid"'
"""A run that goes on until `let_end`, and ends at once when it is deleted."""


def long_job(name: str, image: str, chunks: int) -> str:
    """The text of a job of so many chunks, three of which run at a time until they are let end; with its data sets."""
    runtime = {"script": {"image": image, "command": ["sh", "-c", WAITS_FOR_A_FILE]}}
    made = job(name, [f"{name}-in"], [f"{name}-out"], runtime=runtime)
    return documents(dataset(f"{name}-in", chunks), dataset(f"{name}-out"), made)


def running(cluster: RealCluster, namespace: str, number: int) -> set[str]:
    """Wait until so many runs of a namespace are under way; return the names of their pods."""
    seen: set[str] = set()

    def enough() -> bool:
        found = cluster.api.items(f"/api/v1/namespaces/{namespace}/pods?labelSelector={LABEL_RUN}")
        seen.clear()
        seen.update(pod["metadata"]["name"] for pod in found if pod["status"].get("phase") == "Running")
        return len(seen) == number

    wait_until(enough, f"{number} pods run in {namespace}", 300)
    return set(seen)


def let_end(kubectl: Kubectl, pods: Iterable[str]) -> None:
    """Let runs of a `long_job` end well."""
    for pod in pods:
        kubectl("exec", pod, "--container=main", "--", "touch", "/tmp/go")
