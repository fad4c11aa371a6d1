"""What is declared becomes chunks and tasks, all of it or nothing, and doing it twice equals doing it once."""

from typing import Any

import psycopg
import pytest

from tests.sql.conftest import Connection
from tests.sql.graph import (
    apply,
    apply_allowing,
    ask,
    chunk,
    chunks,
    claim,
    dataset,
    end,
    job,
    problems,
    task,
    tasks,
    transitions,
    value,
)

EVERYTHING = """
    SELECT 'dataset' AS kind, to_jsonb(d) - 'modified' AS content FROM opendataflow.dataset d
    UNION ALL SELECT 'job', to_jsonb(j) - 'modified' FROM opendataflow.job j
    UNION ALL SELECT 'link', to_jsonb(l) FROM opendataflow.job_dataset l
    UNION ALL SELECT 'env', to_jsonb(e) FROM opendataflow.job_env e
    UNION ALL SELECT 'chunk', to_jsonb(c) FROM opendataflow.chunk c
    UNION ALL SELECT 'task', to_jsonb(w) FROM opendataflow.task w
    UNION ALL SELECT 'run', to_jsonb(r) FROM opendataflow.run r
    UNION ALL SELECT 'history', to_jsonb(h) FROM opendataflow.history h
    ORDER BY 1, 2
"""

CHAIN = [job("j", ["a"], ["b"]), job("k", ["b"], ["c"]), job("l", ["c"], ["d"])]


@pytest.fixture
def db(rolled_back: Connection) -> Connection:
    return rolled_back


def everything(db: Connection) -> list[dict[str, Any]]:
    """All rows that an apply can change."""
    return db.execute(EVERYTHING).fetchall()


def names(*ids: str) -> list[dict[str, Any]]:
    """Data sets without chunks."""
    return [dataset(i) for i in ids]


def order_of(db: Connection, job_id: str) -> list[str]:
    """The ids of a job's tasks in the order in which they would be claimed."""
    query = "SELECT data_id FROM opendataflow.task WHERE job = %s ORDER BY rank, sort_key"
    return [row["data_id"] for row in db.execute(query, (job_id,))]


# What is made


def test_tasks_and_chunks_are_made_together_downwards_through_all_jobs(db: Connection) -> None:
    woken = apply(db, [dataset("a", "1", "2"), *names("b", "c", "d")], CHAIN)

    assert woken == ["j"]
    assert tasks(db) == {
        f"{name}/{i}": "QUEUED" if name == "j" else "WAITING" for name in ("j", "k", "l") for i in ("1", "2")
    }
    assert chunks(db) == {
        f"{name}/{i}": "READY" if name == "a" else "DECLARED" for name in ("a", "b", "c", "d") for i in ("1", "2")
    }
    assert problems(db) == []


def test_new_chunks_bring_their_tasks_with_them(db: Connection) -> None:
    apply(db, names("a", "b", "c", "d"), CHAIN)
    assert tasks(db) == {}

    ask(db, "publish", "a", "7")

    assert tasks(db) == {"j/7": "QUEUED", "k/7": "WAITING", "l/7": "WAITING"}
    assert chunks(db) == {"a/7": "READY", "b/7": "DECLARED", "c/7": "DECLARED", "d/7": "DECLARED"}
    assert problems(db) == []


def test_an_id_of_any_input_makes_a_task_and_a_chunk_of_every_input(db: Connection) -> None:
    apply(db, [dataset("a1", "1"), dataset("a2", "2"), *names("b")], [job("j", ["a1", "a2"], ["b"])])

    assert tasks(db) == {"j/1": "WAITING", "j/2": "WAITING"}
    assert (chunks(db)["a1/2"], chunks(db)["a2/1"]) == ("DECLARED", "DECLARED")
    assert problems(db) == []


