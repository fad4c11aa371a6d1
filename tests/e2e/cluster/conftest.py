"""One cluster with real nodes for the session, and in it a namespace for each test; see `tests.e2e.cluster`.

These tests have the cluster to themselves and run one after another: some stop a node or delete the definitions.
"""

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from images.build import Impossible
from tests.e2e import images as built_images
from tests.e2e import next_version
from tests.e2e.cluster import small_images
from tests.e2e.cluster.building import CLIENTS, programs
from tests.e2e.cluster.choice import REQUIRED, announce, choose
from tests.e2e.cluster.diagnosis import diagnose
from tests.e2e.cluster.installing import STRICT
from tests.e2e.cluster.real_cluster import Image, RealCluster
from tests.e2e.cluster.times import TIMES, Times, show
from tests.kube.cluster.api import Api
from tests.kube.cluster.providers import Unavailable
from tests.kube.conftest import Kubectl, apply_resources, fresh_namespace
from tests.kube.operators import Operators, new_operators
from tests.left_out import left_out, report_left_out

_LEFT_OUT = "no cluster with real nodes"
_HERE = Path(__file__).parent
_CHART = _HERE.parents[2] / "helm" / "opendataflow"
_shown: list[RealCluster] = []
"""The session's cluster, for reports of failures."""
_TEST_SECONDS = 600


def pytest_report_header() -> str:
    """Say which cluster the tests use."""
    return f"cluster with real nodes: {announce()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The time limit is a test's own: the first one's fixtures may have to build Kubernetes."""
    for item in items:
        if _HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TEST_SECONDS, func_only=True))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Beside a failure, show what is in the namespaces of its test."""
    report = yield
    if report.failed and _shown and _HERE in item.path.parents:
        report.sections.append(("the cluster", diagnose(_shown[0].api, _shown[0].namespaces)))
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Say it loudly, as the last word of the run, when tests on real nodes were left out."""
    yield
    report_left_out(
        session,
        _LEFT_OUT,
        "TESTS ON REAL NODES WERE LEFT OUT",
        "They need a cluster: KUBECONFIG, Docker, or a node on this host. See docs/tests.md.",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show the times that tests have measured."""
    if measured := config.stash.get(TIMES, Times()).measured:
        terminalreporter.section("times on real nodes")
        for line in show(measured):
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def times(pytestconfig: pytest.Config) -> Times:
    """Where a test notes how long a user waits for something; the end of the run shows it."""
    return pytestconfig.stash.setdefault(TIMES, Times())


@contextmanager
def left_out_when_unavailable() -> Iterator[None]:
    """Skip the test, or fail where nothing may be left out."""
    with left_out(_LEFT_OUT, REQUIRED):
        yield


def _images(folder: Path) -> Mapping[str, Image]:
    return {
        "busybox": Image("local/busybox:test", lambda: small_images.busybox(folder)),
        "operator": Image(built_images.OPERATOR, lambda: _built("operator")),
        "next": Image(next_version.OPERATOR, lambda: _built("next")),
        "spark": Image(built_images.SPARK, lambda: _built("spark")),
        "postgres": Image(built_images.POSTGRES, lambda: _built("postgres")),
    }


def _built(which: str) -> Path:
    try:
        match which:
            case "postgres":
                return built_images.postgres()
            case "next":
                return next_version.operator()
            case _:
                return built_images.build()[which]
    except Impossible as reason:
        raise Unavailable(f"the image {which} can't be built: {reason}") from None


@pytest.fixture(scope="session")
def cluster(say: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    """The cluster that all tests share: one that stops a node brings it back."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        pytest.skip(f"{_LEFT_OUT}: these tests run one after another, without -n: pytest tests/e2e/cluster")
    with ExitStack() as opened:
        with left_out_when_unavailable():
            provider = choose(say)
            clients = programs(CLIENTS, say)
            kubeconfig = opened.enter_context(provider.use())
        api = opened.enter_context(Api(clients["kubectl"], kubeconfig))
        images = _images(tmp_path_factory.mktemp("images"))
        made = RealCluster(provider, api, clients["kubectl"], clients["helm"], images)
        _shown.append(made)
        opened.callback(_shown.clear)
        yield made


@pytest.fixture
def namespace(cluster: RealCluster) -> Iterator[str]:
    """The name of a fresh namespace; deleted afterwards, without waiting for it."""
    for name in fresh_namespace(cluster.api):
        cluster.namespaces = [name]
        yield name


@pytest.fixture
def kubectl(cluster: RealCluster, namespace: str) -> Kubectl:
    """kubectl in the fresh namespace."""
    return Kubectl(cluster.api, namespace)


@pytest.fixture(scope="session")
def busybox(cluster: RealCluster) -> str:
    """The name of an image with busybox in it, which the nodes have."""
    with left_out_when_unavailable():
        return cluster.image("busybox")


@pytest.fixture(scope="session")
def operator_image(cluster: RealCluster) -> str:
    """The name of the operator's image, which the nodes have."""
    with left_out_when_unavailable():
        return cluster.image("operator")


@pytest.fixture(scope="session")
def spark_image(cluster: RealCluster) -> str:
    """The name of the image for Spark, which the nodes have."""
    with left_out_when_unavailable():
        return cluster.image("spark")


# An operator beside the cluster ------------------------------------------------------------------------------


@pytest.fixture
def drivers(cluster: RealCluster, namespace: str, kubectl: Kubectl) -> None:
    """A namespace in which Spark drivers may run: the strictest standard, and the chart's account and role."""
    apply_resources(cluster.api)
    cluster.api.patch(f"/api/v1/namespaces/{namespace}", STRICT)
    here = ("--show-only=templates/spark.yaml", "--kube-version=1.34", f"--set=spark.namespaces={{{namespace}}}")
    made = cluster.helm(namespace, "template", "x", str(_CHART), *here)
    kubectl("apply", "--filename=-", stdin=made)


@pytest.fixture
def operators(dsn: str, cluster: RealCluster, namespace: str, tmp_path: Path) -> Iterator[Operators]:
    """Operators over the test's own database and namespace."""
    with new_operators(dsn, cluster.api.kubeconfig, namespace, tmp_path) as made:
        yield made


@pytest.fixture
def operator(drivers: None, operators: Operators, operator_image: str, spark_image: str) -> None:  # noqa: ARG001
    """An operator that knows the images of this cluster."""
    operators.start(DATAFLOW_IMAGE=operator_image, DATAFLOW_SPARK_IMAGE=spark_image)
