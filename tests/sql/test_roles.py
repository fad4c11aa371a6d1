"""Two roles, as in docs/how-to/postgres.md: one owns the schema, the other one only reads and writes in it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from opendataflow.names import ExitCode
from tests.e2e.conftest import Program
from tests.e2e.jobs import squares
from tests.sql.conftest import open_connection

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "postgres.md"
OWNER, PROGRAM = f"owner_{os.getpid()}", f"program_{os.getpid()}"


def statements() -> str:
    """The statements of the docs, with roles of this process: roles belong to all databases of a server."""
    [block] = re.findall(r"```sql\n(.*?GRANT.*?)```", DOCS.read_text(), re.DOTALL)
    return str(block).replace("dataflow_owner", OWNER).replace("dataflow_program", PROGRAM)


@pytest.fixture
def roles(bare_dsn: str) -> Iterator[tuple[str, str]]:
    """The addresses of an empty database for the owner and for the program."""
    with open_connection(bare_dsn) as admin:
        for role in (OWNER, PROGRAM):
            admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'hush'")
        admin.execute(statements())
        yield (
            make_conninfo(bare_dsn, user=OWNER, password="hush"),
            make_conninfo(bare_dsn, user=PROGRAM, password="hush"),
        )
        for role in (OWNER, PROGRAM):
            admin.execute(f"DROP OWNED BY {role} CASCADE")
            admin.execute(f"DROP ROLE {role}")


def test_the_owner_migrates_and_the_other_role_runs_everything_and_can_change_no_table(
    roles: tuple[str, str], tmp_path: Path
) -> None:
    owner, program = (Program(tmp_path, dsn) for dsn in roles)
    assert "permission denied" in program.run("db", "migrate", code=None)
    owner.run("db", "migrate")
    (tmp_path / "job.yaml").write_text(squares('{list: ["1", "2", "3"]}', command='["true"]'))
    assert "3 of 3 done" in program.run("local", "-f", str(tmp_path / "job.yaml"), "--until-caught-up")
    program.run("resubmit", "square", "1")
    program.run("local", "-f", str(tmp_path / "job.yaml"), "--until-caught-up")
    program.run("db", "verify")
    program.run("history", "clean", "--older-than", "1d")
    assert "squares" in program.run("sql", "select * from datastatus")
    program.run("delete", "square")
    with psycopg.connect(roles[1]) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("DROP TABLE opendataflow.chunk")
    owner.run("db", "migrate")
    program.run("db", "status", code=ExitCode.OK)