def test_a_job_without_inputs_has_a_task_for_every_id_of_any_output(db: Connection, lease: str) -> None:
    apply(db, [dataset("b", "1"), dataset("c", "2")], [job("j", [], ["b", "c"])])

    assert tasks(db) == {"j/1": "QUEUED", "j/2": "QUEUED"}
    assert set(chunks(db)) == {"b/1", "b/2", "c/1", "c/2"}
    end(db, claim(db, lease, "j")[0], "DONE")
    assert (chunks(db)["b/1"], chunks(db)["c/1"]) == ("READY", "READY")


def test_ids_of_a_chunk_source_are_ready_where_no_job_produces_them_else_declared(db: Connection) -> None:
    apply(db, [dataset("a", "1"), dataset("b", "1", "2")], [job("j", ["a"], ["b"])])

    assert chunks(db) == {"a/1": "READY", "b/1": "DECLARED", "b/2": "DECLARED"}
    assert chunk(db, "a", "1")["published_at"] is not None


def test_ids_that_were_withdrawn_are_not_published_by_an_apply(db: Connection) -> None:
    apply(db, [dataset("a", "1", "2")], [])
    ask(db, "resubmit_chunks", "a", "1")
    ask(db, "hold_chunks", "a", "2")

    apply(db, [dataset("a", "1", "2")], [])

    assert chunks(db) == {"a/1": "RESUBMIT", "a/2": "HOLD"}


def test_a_task_whose_output_is_ready_already_is_done_at_once(db: Connection) -> None:
    apply(db, [dataset("a", "1", "2"), dataset("b", "1")], [])

    apply(db, names("a", "b"), [job("j", ["a"], ["b"])])

    assert tasks(db) == {"j/1": "DONE", "j/2": "QUEUED"}
    assert transitions(db, "task", "j", "1") == ["WAITING", "DONE"]
    assert problems(db) == []


def test_bounds_are_kept_and_replaced_by_newer_ones(db: Connection) -> None:
    for upper in (9, 10):
        apply(db, [{"id": "a", "chunks": [{"id": "x", "bounds": {"upper": upper}}]}], [])
    apply(db, [dataset("a", "x")], [])
    assert chunk(db, "a", "x")["bounds"] == {"upper": 10}


def test_where_a_data_set_lies_is_kept(db: Connection) -> None:
    place = {
        "kind": "table",
        "hostname": "db1",
        "database": "dwh",
        "schemaname": "stage",
        "tablename": "t",
        "username": "etl",
        "encryptedpass": "v1:abc",
        "url": "jdbc:x",
        "format": "jdbc",
        "options": {"fetchsize": "1000"},
    }
    apply(db, [{"id": "a", **place, "chunks": []}], [])
    row = db.execute("SELECT * FROM opendataflow.dataset").fetchone()
    assert row is not None
    assert {name: row[name] for name in place} == place


def test_env_items_are_those_of_the_last_apply(db: Connection) -> None:
    awkward = 'a "quoted" $value\nof two lines, ünïcode'
    apply(db, names("a", "b"), [job("j", ["a"], ["b"], env={"OLD": "1", "KEPT": "2"})])

    apply(db, [], [job("j", ["a"], ["b"], env={"KEPT": awkward, "NEW": ""})])

    rows = db.execute("SELECT name, value FROM opendataflow.job_env WHERE job = 'j' ORDER BY name").fetchall()
    assert [(row["name"], row["value"]) for row in rows] == [("KEPT", awkward), ("NEW", "")]


# The same again


def test_the_same_apply_changes_nothing_the_second_time(db: Connection, lease: str) -> None:
    datasets = [dataset("a", "1", "2", "3", "4", "5"), *names("b", "c", "d")]
    jobs = [*CHAIN[:2], job("l", ["c"], ["d"], descending=True, chunk_from="2", chunk_to="4", env={"A": "1"})]
    apply(db, datasets, jobs)
    runs = claim(db, lease, "j", 4)
    for run, verdict in zip(runs, ("DONE", "RETRYING", "FAILED"), strict=False):
        end(db, run, verdict, delay=3600)
    ask(db, "hold", "j", "5")
    ask(db, "hold_chunks", "b", "1")
    before = everything(db)

    apply(db, datasets, jobs)

    assert everything(db) == before
    assert problems(db) == []


