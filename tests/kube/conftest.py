"""A real API server for the session, and in it a namespace for each test; see `tests.kube.cluster`."""

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kube.cluster.annotations import FAKE_NODE
from tests.kube.cluster.api import Api, Object, Refused
from tests.kube.cluster.control_plane import ControlPlane
from tests.kube.cluster.nodes import NODES, add_nodes
from tests.kube.cluster.providers import REQUIRED, announce, given, programs
from tests.kube.cluster.providers import kubectl as kubectl_of_user
from tests.kube.cluster.proxy import Proxy
from tests.kube.cluster.supervisor import fake_nodes_command, shared
from tests.kube.operators import Operators, new_operators
from tests.kube.postgres import in_a_thread
from tests.kube.scene import Scene, new_scene
from tests.left_out import left_out, report_left_out
from tests.waiting import wait_until

_LEFT_OUT = "no cluster for tests/kube"
_CRDS = Path(__file__).parents[2] / "crds"


def pytest_report_header() -> str:
    """Say which cluster the tests use."""
    return f"cluster: {announce()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The time limit is a test's own: the first one's fixtures may have to build Kubernetes."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(func_only=True))


FAILED = pytest.StashKey[bool]()
"""Whether a test has failed, for fixtures that lend it something which others use after it."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember it."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Say it loudly, as the last word of the run, when the tests on a cluster were left out."""
    yield
    report_left_out(
        session,
        _LEFT_OUT,
        "THE TESTS ON A CLUSTER WERE LEFT OUT",
        "They need Go, or a cluster named by KUBECONFIG, or KUBEBUILDER_ASSETS: see docs/tests.md.",
    )


@contextmanager
def _left_out_when_unavailable() -> Iterator[None]:
    with left_out(_LEFT_OUT, REQUIRED):
        yield


@pytest.fixture(scope="session")
def cluster_programs(say: Callable[[str], None]) -> Mapping[str, Path]:
    """What a cluster is started with; it is built now if it has to be."""
    with _left_out_when_unavailable():
        return programs(say)


@pytest.fixture(scope="session")
def helm_program(say: Callable[[str], None]) -> Path:
    """The path of helm; it is built now if it has to be."""
    with _left_out_when_unavailable():
        return programs(say, ["helm"])["helm"]


