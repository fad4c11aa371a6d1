"""Whatever breaks what must hold is found and named, and nothing else is."""

import psycopg
import pytest

from tests.sql.conftest import Connection
from tests.sql.graph import (
    Run,
    apply,
    ask,
    claim,
    dataset,
    end,
    job,
    open_lease,
    problems,
)


@pytest.fixture
def db(rolled_back: Connection) -> Connection:
    return rolled_back


@pytest.fixture
def run(db: Connection) -> Run:
    """Job j makes b of a: 1 is DONE, 2 RUNNING, 3 RETRYING, 4 QUEUED, 5 FAILED; k reads b. Returns the run of 2."""
    apply(
        db,
        [dataset("a", "1", "2", "3", "4", "5"), dataset("b"), dataset("c")],
        [job("j", ["a"], ["b"]), job("k", ["b"], ["c"])],
    )
    runs = {run["data_id"]: run for run in claim(db, open_lease(db), "j", 3)}
    end(db, runs["1"], "DONE")
    end(db, runs["3"], "RETRYING", delay=3600)
    ask(db, "hold", "j", "4")
    [five] = claim(db, open_lease(db), "j")
    end(db, five, "FAILED")
    ask(db, "release", "j", "4")
    return runs["2"]


def corrupt(db: Connection, *statements: str) -> None:
    """Change rows as a broken disk or a person with too many rights does: no trigger and no constraint is there."""
    db.execute("SET LOCAL session_replication_role = replica")
    db.execute("SET LOCAL search_path = opendataflow")
    for table in ("chunk", "task"):
        query = """SELECT conname FROM pg_constraint
                   WHERE conrelid = %s::regclass AND contype = 'c' AND NOT conname LIKE '%%check'"""
        for row in db.execute(query, (table,)).fetchall():
            db.execute(f"ALTER TABLE {table} DROP CONSTRAINT {row['conname']}")
    for statement in statements:
        db.execute(statement)
    # The counts have a test of their own.
    db.execute("DELETE FROM task_count")
    stale = "count(*) FILTER (WHERE state = 'DONE' AND stale)"
    db.execute(f"INSERT INTO task_count SELECT job, state, count(*), {stale} FROM task GROUP BY job, state")


def test_an_empty_database_is_clean(db: Connection) -> None:
    assert problems(db) == []


def test_a_busy_database_is_clean(db: Connection, run: Run) -> None:
    assert run["data_id"] == "2"
    assert problems(db) == []


