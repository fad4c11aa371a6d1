"""Declarations of many chunks: the declaration comes first, its chunks follow in batches, nothing is complete before.

Batches have ten chunks here, so that thirty chunks are many.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg.errors import DatabaseError, LockNotAvailable
from psycopg.types.json import Jsonb

from opendataflow.cli.jobs.local import exit_code
from opendataflow.core.status.job_state import ObservedJob, job_status
from opendataflow.engine.declaring import batches
from opendataflow.model.records.claim import Progress
from opendataflow.model.resources.chunk_source import ChunkSource
from opendataflow.names import ExitCode
from opendataflow.store.reports import dataset_counts, dataset_gaps
from opendataflow.store.store import Store
from tests.sql import graph
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import apply, apply_allowing, chunks, claim, end, job, of_namespace, problems, tasks, value

BATCH = 10
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT_REACHED = "DF008"


@pytest.fixture
def many(dsn: str) -> Iterator[Connection]:
    """A connection to the fresh database, in which ten chunks are many. Later connections have small batches, too."""
    with open_connection(dsn) as connection:
        connection.execute(
            """DO $$ BEGIN
                   EXECUTE format('ALTER DATABASE %I SET opendataflow.declaring_batch = 10', current_database());
               END $$"""
        )
        connection.execute("SET opendataflow.declaring_batch = 10")
        yield connection


def ranged(name: str, count: int, **changes: Any) -> dict[str, Any]:
    """A data set with a long chunk source of this many chunks: 0-9, 10-19 …"""
    return {"id": name, "source": {"range": {"from": 0, "to": count * 10, "step": 10}}, **changes}


def step(db: Connection, after: str = "") -> dict[str, Any] | None:
    """Write the next batch."""
    found = value(db, "SELECT opendataflow.declare_next(%s)", after)
    return None if found is None else dict(found)


def finish(db: Connection) -> int:
    """Write all batches; return how many there were."""
    steps = 0
    while step(db) is not None:
        steps += 1
    return steps


def status(db: Connection, name: str) -> dict[str, Any]:
    return dict(value(db, "SELECT opendataflow.job_status(%s)", name))


def declaring(db: Connection) -> list[tuple[str, str, int, int]]:
    rows = db.execute("SELECT kind, id, declared, total FROM opendataflow.declaring ORDER BY 1, 2").fetchall()
    return [(row["kind"], row["id"], row["declared"], row["total"]) for row in rows]


def rows(db: Connection) -> dict[str, list[dict[str, Any]]]:
    """All chunks and tasks, without their versions and times."""
    chunk = (
        "SELECT to_jsonb(c) - '{fence,published_at}'::text[] AS r FROM opendataflow.chunk c ORDER BY dataset, data_id"
    )
    task = "SELECT to_jsonb(t) AS r FROM opendataflow.task t ORDER BY job, data_id"
    history = """SELECT to_jsonb(h) - '{id,at,fence}'::text[] AS r FROM opendataflow.history h
                 ORDER BY kind, owner, data_id, h.id"""
    return {
        name: [row["r"] for row in db.execute(query)]
        for name, query in (("chunk", chunk), ("task", task), ("history", history))
    }


SOURCES = [
    {"range": {"from": -25, "to": 60, "step": 10}},
    {"range": {"from": 9223372036854775000, "to": 9223372036854775807, "step": 7}},
    {"hash": {"buckets": 16}},
    {"dateRange": {"from": "2012-02-27", "to": "2012-03-05", "step": "day"}},
    {"dateRange": {"from": "2012-11-01", "to": "2014-02-01", "step": "month"}},
    {"dateRange": {"from": "0001-01-01", "to": "0001-04-01", "step": "month"}},
]


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_postgres_computes_the_chunks_of_the_model(rolled_back: Connection, source: dict[str, Any]) -> None:
    model = ChunkSource.model_validate(source)
    expected = list(model.chunks())
    assert value(rolled_back, "SELECT opendataflow.source_size(%s)", Jsonb(source)) == len(expected) == model.count
    query = "SELECT data_id, bounds FROM opendataflow.chunks_of_source(%s, %s, %s)"
    found = [
        (row["data_id"], row["bounds"])
        for first in range(0, len(expected), 5)
        for row in rolled_back.execute(query, (Jsonb(source), first, 5))
    ]
    assert found == expected


def test_the_declaration_of_many_chunks_is_committed_before_its_chunks(many: Connection) -> None:
    applied = apply_allowing(many, [ranged("d", 30), {"id": "o"}], [job("j", ["d"], ["o"])])
    assert applied["declaring"]
    assert applied["plan"]["datasets"][0]["added"] == 30
    assert declaring(many) == [("dataset", "d", 0, 30)]
    assert chunks(many) == {}
    assert graph.problems(many) == []
    assert value(many, "SELECT count(*) FROM opendataflow.job_input") == 1


def test_few_chunks_are_declared_with_their_data_set(many: Connection) -> None:
    applied = apply_allowing(many, [ranged("d", BATCH)], [job("j", ["d"], [])])
    assert not applied["declaring"]
    assert applied["woken"] == ["j"]
    assert len(tasks(many)) == BATCH
    assert step(many) is None


def test_many_chunks_end_as_few_do(many: Connection) -> None:
    flow: Any = (
        [ranged("d", 30), {"id": "a"}, {"id": "b"}, {"id": "c"}],
        [
            job("j", ["d"], ["a"]),
            job("k", ["a", "d"], ["b"], chunk_from="50-59", descending=True),
            job("l", ["b"], ["c"]),
        ],
    )
    with many.transaction(force_rollback=True):
        many.execute("SET LOCAL opendataflow.declaring_batch = 1000")
        apply(many, *flow)
        expected = rows(many)
    apply(many, *flow)
    assert finish(many) == 3
    assert rows(many) == expected
    assert problems(many) == []


def test_each_batch_is_a_transaction_and_the_rest_continues_after_a_crash(many: Connection, dsn: str) -> None:
    apply(many, [ranged("d", 25), {"id": "o"}], [job("j", ["d"], ["o"])])
    step(many)
    with open_connection(dsn) as lost, lost.transaction(force_rollback=True):
        step(lost)
    assert declaring(many) == [("dataset", "d", 10, 25)]
    assert problems(many) == []
    with open_connection(dsn) as next_engine:
        assert finish(next_engine) == 2
    assert len(tasks(many)) == 25
    assert declaring(many) == []
    assert problems(many) == []


def test_tasks_of_declared_chunks_are_claimed_and_completed_meanwhile(many: Connection) -> None:
    lease = graph.open_lease(many)
    apply(many, [ranged("d", 25), {"id": "o"}], [job("j", ["d"], ["o"])])
    step(many)
    for run in claim(many, lease, "j", 10):
        assert end(many, run, "DONE")["task_state"] == "DONE"
    assert claim(many, lease, "j", 10) == []
    assert problems(many) == []
    finish(many)
    assert len(claim(many, lease, "j", 100)) == 15
    assert problems(many) == []


def done_so_far(db: Connection) -> None:
    """Two levels of jobs whose known tasks are all done, and more follow."""
    lease = graph.open_lease(db)
    apply(db, [ranged("d", 25), {"id": "o"}, {"id": "p"}], [job("j", ["d"], ["o"]), job("k", ["o"], ["p"])])
    step(db)
    for name in ("j", "k"):
        for run in claim(db, lease, name, 10):
            end(db, run, "DONE")
    assert set(tasks(db).values()) == {"DONE"}


@pytest.mark.parametrize("name", ["j", "k"])
def test_no_report_calls_a_job_done_or_complete_while_chunks_follow(many: Connection, name: str) -> None:
    done_so_far(many)
    found = status(many, name)
    assert found["declaring"] == {"declared": 10, "total": 25}
    assert found["watermark"] is None
    assert found["eta_seconds"] is None
    query = "SELECT state FROM opendataflow.list_jobs() WHERE job = %s"
    assert value(many, query, name) == "Declaring"
    finish(many)
    assert status(many, name)["declaring"] is None
    assert status(many, name)["watermark"] == "90-99"
    assert value(many, query, name) == {"j": "Queued", "k": "Waiting"}[name]


def test_the_conditions_of_a_job_say_how_many_chunks_are_declared(many: Connection) -> None:
    def conditions() -> dict[str, tuple[str, str, str]]:
        found = {**status(many, "j"), "last_failures": [], "resubmit": None}
        shown = job_status(ObservedJob("j", 1, 1, found=found), NOW)
        assert shown.progress == f"{progress}, declaring"
        return {one.type: (one.status, one.reason, one.message) for one in shown.conditions}

    apply(many, [ranged("d", 25), {"id": "o"}], [job("j", ["d"], ["o"])])
    progress = "0/0"
    none = ("Declaring", "declaring 0 of 25 chunks; 0 of 0 known chunks done")
    assert conditions()["Succeeded"] == ("False", *none)
    assert conditions()["Progressing"] == ("True", *none)
    step(many)
    progress = "0/10"
    queued = ("True", "Queued", "10 chunks may start; declaring 10 of 25 chunks")
    assert conditions()["Progressing"] == queued
    lease = graph.open_lease(many)
    for run in claim(many, lease, "j", 10):
        end(many, run, "DONE")
    progress = "10/10"
    assert conditions()["Succeeded"] == (
        "False",
        "Declaring",
        "declaring 10 of 25 chunks; 10 of 10 known chunks done",
    )


async def test_no_report_calls_a_data_set_complete_while_chunks_follow(many: Connection, store: Store) -> None:
    done_so_far(many)
    for name in ("d", "o", "p"):
        counts = await dataset_counts(store, name)
        assert counts is not None
        assert counts["declaring"] == {"declared": 10, "total": 25}
        assert (await dataset_gaps(store, name))["watermark"] is None
    assert {row["declaring"] for row in await store.list_datasets()} == {"10 of 25"}
    assert (await store.describe_dataset("d") or {})["declaring"] == {"declared": 10, "total": 25}
    assert (await store.inspection("j", "0-9") or {})["declaring"] == {"declared": 10, "total": 25}


async def test_an_engine_is_not_caught_up_while_chunks_follow(many: Connection, store: Store) -> None:
    done_so_far(many)
    progress = await store.progress(["j", "k"])
    assert [one.declaring for one in progress] == [True, True]
    assert exit_code(progress) is ExitCode.UNFINISHED
    assert exit_code([Progress("j", {})]) is ExitCode.OK


def test_the_view_of_the_old_framework_has_a_row_that_is_not_ready_while_chunks_follow(many: Connection) -> None:
    many.execute("SELECT opendataflow.make_views()")
    apply(many, [ranged("d", 25)], [])
    step(many)
    query = "SELECT dataid FROM dataflow.datastatus WHERE datasetid = 'd' AND status <> 'READY'"
    assert [row["dataid"] for row in many.execute(query)] == ["declaring 10 of 25 chunks"]
    with pytest.raises(
        DatabaseError, match=r"declaring 10 of 25 chunks is no chunk: the chunks of data set d are being declared"
    ):
        many.execute("UPDATE dataflow.datastatus SET status = 'READY' WHERE dataid LIKE 'declaring%'")
    finish(many)
    assert many.execute(query).fetchall() == []


def test_a_changed_source_replaces_the_one_that_is_being_declared(many: Connection) -> None:
    apply(many, [ranged("d", 30)], [job("j", ["d"], [])])
    step(many)
    apply(many, [ranged("d", 15)], [])
    assert declaring(many) == []
    assert len(tasks(many)) == 15
    assert problems(many) == []


def test_the_same_source_continues_where_it_is(many: Connection) -> None:
    apply(many, [ranged("d", 30)], [])
    step(many)
    apply(many, [ranged("d", 30)], [])
    assert declaring(many) == [("dataset", "d", 10, 30)]
    assert finish(many) == 2
    assert len(chunks(many)) == 30


def test_a_change_that_needs_a_consent_is_refused_and_the_declaration_continues(many: Connection) -> None:
    lease = graph.open_lease(many)
    apply(many, [ranged("d", 30), {"id": "o"}], [job("j", ["d"], ["o"])])
    step(many)
    end(many, claim(many, lease, "j")[0], "DONE")
    with pytest.raises(DatabaseError) as refused:
        apply(many, [{"id": "d", "source": {"range": {"from": 100, "to": 400, "step": 10}}}], [])
    assert refused.value.sqlstate == "DF007"
    assert declaring(many) == [("dataset", "d", 10, 30)]
    assert len(chunks(many)) == 20


def test_an_id_that_the_declaration_has_not_reached_is_never_retired(many: Connection) -> None:
    """The id 200-209 is withdrawn from `a`, and `d`, which feeds the same job, will have it."""
    lease = graph.open_lease(many)
    apply(many, [graph.source("a", "200-209", "x"), {"id": "o"}], [job("j", ["a"], ["o"])])
    for run in claim(many, lease, "j", 2):
        end(many, run, "DONE")
    apply(many, [ranged("d", 30), {"id": "e"}], [job("k", ["d"], ["e"])])
    step(many)
    apply(many, [], [job("j", ["a", "d"], ["o"])])
    assert problems(many) == []
    with pytest.raises(DatabaseError) as refused:
        apply(many, [graph.source("a")], [])
    assert refused.value.sqlstate == "DF007"
    plan = json.loads(refused.value.diag.message_detail or "")
    withdrawn = [one["examples"]["retired"] for one in plan["datasets"] + plan["jobs"] if "retired" in one["examples"]]
    assert withdrawn == [["x"]] * len(withdrawn) != []
    apply_allowing(many, [graph.source("a")], [], retire=True)
    assert tasks(many)["j/x"] == "RETIRED"
    assert tasks(many)["j/200-209"] == "DONE"
    assert declaring(many) == []
    assert len(chunks(many)) > 60
    assert problems(many) == []


def test_a_deleted_resource_ends_its_declaration_and_the_chunks_stay(many: Connection) -> None:
    apply(many, [of_namespace("team", ranged("d", 30))], [])
    step(many)
    many.execute("SELECT opendataflow.disown_dataset('team/d', 'other/d')")
    assert declaring(many) == [("dataset", "team/d", 10, 30)]
    many.execute("SELECT opendataflow.disown_dataset('team/d', 'team/d')")
    assert declaring(many) == []
    assert len(chunks(many)) == 10
    assert problems(many) == []


def test_a_chunk_that_was_published_before_its_turn_keeps_its_task(many: Connection) -> None:
    lease = graph.open_lease(many)
    apply(many, [ranged("d", 30), {"id": "o"}], [job("j", ["d"], ["o"])])
    graph.ask(many, "publish", "d", "250-259")
    end(many, claim(many, lease, "j")[0], "DONE")
    finish(many)
    assert tasks(many)["j/250-259"] == "DONE"
    assert len(tasks(many)) == 30
    assert graph.chunk(many, "d", "250-259")["bounds"] == {"from": 250, "to": 260}
    assert problems(many) == []


def test_a_list_is_not_loaded_into_a_data_set_that_is_being_declared(many: Connection) -> None:
    """Its bounds can't be compared with chunks that are not there yet."""
    apply(many, [ranged("d", 30)], [])
    with pytest.raises(DatabaseError, match=r"the chunks of data set d are being declared"):
        many.execute(
            "SELECT opendataflow.overlaps_of_list('d', ARRAY['x'], ARRAY['{\"from\": 1, \"to\": 300}'::jsonb])"
        )


