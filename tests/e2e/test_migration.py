"""The migration example without a cluster: the commands of its README, by real Spark between two real databases.

`MIGRATION_ROWS` says how many rows there are, and with a million or more there are 100 chunks as in the README; by
default it is as many as a machine of CI moves in a minute.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.e2e.conftest import DATAFLOW, Program
from tests.share import in_share

EXAMPLE = Path(__file__).parents[2] / "examples" / "migration"
ALL = "SELECT count(*), sum(hashtextextended(orders::text, 0)) FROM orders"
ROWS = int(os.environ.get("MIGRATION_ROWS", "20000"))
CHUNKS = 100 if ROWS >= 1_000_000 else 3
_STEP = re.compile(r"(?:^ {4}\S.*\n)+|^```sql\n((?:.*\n)*?)```", re.MULTILINE)


@dataclass(frozen=True)
class Databases:
    """Addresses of the old and the new database."""

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
            with psycopg.connect(address, autocommit=True, options=f"-c migration.rows={ROWS}") as connection:
                connection.execute((EXAMPLE / f"{name}.sql").read_text("utf-8").encode())
        yield Databases(**made)
        for name in made:
            server.execute(f"DROP DATABASE migration_{name} WITH (FORCE)")
        for role in ("reader", "writer"):
            server.execute(f"DROP ROLE {role}")


def rows(address: str, query: str) -> list[tuple[object, ...]]:
    with psycopg.connect(address) as connection:
        return connection.execute(query.encode()).fetchall()


class Reader:
    """Somebody who does what the section of the README says, step by step."""

    def __init__(self, folder: Path, dataflow: Program, databases: Databases) -> None:
        text = (folder / "README.md").read_text("utf-8")
        port = conninfo_to_dict(databases.old)["port"]
        text = re.sub("localhost:543[34]", f"127.0.0.1:{port}", text)
        job = (folder / "job.yaml").read_text("utf-8")
        for name in ("old", "new"):
            job = job.replace("database: shop", f"database: migration_{name}", 1)
        (folder / "job.yaml").write_text(job, "utf-8")
        section = text.replace("--chunks 100", f"--chunks {CHUNKS}").split("\n## On a laptop\n")[1].split("\n## ")[0]
        self._left = list(_STEP.finditer(section))
        self._folder, self._old = folder, databases.old
        self._environ = {**dataflow.environ, "PATH": f"{DATAFLOW.parent}:{dataflow.environ['PATH']}"}

    def goes_on(self) -> list[str]:
        """Do the next block of commands, and the statements before it; return the outputs."""
        while (step := self._left.pop(0))[1] is not None:
            with psycopg.connect(self._old, autocommit=True) as connection:
                connection.execute(step[1].encode())
        outputs = []
        for command in map(str.strip, step[0].splitlines()):
            began = time.monotonic()
            if command.startswith("export "):
                script = f'{command}; printf "%s\\0" "$old_orders_password" "$PASSKEY"'
                words = self._run(script).split("\0")
                self._environ |= {"old_orders_password": words[0], "PASSKEY": words[1]}
                continue
            outputs.append(self._run(command))
            print(f"{time.monotonic() - began:.1f} s: {command}\n{outputs[-1]}")
        return outputs

    def _run(self, command: str) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self._folder, env=self._environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


@in_share(1)
@pytest.mark.timeout(7200, func_only=True)
def test_a_table_moves_in_chunks_and_the_one_that_is_poisoned_when_it_is_repaired(
    dataflow: Program, databases: Databases, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "migration", ignore=shutil.ignore_patterns("__pycache__")))
    reader = Reader(folder, dataflow, databases)
    *_, tested, applied, planned = reader.goes_on()
    assert "1 test passed" in tested, tested
    assert applied
    assert f"{CHUNKS} chunks, {CHUNKS} new; {CHUNKS} published" in planned
    (output,) = reader.goes_on()
    assert "no amount is negative: 1 row with others" in output
    (compared,) = reader.goes_on()
    first = compared.splitlines()[1].split()
    assert first[1] == "FAILED", compared
    assert first[-1] == "customer"
    assert f"1 of {CHUNKS} chunks differ (rows, sum of amount, checksum of id, customer)" in compared.splitlines()[-2]
    assert compared.splitlines()[-1] == "not yet"
    *_, compared = reader.goes_on()
    assert compared == (
        f"old_orders has {ROWS} rows, each in one chunk; new_orders has {ROWS} rows, each in one chunk; all {CHUNKS} "
        "chunks are the same (rows, sum of amount, checksum of id, customer)\n"
    )
    assert rows(databases.new, ALL) == rows(databases.old, ALL)
    runs = json.loads(dataflow.run("get", "runs", "migrate-orders", "-o", "json", "--limit", "1000"))
    ended = [run["data_id"] for run in runs if run["state"] != "SUCCEEDED"]
    assert len(ended) == 2
    assert set(ended) == {first[0]}
    assert {run["metrics"]["rows"] == run["metrics"]["rowsIn"] for run in runs if run["state"] == "SUCCEEDED"} == {True}
    assert rows(databases.new, "SELECT count(*) FROM opendataflow_chunk") == [(CHUNKS,)]
