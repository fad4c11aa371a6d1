"""What tests share: a Postgres, their own or the one of DATAFLOW_TEST_DSN, and in it a fresh database for each test.

Nothing here touches the home folder of the person who runs the tests.
"""

import asyncio
import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path

import hypothesis
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from opendataflow.names import SPARK_ARCHIVE
from opendataflow.spark import class_archive
from opendataflow.store.connections.connection import connect
from opendataflow.store.embedded import EmbeddedPostgres, installed_version
from opendataflow.store.migrations.schema import migrate
from tests import share
from tests.kube.jobs import Database
from tests.left_out import report_left_out

DSN_VARIABLE = "DATAFLOW_TEST_DSN"
OLDEST = 150000
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""Settings for servers whose data nobody needs tomorrow."""

# No test asserts seconds: what takes long here takes long because others work beside it.
hypothesis.settings.register_profile(
    "opendataflow", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("opendataflow")

# What runs the tests in the background may ignore these, as nohup does; all programs that tests start would inherit it.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# Spark starts from the archive of who runs the tests, where there is one; named here, no test leaves it behind.
_spark = find_spec("pyspark")
_archive = class_archive.archive_path(os.environ, Path(_spark.origin).parent) if _spark and _spark.origin else "off"
os.environ.setdefault(SPARK_ARCHIVE, str(_archive))
# Nearly all JVMs of the tests live for seconds: Java's second compiler would take half of their time, for nothing.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")

_numbers = itertools.count(1)


@contextmanager
def _open_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="dataflow-test-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def pytest_report_header() -> list[str]:
    """Say which Postgres the tests use, and which share of what is too long for every run."""
    dsn = os.environ.get(DSN_VARIABLE)
    if not dsn:
        return [f"postgres: {installed_version()}, embedded", share.announce()]
    with psycopg.connect(dsn) as connection:
        version = connection.info.parameter_status("server_version")
    return [f"postgres: {version}, from {DSN_VARIABLE}", share.announce()]


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Say at the end which long tests have not run."""
    yield
    report_left_out(
        session,
        share.NOT_IN_THIS_SHARE,
        "LONG TESTS OF OTHER SHARES WERE LEFT OUT",
        "Each day has another share, and `make soak` runs all: see docs/tests.md.",
    )


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


@pytest.fixture(scope="session")
def template_database(postgres_server: str) -> Iterator[str]:
    """The name of a database with the current schema and no rows."""
    name = f"dataflow_test_template_{os.getpid()}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")

    async def fill() -> None:
        async with await connect(make_conninfo(postgres_server, dbname=name)) as connection:
            await migrate(connection)

    asyncio.run(fill())
    yield name
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@contextmanager
def fresh_database(server: str, template: str) -> Iterator[str]:
    """The address of a copy of a database; it is dropped afterwards."""
    name = f"dataflow_test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield make_conninfo(server, dbname=name)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture
def dsn(postgres_server: str, template_database: str) -> Iterator[str]:
    """The address of a fresh database with the current schema."""
    with fresh_database(postgres_server, template_database) as fresh:
        yield fresh


@pytest.fixture
def bare_dsn(postgres_server: str) -> Iterator[str]:
    """The address of a fresh database with nothing in it, as that of users' own tables."""
    with fresh_database(postgres_server, "template1") as fresh:
        yield fresh


@pytest.fixture(scope="module")
def lasting_dsn(postgres_server: str, template_database: str) -> Iterator[str]:
    """The same, for a module's tests together: each of them leaves it as it was."""
    with fresh_database(postgres_server, template_database) as fresh:
        yield fresh


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    """Questions to the test's own database."""
    with closing(Database(dsn)) as opened:
        yield opened


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Print a line of the progress of a cluster at once, although the output of tests is captured."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def to_terminal(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            print(f"\ncluster: {line}", flush=True)

    return to_terminal