def test_the_tasks_of_a_new_job_for_many_chunks_follow_in_batches(many: Connection) -> None:
    apply(many, [ranged("d", 25), {"id": "o"}, {"id": "p"}], [])
    finish(many)
    applied = apply_allowing(many, [], [job("j", ["d"], ["o"]), job("k", ["o"], ["p"])])
    assert applied["declaring"]
    assert declaring(many) == [("job", "j", 0, 25)]
    assert tasks(many) == {}
    assert problems(many) == []
    step(many)
    assert len(tasks(many)) == 20
    assert problems(many) == []
    assert status(many, "j")["declaring"] == status(many, "k")["declaring"] == {"declared": 10, "total": 25}
    finish(many)
    assert len(tasks(many)) == 50
    assert declaring(many) == []
    assert problems(many) == []


def test_the_tasks_of_a_job_follow_from_both_of_its_inputs(many: Connection) -> None:
    apply(many, [ranged("b", 12), {"id": "a", "source": {"hash": {"buckets": 12}}}, {"id": "o"}], [])
    finish(many)
    apply(many, [], [job("j", ["a", "b"], ["o"])])
    assert declaring(many) == [("job", "j", 0, 24)]
    finish(many)
    assert len(tasks(many)) == 24
    assert problems(many) == []


def test_a_deleted_job_gets_no_more_tasks(many: Connection) -> None:
    apply(many, [ranged("d", 25), {"id": "o"}], [])
    finish(many)
    apply(many, [], [job("j", ["d"], ["o"])])
    step(many)
    many.execute("SELECT opendataflow.delete_job('j', 'test')")
    assert declaring(many) == []
    assert step(many) is None
    assert len(tasks(many)) == 10
    assert problems(many) == []


