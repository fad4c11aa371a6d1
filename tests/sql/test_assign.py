"""`dataflow db assign`: what a file has declared moves into a namespace, with all of its rows or not at all."""

from typing import Any

import pytest
from psycopg.errors import DatabaseError
from psycopg.types.json import Jsonb

from tests.sql.conftest import Connection
from tests.sql.graph import (
    apply,
    ask,
    chunks,
    claim,
    dataset,
    end,
    job,
    of_namespace,
    open_lease,
    problems,
    tasks,
    value,
)

ROWS = """SELECT c.relname, a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
          WHERE c.relnamespace = 'opendataflow'::regnamespace AND c.relkind = 'r' AND a.attnum > 0
                AND NOT a.attisdropped
          ORDER BY 1, 2"""


def assign(db: Connection, name: str, namespace: str = "team") -> dict[str, Any]:
    moved: dict[str, Any] = value(db, "SELECT opendataflow.assign(%s, %s, 'test')", name, namespace)
    return moved


@pytest.fixture
def used(rolled_back: Connection) -> Connection:
    """Job load makes out of raw, and job late makes end of out. Rows of all kinds name them; no engine lives."""
    db = rolled_back
    made = [job("load", ["raw"], ["out"], env={"MODE": "x"}), job("late", ["out"], ["end"])]
    apply(db, [dataset("raw", "1", "2", "3"), dataset("out"), dataset("end"), dataset("day")], made)
    apply(db, [], [job("daily", ["today"], ["day"], first_day="2013-01-01")])
    lease = open_lease(db)
    for name, verdict in (("load", "DONE"), ("late", "DONE"), ("load", "FAILED")):
        (run,) = claim(db, lease, name, 1)
        end(db, run, verdict)
    ask(db, "publish", "raw", "4")
    db.execute("INSERT INTO opendataflow.alert (target, job, kind) VALUES ('t', 'load', 'failed')")
    db.execute("INSERT INTO opendataflow.gate (job, kind, subject) VALUES ('load', 'tests', 's')")
    db.execute("SELECT opendataflow.close_lease(%s)", (lease,))
    return db


def fields_with(db: Connection, text: str) -> set[str]:
    """The columns that have this text as a value or as an element."""
    found = set()
    for row in db.execute(ROWS).fetchall():
        table, column = row["relname"], row["attname"]
        query = f"""SELECT EXISTS (SELECT FROM opendataflow.{table} t CROSS JOIN to_jsonb(t."{column}") AS v
                    WHERE v @> %s OR v @> %s OR v @> %s)"""
        if value(db, query, Jsonb(text), Jsonb([text]), Jsonb([{"id": text}])):
            found.add(f"{table}.{column}")
    return found


def test_no_row_has_the_old_key_and_nothing_else_has_changed(used: Connection) -> None:
    db = used
    before = {name: fields_with(db, name) for name in ("raw", "out", "load")}
    states, history = (tasks(db), chunks(db)), value(db, "SELECT count(*) FROM opendataflow.history")
    assert assign(db, "raw") == {"datasets": 1, "jobs": 0, "chunks": 4, "tasks": 0}
    assert assign(db, "out")["chunks"] == 4
    assert assign(db, "load") == {"datasets": 0, "jobs": 1, "chunks": 0, "tasks": 4}
    assert [fields_with(db, name) for name in before] == [set()] * len(before)
    assert {name: fields_with(db, f"team/{name}") for name in before} == before
    moved = [
        {f"team/{key}" if key.split("/")[0] in before else key: state for key, state in one.items()} for one in states
    ]
    assert [tasks(db), chunks(db)] == moved
    assert value(db, "SELECT count(*) FROM opendataflow.history") == history
    assert problems(db) == []
    # A moved job goes on when its resource declares it: what is done stays done.
    apply(db, [], [of_namespace("team", job("load", ["raw"], ["out"]))])
    assert tasks(db)["team/load/1"] == "DONE"


def test_a_data_set_and_a_job_of_one_id_move_together(rolled_back: Connection) -> None:
    apply(rolled_back, [dataset("x", "1")], [job("x", [], ["x"])])
    assert assign(rolled_back, "x") == {"datasets": 1, "jobs": 1, "chunks": 1, "tasks": 1}
    assert tasks(rolled_back) == {"team/x/1": "QUEUED"}


@pytest.mark.parametrize(
    ("name", "namespace", "sentence"),
    [
        ("none", "team", "there is no data set and no job none"),
        ("today", "team", "today is built in"),
        ("raw", "Team", '"Team" can\'t be a namespace'),
        ("raw", "a/b", '"a/b" can\'t be a namespace'),
        ("other/raw", "team", "raw belongs to the namespace other already"),
        ("raw", "other", "there is other/raw already, and two histories can't become one"),
    ],
)
def test_what_can_t_move_is_refused(used: Connection, name: str, namespace: str, sentence: str) -> None:
    apply(used, [of_namespace("other", dataset("raw"))], [])
    with pytest.raises(DatabaseError) as refused:
        assign(used, name, namespace)
    assert sentence in str(refused.value)


def test_what_is_in_use_is_not_moved(used: Connection) -> None:
    db = used
    lease = open_lease(db)
    (run,) = claim(db, lease, "load", 1)
    for name in ("load", "raw", "out"):
        with pytest.raises(DatabaseError, match=f"run {run['run']} of {name} is active"), db.transaction():
            assign(db, name)
    end(db, run, "DONE")
    with pytest.raises(DatabaseError, match=r"an engine on .* works with this database"):
        assign(db, "load")


def test_what_is_being_declared_is_not_moved(used: Connection) -> None:
    db = used
    db.execute("SET LOCAL opendataflow.declaring_batch = 10")
    apply(db, [{"id": "long", "source": {"hash": {"buckets": 30}}}], [])
    with pytest.raises(DatabaseError, match="the chunks of long are being declared"):
        assign(db, "long")