def test_other_limits_change_no_task(db: Connection) -> None:
    apply(db, [dataset("a", "1"), *names("b")], [job("j", ["a"], ["b"])])
    before = [row for row in everything(db) if row["kind"] != "job"]

    apply(db, [], [job("j", ["a"], ["b"], parallelism=7, suspended=True, retry_limit=5, priority=3)])

    after = [row for row in everything(db) if row["kind"] != "job"]
    assert [row for row in after if row["content"].get("kind") != "job"] == before
    changed = {row["content"]["to_state"] for row in after if row not in before}
    assert changed == {"parallelism 7", "suspended"}
    row = db.execute("SELECT parallelism, suspended, retry_limit, priority FROM opendataflow.job").fetchone()
    assert row == {"parallelism": 7, "suspended": True, "retry_limit": 5, "priority": 3}


@pytest.mark.parametrize("priority", [-1001, 1001, 2**31 - 1])
def test_a_priority_has_bounds(db: Connection, priority: int) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="job_priority_check"):
        apply(db, names("a", "b"), [job("j", ["a"], ["b"], priority=priority)])


# Something else


def test_other_inputs_rebuild_the_tasks(db: Connection) -> None:
    apply(db, [dataset("a", "1", "2"), dataset("e", "2", "3"), *names("b")], [job("j", ["a"], ["b"])])

    woken = apply(db, [], [job("j", ["e"], ["b"])])

    assert tasks(db) == {"j/2": "QUEUED", "j/3": "QUEUED"}
    assert woken == ["j"]
    assert problems(db) == []


def test_a_further_input_makes_a_queued_task_wait(db: Connection) -> None:
    apply(db, [dataset("a", "1", "2"), dataset("e", "2"), *names("b")], [job("j", ["a"], ["b"])])

    apply(db, [], [job("j", ["a", "e"], ["b"])])

    assert tasks(db) == {"j/1": "WAITING", "j/2": "QUEUED"}
    assert chunks(db)["e/1"] == "DECLARED"
    assert problems(db) == []


@pytest.mark.parametrize(
    ("inputs", "outputs", "stale"),
    [(["e"], ["b"], True), (["a", "e"], ["b"], True), (["a"], ["b", "f"], False), (["a"], ["b"], False)],
)
def test_a_done_task_becomes_stale_when_its_inputs_change(
    db: Connection, lease: str, inputs: list[str], outputs: list[str], stale: bool
) -> None:
    apply(db, [dataset("a", "1"), dataset("e", "1"), *names("b", "f")], [job("j", ["a"], ["b"])])
    end(db, claim(db, lease, "j")[0], "DONE")

    apply_allowing(db, [], [job("j", inputs, outputs, descending=True)], backfill="none")

    assert (task(db, "j", "1")["state"], task(db, "j", "1")["stale"]) == ("DONE", stale)
    assert problems(db) == []


def test_a_deleted_job_that_is_applied_again_with_the_same_data_sets_is_not_stale(db: Connection, lease: str) -> None:
    apply(db, [dataset("a", "1"), *names("b")], [job("j", ["a"], ["b"])])
    end(db, claim(db, lease, "j")[0], "DONE")
    assert value(db, "SELECT opendataflow.delete_job('j', 'test')")

    apply(db, [], [job("j", ["a"], ["b"])])

    assert (task(db, "j", "1")["state"], task(db, "j", "1")["stale"]) == ("DONE", False)


def test_outputs_that_were_published_before_their_job_came_are_not_stale(db: Connection) -> None:
    apply(db, [dataset("b", "1")], [])

    apply(db, [dataset("a", "1")], [job("j", ["a"], ["b"])])

    assert (task(db, "j", "1")["state"], task(db, "j", "1")["stale"]) == ("DONE", False)