def test_a_job_that_changes_while_it_is_declared_gets_all_its_tasks(many: Connection) -> None:
    apply(many, [ranged("d", 25), {"id": "o"}, {"id": "p"}], [])
    finish(many)
    apply(many, [], [job("j", ["d"], ["o"])])
    step(many)
    apply(many, [], [job("j", ["d"], ["p"])])
    assert declaring(many) == []
    assert len(tasks(many)) == 25
    assert problems(many) == []


def test_namespaces_take_turns(many: Connection) -> None:
    apply(
        many,
        [of_namespace("a", ranged("a1", 20)), of_namespace("a", ranged("a2", 20)), of_namespace("b", ranged("b1", 20))],
        [],
    )
    turns, after = [], ""
    while (batch := step(many, after)) is not None:
        turns.append(batch["id"])
        after = batch["namespace"]
    assert turns == ["a/a1", "b/b1", "a/a1", "b/b1", "a/a2", "a/a2"]


def test_a_renewal_of_the_leadership_waits_for_no_batch_and_no_apply(many: Connection, dsn: str) -> None:
    query = "SELECT opendataflow.acquire_leadership('00000000-0000-0000-0000-000000000001', 'p', 'u', '', '1 hour')"
    many.execute(query)
    apply(many, [ranged("d", 25)], [])
    with open_connection(dsn) as other, many.transaction():
        many.execute("SELECT opendataflow.require_leader('00000000-0000-0000-0000-000000000001')")
        step(many)
        apply(many, [ranged("e", 25)], [])
        other.execute("SET lock_timeout = '1ms'")  # fails at once if it has to wait
        assert value(other, query) == 1


