"""`opendataflow migrate`: what an init container says and does before an operator starts."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.sql.conftest import Connection

COMMAND = [sys.executable, "-c", "from opendataflow.control.main import main; main()", "migrate"]
LONG = "--wait=10m"
"""Longer than a test may take: what ends has not waited."""


def begin(dsn: str, *arguments: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "DATAFLOW_DSN": dsn}
    return subprocess.Popen([*COMMAND, *arguments], env=environ, stderr=subprocess.PIPE, text=True)


def end(program: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code and its output."""
    _, output = program.communicate(timeout=300)
    return program.returncode, output


def migrate(dsn: str, *arguments: str) -> tuple[int, str]:
    return end(begin(dsn, *arguments))


def test_it_says_in_one_line_what_it_did_and_then_that_nothing_is_left_to_do(empty_dsn: str) -> None:
    code, output = migrate(empty_dsn)
    assert code == 0
    assert len(output.splitlines()) == 1
    assert output.endswith(": tables created; functions, views and triggers replaced\n")
    code, output = migrate(empty_dsn)
    assert code == 0
    assert output.endswith(": the schema is up to date\n")


def test_of_two_at_once_one_works_and_the_other_finds_it_done(empty_dsn: str) -> None:
    ended = [end(program) for program in [begin(empty_dsn), begin(empty_dsn)]]
    assert [code for code, _ in ended] == [0, 0]
    assert sorted("tables created" in output for _, output in ended) == [False, True]
    assert sorted("up to date" in output for _, output in ended) == [False, True]


def test_a_postgres_that_is_not_there_yet_is_waited_for_and_that_is_printed_once() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        code, output = migrate(f"postgresql://u:hunter2@127.0.0.1:{nobody.getsockname()[1]}/d", "--wait=3s")
    assert code == 4
    waits, gives_up = output.splitlines()
    assert "INFO" in waits
    assert re.search(r"waiting, at most [1-3] s more: Postgres at 127\.0\.0\.1", waits)
    assert "ERROR" in gives_up
    assert "does not answer" in gives_up
    assert "hunter2" not in output


def test_a_postgres_that_comes_while_it_waits_is_migrated(empty_dsn: str) -> None:
    parts = conninfo_to_dict(empty_dsn)
    name = f"{parts['dbname']}_shut"
    with psycopg.connect(make_conninfo(empty_dsn, dbname="postgres"), autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        admin.execute(f"CREATE DATABASE {name}")
        admin.execute(f"ALTER ROLE CURRENT_USER IN DATABASE {name} SET default_transaction_read_only = on")
        program = begin(make_conninfo(empty_dsn, dbname=name), LONG)
        assert program.stderr is not None
        assert "waiting" in program.stderr.readline()
        admin.execute(f"ALTER ROLE CURRENT_USER IN DATABASE {name} RESET ALL")
        code, output = end(program)
        assert code == 0
        assert "tables created" in output
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def stranger(empty_dsn: str) -> Iterator[str]:
    """The address of the empty database for a role that may connect and no more."""
    with psycopg.connect(empty_dsn, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS stranger")
        admin.execute("CREATE ROLE stranger LOGIN PASSWORD 'sesame'")
        yield make_conninfo(empty_dsn, user="stranger", password="sesame")
        admin.execute("DROP ROLE stranger")


def test_a_role_that_may_not_make_the_schema_is_refused_with_the_remedy(stranger: str) -> None:
    code, output = migrate(stranger, LONG)
    assert code == 1
    assert len(output.splitlines()) == 1
    assert "the user stranger may not make or change the schema opendataflow" in output
    assert "GRANT CREATE ON DATABASE" in output


def test_a_wrong_password_ends_it_at_once_and_is_never_printed(stranger: str) -> None:
    code, output = migrate(make_conninfo(stranger, password="open-barley"), LONG)
    assert code == 1
    assert len(output.splitlines()) == 1
    assert 'password authentication failed for user "stranger"' in output
    assert "open-barley" not in output


def test_a_missing_database_ends_it_at_once(empty_dsn: str) -> None:
    code, output = migrate(make_conninfo(empty_dsn, dbname="nowhere"), LONG)
    assert code == 1
    assert len(output.splitlines()) == 1
    assert 'database "nowhere" does not exist' in output


def test_what_is_no_address_of_postgres_ends_it_at_once() -> None:
    code, output = migrate("postgres//u:hunter2@here", LONG)
    assert code == 1
    assert "DATAFLOW_DSN is not a Postgres address" in output
    assert "hunter2" not in output
    assert "Traceback" not in output


def test_without_an_address_it_says_what_it_needs() -> None:
    code, output = migrate("")
    assert code == 1
    assert "DATAFLOW_DSN is not set" in output


def test_a_schema_that_is_too_new_ends_it_at_once(dsn: str, db: Connection) -> None:
    db.execute("INSERT INTO opendataflow.migration VALUES (9999, 'later', now(), 9999, '')")
    code, output = migrate(dsn, LONG)
    assert code == 5
    assert len(output.splitlines()) == 1
    assert "the database has schema 9999, which is newer than this program" in output


def test_a_database_of_an_unreleased_version_ends_it_at_once(dsn: str, db: Connection) -> None:
    db.execute("ALTER TABLE opendataflow.migration DROP digest")
    code, output = migrate(dsn, LONG)
    assert code == 5
    assert len(output.splitlines()) == 1
    assert f"/{db.info.dbname} was made by an unreleased version of this program" in output
    assert not db.info.password or db.info.password not in output


def test_a_wait_that_is_no_duration_is_a_mistake_in_the_command(dsn: str) -> None:
    code, output = migrate(dsn, "--wait=long")
    assert code == 2
    assert '"90s"' in output


def test_who_holds_a_lock_that_a_migration_needs_is_named_and_nobody_else_waits_behind_it_for_long(
    dsn: str, db: Connection
) -> None:
    db.execute("UPDATE opendataflow.installed SET functions = 'older'")
    with psycopg.connect(make_conninfo(dsn, application_name="a report")) as reader:
        reader.execute("SELECT FROM opendataflow.task")  # and does not end its transaction
        facts = r"application a report, user \w+, in a transaction since 20[^)]+"
        held = rf"process {reader.info.backend_pid} \({facts}\) holds"
        code, output = migrate(dsn, "--wait=1s")
        assert code == 4
        assert re.search(f"ERROR.* {held} what the change of the schema needs, and nothing was changed", output)
        program = begin(dsn, LONG)
        assert program.stderr is not None
        assert re.search(rf"waiting, at most \d+ s more: {held}", program.stderr.readline())
        db.execute("SET lock_timeout = '60s'")
        db.execute("SELECT FROM opendataflow.task")
    code, output = end(program)
    assert code == 0
    assert "functions, views and triggers replaced" in output
