"""The program as users start it: as a process of its own, with a home of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict

from opendataflow.cli.commands import run
from opendataflow.core.databases.postgres import Postgres
from opendataflow.crypto.sealed import NONCE_BYTES, SALT_BYTES, seal
from opendataflow.names import SPARK_ARCHIVE
from opendataflow.spark.pipeline.measure.session import local_session
from tests.sql.conftest import Connection, open_connection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_DEFAULTS = "spark.master local[1]\nspark.sql.shuffle.partitions 1\nspark.driver.memory 1g\n"
"""Spark's settings for a small machine."""


def alive(pid: int | str) -> bool:
    """Whether a process runs; one that only waits for its parent to notice its end does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


DATAFLOW = Path(sys.executable).parent / "dataflow"
SECONDS = 1200
"""How long a command may take, also one that starts Spark on a machine that is busy with something else."""


@dataclass(frozen=True)
class Answer:
    """What a command has printed, and its exit code."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Program:
    """Starts `dataflow` with one home and one database (None: the embedded one). `more`: other variables."""

    home: Path
    dsn: str | None = None
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        """The environment of its processes."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DATAFLOW_")}
        kept[SPARK_ARCHIVE] = os.environ[SPARK_ARCHIVE]
        dsn = {"DATAFLOW_DSN": self.dsn} if self.dsn else {}
        return {**kept, "DATAFLOW_HOME": str(self.home), **dsn, **self.more}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command; its output goes to pipes."""
        return subprocess.Popen(
            [DATAFLOW, *arguments],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, code: int | None = 0, seconds: float = SECONDS) -> str:
        """Run a command to its end; return what it printed. `code`: the exit code that it must have."""
        done = subprocess.run(
            [DATAFLOW, *arguments], env=self.environ, capture_output=True, text=True, check=False, timeout=seconds
        )
        output = done.stdout + done.stderr
        assert "Traceback" not in output, output
        assert code is None or done.returncode == code, output
        return output

    def ask(self, *arguments: str, typed: str = "", cwd: Path | None = None) -> Answer:
        """Run a command to its end; return all that it printed. `typed`: what a person answers to its questions."""
        done = subprocess.run(
            [DATAFLOW, *arguments],
            env=self.environ,
            input=typed,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
            cwd=cwd,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Answer(done.returncode, done.stdout, done.stderr)


class Inside:
    """Runs commands inside the tests' own process: for what is about words only, without a start of Python each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def ask(self, program: Program, *arguments: str, cwd: Path | None = None) -> Answer:
        """Run a command to its end, with the home and the database of `program`."""
        self._capsys.readouterr()
        with self._monkeypatch.context() as patched:
            for name, value in program.environ.items():
                patched.setenv(name, value)
            if cwd is not None:
                patched.chdir(cwd)
            code = run(list(arguments))
        printed = self._capsys.readouterr()
        return Answer(code, printed.out, printed.err)


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inside:
    """Commands without a process of their own."""
    return Inside(monkeypatch, capsys)


@pytest.fixture(scope="module")
def spark_conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Spark's settings for a small machine."""
    folder = tmp_path_factory.mktemp("conf")
    (folder / "spark-defaults.conf").write_text(SPARK_DEFAULTS)
    return folder


@pytest.fixture(scope="module")
def spark(spark_conf: Path) -> Iterator["SparkSession"]:
    """The session that all commands inside this process take. It has the driver for Postgres, wherever it is needed: a
    process keeps its JVM, with the jars of its first session."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SPARK_CONF_DIR", str(spark_conf))
        with local_session("tests", [Postgres.driver]) as session:
            yield session


@pytest.fixture
def dataflow(dsn: str, tmp_path: Path) -> Program:
    """The program with a fresh database of its own and no server to start: a command takes less than a second."""
    return Program(tmp_path / "home", dsn)


def write_properties(folder: Path, dsn: str, sealed: str) -> None:
    """Name a database by a `dataflow.properties`, with the ciphertext of its password."""
    parts = conninfo_to_dict(dsn)
    (folder / "dataflow.properties").write_text(
        f"url=jdbc:postgresql://{parts['host']}:{parts.get('port', 5432)}/{parts['dbname']}\n"
        f"user={parts['user']}\nschema=dataflow\nencrypted={sealed}\nplatform=postgres\n"
    )


@pytest.fixture
def named(tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The program with the database of `dataflow`, where `dataflow.properties` in `tmp_path` names it."""
    password = str(conninfo_to_dict(dsn).get("password") or "none is needed")
    write_properties(tmp_path, dsn, seal(password, "xyzzy", salt=b"s" * SALT_BYTES, nonce=b"n" * NONCE_BYTES))
    monkeypatch.setenv("PASSKEY", "xyzzy")
    return Program(tmp_path / "home")


@pytest.fixture
def db(dsn: str) -> Iterator[Connection]:
    """A connection to the database of `dataflow`; commits by itself."""
    with open_connection(dsn) as connection:
        yield connection


@pytest.fixture
def embedded(open_folder: Path) -> Iterator[Program]:
    """The program with an embedded Postgres of its own."""
    program = Program(open_folder / "home")
    yield program
    program.run("get", "jobs")  # the last one to leave stops the server
