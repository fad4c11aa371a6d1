"""What is read goes by what is asked: not by the past, nor by what else runs, nor by what the statistics say.

A plan that looks at all runs ever is as fast as any other on the first day.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.sql import graph
from tests.sql.conftest import Connection, open_connection
from tests.waiting import wait_until

BATCH = 10

ROWS_READ = """
SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
                + coalesce((SELECT sum(i.idx_tup_read) FROM pg_stat_user_indexes i WHERE i.relid = t.relid), 0) AS rows
FROM pg_stat_user_tables t WHERE schemaname = 'opendataflow'
"""


def settle(db: Connection) -> None:
    """Wait until no transaction of the server is older, not even one of another test in a database of its own: as long
    as there is one, whoever meets what is dead has to look at it again."""
    newest = graph.value(db, "SELECT pg_current_xact_id()::text::bigint")
    oldest = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
    wait_until(lambda: graph.value(db, oldest) > newest, "all older transactions have ended")


def rows_read(db: Connection) -> dict[str, int]:
    """How many rows and index entries of each table were read so far."""
    settle(db)
    db.execute("SELECT pg_stat_force_next_flush()")
    return {row["relname"]: int(row["rows"]) for row in db.execute(ROWS_READ)}


def cycle(db: Connection, lease: str, number: int) -> None:
    """Claim tasks and finish them."""
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


@pytest.mark.parametrize("analyzed", [False, True], ids=["old statistics", "new statistics"])
@pytest.mark.parametrize("kind", ["runs that have ended", "runs of another job"])
def test_what_a_cycle_reads_does_not_grow_with_the_number_of(db: Connection, kind: str, *, analyzed: bool) -> None:
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
    if analyzed:
        db.execute("ANALYZE")  # as autovacuum does at any time
    lot = what_a_cycle_reads(db, lease)
    grown = {table: (few[table], lot[table]) for table in few if lot[table] > 1.5 * few[table] + 3 * BATCH}
    assert grown == {}


QUESTIONS = {
    "why": "SELECT opendataflow.why('j', '00000')",
    "its runs": "SELECT * FROM opendataflow.list_runs('j', '00000', 1)",
    "its log": "SELECT * FROM opendataflow.run_log('j', '00000', NULL)",
    "the five answers": "SELECT opendataflow.inspection('j', '00000')",
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


MANY, FEW = 2000, 10
READ_FOR_EACH = 170
"""Rows and index entries that a verb may read for each id that it is asked about: its tasks, its chunks, their runs."""

FIRST, SECOND, THIRD, LAST = ([f"{n:05}" for n in range(begin, begin + FEW)] for begin in (0, 10, 20, MANY - FEW))
NEW = [f"new {n}" for n in range(FEW)]
BOUNDS = [Jsonb({"from": 1})] * FEW


@dataclass
class Asker:
    """Asks for one thing after the other; `runs` are those that it has claimed and not ended."""

    db: Connection
    runs: list[dict[str, Any]] = field(default_factory=list)

    def call(self, call: str, *values: object) -> None:
        """Call a function of the schema."""
        self.db.execute(f"SELECT * FROM opendataflow.{call}", values)

    def claim(self) -> None:
        """Claim tasks."""
        self.runs = graph.claim(self.db, graph.open_lease(self.db), "j", FEW)
        assert len(self.runs) == FEW

    def complete(self, verdict: str, state: str) -> None:
        """End the runs that were claimed."""
        rest = {"verdict": verdict, "state": state, "class": "Application", "delay": 0}
        outcomes = [{"run": run["run"], "fence": run["fence"], **rest} for run in self.runs]
        self.call("complete(%s, 'test')", Jsonb(outcomes))

    def write_rows(self, ids: list[str]) -> None:
        """Ask as users of the old framework do."""
        query = """INSERT INTO dataflow.datastatus (datasetid, dataid, jobid, locktype, status)
                   SELECT 'd', i, 'somebody', 'OUT', 'READY' FROM unnest(%s::text[]) i"""
        self.db.execute(query, (ids,))

    def load_old(self, ids: list[str]) -> None:
        """Take chunks over from the old framework."""
        columns = (["e"] * FEW, ids, ["READY"] * FEW, ["x"] * FEW, [None] * FEW)
        self.call("import_old('[]', '[]', %s, %s, %s, %s, %s, 'test')", *columns)


STORY: dict[str, Callable[[Asker], object]] = {
    "declare": lambda a: a.call("declare_chunks('a', %s, %s, 'test')", NEW, BOUNDS),
    "load": lambda a: a.call("load_chunks('a', %s, %s, true, 'test')", NEW, BOUNDS),
    "publish": lambda a: a.call("publish('b', %s, 'test')", LAST),
    "hold": lambda a: a.call("hold('j', %s, 'test')", LAST),
    "claim": Asker.claim,
    "cancel": lambda a: a.call("cancel('j', %s, 'test')", SECOND),
    "complete": lambda a: a.complete("RETRYING", "LOST"),
    "retry": lambda a: a.call("retry_due()"),
    "claim again": Asker.claim,
    "resubmit what runs": lambda a: a.call("resubmit('j', %s, 'test')", SECOND),
    "complete again": lambda a: a.complete("DONE", "SUCCEEDED"),
    "claim once more": Asker.claim,
    "open a breaker": lambda a: a.complete("RETRYING", "FAILED"),
    "skip": lambda a: a.call("skip('j', %s, 'test')", THIRD),
    "release": lambda a: a.call("release('j', %s, 'test')", THIRD),
    "force": lambda a: a.call("force('j', %s, 'test')", THIRD),
    "resubmit": lambda a: a.call("resubmit('j', %s, 'test')", FIRST),
    "hold chunks": lambda a: a.call("hold_chunks('b', %s, 'test')", FIRST),
    "release chunks": lambda a: a.call("release_chunks('b', %s, 'test')", FIRST),
    "set": lambda a: a.call("set_chunks('b', %s, 'PENDING', 'test')", FIRST),
    "accept": lambda a: a.call("accept('b', %s, 'test')", FIRST),
    "set to FAILED": lambda a: a.call("set_chunks('b', %s, 'FAILED', 'test')", FIRST),
    "set again": lambda a: a.call("set_chunks('b', %s, 'PENDING', 'test')", FIRST),
    "reject": lambda a: a.call("reject('b', %s, 'test')", FIRST),
    "resubmit chunks": lambda a: a.call("resubmit_chunks('a', %s, 'test')", FIRST),
    "resubmit all": lambda a: a.call("resubmit_cascade('j', %s, 'test')", LAST),
    "resubmit chunks and all": lambda a: a.call("resubmit_chunks_cascade('b', %s, 'test')", LAST),
    "write rows": lambda a: a.write_rows(LAST),
    "import": lambda a: a.load_old(LAST),
    "clean": lambda a: a.call("clean_runs(%s)", list(range(1, FEW + 1))),
}
"""All that changes chunks and tasks, each about ten ids of many."""


@pytest.fixture
def blind(dsn: str) -> Iterator[Connection]:
    """Many chunks, tasks and runs that were analyzed before they were committed: there are none, say the statistics."""
    ids = [f"{n:05}" for n in range(MANY)]
    with open_connection(dsn) as filling, open_connection(dsn) as other:
        for table in ("chunk", "task", "run", "history", "task_count"):
            filling.execute(f"ALTER TABLE opendataflow.{table} SET (autovacuum_enabled = false)")
        with filling.transaction():
            fill(filling, ids, lambda: other.execute("ANALYZE"))
        settle(filling)
        # What was READY is dead in the index: the first who comes along pays for it.
        filling.execute("SELECT count(*) FROM opendataflow.task WHERE job = 'j' AND state = 'QUEUED' AND rank = 2")
    with open_connection(dsn) as db:
        fresh = db.execute("SELECT relname FROM pg_class WHERE relname IN ('chunk', 'task', 'run') AND reltuples = 0")
        assert len(fresh.fetchall()) == 3
        yield db


def fill(db: Connection, ids: list[str], analyze: Callable[[], object]) -> None:
    """Apply twice and run half of it, while somebody looks again and again."""
    graph.apply(db, [graph.dataset("a", *ids[::2])], [])
    analyze()
    links = {"j": (["a"], ["b"]), "k": (["b"], ["c"]), "l": (["d"], ["e"])}
    jobs = [graph.job(name, *linked, parallelism=MANY) for name, linked in links.items()]
    graph.apply(db, [graph.dataset("a", *ids), *(graph.dataset(other) for other in "bcde")], jobs)
    analyze()
    cycle(db, graph.open_lease(db), MANY // 2)
    analyze()


def test_what_a_verb_reads_goes_by_its_ids_also_where_the_statistics_say_that_there_is_nothing(
    blind: Connection,
) -> None:
    asker = Asker(blind)
    too_many = {}
    for name, ask in STORY.items():
        before = sum(rows_read(blind).values())
        ask(asker)
        read = sum(rows_read(blind).values()) - before
        if read > READ_FOR_EACH * FEW:
            too_many[name] = read
    assert too_many == {}


def test_what_verify_reads_goes_by_what_there_is_also_where_the_statistics_say_that_there_is_nothing(
    blind: Connection,
) -> None:
    before = sum(rows_read(blind).values())
    assert graph.problems(blind) == []
    assert sum(rows_read(blind).values()) - before < 2 * READ_FOR_EACH * MANY


def test_what_an_apply_reads_goes_by_what_there_is_also_where_the_statistics_say_that_there_is_nothing(
    blind: Connection,
) -> None:
    before = sum(rows_read(blind).values())
    graph.apply(blind, [graph.dataset("d", *NEW)], [])
    assert sum(rows_read(blind).values()) - before < 20 * MANY


def test_two_applies_and_a_cycle_read_what_they_change_also_when_somebody_analyzes_meanwhile(
    db: Connection, dsn: str
) -> None:
    ids = [f"{n:05}" for n in range(MANY)]
    with open_connection(dsn) as other, db.transaction():
        fill(db, ids, lambda: other.execute("ANALYZE"))
    assert sum(rows_read(db).values()) < 3 * READ_FOR_EACH * MANY


CALLS = """
SELECT s.funcname, s.calls FROM pg_stat_xact_user_functions s JOIN pg_proc p ON p.oid = s.funcid
WHERE s.schemaname = 'opendataflow' AND s.funcname <> 'other_inputs'
  AND EXISTS (SELECT FROM unnest(p.proargtypes) AS a(type) WHERE a.type::regtype::text LIKE '%[]')
