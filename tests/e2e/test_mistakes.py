"""Typical mistakes at the command line: each is one sentence with its exit code, and no text of a library or of SQL."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from opendataflow.names import ExitCode
from tests.e2e.conftest import DATAFLOW, Inside, Program
from tests.sql.conftest import Connection
from tests.sql.graph import apply, claim, dataset, end, job, open_lease

LONG = "x" * 3000
FOREIGN = re.compile(
    r"Traceback|psycopg|pydantic|Input should|SELECT .* FROM|CONTEXT|violates|relation \"|Errno|function opendataflow|"
    "refused a statement"
)
"""What no person should see: words of libraries, of the operating system's numbers, and of SQL."""

USAGE, FAILED = ExitCode.USAGE, ExitCode.FAILED
MISTAKES: dict[tuple[str, ...], tuple[ExitCode, str]] = {
    # Ids
    ("publish", "a", ""): (USAGE, "1 to 253 characters"),
    ("publish", "a", LONG): (USAGE, "1 to 253 characters"),
    ("publish", "a", " x"): (USAGE, "no blank at its ends"),
    ("hold", "--dataset", "a", ""): (USAGE, "no chunk"),
    ("why", "", ""): (USAGE, "no job"),
    ("why", "j", LONG): (USAGE, "no task"),
    ("resubmit", "j", ""): (USAGE, "no task"),
    ("status", LONG): (USAGE, "no job"),
    ("describe", "job", ""): (USAGE, "no job"),
    ("describe", "dataset", "x"): (USAGE, "no data set x"),
    ("describe", "chunk", "a", "9"): (USAGE, "no chunk 9"),
    ("describe", "chunk", "x", "9"): (USAGE, "no data set x"),
    ("inspect", "j", "9"): (USAGE, "no task for 9"),
    ("inspect", "x", "9"): (USAGE, "no job x"),
    ("scale", "x", "1"): (USAGE, "no job x"),
    ("suspend", "x"): (USAGE, "no job x"),
    ("resume", "x"): (USAGE, "no job x"),
    ("delete", "x"): (USAGE, "no job x"),
    ("force", "j", "9"): (USAGE, "no task for 9"),
    ("skip", "j", "9"): (USAGE, "no task for 9"),
    ("cancel", "j", "9"): (USAGE, "no task for 9"),
    ("accept", "a", "9"): (USAGE, "no chunk 9"),
    ("reject", "a", "9"): (USAGE, "no chunk 9"),
    ("accept", "a", "1"): (FAILED, "PENDING"),
    ("cancel", "j", "2"): (FAILED, "only a running task"),
    ("get", "tasks", "x"): (USAGE, "no job x"),
    ("get", "chunks", "x"): (USAGE, "no data set x"),
    ("get", "runs", "x"): (USAGE, "no job x"),
    ("history", "clean", "--job", "x"): (USAGE, "no job x"),
    ("history", "clean", "--older-than", "soon"): (USAGE, "hours, days, weeks or years"),
    # Numbers
    ("get", "runs", "--limit", "x"): (USAGE, "whole number"),
    ("get", "runs", "--limit", "1.5"): (USAGE, "whole number"),
    ("get", "runs", "--limit", "0"): (USAGE, "at least 1"),
    ("get", "runs", "--limit", "99999999999999999999"): (USAGE, "99999999999999999999"),
    ("logs", "--run", "x"): (USAGE, "whole number"),
    ("logs", "--run", "99999999999999999999"): (USAGE, "99999999999999999999"),
    ("logs", "--run", "77"): (USAGE, "no run 77"),
    ("describe", "run", "first"): (USAGE, "whole number"),
    ("describe", "run", "77"): (USAGE, "no run 77"),
    ("describe", "run", "99999999999999999999"): (USAGE, "99999999999999999999"),
    ("scale", "j", "many"): (USAGE, "whole number"),
    ("scale", "j", "-1"): (USAGE, "-1"),
    ("scale", "j", "99999999999999999999"): (USAGE, "99999999999999999999"),
    ("lost", "last"): (USAGE, "whole number"),
    ("lost", "999"): (USAGE, "no run 999"),
    ("lost", "1"): (FAILED, "ended already"),
    ("inspect", "j", "1", "--check", "--timeout", "x"): (USAGE, "'x' is not a number"),
    ("inspect", "j", "1", "--check", "--timeout", "nan"): (USAGE, "nan"),
    ("inspect", "j", "1", "--check", "--timeout", "9999"): (USAGE, "from 0.1 to 600"),
    # Choices and options
    ("get", "tasks", "--state", "READY"): (USAGE, "'QUEUED'"),
    ("get", "chunks", "--status", "ready"): (USAGE, "'READY'"),
    ("get", "jobs", "-o", "csv"): (USAGE, "'wide'"),
    ("get", "everything"): (USAGE, "everything"),
    ("describe", "everything", "j"): (USAGE, "everything"),
    ("stauts",): (USAGE, "status"),
    ("status", "--all"): (USAGE, "--all"),
    ("why", "j"): (USAGE, "DATA_ID"),
    ("why",): (USAGE, "JOB"),
    ("logs",): (USAGE, "--run"),
    ("logs", "j", "1", "--follow", "--step", "s"): (USAGE, "--step"),
    ("resubmit", "j"): (USAGE, "no data ids"),
    ("resubmit", "j", "1", "--failed"): (USAGE, "one of the two"),
    ("resubmit", "j", "--status", "LATE"): (USAGE, "LATE"),
    ("resubmit", "j", "--status", "READY"): (USAGE, "QUEUED"),
    ("resubmit", "j", "--failed"): (FAILED, "nothing to resubmit"),
    ("resubmit", "a", "1"): (USAGE, "data set"),
    ("publish", "j", "1"): (USAGE, "it is a job"),
    ("publish", "a"): (USAGE, "no data ids"),
    ("hold", "j", "1", "--reason", "a\nb"): (USAGE, "one line"),
    # Files
    ("apply",): (USAGE, "--file"),
    ("apply", "-f", "missing.yaml"): (USAGE, "missing.yaml"),
    ("apply", "-f", "/"): (USAGE, "/"),
    ("local", "-f", "missing.yaml"): (USAGE, "missing.yaml"),
    ("local", "-f", "missing.yaml", "--parallelism", "0"): (USAGE, "at least 1"),
    ("chunks", "load", "missing.csv", "--dataset", "a"): (USAGE, "missing.csv"),
    ("chunks", "load", "missing.csv"): (USAGE, "--dataset"),
    ("chunks", "plan", "x"): (USAGE, "no data set x"),
    ("chunks", "check", "a"): (USAGE, ""),
    ("pipeline", "list", "-p", "/nowhere"): (USAGE, "/nowhere"),
    ("pipeline", "history", "nobody"): (USAGE, "nobody"),
    ("pipeline", "history", "--run", "77"): (USAGE, "no run 77"),
    # Programs and old commands
    ("run",): (USAGE, "CMD"),
    ("run", "--", "./missing.sh"): (USAGE, "no job missing"),
    ("run", "--job", "j", "--", "./missing.sh"): (USAGE, "./missing.sh"),
    ("run", "--job", "j", "--", "/"): (USAGE, "folder"),
    ("run", "--job", "j", "--force", "--", "true"): (USAGE, "--data-id"),
    ("sql", "SELEC 1"): (USAGE, "Postgres does not take"),
    ("sql", "DELETE FROM job"): (USAGE, "dataflow dml"),
    ("dml", "SELECT 1"): (USAGE, "only INSERT, UPDATE"),
    ("dml", "INSERT INTO job (jobid, itemtype, datasetid) VALUES ('a/b/c', 'IN', 'a')"): (FAILED, "namespace/id"),
    ("endjob", "j", "77", "READY"): (USAGE, "no OUT row"),
    ("endjob", "j", "1", "BROKEN"): (FAILED, ""),
    ("SetDataStatus", "READY", "", "a", "x", "OUT"): (FAILED, ""),
    ("SetDataStatus", "READY", "1", "a", "x", "BOTH"): (FAILED, ""),
    ("getjob", "x"): (USAGE, "no job x"),
    ("ddl", "DROP TABLE job"): (USAGE, "db migrate"),
    ("startjob", "j"): (USAGE, "RunJob"),
    ("deleterun", "j", "1"): (USAGE, "resubmit"),
    ("forcejob", "j"): (USAGE, "dataflow force"),
    ("import-legacy", "jdbc:h2:./db"): (USAGE, "Postgres address"),
    ("db", "move", "jdbc:postgresql://h/db"): (USAGE, "address"),
    ("db", "assign", "j", "a/b"): (FAILED, ""),
    ("notify", "test"): (USAGE, "DATAFLOW_NOTIFY"),
}


