"""A real API server for the session, and in it a namespace for each test; see `tests.kube.cluster`."""

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kube.cluster.annotations import FAKE_NODE
from tests.kube.cluster.api import Api, Object, Refused
from tests.kube.cluster.control_plane import ControlPlane
from tests.kube.cluster.nodes import NODES, add_nodes
from tests.kube.cluster.providers import REQUIRED, Provider, Unavailable, announce, provide
from tests.kube.cluster.supervisor import shared

_LEFT_OUT = "no cluster for tests/kube"
_CRDS = Path(__file__).parents[2] / "crds"


def pytest_report_header() -> str:
    """Say which cluster the tests use."""
    return f"cluster: {announce()}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it loudly when the tests on a cluster were left out."""
    left_out = [report for report in terminalreporter.getreports("skipped") if _LEFT_OUT in str(report.longrepr)]
    if left_out:
        terminalreporter.section("THE TESTS ON A CLUSTER WERE LEFT OUT", sep="!", red=True, bold=True)
        terminalreporter.line(f"{len(left_out)} tests have not run. {left_out[0].longrepr[2]}")
        terminalreporter.line("To run them: install Go, or set KUBECONFIG or KUBEBUILDER_ASSETS.")


@pytest.fixture(scope="session")
def provider(pytestconfig: pytest.Config) -> Provider:
    """What a cluster can be had from; its programs are built now if they have to be."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\ncluster: {line}", flush=True)

    try:
        return provide(say)
    except Unavailable as reason:
        if os.environ.get(REQUIRED):
            pytest.fail(f"{_LEFT_OUT}, and {REQUIRED} is set: {reason}")
        pytest.skip(f"{_LEFT_OUT}: {reason}")


@contextmanager
def _kubeconfig(provider: Provider, folder: Path) -> Iterator[Path]:
    if provider.kubeconfig is not None:
        yield provider.kubeconfig
        return
    with shared(folder, provider.programs) as kubeconfig:
        yield kubeconfig


@pytest.fixture(scope="session")
def cluster(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The cluster that all tests share, workers of `pytest -n` too: leave its API server and its nodes as they are."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "shared-cluster"
    with _kubeconfig(provider, folder) as kubeconfig, Api(provider.programs["kubectl"], kubeconfig) as api:
        if not api.items(f"{NODES}?labelSelector={FAKE_NODE}"):
            pytest.fail(
                "KUBECONFIG names a cluster without fake nodes: unset it, or start one that has them by "
                "`python -m tests.kube.cluster up`."
            )
        apply_resources(api)
        yield api


def apply_resources(api: Api) -> None:
    """Make the project's custom resources known to a cluster."""
    if any(_CRDS.glob("*.yaml")):
        api.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={_CRDS}")
        api.kubectl("wait", "--for=condition=Established", "--timeout=60s", f"--filename={_CRDS}")


def new_namespace(api: Api) -> str:
    """Create a namespace in which pods can be created; return its name."""
    name = f"test-{secrets.token_hex(5)}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    api.wait(f"/api/v1/namespaces/{name}/serviceaccounts/default", lambda _: True, f"{name} has its service account")
    return name


def _leave(api: Api, name: str) -> None:
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


@pytest.fixture
def namespace(cluster: Api) -> Iterator[str]:
    """The name of a fresh namespace of the shared cluster; deleted afterwards, without waiting for it."""
    name = new_namespace(cluster)
    yield name
    _leave(cluster, name)


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
def lasting_own_cluster(provider: Provider) -> Iterator[OwnCluster]:
    """A cluster for the tests of one module, with two nodes."""
    if provider.kubeconfig is not None and len(provider.programs) < 2:
        pytest.skip("the cluster of KUBECONFIG is not ours to stop")
    folder = Path(tempfile.mkdtemp(prefix="dataflow-cluster-"))
    try:
        plane = ControlPlane(folder / "plane", provider.programs)
        with plane, Api(provider.programs["kubectl"], plane.kubeconfig) as api:
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
