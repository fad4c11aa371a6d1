"""`dataflow db move`: from the embedded Postgres to one's own."""

import json
import re
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from opendataflow.names import ExitCode
from tests.e2e.conftest import Inside, Program
from tests.e2e.jobs import squares
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import apply, dataset


@pytest.fixture
def address(bare_dsn: str) -> str:
    """The address of the new database, without its password."""
    parts = conninfo_to_dict(bare_dsn)
    return f"postgresql://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"


@pytest.fixture
def password(bare_dsn: str) -> dict[str, str]:
    """The variable with the password of the new database."""
    return {"PGPASSWORD": str(conninfo_to_dict(bare_dsn)["password"])}


def test_runs_of_the_embedded_database_go_on_in_the_server_and_keep_their_logs(
    open_folder: Path, address: str, bare_dsn: str, password: dict[str, str]
) -> None:
    embedded = Program(open_folder / "home", more=password)
    (open_folder / "work.sh").write_text('echo "this is number $dataid"')
    file = open_folder / "job.yaml"
    file.write_text(squares('{list: ["1", "2"]}'))
    embedded.run("local", "-f", str(file), "--until-caught-up")

    answer = embedded.ask("db", "move", address)
    assert answer.out == (
        f"moved to {address}: 1 job, 2 data sets, 4 chunks, 2 tasks, 2 runs\nnext: export DATAFLOW_DSN={address}\n"
    )
    assert "copied run: 2 rows\n" in answer.err
    assert embedded.run("db", "move", address) == "moved already\n"
    refused = embedded.ask("get", "jobs")
    assert refused.code == ExitCode.SCHEMA
    assert re.fullmatch(
        rf"error: the database \S+ was moved to {re.escape(address)} on [0-9-]+: set DATAFLOW_DSN to that address, "
        r"or url and user in dataflow.properties\n",
        refused.err,
    )

    server = Program(embedded.home, address, password)
    assert "this is number 1" in server.run("logs", "square", "1")
    file.write_text(squares('{list: ["1", "2", "3"]}'))
    server.run("local", "-f", str(file), "--until-caught-up")
    assert "run 3 of square 3" in (log := server.run("logs", "square", "3"))
    assert "this is number 3" in log
    assert server.run("db", "verify") == "all is consistent\n"
    with open_connection(bare_dsn) as db:
        homes = db.execute("SELECT DISTINCT runs_home FROM opendataflow.run").fetchall()
        assert len(homes) == 1


def test_a_database_that_was_moved_is_a_problem_with_its_remedy_and_db_status_names_the_new_one(
    dataflow: Program, inside: Inside, address: str, password: dict[str, str], db: Connection
) -> None:
    apply(db, [dataset("a", "1")], [])
    program = Program(dataflow.home, dataflow.dsn, password)
    assert inside.ask(program, "db", "move", address).code == ExitCode.OK
    answer = inside.ask(dataflow, "doctor", "-o", "json")
    assert answer.code == ExitCode.FAILED
    (problem,) = [found for found in json.loads(answer.out) if found["level"] == "problem"]
    assert problem["text"].startswith(f"the database was moved to {address} on ")
    assert problem["remedy"] == f"export DATAFLOW_DSN={address}"
    answer = inside.ask(dataflow, "db", "status")
    assert answer.code == ExitCode.SCHEMA
    assert f"was moved to {address} on" in answer.err
    assert password["PGPASSWORD"] not in answer.out + answer.err


def test_a_password_in_the_argument_is_refused_and_not_printed(dataflow: Program, inside: Inside) -> None:
    for dsn in ("postgresql://u:hush@localhost:1/d", "host=localhost dbname=d password=hush"):
        answer = inside.ask(dataflow, "db", "move", dsn)
        assert answer.code == ExitCode.USAGE
        assert answer.err.startswith("error: the address has a password, which other users of this machine can read")
        assert "hush" not in answer.out + answer.err
    answer = inside.ask(dataflow, "db", "move", "postgresql//u:hush@here")
    assert answer.code == ExitCode.USAGE
    assert answer.err == "error: DSN is no Postgres address: one looks like postgresql://user@host:5432/database\n"


def test_without_an_embedded_database_nothing_is_made_and_nothing_is_moved(inside: Inside, tmp_path: Path) -> None:
    answer = inside.ask(Program(tmp_path / "home"), "db", "move", "postgresql://u@localhost:1/d")
    assert answer.code == ExitCode.FAILED
    assert answer.err.startswith(f"error: there is no embedded database in {tmp_path}/home/postgres to move: set ")
    assert not (tmp_path / "home").exists()