@pytest.fixture(scope="module")
def mistaken(tmp_path_factory: pytest.TempPathFactory, lasting_dsn: str) -> Program:
    """The program with a small job, of which one task is done. No mistake changes anything."""
    with psycopg.connect(lasting_dsn, autocommit=True, row_factory=psycopg.rows.dict_row) as db:
        apply(db, [dataset("a", "1", "2"), dataset("b")], [job("j", ["a"], ["b"])])
        [run] = claim(db, open_lease(db), "j", 1)
        end(db, run, "DONE")
    return Program(tmp_path_factory.mktemp("home"), lasting_dsn)


@pytest.mark.parametrize("arguments", MISTAKES, ids=lambda words: " ".join(words)[:60])
def test_a_mistake_is_one_sentence_with_its_exit_code_and_its_words(
    mistaken: Program, inside: Inside, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    code, words = MISTAKES[arguments]
    answer = inside.ask(mistaken, *arguments, cwd=tmp_path)
    assert answer.code == code, answer
    assert words in answer.err, answer
    assert not FOREIGN.search(answer.err), answer
    assert answer.err.count("\n") <= 2


def test_the_table_has_a_hundred_mistakes() -> None:
    assert len(MISTAKES) >= 100


@pytest.mark.parametrize("command", [("status",), ("get", "jobs", "-o", "json"), ("why", "j", "1"), ("logs", "j", "1")])
def test_an_output_that_is_full_is_reported(mistaken: Program, command: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [DATAFLOW, *command], env=mistaken.environ, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == ExitCode.FAILED
    assert done.stderr.splitlines()[-1] == "error: the output can't be written: No space left on device"
    assert "Traceback" not in done.stderr


# Databases


def test_a_read_only_server_is_reported_as_such(mistaken: Program, inside: Inside) -> None:
    dsn = make_conninfo(str(mistaken.dsn), options="-c default_transaction_read_only=on")
    answer = inside.ask(Program(mistaken.home, dsn), "hold", "j", "2")
    assert answer.code == ExitCode.UNREACHABLE
    assert "is read-only" in answer.err
    assert not FOREIGN.search(answer.err)


@pytest.mark.parametrize(
    ("dsn", "words"),
    [
        ("jdbc:postgresql://db1:5432/flow", "leave `jdbc:` out"),
        ("postgresql://me:hun@ter2@db1:5432/flow", "%40"),
        ("postgresql://me:hun/ter2@db1:5432/flow", "%2F"),
        ("postgres://me:hun#ter2@db1/flow", "%23"),
    ],
)
def test_an_address_that_libpq_would_misread_is_refused_and_its_password_not_shown(
    inside: Inside, tmp_path: Path, dsn: str, words: str
) -> None:
    answer = inside.ask(Program(tmp_path, dsn), "status")
    assert answer.code == ExitCode.USAGE
    assert words in answer.err
    assert "ter2" not in answer.err


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def other_encoding(postgres_server: str, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The address of an empty database with another encoding, and the encoding."""
    name = f"dataflow_test_{request.param.lower()}_{conninfo_to_dict(postgres_server)['port']}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {name}")
        admin.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{request.param}' LC_COLLATE 'C' LC_CTYPE 'C'"
        )
        yield make_conninfo(postgres_server, dbname=name), request.param
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_database_with_another_encoding_is_refused_with_the_remedy(
    inside: Inside, tmp_path: Path, other_encoding: tuple[str, str]
) -> None:
    dsn, encoding = other_encoding
    for command in (("db", "migrate"), ("status",)):
        answer = inside.ask(Program(tmp_path, dsn), *command)
        assert answer.code == ExitCode.USAGE
        assert f"has the encoding {encoding}" in answer.err
        assert "createdb --template=template0 --encoding=UTF8" in answer.err


def test_every_connection_talks_in_utf8_whatever_the_client_is_set_to(
    dataflow: Program, db: Connection, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(db, [dataset("a", "flüge…")], [])
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    assert "flüge…" in inside.ask(dataflow, "get", "chunks", "a").out