def test_an_apply_of_other_data_sets_waits_for_no_batch(many: Connection, dsn: str) -> None:
    apply(many, [ranged("d", 25), {"id": "o"}], [job("j", ["d"], ["o"])])
    with open_connection(dsn) as other, many.transaction():
        step(many)
        other.execute("SET lock_timeout = '1ms'")
        assert apply(other, [graph.source("x", "1")], [job("y", ["x"], [])]) == ["y"]
        with pytest.raises(LockNotAvailable):
            apply(other, [], [job("k", ["d"], [])])


async def test_batches_writes_everything_that_is_being_declared(many: Connection, store: Store) -> None:
    apply(many, [ranged("d", 25), of_namespace("team", ranged("e", 15))], [])
    notes: list[str] = []
    written = [batch async for batch in batches(store, notes.append)]
    assert {(one.id, one.declared, one.total) for one in written} >= {("d", 25, 25), ("team/e", 15, 15)}
    assert declaring(many) == []
    assert notes == []


async def test_a_declaration_that_fails_stops_no_other_one(many: Connection, store: Store) -> None:
    apply(many, [of_namespace("a", ranged("d", 25)), of_namespace("b", ranged("e", 25))], [])
    graph.raw(many, 'UPDATE opendataflow.declaring SET source = \'{"hash": {"buckets": "x"}}\' WHERE id = \'a/d\'')
    notes: list[str] = []
    assert {batch.id async for batch in batches(store, notes.append)} == {"b/e"}
    assert len(notes) == 1
    assert notes[0].startswith("chunks in namespace a can't be declared: ")


