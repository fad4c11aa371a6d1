"""helm for the session, built when it has to be; see `tests.kube.cluster.building`."""

import os
from collections.abc import Iterator

import pytest

from tests.helm.chart import Helm
from tests.kube.cluster.providers import REQUIRED, Unavailable, programs

_LEFT_OUT = "no helm for tests/helm"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Say it loudly, as the last word of the run, when the tests of the chart were left out."""
    yield
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    reports = reporter.getreports("skipped") if isinstance(reporter, pytest.TerminalReporter) else []
    left_out = [str(report.longrepr[2]) for report in reports if _LEFT_OUT in str(report.longrepr)]
    if left_out:
        reporter.section("THE TESTS OF THE CHART WERE LEFT OUT", sep="!", red=True, bold=True)
        reporter.line(f"{len(left_out)} tests have not run. {left_out[0]}")


@pytest.fixture(scope="session")
def helm() -> Helm:
    """helm without a cluster."""
    try:
        return Helm(programs(print, ["helm"])["helm"])
    except Unavailable as reason:
        if os.environ.get(REQUIRED):
            pytest.fail(f"{_LEFT_OUT}, and {REQUIRED} is set: {reason}")
        pytest.skip(f"{_LEFT_OUT}: {reason}")
