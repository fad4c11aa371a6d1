"""helm for the session, built when it has to be; see `tests.kube.cluster.building`."""

from collections.abc import Iterator

import pytest

from tests.helm.chart import Helm
from tests.kube.cluster.providers import REQUIRED, programs
from tests.left_out import left_out, report_left_out

_LEFT_OUT = "no helm for tests/helm"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Say it loudly, as the last word of the run, when the tests of the chart were left out."""
    yield
    report_left_out(session, _LEFT_OUT, "THE TESTS OF THE CHART WERE LEFT OUT")


@pytest.fixture(scope="session")
def helm() -> Helm:
    """helm without a cluster."""
    with left_out(_LEFT_OUT, REQUIRED):
        return Helm(programs(print, ["helm"])["helm"])