REMEDY = "nothing was changed; remove some, or ask the administrator for a larger limits.{} of the chart"
LIMITS = Jsonb({"chunks": 40, "jobs": 1, "data_sets": 2})


def limited(
    db: Connection,
    datasets: list[dict[str, Any]],
    jobs: list[dict[str, Any]],
    limits: Jsonb = LIMITS,
    **consent: bool,
) -> None:
    query = "SELECT opendataflow.apply(%s, %s, 'test', %s, %s)"
    db.execute(query, (Jsonb(datasets), Jsonb(jobs), Jsonb(consent), limits))


@pytest.mark.parametrize(
    ("datasets", "jobs", "sentence"),
    [
        (
            [of_namespace("team", ranged("x", 11))],
            [],
            "the namespace team would have 41 chunks, and 40 are allowed: " + REMEDY.format("chunksPerNamespace"),
        ),
        ([of_namespace("team", ranged("d", 41))], [], "the namespace team would have 41 chunks, and 40 are allowed"),
        (
            [],
            [of_namespace("team", job("k", ["d"], []))],
            "the namespace team would have 2 jobs, and 1 are allowed: " + REMEDY.format("jobsPerNamespace"),
        ),
        (
            [of_namespace("team", graph.source(name, "1")) for name in "xy"],
            [],
            "the namespace team would have 3 data sets, and 2 are allowed: " + REMEDY.format("dataSetsPerNamespace"),
        ),
    ],
)
def test_a_namespace_has_no_more_than_its_limits(
    many: Connection, datasets: list[dict[str, Any]], jobs: list[dict[str, Any]], sentence: str
) -> None:
    limited(many, [of_namespace("team", ranged("d", 30))], [of_namespace("team", job("j", ["d"], []))])
    before = rows(many)
    with pytest.raises(DatabaseError) as refused:
        limited(many, datasets, jobs)
    assert refused.value.sqlstate == LIMIT_REACHED
    assert sentence in (refused.value.diag.message_primary or "")
    assert rows(many) == before
    assert declaring(many) == [("dataset", "team/d", 0, 30)]


