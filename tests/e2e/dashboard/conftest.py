"""One dashboard and one browser for the tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.e2e.dashboard.browser import WITHOUT_BROWSER, chromium
from tests.e2e.dashboard.serving import Dashboard, dashboard, write_story
from tests.left_out import report_left_out
from tests.sql.conftest import Connection, open_connection


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Report at the end that no browser was available."""
    yield
    report_left_out(session, WITHOUT_BROWSER, "TESTS IN A BROWSER WERE LEFT OUT")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def story(lasting_dsn: str) -> Iterator[Connection]:
    """A connection to the database of the dashboard, with a story in it."""
    with open_connection(lasting_dsn) as connection:
        write_story(connection)
        yield connection


@pytest.fixture(scope="module")
def served(story: Connection, lasting_dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A dashboard over the story."""
    assert not story.closed
    home: Path = tmp_path_factory.mktemp("home")
    with dashboard(lasting_dsn, home) as running:
        yield running