def test_a_stale_task_is_fresh_again_once_it_was_resubmitted_and_done(db: Connection, lease: str) -> None:
    apply(db, [dataset("a", "1"), dataset("e", "1"), *names("b")], [job("j", ["a"], ["b"])])
    end(db, claim(db, lease, "j")[0], "DONE")
    apply(db, [], [job("j", ["e"], ["b"])])
    ask(db, "resubmit", "j", "1")

    end(db, claim(db, lease, "j")[0], "DONE")

    assert task(db, "j", "1")["stale"] is False


@pytest.mark.parametrize("verdict", ["DONE", "RETRYING", "FAILED"])
def test_a_run_releases_what_it_locked_also_when_its_job_has_other_data_sets_meanwhile(
    db: Connection, lease: str, verdict: str
) -> None:
    apply(db, [dataset("a", "1"), dataset("e", "1"), *names("b", "f")], [job("j", ["a"], ["b"])])
    [run] = claim(db, lease, "j")
    apply_allowing(db, [], [job("j", ["e"], ["f"])], backfill="none")
    assert (tasks(db), problems(db)) == ({"j/1": "RUNNING"}, [])

    end(db, run, verdict, delay=3600)

    assert tasks(db) == {"j/1": verdict}
    assert chunks(db) == {
        "a/1": "READY",
        "b/1": "READY" if verdict == "DONE" else "FAILED",
        "e/1": "READY",
        "f/1": "DECLARED",
    }
    assert [chunk(db, name, "1")["readers"] for name in ("a", "e")] == [0, 0]
    assert problems(db) == []


def test_a_task_that_ran_with_the_earlier_data_sets_is_stale_at_its_end(db: Connection, lease: str) -> None:
    apply(db, [dataset("a", "1"), dataset("e", "1"), *names("b")], [job("j", ["a"], ["b"])])
    [run] = claim(db, lease, "j")
    apply(db, [], [job("j", ["e"], ["b"])])

    end(db, run, "DONE")

    assert (task(db, "j", "1")["state"], task(db, "j", "1")["stale"]) == ("DONE", True)


def test_a_running_task_without_an_id_in_the_new_data_sets_goes_on(db: Connection, lease: str) -> None:
    apply(db, [dataset("a", "1"), dataset("e", "2"), *names("b")], [job("j", ["a"], ["b"])])
    [run] = claim(db, lease, "j")

    apply_allowing(db, [], [job("j", ["e"], ["b"])], retire=True)

    assert (tasks(db), problems(db)) == ({"j/1": "RUNNING", "j/2": "QUEUED"}, [])
    end(db, run, "DONE")
    assert (chunks(db)["b/1"], chunk(db, "a", "1")["readers"], problems(db)) == ("RETIRED", 0, [])


def test_a_new_producer_finishes_its_task_when_the_earlier_ones_last_run_makes_the_chunk(
    db: Connection, lease: str
) -> None:
    apply(db, [dataset("a", "1"), *names("b", "f")], [job("j", ["a"], ["b"])])
    [run] = claim(db, lease, "j")
    apply_allowing(db, [], [job("j", ["a"], ["f"]), job("k", ["a"], ["b"])], backfill="none")
    assert tasks(db)["k/1"] == "WAITING"

    end(db, run, "DONE")

    assert (chunks(db)["b/1"], tasks(db)["k/1"]) == ("READY", "DONE")
    assert problems(db) == []


def test_a_range_limits_the_tasks_and_what_follows_from_it(db: Connection) -> None:
    ids = ("2013-01-31", "2013-02-01", "2013-02-28", "2013-03-01")
    limited = job("j", ["a"], ["b"], chunk_from="2013-02-01", chunk_to="2013-02-28")
    apply(db, [dataset("a", *ids), *names("b", "c")], [limited, CHAIN[1]])

    assert set(tasks(db)) == {f"{name}/{i}" for name in ("j", "k") for i in ids[1:3]}
    assert problems(db) == []