def test_batches_create_no_chunks_in_a_shared_data_set(many: Connection) -> None:
    shared = of_namespace("team", graph.source("one", "0-9", "x")) | {"share_with": ["other"]}
    mix = {**of_namespace("other", job("mix", ["d"], ["made"])), "inputs": ["team/one", "other/d"]}
    apply(many, [shared, of_namespace("other", ranged("d", 25)), of_namespace("other", {"id": "made"})], [])
    apply(many, [], [mix])
    assert finish(many) > 2
    assert {key for key in chunks(many) if key.startswith("team/")} == {"team/one/0-9", "team/one/x"}
    found = tasks(many)
    assert len(found) == 26
    assert [key for key, state in found.items() if state == "QUEUED"] == ["other/mix/0-9"]
    assert problems(many) == []


def test_a_shared_data_set_is_complete_while_its_reader_declares_chunks(many: Connection) -> None:
    shared = of_namespace("team", graph.source("one", "1")) | {"share_with": ["other"]}
    mix = {**of_namespace("other", job("mix", ["d"], ["made"])), "inputs": ["team/one", "other/d"]}
    apply(many, [shared], [of_namespace("team", job("load", ["one"], []))])
    apply(many, [of_namespace("other", ranged("d", 25)), of_namespace("other", {"id": "made"})], [mix])
    assert declaring(many) != []
    assert status(many, "team/load")["declaring"] is None
    assert status(many, "other/mix")["declaring"] is not None