CORRUPTIONS = [
    (
        "UPDATE task SET blockers = 3, state = 'WAITING' WHERE (job, data_id) = ('k', '2')",
        "task k/2 is WAITING with 3 blockers, but 1 things block it",
    ),
    (
        "UPDATE task SET blockers = 2 WHERE (job, data_id) = ('j', '3')",
        "task j/3 is RETRYING with 2 blockers, but 0 things block it",
    ),
    (
        "UPDATE task SET blockers = 1 WHERE (job, data_id) = ('j', '4')",
        "task j/4 is QUEUED with 1 blockers, but 0 things block it",
    ),
    (
        "UPDATE chunk SET held_status = 'READY', status = 'HOLD' WHERE (dataset, data_id) = ('a', '4')",
        "task j/4 is QUEUED with 0 blockers, but 1 things block it",
    ),
    (
        "UPDATE chunk SET status = 'PENDING' WHERE (dataset, data_id) = ('b', '4')",
        "task j/4 is QUEUED with 0 blockers, but 1 things block it",
    ),
    (
        "UPDATE chunk SET run = NULL WHERE (dataset, data_id) = ('b', '3')",
        "task j/3 is RETRYING with 0 blockers, but 1 things block it",
    ),
    (
        "UPDATE task SET state = 'WAITING' WHERE (job, data_id) = ('j', '4')",
        "task j/4 is WAITING and nothing blocks it",
    ),
    (
        "UPDATE run SET state = 'SUCCEEDED', finished_at = now() WHERE data_id = '2'",
        "task j/2 is RUNNING, but its run {run} is SUCCEEDED",
    ),
    (
        "UPDATE task SET fence = fence + 1 WHERE (job, data_id) = ('j', '2')",
        "task j/2 is RUNNING, but its run {run} is not there",
    ),
    (
        "UPDATE task SET run = -1 WHERE (job, data_id) = ('j', '2')",
        "task j/2 is RUNNING, but its run -1 is not there",
    ),
    (
        "UPDATE task SET state = 'DONE' WHERE (job, data_id) = ('j', '2')",
        "run {run} is RUNNING, but its task j/2 is DONE",
    ),
    (
        "DELETE FROM task WHERE (job, data_id) = ('j', '2')",
        "run {run} is RUNNING, but its task j/2 is not there",
    ),
    (
        "UPDATE chunk SET readers = 4 WHERE (dataset, data_id) = ('a', '2')",
        "chunk a/2 has 4 readers, but 1 running runs read it",
    ),
    (
        "UPDATE chunk SET readers = 1 WHERE (dataset, data_id) = ('a', '1')",
        "chunk a/1 has 1 readers, but 0 running runs read it",
    ),
    (
        "UPDATE chunk SET status = 'RUNNING', run = -1 WHERE (dataset, data_id) = ('b', '5')",
        "chunk b/5 is RUNNING, but no running run writes it",
    ),
    (
        "UPDATE chunk SET fence = fence - 1 WHERE (dataset, data_id) = ('b', '2')",
        "chunk b/2 is RUNNING, but no running run writes it",
    ),
    (
        "UPDATE chunk SET status = 'FAILED' WHERE (dataset, data_id) = ('b', '2')",
        "run {run} writes b/2, but the chunk is FAILED",
    ),
    (
        "DELETE FROM chunk WHERE (dataset, data_id) = ('b', '2')",
        "run {run} writes b/2, but the chunk is not there",
    ),
    (
        "DELETE FROM task WHERE (job, data_id) = ('j', '1')",
        "job j has no task for 1, an id of its data set a",
    ),
    (
        "INSERT INTO chunk (dataset, data_id) VALUES ('b', '9')",
        "job k has no task for 9, an id of its data set b",
    ),
    (
        "DELETE FROM chunk WHERE (dataset, data_id) = ('c', '4')",
        "task k/4 has no chunk in its data set c",
    ),
    (
        "UPDATE task SET state = 'RETRYING', due_at = now(), blockers = 1 WHERE (job, data_id) = ('j', '1')",
        "chunk b/1 is READY, but task j/1 that makes it is RETRYING",
    ),
    (
        "UPDATE task SET sort_key = '\\x00' WHERE (job, data_id) = ('j', '4')",
        "task j/4 has another sort key than its order gives",
    ),
    (
        "UPDATE job SET descending = true WHERE id = 'j'",
        "task j/4 has another sort key than its order gives",
    ),
    (
        "UPDATE chunk SET fence = 4611686018427387904 WHERE (dataset, data_id) = ('b', '1')",
        "chunk b/1 has fencing token 4611686018427387904, which was never issued",
    ),
    (
        "UPDATE chunk SET status = 'RESUBMIT' WHERE (dataset, data_id) = ('b', '5')",
        "chunk b/5 is RESUBMIT, but its history ends with FAILED",
    ),
    (
        "UPDATE task SET state = 'FAILED' WHERE (job, data_id) = ('j', '1')",
        "task j/1 is FAILED, but its history ends with DONE",
    ),
    (
        "UPDATE breaker SET opened_at = now(), next_probe_at = now(), tried = '3', probe = 999",
        "the breaker of job j waits for its probe 999, which is not there",
    ),
    (
        "UPDATE breaker SET opened_at = now(), next_probe_at = now(), tried = '3'",
        "the breaker of job j is open with 2 chunks that failed in a row",
    ),
    (
        "UPDATE breaker SET failed = '{1,2,3,4,5}', runs = runs || runs || runs[1]",
        "the breaker of job j is closed with 5 chunks that failed in a row",
    ),
    (
        "UPDATE breaker SET failed = '{3,5}', runs = ARRAY[{run}, runs[2]]",
        "the breaker of job j counts run {run} of 3 as failed, which is RUNNING",
    ),
]


@pytest.mark.parametrize(("statement", "sentence"), CORRUPTIONS, ids=[sentence for _, sentence in CORRUPTIONS])
def test_what_breaks_a_rule_is_reported(db: Connection, run: Run, statement: str, sentence: str) -> None:
    corrupt(db, statement.replace("{run}", str(run["run"])))
    assert sentence.format(run=run["run"]) in problems(db)