def test_a_range_is_in_natural_order_and_open_where_nothing_is_given(db: Connection) -> None:
    apply(
        db,
        [dataset("a", "1", "2", "9", "10", "11"), *names("b", "c")],
        [job("up", ["a"], ["b"], chunk_from="9"), job("down", ["a"], ["c"], chunk_to="9", descending=True)],
    )
    assert order_of(db, "up") == ["9", "10", "11"]
    assert order_of(db, "down") == ["9", "2", "1"]


def test_another_range_adds_and_removes_tasks_and_keeps_what_is_done(db: Connection, lease: str) -> None:
    apply(db, [dataset("a", "1", "2", "3", "4"), *names("b")], [job("j", ["a"], ["b"], chunk_to="3")])
    end(db, claim(db, lease, "j")[0], "DONE")

    apply(db, [], [job("j", ["a"], ["b"], chunk_from="3")])

    assert tasks(db) == {"j/1": "DONE", "j/3": "QUEUED", "j/4": "QUEUED"}
    assert task(db, "j", "1")["stale"] is False
    assert problems(db) == []


@pytest.mark.parametrize(("verb", "state"), [("hold", "HELD"), ("skip", "SKIPPED")])
def test_what_a_person_has_put_aside_is_still_so_when_its_id_comes_back(db: Connection, verb: str, state: str) -> None:
    apply(db, [dataset("a", "1", "2"), *names("b")], [job("j", ["a"], ["b"])])
    ask(db, verb, "j", "1", "2")
    apply(db, [], [job("j", ["a"], ["b"], chunk_from="2")])
    assert tasks(db) == {"j/1": state, "j/2": state}
    (refused,) = ask(db, "force", "j", "1")
    assert (refused["result"], "is not among the ids of job j any more" in refused["message"]) == ("refused", True)
    apply(db, [], [job("j", ["a"], ["b"])])
    ask(db, "release", "j", "1")
    assert tasks(db) == {"j/1": "QUEUED", "j/2": state}
    assert problems(db) == []


def test_what_was_put_aside_of_other_data_sets_is_retired_until_its_id_returns(db: Connection) -> None:
    apply(db, [dataset("a", "1"), dataset("other", "2"), *names("b")], [job("j", ["a"], ["b"])])
    ask(db, "hold", "j", "1")
    apply(db, [], [job("j", ["other"], ["b"])])
    assert tasks(db) == {"j/1": "RETIRED", "j/2": "QUEUED"}
    assert problems(db) == []
    apply(db, [], [job("j", ["a"], ["b"])])
    assert tasks(db) == {"j/1": "HELD"}
    assert problems(db) == []


def test_a_held_task_out_of_range_goes_with_its_release(db: Connection) -> None:
    apply(db, [dataset("a", "1", "2"), *names("b")], [job("j", ["a"], ["b"])])
    ask(db, "hold", "j", "1")
    apply(db, [], [job("j", ["a"], ["b"], chunk_from="2")])
    (released,) = ask(db, "release", "j", "1")
    assert (released["result"], released["state"]) == ("done", None)
    assert released["message"] == "it is not among the ids of job j any more, and goes"
    assert tasks(db) == {"j/2": "QUEUED"}


@pytest.mark.parametrize("changes", [{"descending": True}, {"chunk_from": "0"}])
def test_another_order_or_range_makes_nothing_done_that_has_failed(db: Connection, changes: dict[str, Any]) -> None:
    apply(db, [dataset("a", "1"), *names("b", "c")], [job("j", ["a"], ["b", "c"])])
    ask(db, "publish", "b", "1")
    ask(db, "publish", "c", "1")
    value(db, "SELECT count(*) FROM opendataflow.set_chunks('b', '{1}', 'FAILED', 'ada')")
    assert tasks(db) == {"j/1": "FAILED"}
    apply(db, [], [job("j", ["a"], ["b", "c"], **changes)])
    assert tasks(db) == {"j/1": "FAILED"}


