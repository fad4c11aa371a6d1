"""`dataflow doctor`: what it finds, the command that helps, and that it neither starts nor changes anything."""

import json
import uuid
from pathlib import Path

import pytest

from opendataflow.names import ExitCode
from tests.e2e.conftest import Inside, Program
from tests.sql.conftest import Connection
from tests.sql.graph import apply, ask, claim, dataset, job, open_lease, raw


@pytest.fixture
def declared(db: Connection) -> Connection:
    apply(db, [dataset("a", "1", "2"), dataset("b")], [job("j", ["a"], ["b"])])
    return db


def findings(dataflow: Program, inside: Inside) -> dict[str, tuple[str, str | None]]:
    """What was found: text -> (level, remedy)."""
    found = json.loads(inside.ask(dataflow, "doctor", "-o", "json").out)
    return {one["text"]: (one["level"], one["remedy"]) for one in found}


def test_a_healthy_system_has_no_problem(dataflow: Program, declared: Connection, inside: Inside) -> None:
    open_lease(declared)
    answer = inside.ask(dataflow, "doctor")
    assert answer.code == ExitCode.OK
    assert "problem" not in answer.out
    assert "OK       the schema is the one of this program" in answer.out
    assert "OK       this machine's clock and the database's agree" in answer.out
    assert "OK       1 engine at work (host), 0 runs" in answer.out


def test_an_older_schema_is_a_problem_with_its_command(dataflow: Program, db: Connection, inside: Inside) -> None:
    db.execute("UPDATE opendataflow.installed SET functions = 'older'")
    answer = inside.ask(dataflow, "doctor")
    assert answer.code == ExitCode.FAILED
    assert "problem  the schema is of an older program\n         -> dataflow db migrate\n" in answer.out


def test_a_database_that_does_not_answer_is_one_line_and_the_rest_is_reported(inside: Inside, tmp_path: Path) -> None:
    away = Program(tmp_path / "home", "postgresql://nobody:hush@localhost:1/gone")
    answer = inside.ask(away, "doctor")
    assert answer.code == ExitCode.FAILED
    assert "problem  Postgres at localhost:1/gone does not answer" in answer.out
    assert "OK       Python" in answer.out
    assert "hush" not in answer.out


def test_it_looks_at_the_database_that_a_properties_file_names(named: Program, inside: Inside, tmp_path: Path) -> None:
    answer = inside.ask(named, "doctor", cwd=tmp_path)
    assert answer.code == ExitCode.OK
    assert "OK       the schema is the one of this program" in answer.out


def test_it_starts_no_embedded_postgres(inside: Inside, tmp_path: Path) -> None:
    answer = inside.ask(Program(tmp_path / "home"), "doctor")
    assert answer.code == ExitCode.OK
    assert "is not made yet: it starts when needed" in answer.out
    assert not (tmp_path / "home").exists()


def test_an_embedded_postgres_that_is_not_running_is_not_called_good(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "home" / "postgres" / "data").mkdir(parents=True)
    answer = inside.ask(Program(tmp_path / "home"), "doctor")
    assert "is not running: it starts when needed; what is in it was not checked: dataflow db status" in answer.out


def test_a_task_that_nobody_does_is_reported(dataflow: Program, declared: Connection, inside: Inside) -> None:
    assert declared
    found = findings(dataflow, inside)
    assert found["2 chunks could run, but no engine is running"] == ("warning", "dataflow local -f FILE")


def test_a_run_whose_engine_is_silent_is_reported_with_what_helps(
    dataflow: Program, declared: Connection, inside: Inside
) -> None:
    [run] = claim(declared, open_lease(declared), "j")
    declared.execute("UPDATE opendataflow.lease SET expires_at = now() - interval '1 minute'")
    [(text, (level, remedy))] = [
        (text, remedy) for text, remedy in findings(dataflow, inside).items() if text.startswith("run ")
    ]
    assert text.startswith(f"run {run['run']} of j 1 at host belongs to an engine whose lease has expired")
    assert (level, remedy) == (
        "warning",
        f"start an engine there; if that machine is gone: dataflow lost {run['run']}",
    )


def test_what_waits_for_a_person_is_reported(dataflow: Program, declared: Connection, inside: Inside) -> None:
    ask(declared, "hold_chunks", "a", "1", "2")
    raw(declared, "UPDATE opendataflow.chunk SET status = 'PENDING' WHERE dataset = 'b' AND data_id = '1'")
    declared.execute("SELECT opendataflow.suspend_job('j', true, 'test')")
    declared.execute("SET session_replication_role = replica")
    declared.execute("UPDATE opendataflow.history SET at = at - interval '8 days' WHERE owner = 'a' AND data_id = '1'")
    found = findings(dataflow, inside)
    held = [text for text in found if "is held since" in text]
    assert [text.split(" is held")[0] for text in held] == ["chunk 1 of a"]
    assert found[held[0]] == ("warning", "dataflow release --dataset a 1")
    assert found["chunk 1 of b waits for somebody to accept or reject it"] == ("warning", "dataflow accept b 1")
    assert found["job j is suspended"] == ("warning", "dataflow resume j")


def test_a_java_that_is_too_old_is_reported(
    dataflow: Program, inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert findings(dataflow, inside)["Java 8: Spark jobs need 17 or newer"][0] == "warning"


def test_what_stands_still_outside_of_the_operator_s_namespaces_is_reported(
    dataflow: Program, db: Connection, inside: Inside
) -> None:
    own = [dataset("team/a", "1"), dataset("team/b")]
    apply(db, own, [job("team/j", ["team/a"], ["team/b"], owner="team/j")])
    db.execute("UPDATE opendataflow.leader SET namespaces = '{other}'")
    ((level, remedy),) = (found for text, found in findings(dataflow, inside).items() if "in namespace team" in text)
    assert (level, "team" in str(remedy)) == ("warning", True)


def test_the_operator_that_leads_is_named(dataflow: Program, db: Connection, inside: Inside) -> None:
    leading(db)
    assert findings(dataflow, inside)["operator operator-1 leads"] == ("OK", None)


def test_an_operator_that_gave_up_is_reported_with_the_side_that_it_misses(
    dataflow: Program, db: Connection, inside: Inside
) -> None:
    lease = leading(db)
    db.execute("SELECT opendataflow.resign(%s::uuid, 'nothing came from the API server')", (lease,))
    [text] = (one for one in findings(dataflow, inside) if one.startswith("no operator leads"))
    assert "operator-1 gave up the leadership" in text
    assert text.endswith("nothing came from the API server")


def test_an_operator_that_ended_without_a_word_may_miss_the_database(
    dataflow: Program, db: Connection, inside: Inside
) -> None:
    leading(db)
    db.execute("UPDATE opendataflow.lease SET expires_at = now() - interval '100 s'")
    [text] = (one for one in findings(dataflow, inside) if one.startswith("no operator leads"))
    assert "does not reach this database; its leadership ran out 2 min ago" in text


def test_an_api_server_that_does_not_answer_is_a_problem(
    dataflow: Program, inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "kubeconfig"
    config.write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}], "
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )
    monkeypatch.setenv("KUBECONFIG", str(config))
    answer = inside.ask(dataflow, "doctor")
    assert answer.code == ExitCode.FAILED
    assert "http://127.0.0.1:1" in answer.out


def leading(db: Connection) -> str:
    """Let an operator lead; return its lease."""
    lease = str(uuid.uuid4())
    db.execute("SELECT opendataflow.acquire_leadership(%s::uuid, 'operator-1', 'b', '', interval '1 hour')", (lease,))
    return lease
