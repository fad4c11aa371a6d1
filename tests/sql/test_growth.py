"""What a claim and a completion read does not grow with the past, nor with what else runs.

A plan that looks at all runs ever is as fast as any other on the first day.
"""

from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.sql import graph
from tests.sql.conftest import Connection

BATCH = 10

ROWS_READ = """
SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
                + coalesce((SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relid = t.relid), 0) AS rows
FROM pg_stat_user_tables t WHERE schemaname = 'opendataflow'
"""


def rows_read(db: Connection) -> dict[str, int]:
    """How many rows and index entries of each table were read so far."""
    db.execute("SELECT pg_stat_force_next_flush()")
    return {row["relname"]: int(row["rows"]) for row in db.execute(ROWS_READ)}


def cycle(db: Connection, lease: str, number: int) -> None:
    """Claim works and finish them."""
    runs = graph.claim(db, lease, "j", number)
    assert len(runs) == number
    ended = {"verdict": "DONE", "state": "SUCCEEDED", "class": "Success"}
    outcomes: list[dict[str, Any]] = [{"run": r["run"], "fence": r["fence"], **ended} for r in runs]
    db.execute("SELECT * FROM opendataflow.complete(%s, 'test')", (Jsonb(outcomes),))


def what_a_cycle_reads(db: Connection, lease: str) -> dict[str, int]:
    """The rows that one more cycle reads, by table."""
    db.execute("VACUUM")  # what is dead costs a look at it until then, whoever made it
    before = rows_read(db)
    cycle(db, lease, BATCH)
    after = rows_read(db)
    return {table: after[table] - before[table] for table in after}


@pytest.mark.parametrize("kind", ["runs that have ended", "runs of another job"])
def test_what_a_cycle_reads_does_not_grow_with_the_number_of(db: Connection, kind: str) -> None:
    many = 1500
    ids = [f"{n:05}" for n in range(many + 6 * BATCH)]
    graph.apply(
        db,
        [graph.dataset("a", *ids), graph.dataset("x", *ids), graph.dataset("b"), graph.dataset("y")],
        [graph.job("j", ["a"], ["b"], parallelism=5000), graph.job("other", ["x"], ["y"], parallelism=5000)],
    )
    lease = graph.open_lease(db)
    cycle(db, lease, BATCH)
    few = what_a_cycle_reads(db, lease)
    if kind == "runs that have ended":
        cycle(db, lease, many)
    else:
        assert len(graph.claim(db, lease, "other", many)) == many
    lot = what_a_cycle_reads(db, lease)
    grown = {table: (few[table], lot[table]) for table in few if lot[table] > 1.5 * few[table] + 3 * BATCH}
    assert grown == {}


QUESTIONS = {
    "why": "SELECT opendataflow.why('j', '00000')",
    "its runs": "SELECT * FROM opendataflow.list_runs('j', '00000', 1)",
    "its log": "SELECT * FROM opendataflow.run_log('j', '00000', NULL)",
    "the five answers": "SELECT opendataflow.five('j', '00000')",
    "its chunk": "SELECT opendataflow.describe_chunk('b', '00000')",
}


def what_questions_read(db: Connection) -> dict[str, int]:
    """The rows that each question reads, in all tables, when statistics are new."""
    db.execute("VACUUM ANALYZE")
    read = {}
    for name, question in QUESTIONS.items():
        before = sum(rows_read(db).values())
        db.execute(question)
        read[name] = sum(rows_read(db).values()) - before
    return read


def test_what_a_question_about_one_chunk_reads_does_not_grow_with_the_number_of_others(db: Connection) -> None:
    many = 1500
    ids = [f"{n:05}" for n in range(many + BATCH)]
    graph.apply(db, [graph.dataset("a", *ids), graph.dataset("b")], [graph.job("j", ["a"], ["b"], parallelism=5000)])
    lease = graph.open_lease(db)
    cycle(db, lease, BATCH)
    few = what_questions_read(db)
    cycle(db, lease, many)
    lot = what_questions_read(db)
    grown = {name: (few[name], lot[name]) for name in QUESTIONS if lot[name] > 2 * few[name] + 100}
    assert grown == {}