def test_a_task_that_went_with_its_range_comes_back_as_new(db: Connection) -> None:
    apply(db, [dataset("a", "1"), *names("b")], [job("j", ["a"], ["b"])])
    apply(db, [], [job("j", ["a"], ["b"], chunk_from="2")])
    assert tasks(db) == {}
    ask(db, "hold_chunks", "a", "1")

    apply(db, [], [job("j", ["a"], ["b"])])

    assert tasks(db) == {"j/1": "WAITING"}
    assert problems(db) == []


def test_the_other_order_sorts_the_tasks_anew(db: Connection, lease: str) -> None:
    apply(db, [dataset("a", "1", "2", "10"), *names("b")], [job("j", ["a"], ["b"])])
    assert order_of(db, "j") == ["1", "2", "10"]

    apply(db, [], [job("j", ["a"], ["b"], descending=True)])
    assert order_of(db, "j") == ["10", "2", "1"]
    assert claim(db, lease, "j")[0]["data_id"] == "10"
    assert problems(db) == []

    apply(db, [], [job("j", ["a"], ["b"], descending=False)])
    assert order_of(db, "j") == ["1", "2", "10"]
    assert problems(db) == []


def test_a_data_set_that_lost_its_producer_gets_its_declared_ids_ready(db: Connection) -> None:
    apply(db, [dataset("a", "1"), dataset("b", "1"), *names("f")], [job("j", ["a"], ["b"])])
    assert chunks(db)["b/1"] == "DECLARED"

    apply(db, [dataset("b", "1")], [job("j", ["a"], ["f"])])

    assert chunks(db)["b/1"] == "READY"
    assert problems(db) == []


# All or nothing


def test_a_second_producer_is_refused_by_the_database_itself(db: Connection) -> None:
    apply(db, [dataset("a", "1"), *names("b")], [job("j", ["a"], ["b"])])
    before = everything(db)

    with pytest.raises(psycopg.errors.UniqueViolation, match="one_producer"), db.transaction():
        apply(db, [], [job("k", ["a"], ["b"])])

    assert everything(db) == before


@pytest.mark.parametrize(
    "broken",
    [
        [job("k", ["b"], ["c"]), job("l", ["nowhere"], ["d"])],
        [job("k", ["b"], ["c"]), job("l", ["c"], ["b"])],
        [job("k", ["b"], ["c"]), job("l", ["c"], ["d"], parallelism=-1)],
        [job("k", ["b", "b"], ["c"])],
        [job("k", ["b"], ["c"], env={"NULL": None})],
    ],
    ids=["unknown data set", "second producer", "no parallelism", "an input twice", "env without a value"],
)
def test_nothing_is_half_applied_when_something_fails_in_the_middle(
    db: Connection, broken: list[dict[str, Any]]
) -> None:
    apply(db, [dataset("a", "1"), *names("b")], [job("j", ["a"], ["b"])])
    before = everything(db)

    with pytest.raises(psycopg.errors.IntegrityError), db.transaction():
        apply(db, [dataset("a", "1", "2"), dataset("e", "5"), *names("c", "d")], broken)

    assert everything(db) == before


def test_a_producer_can_be_exchanged_for_another_in_one_apply(db: Connection) -> None:
    apply(db, [dataset("a", "1"), *names("b", "f")], [job("j", ["a"], ["b"])])

    apply(db, [], [job("j", ["a"], ["f"]), job("k", ["a"], ["b"])])

    assert tasks(db) == {"j/1": "QUEUED", "k/1": "QUEUED"}
    assert value(db, "SELECT job FROM opendataflow.job_output WHERE dataset = 'b'") == "k"
    assert problems(db) == []