"""
"""Calls of functions that take lists, in this transaction; other_inputs() takes those of one job."""


def ranges(first: int, count: int) -> dict[str, Any]:
    """Data set a with a rule for this many chunks."""
    return {"id": "a", "source": {"range": {"from": first * 10, "to": (first + count) * 10, "step": 10}}}


CHANGES: dict[str, Callable[[int], tuple[dict[str, Any], list[dict[str, Any]]]]] = {
    "none": lambda count: (ranges(0, count), []),
    "one more": lambda count: (ranges(0, count + 1), []),
    "half of the chunks": lambda count: (ranges(count // 2, count), []),
    "partitioning": lambda count: ({**ranges(0, count), "partitioning": {"column": "c", "type": "range"}}, []),
    "another input": lambda count: (ranges(0, count), [graph.job("j", ["a", "e"], ["b"])]),
    "order": lambda count: (ranges(0, count), [graph.job("j", ["a"], ["b"], descending=True)]),
}


def calls_with_lists(db: Connection, count: int, change: str) -> dict[str, int]:
    """How often an apply calls each function that takes lists, where half of `count` chunks are processed."""
    graph.apply(db, [ranges(0, count), graph.dataset("b"), graph.source("e", "0-9")], [graph.job("j", ["a"], ["b"])])
    lease = graph.open_lease(db)
    for run in graph.claim(db, lease, "j", count // 2):
        graph.end(db, run, "DONE")
    before = {row["funcname"]: int(row["calls"]) for row in db.execute(CALLS)}
    dataset, jobs = CHANGES[change](count)
    allow = {"retire": True, "overlap": True, "backfill": "none"}
    query = "SELECT opendataflow.apply(%s, %s, 'test', %s)"
    db.execute(query, (Jsonb([dataset]), Jsonb(jobs), Jsonb(allow)))
    return {row["funcname"]: int(row["calls"]) - before.get(row["funcname"], 0) for row in db.execute(CALLS)}


@pytest.mark.parametrize("change", CHANGES)
def test_an_apply_calls_no_function_with_a_list_once_for_each_chunk(db: Connection, change: str) -> None:
    found = []
    for count in (20, 100):
        with db.transaction(force_rollback=True):
            db.execute("SET LOCAL track_functions = 'all'")
            found.append(calls_with_lists(db, count, change))
    few, many = found
    assert few
    assert {name: (few.get(name, 0), calls) for name, calls in many.items() if calls > few.get(name, 0) + 5} == {}
