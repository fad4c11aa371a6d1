"""The migration example without a cluster: real Spark between two databases of a real Postgres."""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.e2e.conftest import DATAFLOW, Program

EXAMPLE = Path(__file__).parents[2] / "examples" / "migration"
ALL = "SELECT count(*), sum(hashtextextended(orders::text, 0)) FROM orders"


@dataclass(frozen=True)
class Databases:
    """The addresses of both, as their owner."""

    old: str
    new: str


@pytest.fixture
def databases(postgres_server: str) -> Iterator[Databases]:
    """Both, as the scripts of the example make them; their roles belong to the whole server."""
    made = {name: make_conninfo(postgres_server, dbname=f"migration_{name}") for name in ("old", "new")}
    with psycopg.connect(postgres_server, autocommit=True) as server:
        for name in made:
            server.execute(f"DROP DATABASE IF EXISTS migration_{name} WITH (FORCE)")
            server.execute(f"CREATE DATABASE migration_{name}")
        for role in ("reader", "writer"):
            server.execute(f"DROP ROLE IF EXISTS {role}")
        for name, address in made.items():
            with psycopg.connect(address, autocommit=True) as connection:
                connection.execute((EXAMPLE / f"{name}.sql").read_text("utf-8").encode())
        yield Databases(**made)
        for name in made:
            server.execute(f"DROP DATABASE migration_{name} WITH (FORCE)")
        for role in ("reader", "writer"):
            server.execute(f"DROP ROLE {role}")


def rows(address: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(address) as connection:
        return connection.execute(query.encode()).fetchall()


def test_the_commands_for_a_laptop_move_all_rows(dataflow: Program, databases: Databases, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "migration"))
    text = (folder / "job.yaml").read_text("utf-8").replace("step: 25000", "step: 150000")
    for name, address in (("old", databases.old), ("new", databases.new)):
        text = text.replace("database: shop", f"database: migration_{name}", 1)
        port = conninfo_to_dict(address)["port"]
        readme = (
            (folder / "README.md")
            .read_text("utf-8")
            .replace(f"localhost:{5433 if name == 'old' else 5434}", f"127.0.0.1:{port}")
        )
        (folder / "README.md").write_text(readme, "utf-8")
    (folder / "job.yaml").write_text(text, "utf-8")
    steps = re.findall(
        r"^ {4}(.*)$", (folder / "README.md").read_text("utf-8").split("## On a laptop")[1], re.MULTILINE
    )
    environ = {**dataflow.environ, "PATH": f"{DATAFLOW.parent}:{dataflow.environ['PATH']}"}
    script = "set -e\n" + "\n".join(steps) + "\n"
    done = subprocess.run(["bash", "-c", script], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert rows(databases.new, ALL) == rows(databases.old, ALL)
    assert rows(databases.new, "SELECT count(*) FROM orders") == [(300000,)]


@pytest.fixture
def program() -> ModuleType:
    """migrate.py as a module."""
    spec = importlib.util.spec_from_file_location("migrate", EXAMPLE / "migrate.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_an_attempt_with_an_older_fence_changes_nothing(databases: Databases, program: ModuleType) -> None:
    with psycopg.connect(databases.new) as connection:
        program.take_over(connection, 1, 8)
        program.take_over(connection, 25001, 7)
        with pytest.raises(SystemExit, match="a newer attempt than fence 7 was here already"):
            program.take_over(connection, 1, 7)
        program.take_over(connection, 1, 9)
        found = connection.execute("SELECT first, fence FROM migrated ORDER BY first").fetchall()
    assert found == [(1, 9), (25001, 7)]