@pytest.fixture(scope="session")
def cluster(
    request: pytest.FixtureRequest, say: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    """The cluster that all tests share, workers of `pytest -n` too: leave its API server and its nodes as they are."""
    kubeconfig = given()
    if kubeconfig is not None:
        with _left_out_when_unavailable():
            found = kubectl_of_user(say)
        with Api(found, kubeconfig) as api:
            if not api.items(f"{NODES}?labelSelector={FAKE_NODE}"):
                pytest.fail(
                    "KUBECONFIG names a cluster without fake nodes, so nothing was done to it: unset it, or start one "
                    "that has them by `python -m tests.kube.cluster up`."
                )
            apply_resources(api)
            yield api
        return
    started: Mapping[str, Path] = request.getfixturevalue("cluster_programs")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "shared-cluster"
    with shared(folder, fake_nodes_command(started)) as own, Api(started["kubectl"], own) as api:
        apply_resources(api)
        yield api


def apply_resources(api: Api) -> None:
    """Make the project's custom resources known to a cluster."""
    if any(_CRDS.glob("*.yaml")):
        api.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={_CRDS}")
        api.kubectl("wait", "--for=condition=Established", "--timeout=240s", f"--filename={_CRDS}")


def new_namespace(api: Api) -> str:
    """Create a namespace in which pods can be created; return its name."""
    name = f"test-{secrets.token_hex(5)}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    # A controller that has lost its API server several times asks again after up to a minute.
    api.wait(account, lambda _: True, f"{name} has its service account", seconds=180)
    return name


def leave(api: Api, name: str) -> None:
    """Delete a namespace in the background, with pods that a finalizer would keep."""
    try:
        api.delete(f"/api/v1/namespaces/{name}")
        for pod in api.items(f"/api/v1/namespaces/{name}/pods"):
            if pod["metadata"].get("finalizers"):
                path = f"/api/v1/namespaces/{name}/pods/{pod['metadata']['name']}"
                api.patch(path, {"metadata": {"finalizers": None}})
    except Refused as refused:
        if refused.status not in {404, 409}:
            raise


PODS = {"resource": "pods", "verb": "list"}


def wait_until_allowed(
    api: Api, namespace: str, user: str, *, allowed: bool = True, what: Mapping[str, str] = PODS
) -> None:
    """Return when roles that were made, or deleted, a moment ago count: the API server hears of them as all others do.

    `what`: the attributes of a request, by default to list pods.
    """
    asked = {"spec": {"user": user, "resourceAttributes": {"namespace": namespace, **what}}}

    def answered() -> bool:
        answer = api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", asked)
        return bool(answer["status"]["allowed"]) == allowed

    wait_until(answered, f"{user} {'may' if allowed else 'may not'} {what['verb']} {what['resource']} in {namespace}")


def fresh_namespace(cluster: Api) -> Iterator[str]:
    """Yield the name of a fresh namespace; delete it afterwards, without waiting for it."""
    name = new_namespace(cluster)
    yield name
    leave(cluster, name)


@pytest.fixture
def namespace(cluster: Api) -> Iterator[str]:
    """The name of a fresh namespace of the shared cluster; deleted afterwards, without waiting for it."""
    yield from fresh_namespace(cluster)


@pytest.fixture
def other_namespace(cluster: Api) -> Iterator[str]:
    """The name of another one."""
    yield from fresh_namespace(cluster)


@dataclass(frozen=True)
class Kubectl:
    """kubectl in one namespace, as a user types it."""

    api: Api
    namespace: str

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Run it; return what it printed."""
        return self.api.kubectl(f"--namespace={self.namespace}", *arguments, stdin=stdin)

    def json(self, *arguments: str) -> Object:
        """Run it with `-o json`; return what it printed, parsed."""
        parsed: Object = json.loads(self(*arguments, "--output=json"))
        return parsed


@pytest.fixture
def kubectl(cluster: Api, namespace: str) -> Kubectl:
    """kubectl in the fresh namespace."""
    return Kubectl(cluster, namespace)


@dataclass(frozen=True)
class OwnCluster:
    """A cluster whose API server may be stopped, and whose nodes may be removed."""

    plane: ControlPlane
    api: Api


@pytest.fixture(scope="module")
def lasting_own_cluster(cluster_programs: Mapping[str, Path]) -> Iterator[OwnCluster]:
    """A cluster for the tests of one module, with two nodes."""
    folder = Path(tempfile.mkdtemp(prefix="dataflow-cluster-"))
    try:
        plane = ControlPlane(folder / "plane", cluster_programs)
        with plane, Api(cluster_programs["kubectl"], plane.kubeconfig) as api:
            add_nodes(api, ["node-0", "node-1"])
            apply_resources(api)
            yield OwnCluster(plane, api)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_cluster(lasting_own_cluster: OwnCluster) -> Iterator[OwnCluster]:
    """The module's own cluster; its API server runs again after the test, whatever that has done to it."""
    yield lasting_own_cluster
    plane = lasting_own_cluster.plane
    if plane.api_server.running:
        plane.api_server.resume()
    else:
        plane.restart_api_server()


@pytest.fixture
def own_namespace(own_cluster: OwnCluster) -> str:
    """A fresh namespace of the module's own cluster; it goes with the cluster."""
    return new_namespace(own_cluster.api)


@pytest.fixture
def own_scene(own_cluster: OwnCluster, own_namespace: str, dsn: str, tmp_path: Path) -> Iterator[Scene]:
    """On a cluster whose API server may be stopped, and whose nodes may be lost."""
    with new_scene(dsn, own_cluster.api, own_namespace, tmp_path) as made:
        yield made


@pytest.fixture
def proxy(cluster: Api) -> Iterator[Proxy]:
    """A proxy in front of the shared API server, in a thread: what it does, only its clients feel."""
    opened = Proxy(cluster.kubeconfig)
    with in_a_thread(lambda: opened):
        yield opened


@pytest.fixture
def operators(dsn: str, cluster: Api, namespace: str, tmp_path: Path) -> Iterator[Operators]:
    """Operators over the test's own database and namespace; none of them outlives the test."""
    with new_operators(dsn, cluster.kubeconfig, namespace, tmp_path) as made:
        yield made


@pytest.fixture
def scene(dsn: str, cluster: Api, namespace: str, tmp_path: Path) -> Iterator[Scene]:
    """An own database and namespace, in which operators are started and disturbed."""
    with new_scene(dsn, cluster, namespace, tmp_path) as made:
        yield made
