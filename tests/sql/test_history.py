"""Every change of a state is written down with who asked for it and why, and nothing else changes a state."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import (
    apply,
    ask,
    chunk,
    claim,
    dataset,
    end,
    job,
    raw,
    task,
    value,
)

AROUND = "states are changed by the functions of schema opendataflow only, not by UPDATE"


@pytest.fixture
def db(shared: Connection) -> Iterator[Connection]:
    with shared.transaction(force_rollback=True):
        apply(shared, [dataset("a", "x"), dataset("b")], [job("j", ["a"], ["b"])])
        yield shared


def newest(db: Connection) -> int:
    """The number of the last row of the history."""
    return int(value(db, "SELECT coalesce(max(id), 0) FROM opendataflow.history"))


def added(db: Connection, after: int) -> list[tuple[Any, ...]]:
    """What was added to the history: thing, event, from, to, actor, reason."""
    rows = db.execute("SELECT * FROM opendataflow.history WHERE id > %s ORDER BY kind, owner, id", (after,)).fetchall()
    return [
        (f"{r['owner']}/{r['data_id']}", r["event"], r["from_state"], r["to_state"], r["actor"], r["reason"])
        for r in rows
    ]


def request(db: Connection, verb: str, owner: str, reason: str | None = "the source was wrong") -> None:
    db.execute(f"SELECT * FROM opendataflow.{verb}(%s, '{{x}}', 'ada', %s)", (owner, reason))


# Every change has a row


def test_an_apply_records_what_it_published_and_what_became_ready(db: Connection) -> None:
    assert added(db, 0) == [
        ("a/x", "apply", "DECLARED", "READY", "test", "declared as there"),
        ("j/x", "apply", "WAITING", "QUEUED", "test", None),
    ]


def test_a_claim_is_recorded_with_its_engine_run_and_fence(db: Connection, lease: str) -> None:
    before = newest(db)
    [run] = claim(db, lease, "j")

    assert added(db, before) == [
        ("b/x", "claim", "DECLARED", "RUNNING", "engine host", None),
        ("j/x", "claim", "QUEUED", "RUNNING", "engine host", None),
    ]
    rows = db.execute("SELECT run, fence FROM opendataflow.history WHERE id > %s", (before,)).fetchall()
    assert rows == [{"run": run["run"], "fence": run["fence"]}] * 2


@pytest.mark.parametrize(
    ("verdict", "status", "state", "reason"),
    [
        ("DONE", "READY", "DONE", None),
        ("RETRYING", "FAILED", "RETRYING", "exit code 7"),
        ("FAILED", "FAILED", "FAILED", "exit code 7"),
    ],
)
def test_the_end_of_a_run_is_recorded_with_its_run_fence_and_message(
    db: Connection, lease: str, verdict: str, status: str, state: str, reason: str | None
) -> None:
    [run] = claim(db, lease, "j")
    before = newest(db)

    end(db, run, verdict, message="exit code 7")

    assert added(db, before) == [
        ("b/x", "complete", "RUNNING", status, "test", reason),
        ("j/x", "complete", "RUNNING", state, "test", reason),
    ]
    rows = db.execute("SELECT run, fence FROM opendataflow.history WHERE id > %s", (before,)).fetchall()
    assert rows == [{"run": run["run"], "fence": run["fence"]}] * 2


def test_a_retry_that_is_due_is_recorded(db: Connection, lease: str) -> None:
    end(db, claim(db, lease, "j")[0], "RETRYING")
    before = newest(db)

    db.execute("SELECT * FROM opendataflow.retry_due()")

    rows = added(db, before)
    assert [row[:2] for row in rows] == [("j/x", "retry due")] * len(rows)
    assert (rows[0][2], rows[-1][3]) == ("RETRYING", "QUEUED")


def test_a_publication_is_recorded_with_its_actor_reason_and_new_version(db: Connection) -> None:
    before = newest(db)
    request(db, "publish", "b", "loaded by hand")

    assert added(db, before) == [
        ("b/x", "publish", "DECLARED", "READY", "ada", "loaded by hand"),
        ("j/x", "publish", "QUEUED", "DONE", "ada", "loaded by hand"),
    ]
    fence = value(db, "SELECT fence FROM opendataflow.history WHERE kind = 'chunk' AND id > %s", before)
    assert fence == chunk(db, "b", "x")["fence"]


def test_a_new_version_is_recorded_also_where_the_status_stays(db: Connection) -> None:
    before = newest(db)
    request(db, "publish", "a", "corrected")
    assert added(db, before) == [("a/x", "publish", "READY", "READY", "ada", "corrected")]


def test_a_resubmit_is_recorded_for_the_task_and_its_chunks(db: Connection, lease: str) -> None:
    end(db, claim(db, lease, "j")[0], "DONE")
    before = newest(db)

    request(db, "resubmit", "j")

    rows = added(db, before)
    assert rows[0] == ("b/x", "resubmit", "READY", "RESUBMIT", "ada", "the source was wrong")
    assert {(row[0], row[1], *row[4:]) for row in rows[1:]} == {("j/x", "resubmit", "ada", "the source was wrong")}
    assert (rows[1][2], rows[-1][3]) == ("DONE", "QUEUED")


def test_hold_and_release_of_a_task_are_recorded(db: Connection) -> None:
    before = newest(db)
    request(db, "hold", "j", "not on a Friday")
    held = newest(db)
    assert added(db, before) == [("j/x", "hold", "QUEUED", "HELD", "ada", "not on a Friday")]

    request(db, "release", "j", "Monday")

    rows = added(db, held)
    assert {(row[1], *row[4:]) for row in rows} == {("release", "ada", "Monday")}
    assert (rows[0][2], rows[-1][3]) == ("HELD", "QUEUED")


def test_hold_and_release_of_a_chunk_are_recorded_with_what_follows(db: Connection) -> None:
    before = newest(db)
    request(db, "hold_chunks", "a", "being repaired")
    held = newest(db)
    assert added(db, before) == [
        ("a/x", "hold", "READY", "HOLD", "ada", "being repaired"),
        ("j/x", "hold", "QUEUED", "WAITING", "ada", "being repaired"),
    ]

    request(db, "release_chunks", "a", None)

    assert [row[:5] for row in added(db, held)] == [
        ("a/x", "release", "HOLD", "READY", "ada"),
        ("j/x", "release", "WAITING", "QUEUED", "ada"),
    ]


def test_consumers_that_become_ready_through_a_run_are_recorded(db: Connection, lease: str) -> None:
    apply(db, [dataset("c")], [job("k", ["b"], ["c"])])
    [run] = claim(db, lease, "j")
    before = newest(db)

    end(db, run, "DONE")

    assert [row[:5] for row in added(db, before)] == [
        ("b/x", "complete", "RUNNING", "READY", "test"),
        ("j/x", "complete", "RUNNING", "DONE", "test"),
        ("k/x", "complete", "WAITING", "QUEUED", "test"),
    ]


def test_a_request_that_changes_nothing_adds_nothing(db: Connection) -> None:
    before = newest(db)
    for verb, owner in (("resubmit", "j"), ("release", "j"), ("release_chunks", "b"), ("resubmit_chunks", "b")):
        request(db, verb, owner)
    assert added(db, before) == []


@pytest.mark.parametrize("actor", [None, ""])
def test_without_a_name_the_actor_is_the_user_of_the_database(db: Connection, actor: str | None) -> None:
    before = newest(db)
    db.execute("SELECT * FROM opendataflow.hold('j', '{x}', %s, NULL)", (actor,))
    assert added(db, before)[0][4] == value(db, "SELECT session_user::text")


def test_the_history_of_a_chunk_is_a_chain_from_its_first_status_to_its_present_one(db: Connection, lease: str) -> None:
    end(db, claim(db, lease, "j")[0], "RETRYING")
    db.execute("SELECT * FROM opendataflow.retry_due()")
    end(db, claim(db, lease, "j")[0], "DONE")
    request(db, "hold_chunks", "b")
    request(db, "resubmit", "j")
    request(db, "release_chunks", "b")

    for kind, owner, present in (
        ("chunk", "b", chunk(db, "b", "x")["status"]),
        ("task", "j", task(db, "j", "x")["state"]),
    ):
        rows = db.execute(
            "SELECT from_state, to_state FROM opendataflow.history WHERE kind = %s AND owner = %s ORDER BY id",
            (kind, owner),
        ).fetchall()
        assert [row["from_state"] for row in rows[1:]] == [row["to_state"] for row in rows[:-1]]
        assert rows[-1]["to_state"] == present


# Nothing else changes a state


@pytest.fixture
def elsewhere(shared: Connection) -> Iterator[Connection]:
    """Another session of the same database, which has called no function; what it does is rolled back, too."""
    password = f" password={shared.info.password}" if shared.info.password else ""
    with open_connection(shared.info.dsn + password) as connection, connection.transaction(force_rollback=True):
        apply(connection, [dataset("a", "x"), dataset("b")], [job("j", ["a"], ["b"])])
        connection.execute("SELECT set_config('opendataflow.event', '', true)")
        yield connection


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE opendataflow.chunk SET status = 'DECLARED' WHERE dataset = 'a'",
        "UPDATE opendataflow.chunk SET fence = fence + 1 WHERE dataset = 'a'",
        "UPDATE opendataflow.task SET state = 'RETRYING', due_at = now()",
    ],
)
def test_a_state_is_not_changed_around_the_functions(elsewhere: Connection, statement: str) -> None:
    with pytest.raises(psycopg.Error, match=AROUND) as error, elsewhere.transaction():
        elsewhere.execute(statement)
    assert error.value.sqlstate == "DF001"
    assert error.value.diag.message_hint == "use the commands of dataflow: see dataflow --help"


def test_a_function_changes_no_settings_of_later_transactions(dsn: str) -> None:
    with open_connection(dsn) as connection:
        apply(connection, [dataset("a", "x")], [])
        with pytest.raises(psycopg.Error, match=AROUND):
            connection.execute("UPDATE opendataflow.chunk SET status = 'DECLARED'")


def test_what_is_no_state_may_be_changed(elsewhere: Connection) -> None:
    elsewhere.execute("UPDATE opendataflow.chunk SET rows = 5 WHERE dataset = 'a'")
    assert chunk(elsewhere, "a", "x")["rows"] == 5


def test_the_history_is_never_changed(db: Connection) -> None:
    with (
        pytest.raises(psycopg.Error, match=r"UPDATE of opendataflow\.history is refused: rows are only added") as error,
        db.transaction(),
    ):
        raw(db, "UPDATE opendataflow.history SET actor = 'nobody'")
    assert error.value.sqlstate == "DF001"


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_that_does_not_see_what_others_commit_is_refused(dsn: str, level: str) -> None:
    sentence = f"a state can only be changed in a READ COMMITTED transaction, this one is {level}"
    with open_connection(dsn) as connection:
        connection.execute(f"SET default_transaction_isolation = '{level}'")
        with pytest.raises(psycopg.Error, match=sentence):
            ask(connection, "hold", "j", "x")
