"""What tests share: a Postgres of their own, or the one that DATAFLOW_TEST_DSN names.

Nothing here touches the home folder of the person who runs the tests.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from opendataflow.store.embedded import EmbeddedPostgres, installed_version

DSN_VARIABLE = "DATAFLOW_TEST_DSN"
OLDEST = 150000
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""Settings for servers whose data nobody needs tomorrow."""


@contextmanager
def _open_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dataflow-test-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def pytest_report_header() -> str:
    """Say which Postgres the tests use."""
    dsn = os.environ.get(DSN_VARIABLE)
    if not dsn:
        return f"postgres: {installed_version()}, embedded"
    with psycopg.connect(dsn) as connection:
        version = connection.info.parameter_status("server_version")
    return f"postgres: {version}, from {DSN_VARIABLE}"


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A temporary folder that other users can pass through: root's servers run as one of them."""
    with _open_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def lasting_open_folder() -> Iterator[Path]:
    """The same, for a module's tests together."""
    with _open_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The libpq URL of a server for the session; a superuser's, unless DATAFLOW_TEST_DSN says otherwise."""
    dsn = os.environ.get(DSN_VARIABLE)
    if dsn:
        with psycopg.connect(dsn) as connection:
            version = connection.info.server_version
        if version < OLDEST:
            pytest.fail(f"{DSN_VARIABLE} names a Postgres {version}: {OLDEST} is the oldest that works.")
        yield dsn
        return
    with _open_folder() as folder, EmbeddedPostgres(folder / "postgres", FAST) as dsn:
        yield dsn
