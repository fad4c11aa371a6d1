"""Tests whose environment is not available are left out loudly, or fail where nothing may be left out."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.kube.cluster.providers import Unavailable


@contextmanager
def left_out(why: str, required: str) -> Iterator[None]:
    """Skip the test where something is Unavailable. `required`: the variable that makes it fail instead."""
    try:
        yield
    except Unavailable as reason:
        if os.environ.get(required):
            pytest.fail(f"{why}, and {required} is set: {reason}")
        pytest.skip(f"{why}: {reason}")


def report_left_out(session: pytest.Session, why: str, title: str, remedy: str | None = None) -> None:
    """Report at the end of the run how many tests have not run."""
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    reports = reporter.getreports("skipped") if isinstance(reporter, pytest.TerminalReporter) else []
    reasons = [str(report.longrepr[2]) for report in reports if why in str(report.longrepr)]
    if reasons:
        reporter.section(title, sep="!", red=True, bold=True)
        reporter.line(f"{len(reasons)} tests have not run. {reasons[0]}")
        if remedy is not None:
            reporter.line(remedy)