# Those that break one rule alone.
ALONE = [
    (statement, sentence)
    for statement, sentence in CORRUPTIONS
    if statement.startswith(
        (
            "UPDATE task SET blockers = 3",
            "UPDATE task SET blockers = 2",
            "UPDATE task SET sort_key",
            "UPDATE task SET state = 'FAILED'",
            "UPDATE chunk SET readers = 4",
            "UPDATE chunk SET fence = 4611686018427387904",
            "UPDATE chunk SET status = 'RESUBMIT'",
            "INSERT INTO chunk",
            "DELETE FROM chunk WHERE (dataset, data_id) = ('c', '4')",
            "DELETE FROM task WHERE (job, data_id) = ('j', '1')",
        )
    )
]


@pytest.mark.parametrize(("statement", "sentence"), ALONE, ids=[sentence for _, sentence in ALONE])
def test_only_what_breaks_a_rule_is_reported(db: Connection, run: Run, statement: str, sentence: str) -> None:
    assert run
    corrupt(db, statement)
    assert problems(db) == [sentence]


def test_everything_that_breaks_a_rule_is_reported_at_once(db: Connection, run: Run) -> None:
    assert run
    corrupt(
        db,
        "UPDATE chunk SET readers = 1 WHERE (dataset, data_id) = ('c', '1')",
        "UPDATE chunk SET readers = 2 WHERE (dataset, data_id) = ('c', '5')",
        "UPDATE task SET blockers = 0 WHERE (job, data_id) = ('k', '3')",
    )
    # A reader of an output blocks its writer, too.
    assert sorted(problems(db)) == [
        "chunk c/1 has 1 readers, but 0 running runs read it",
        "chunk c/5 has 2 readers, but 0 running runs read it",
        "task k/1 is QUEUED with 0 blockers, but 1 things block it",
        "task k/3 is WAITING and nothing blocks it",
        "task k/3 is WAITING with 0 blockers, but 1 things block it",
        "task k/5 is WAITING with 1 blockers, but 2 things block it",
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE opendataflow.task SET blockers = 1 WHERE (job, data_id) = ('j', '4')",
        "UPDATE opendataflow.task SET state = 'WAITING' WHERE (job, data_id) = ('j', '4')",
        "UPDATE opendataflow.task SET blockers = 1 WHERE (job, data_id) = ('j', '1')",
        "UPDATE opendataflow.task SET state = 'RETRYING' WHERE (job, data_id) = ('j', '4')",
        "UPDATE opendataflow.task SET run = NULL WHERE (job, data_id) = ('j', '2')",
        "UPDATE opendataflow.task SET state = 'HELD' WHERE (job, data_id) = ('j', '4')",
        "UPDATE opendataflow.task SET again = true WHERE (job, data_id) = ('j', '4')",
        "UPDATE opendataflow.chunk SET status = 'HOLD' WHERE (dataset, data_id) = ('b', '1')",
        "UPDATE opendataflow.chunk SET status = 'RUNNING' WHERE (dataset, data_id) = ('b', '4')",
        "UPDATE opendataflow.chunk SET fence = NULL WHERE (dataset, data_id) = ('b', '1')",
        "UPDATE opendataflow.chunk SET readers = -1 WHERE (dataset, data_id) = ('b', '1')",
        "UPDATE opendataflow.run SET state = 'LOST' WHERE data_id = '2'",
        "UPDATE opendataflow.run SET reads = '{}' WHERE data_id = '2'",
    ],
)
def test_what_one_row_can_show_is_refused_by_a_constraint(db: Connection, run: Run, statement: str) -> None:
    assert run
    db.execute("SET LOCAL session_replication_role = replica")
    with pytest.raises(psycopg.errors.CheckViolation), db.transaction():
        db.execute(statement)


def test_two_runs_of_one_task_at_a_time_are_refused_by_a_constraint(db: Connection, run: Run) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation, match="run_one_at_a_time"), db.transaction():
        db.execute(
            """INSERT INTO opendataflow.run (job, data_id, attempt, fence, lease, host, boot, runs_home,
                                             reads, read_fences, writes)
               SELECT job, data_id, attempt, nextval('opendataflow.fence'), lease, host, boot, runs_home,
                      reads, read_fences, writes
               FROM opendataflow.run WHERE id = %s""",
            (run["run"],),
        )