ROWS = Jsonb({"rows": 20})


def changed(db: Connection, datasets: list[dict[str, Any]], jobs: list[dict[str, Any]]) -> None:
    limited(db, datasets, jobs, ROWS, retire=True)


def spread(db: Connection) -> None:
    """Thirty chunks, two jobs that read them, and a job that reads one chunk."""
    changed(db, [of_namespace("t", ranged("d", 30))], [])
    changed(db, [], [of_namespace("t", job("j", ["d"], [])), of_namespace("t", job("k", ["d"], []))])
    changed(db, [of_namespace("t", graph.source("one", "0-9"))], [of_namespace("t", job("l", ["one"], []))])
    finish(db)


@pytest.mark.parametrize(
    ("datasets", "jobs", "rows_written"),
    [
        ([ranged("d", 37)], [], 21),  # seven chunks and their tasks in two jobs
        ([ranged("d", 23)], [], 21),
        ([], [job("j", ["d"], [], descending=True)], 30),
        (
            [],
            [job("j", ["d", "one"], [])],
            122,
        ),  # its tasks, all that it reads, and their tasks
        ([], [job("l", ["d"], [])], 91),
    ],
)
def test_a_change_that_would_write_too_much_at_once_is_refused_before_it_is_planned(
    many: Connection, datasets: list[dict[str, Any]], jobs: list[dict[str, Any]], rows_written: int
) -> None:
    spread(many)
    before = rows(many)
    with pytest.raises(DatabaseError) as refused:
        changed(many, [of_namespace("t", one) for one in datasets], [of_namespace("t", one) for one in jobs])
    assert refused.value.sqlstate == LIMIT_REACHED
    assert f"would write {rows_written} chunks and tasks at once, and 20 are allowed" in str(refused.value)
    assert "limits.rowsPerChange" in str(refused.value)
    assert rows(many) == before


def test_a_long_chunk_source_changes_in_small_steps(many: Connection) -> None:
    spread(many)
    queued = "SELECT count(*) FROM opendataflow.task WHERE job = 't/j' AND state = 'QUEUED'"
    for size in (36, 30, 24):
        changed(many, [of_namespace("t", ranged("d", size))], [])
        assert value(many, queued) == size


def test_a_data_set_whose_resource_was_deleted_counts_until_its_namespace_declares_it_again(many: Connection) -> None:
    limited(many, [of_namespace("team", ranged("d", 30))], [])
    many.execute("SELECT opendataflow.disown_dataset('team/d', 'team/d')")
    with pytest.raises(DatabaseError, match="would have 41 chunks"):
        limited(many, [of_namespace("team", ranged("e", 11))], [])
    limited(many, [of_namespace("team", ranged("d", 10))], [])
    limited(many, [of_namespace("team", ranged("e", 11))], [])


def test_what_does_not_grow_is_not_limited_and_neither_are_other_namespaces(many: Connection) -> None:
    apply(
        many,
        [of_namespace("team", ranged("d", 50))],
        [of_namespace("team", job("j", ["d"], [])), of_namespace("team", job("k", [], ["d"]))],
    )
    limited(many, [of_namespace("team", ranged("d", 45))], [of_namespace("team", job("j", ["d"], [], priority=1))])
    limited(many, [of_namespace("other", ranged("e", 40))], [of_namespace("other", job("l", ["e"], []))])
    limited(many, [ranged("f", 1000)], [job("m", ["f"], [])])
