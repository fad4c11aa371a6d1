"""When a task may be claimed, in which order, and what a claim and its end leave behind."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import (
    apply,
    apply_allowing,
    ask,
    chunk,
    chunks,
    claim,
    claim_all,
    dataset,
    end,
    job,
    open_lease,
    problems,
    raw,
    task,
    tasks,
    value,
)


@pytest.fixture
def db(rolled_back: Connection) -> Connection:
    return rolled_back


@pytest.fixture
def committed(shared: Connection) -> Iterator[Connection]:
    """The same database without a rollback, for tests with two connections; the rows go at the end."""
    yield shared
    state = "step, history, breaker, alert, run, lease, task, task_count, chunk"
    shared.execute("SET search_path = opendataflow")
    shared.execute(f"TRUNCATE {state}, job_env, job_input, job_output, job, dataset")
    shared.execute("RESET ALL")


def one_job(db: Connection, *ids: str, **changes: Any) -> None:
    """Job j, which makes b of a; these ids of a are READY."""
    apply(db, [dataset("a", *ids), dataset("b")], [job("j", ["a"], ["b"], **changes)])


def claimed(db: Connection, lease: str, job_id: str = "j", limit: int = 100) -> list[str]:
    """Claim; return the ids in the order of the claim."""
    return [run["data_id"] for run in claim(db, lease, job_id, limit)]


# Rule 1: every input is READY


def test_a_task_is_queued_when_all_its_inputs_are(db: Connection, lease: str) -> None:
    inputs = ["a1", "a2", "a3"]
    apply(db, [dataset("a1", "x"), dataset("a2"), dataset("a3"), dataset("b")], [job("j", inputs, ["b"])])
    found = [(task(db, "j", "x")["blockers"], claimed(db, lease))]
    for name in ("a2", "a3"):
        ask(db, "publish", name, "x")
        found.append((task(db, "j", "x")["blockers"], claimed(db, lease)))

    assert found == [(2, []), (1, []), (0, ["x"])]


@pytest.mark.parametrize("status", ["DECLARED", "FAILED", "RESUBMIT", "PENDING", "HOLD", "RUNNING"])
def test_an_input_in_any_other_status_than_ready_blocks(db: Connection, lease: str, status: str) -> None:
    apply(db, [dataset("z", "x"), dataset("a"), dataset("b")], [job("i", ["z"], ["a"]), job("j", ["a"], ["b"])])
    if status == "RUNNING":
        claim(db, lease, "i")
    elif status == "FAILED":
        end(db, claim(db, lease, "i")[0], "FAILED")
    elif status != "DECLARED":
        ask(db, "publish", "a", "x")
    if status == "RESUBMIT":
        ask(db, "resubmit", "i", "x")
    if status == "HOLD":
        ask(db, "hold_chunks", "a", "x")
    if status == "PENDING":
        raw(db, "UPDATE opendataflow.chunk SET status = 'PENDING' WHERE dataset = 'a'")
        db.execute("SELECT opendataflow.recount_blockers('{j}', '{x}')")
    assert chunks(db)["a/x"] == status

    assert (tasks(db)["j/x"], claimed(db, lease)) == ("WAITING", [])
    assert problems(db) == []


# Rule 2: no output is locked


@pytest.mark.parametrize("status", ["RUNNING", "HOLD", "PENDING", "FAILED"])
def test_an_output_in_a_locking_status_blocks(db: Connection, lease: str, status: str) -> None:
    one_job(db, "x")
    assert tasks(db)["j/x"] == "QUEUED"
    if status == "HOLD":
        ask(db, "hold_chunks", "b", "x")
    elif status == "RUNNING":
        # Its earlier producer still writes it.
        claim(db, lease, "j")
        apply_allowing(db, [dataset("b2")], [job("j", ["a"], ["b2"]), job("k", ["a"], ["b"])], backfill="none")
    else:
        raw(db, "UPDATE opendataflow.chunk SET status = %s WHERE dataset = 'b'", status)
        db.execute("SELECT opendataflow.recount_blockers('{j}', '{x}')")
    assert chunks(db)["b/x"] == status
    blocked = "k" if status == "RUNNING" else "j"

    assert (tasks(db)[f"{blocked}/x"], claimed(db, lease, blocked)) == ("WAITING", [])
    assert problems(db) == []


def test_a_ready_output_leaves_nothing_to_do(db: Connection, lease: str) -> None:
    one_job(db, "x")
    ask(db, "publish", "b", "x")
    assert (tasks(db)["j/x"], claimed(db, lease)) == ("DONE", [])


@pytest.mark.parametrize("status", ["DECLARED", "RESUBMIT"])
def test_a_declared_or_resubmitted_output_does_not_block(db: Connection, lease: str, status: str) -> None:
    one_job(db, "x")
    if status == "RESUBMIT":
        end(db, claim(db, lease, "j")[0], "DONE")
        ask(db, "resubmit", "j", "x")
    assert chunks(db)["b/x"] == status

    assert claimed(db, lease) == ["x"]


def test_an_output_that_the_own_run_failed_does_not_block_while_there_are_retries(db: Connection, lease: str) -> None:
    one_job(db, "x")
    end(db, claim(db, lease, "j")[0], "RETRYING")
    assert (chunks(db)["b/x"], task(db, "j", "x")["blockers"]) == ("FAILED", 0)
    db.execute("SELECT * FROM opendataflow.retry_due()")

    assert claimed(db, lease) == ["x"]


def test_an_output_that_the_own_run_failed_ends_the_task_without_retries(db: Connection, lease: str) -> None:
    one_job(db, "x")
    end(db, claim(db, lease, "j")[0], "FAILED")
    db.execute("SELECT * FROM opendataflow.retry_due()")

    assert (tasks(db)["j/x"], claimed(db, lease)) == ("FAILED", [])


def test_an_output_that_another_jobs_run_failed_blocks(db: Connection, lease: str) -> None:
    one_job(db, "x")
    end(db, claim(db, lease, "j")[0], "FAILED")
    apply(db, [dataset("b2")], [job("j", ["a"], ["b2"]), job("k", ["a"], ["b"])])

    assert (tasks(db)["k/x"], claimed(db, lease, "k")) == ("WAITING", [])
    assert problems(db) == []


def test_one_locked_output_of_several_blocks(db: Connection, lease: str) -> None:
    apply(db, [dataset("a", "x"), dataset("b"), dataset("c")], [job("j", ["a"], ["b", "c"])])
    ask(db, "hold_chunks", "c", "x")
    assert claimed(db, lease) == []

    ask(db, "release_chunks", "c", "x")

    assert claimed(db, lease) == ["x"]


# Rule 3: nobody reads an output


def test_readers_of_an_output_block_its_writer_until_they_end(db: Connection, lease: str) -> None:
    apply(db, [dataset("a", "x"), dataset("b"), dataset("c")], [job("j", ["a"], ["b"]), job("k", ["b"], ["c"])])
    end(db, claim(db, lease, "j")[0], "DONE")
    [reading] = claim(db, lease, "k")
    ask(db, "resubmit", "j", "x")
    assert (tasks(db)["j/x"], claimed(db, lease)) == ("WAITING", [])

    answer = end(db, reading, "DONE")

    assert answer["woken"] == ["j"]
    assert claimed(db, lease) == ["x"]
    assert problems(db) == []


@pytest.mark.parametrize(("verdict", "state"), [("RETRYING", "FAILED"), ("FAILED", "FAILED"), ("RETRYING", "LOST")])
def test_a_reader_that_does_not_succeed_releases_what_it_read_all_the_same(
    db: Connection, lease: str, verdict: str, state: str
) -> None:
    one_job(db, "x")
    [run] = claim(db, lease, "j")
    assert chunk(db, "a", "x")["readers"] == 1

    end(db, run, verdict, state=state)

    assert chunk(db, "a", "x")["readers"] == 0


def test_the_last_of_several_readers_lets_the_writer_go_on(db: Connection, lease: str) -> None:
    apply(
        db,
        [dataset("a", "x"), dataset("b"), dataset("c"), dataset("d")],
        [job("j", ["a"], ["b"]), job("k", ["b"], ["c"]), job("l", ["b"], ["d"])],
    )
    end(db, claim(db, lease, "j")[0], "DONE")
    readers = claim(db, lease, "k") + claim(db, lease, "l")
    assert chunk(db, "b", "x")["readers"] == 2
    ask(db, "resubmit", "j", "x")

    found = []
    for reader in readers:
        end(db, reader, "DONE")
        found.append(tasks(db)["j/x"])

    assert found == ["WAITING", "QUEUED"]


# Rule 4: the task is still to do


@pytest.mark.parametrize("state", ["DONE", "FAILED", "HELD", "SKIPPED"])
def test_a_task_that_is_not_to_do_is_not_claimed(db: Connection, lease: str, state: str) -> None:
    one_job(db, "x")
    if state in ("DONE", "FAILED"):
        end(db, claim(db, lease, "j")[0], state)
    elif state == "HELD":
        ask(db, "hold", "j", "x")
    else:
        raw(db, "UPDATE opendataflow.task SET state = 'SKIPPED', held_from = 'QUEUED'")
    assert tasks(db)["j/x"] == state

    assert claimed(db, lease) == []


# All or none


def test_a_success_makes_all_outputs_ready_at_once(db: Connection, lease: str) -> None:
    apply(db, [dataset("a", "x"), dataset("b"), dataset("c")], [job("j", ["a"], ["b", "c"])])
    end(db, claim(db, lease, "j")[0], "DONE")

    rows = [chunk(db, name, "x") for name in ("b", "c")]
    assert [row["status"] for row in rows] == ["READY", "READY"]
    assert rows[0]["fence"] == rows[1]["fence"]


def test_a_failure_leaves_no_output_ready(db: Connection, lease: str) -> None:
    apply(db, [dataset("a", "x"), dataset("b"), dataset("c")], [job("j", ["a"], ["b", "c"])])
    end(db, claim(db, lease, "j")[0], "FAILED")
    assert (chunks(db)["b/x"], chunks(db)["c/x"]) == ("FAILED", "FAILED")


# Order


@pytest.mark.parametrize(
    "ordered",
    [
        ("1", "2", "10"),
        ("1.2", "1.10", "2.0"),
        ("2013-02-01", "2013-02-02", "2013-10-01", "2014-01-01"),
        ("01", "1", "02"),
        ("shard-2", "shard-17", "shard-100"),
        ("a", "a1", "a2b", "a10", "b"),
        ("7", "007b", "x"),
        ("0", "00", "1"),
        ("2013-02-03T23", "2013-02-04T00", "2013-02-04T09", "2013-02-04T10"),
        ("99999999999999999999", "100000000000000000000"),
        ("é1", "é2", "é10"),
    ],
    ids=" < ".join,
)
def test_a_task_is_claimed_in_the_natural_order_of_its_ids_and_backwards(
    db: Connection, lease: str, ordered: tuple[str, ...]
) -> None:
    shuffled = sorted(ordered, key=lambda i: (i[::-1], i))
    one_job(db, *shuffled)
    apply(db, [dataset("c")], [job("down", ["a"], ["c"], descending=True)])

    assert claimed(db, lease) == list(ordered)
    assert claimed(db, lease, "down") == list(reversed(ordered))


def test_a_resubmitted_task_comes_first_then_the_natural_order(db: Connection, lease: str) -> None:
    one_job(db, "1", "2", "3", "4", "10")
    for run in claim(db, lease, "j", 3):
        end(db, run, "DONE")
    ask(db, "resubmit", "j", "3", "2")

    assert claimed(db, lease) == ["2", "3", "4", "10"]


def test_a_resubmitted_task_comes_first_in_descending_order_too(db: Connection, lease: str) -> None:
    one_job(db, "1", "2", "3", "4", descending=True)
    for run in claim(db, lease, "j", 2):
        end(db, run, "DONE")
    ask(db, "resubmit", "j", "3", "4")

    assert claimed(db, lease) == ["4", "3", "2", "1"]


def test_a_resubmitted_task_has_its_place_in_the_natural_order_again_once_it_is_done(
    db: Connection, lease: str
) -> None:
    one_job(db, "1", "2")
    end(db, claim(db, lease, "j")[0], "DONE")
    ask(db, "resubmit", "j", "1")
    end(db, claim(db, lease, "j")[0], "DONE")
    assert task(db, "j", "1")["rank"] == 2


# How much at a time


def test_a_job_never_runs_more_than_its_parallelism(db: Connection, lease: str) -> None:
    one_job(db, "1", "2", "3", "4", "5", parallelism=3)
    runs = claim(db, lease, "j", 2)
    assert [run["data_id"] for run in runs] == ["1", "2"]
    assert claimed(db, lease, limit=2) == ["3"]
    assert claimed(db, open_lease(db)) == []

    end(db, runs[0], "DONE")

    assert claimed(db, lease) == ["4"]


def test_a_claim_takes_no_more_than_it_asks_for(db: Connection, lease: str) -> None:
    one_job(db, "1", "2", "3")
    assert claimed(db, lease, limit=0) == []
    assert claimed(db, lease, limit=2) == ["1", "2"]


def test_lower_parallelism_lets_runs_go_on_and_starts_nothing_new(db: Connection, lease: str) -> None:
    one_job(db, "1", "2", "3", parallelism=2)
    runs = claim(db, lease, "j", 2)
    one_job(db, "1", "2", "3", parallelism=1)
    end(db, runs[0], "DONE")
    assert claimed(db, lease) == []

    end(db, runs[1], "DONE")

    assert claimed(db, lease) == ["3"]


@pytest.mark.parametrize("parallelism", [0, 5])
def test_a_suspended_job_starts_nothing_and_what_runs_ends(db: Connection, lease: str, parallelism: int) -> None:
    one_job(db, "1", "2")
    [run] = claim(db, lease, "j")
    one_job(db, "1", "2", suspended=parallelism > 0, parallelism=parallelism)
    assert claimed(db, lease) == []

    end(db, run, "DONE")

    assert tasks(db) == {"j/1": "DONE", "j/2": "QUEUED"}


# The position


def test_a_claim_goes_on_from_the_position_of_the_last_one(db: Connection, lease: str) -> None:
    one_job(db, "1", "2", "3")
    first = claim_all(db, lease, "j", 1)
    end(db, first["runs"][0], "DONE")
    ask(db, "resubmit", "j", "1")

    second = claim_all(db, lease, "j", 5, first["rank"], first["key"])
    assert [run["data_id"] for run in second["runs"]] == ["2", "3"]

    # What came before the position is found without it.
    assert claimed(db, lease) == ["1"]


def test_the_position_stays_where_nothing_is_found(db: Connection, lease: str) -> None:
    one_job(db, "1")
    first = claim_all(db, lease, "j")
    again = claim_all(db, lease, "j", 1, first["rank"], first["key"])
    assert (again["runs"], again["rank"], again["key"]) == ([], first["rank"], first["key"])


def test_the_position_never_passes_a_task_that_was_dropped(committed: Connection, dsn_of: str) -> None:
    one_job(committed, "1", "2", "3", "4")
    lease = open_lease(committed)
    with open_connection(dsn_of) as other, other.transaction():
        other.execute("SELECT FROM opendataflow.chunk WHERE dataset = 'a' AND data_id = '2' FOR UPDATE")
        first = claim_all(committed, lease, "j", 3)
    assert [run["data_id"] for run in first["runs"]] == ["1", "3", "4"]
    assert first["dropped"] == 1
    row = task(committed, "j", "2")
    assert (row["state"], row["attempts"], row["run"]) == ("QUEUED", 0, None)

    second = claim_all(committed, lease, "j", 3, first["rank"], first["key"])

    assert [run["data_id"] for run in second["runs"]] == ["2"]


@pytest.mark.parametrize("locked", ["a", "b"])
def test_a_claim_drops_a_task_whose_chunks_are_locked_and_does_not_wait(
    committed: Connection, dsn_of: str, locked: str
) -> None:
    one_job(committed, "1")
    lease = open_lease(committed)
    with open_connection(dsn_of) as other, other.transaction():
        other.execute("SELECT FROM opendataflow.chunk WHERE dataset = %s FOR UPDATE", (locked,))
        committed.execute("SET lock_timeout = '60s'")
        answer = claim_all(committed, lease, "j", 3)

    assert (answer["runs"], answer["dropped"], answer["rank"], answer["key"]) == ([], 1, -1, "")
    assert claimed(committed, lease) == ["1"]


def test_a_claim_passes_by_a_task_that_somebody_else_has_locked(committed: Connection, dsn_of: str) -> None:
    one_job(committed, "1", "2")
    lease = open_lease(committed)
    with open_connection(dsn_of) as other, other.transaction():
        other.execute("SELECT FROM opendataflow.task WHERE data_id = '1' FOR UPDATE")
        committed.execute("SET lock_timeout = '60s'")
        assert claimed(committed, lease) == ["2"]

    assert claimed(committed, lease) == ["1"]


def test_a_claim_waits_for_another_claim_of_the_same_job_and_counts_its_runs(
    committed: Connection, dsn_of: str
) -> None:
    one_job(committed, "1", "2", parallelism=1)
    lease = open_lease(committed)
    with open_connection(dsn_of) as other:
        with other.transaction():
            assert claimed(other, lease) == ["1"]
            committed.execute("SET lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable), committed.transaction():
                claim(committed, lease, "j")
        assert claimed(committed, lease) == []


@pytest.fixture
def dsn_of(shared: Connection) -> str:
    """The address of the module's database, for another connection."""
    return f"{shared.info.dsn} password={shared.info.password}" if shared.info.password else shared.info.dsn


# Leases


def test_an_expired_lease_claims_nothing(db: Connection) -> None:
    one_job(db, "x")
    lease = open_lease(db, seconds=-1)

    with pytest.raises(psycopg.Error, match=f"the lease {lease} has ended: open a new one") as error, db.transaction():
        claim(db, lease, "j")

    assert error.value.sqlstate == "DF003"
    assert tasks(db) == {"j/x": "QUEUED"}


def test_a_lease_that_was_closed_claims_nothing(db: Connection, lease: str) -> None:
    one_job(db, "x")
    db.execute("SELECT opendataflow.close_lease(%s::uuid)", (lease,))
    with pytest.raises(psycopg.Error, match="has ended: open a new one"), db.transaction():
        claim(db, lease, "j")


def test_a_lease_that_is_renewed_late_claims_again(db: Connection) -> None:
    one_job(db, "x")
    lease = open_lease(db, seconds=-1)

    assert value(db, "SELECT opendataflow.renew_lease(%s::uuid, interval '1 min')", lease) is True

    assert claimed(db, lease) == ["x"]


def test_a_lease_that_is_gone_is_not_renewed(db: Connection, lease: str) -> None:
    db.execute("SELECT opendataflow.close_lease(%s::uuid)", (lease,))
    assert value(db, "SELECT opendataflow.renew_lease(%s::uuid, interval '1 min')", lease) is False


def test_what_a_lease_claimed_goes_on_and_is_committed_after_its_end(db: Connection, lease: str) -> None:
    one_job(db, "x")
    [run] = claim(db, lease, "j")
    db.execute("SELECT opendataflow.close_lease(%s::uuid)", (lease,))
    assert tasks(db)["j/x"] == "RUNNING"

    assert end(db, run, "DONE")["task_state"] == "DONE"


def test_an_engine_finds_its_own_runs_and_those_of_dead_leases(db: Connection, lease: str) -> None:
    one_job(db, "1", "2")
    dead = open_lease(db)
    claim(db, dead, "j")
    [mine] = claim(db, lease, "j")
    db.execute("SELECT opendataflow.close_lease(%s::uuid)", (dead,))

    query = "SELECT run ->> 'data_id' AS id, lease_lives FROM opendataflow.running_runs(%s::uuid, %s)"

    assert db.execute(query, (lease, True)).fetchall() == [{"id": "2", "lease_lives": True}]
    assert db.execute(query, (lease, False)).fetchall() == [{"id": "1", "lease_lives": False}]
    end(db, mine, "DONE")
    assert db.execute(query, (lease, True)).fetchall() == []


# Lost answers and old fences


def test_an_outcome_that_is_reported_twice_reads_what_happened_the_first_time(db: Connection, lease: str) -> None:
    one_job(db, "x")
    [run] = claim(db, lease, "j")
    first = end(db, run, "DONE")
    length = value(db, "SELECT count(*) FROM opendataflow.history")

    second = end(db, run, "FAILED")

    assert (first["already"], first["run_state"], first["task_state"]) == (False, "SUCCEEDED", "DONE")
    assert (second["already"], second["run_state"], second["task_state"]) == (True, "SUCCEEDED", "DONE")
    assert value(db, "SELECT count(*) FROM opendataflow.history") == length
    assert chunk(db, "a", "x")["readers"] == 0


@pytest.mark.parametrize("verdict", ["DONE", "FAILED"])
def test_an_older_fence_never_commits(db: Connection, lease: str, verdict: str) -> None:
    one_job(db, "x")
    [old] = claim(db, lease, "j")
    end(db, old, "RETRYING", state="LOST")
    db.execute("SELECT * FROM opendataflow.retry_due()")
    [new] = claim(db, lease, "j")

    assert end(db, old, verdict)["already"] is True
    assert end(db, {**new, "fence": old["fence"]}, verdict)["already"] is True

    assert (tasks(db)["j/x"], chunks(db)["b/x"]) == ("RUNNING", "RUNNING")
    assert (chunk(db, "b", "x")["fence"], chunk(db, "a", "x")["readers"]) == (new["fence"], 1)
    assert end(db, new, "DONE")["already"] is False
    assert problems(db) == []


def test_the_outcome_of_an_old_run_changes_nothing_after_a_publication(db: Connection, lease: str) -> None:
    one_job(db, "x")
    [run] = claim(db, lease, "j")
    end(db, run, "RETRYING", state="LOST")
    ask(db, "publish", "b", "x")

    end(db, run, "FAILED")

    assert (tasks(db)["j/x"], chunks(db)["b/x"]) == ("DONE", "READY")


def test_outcomes_of_many_runs_are_committed_together_and_each_is_answered(db: Connection, lease: str) -> None:
    one_job(db, "1", "2", "3")
    runs = claim(db, lease, "j", 3)
    end(db, runs[1], "FAILED")
    outcomes = [
        {
            "run": run["run"],
            "fence": run["fence"],
            "verdict": "DONE",
            "state": "SUCCEEDED",
            "class": "Success",
            "message": "",
        }
        for run in runs
    ]

    rows = db.execute("SELECT * FROM opendataflow.complete(%s, 'test')", (json.dumps(outcomes),)).fetchall()

    assert {row["run"]: (row["task_state"], row["already"]) for row in rows} == {
        runs[0]["run"]: ("DONE", False),
        runs[1]["run"]: ("FAILED", True),
        runs[2]["run"]: ("DONE", False),
    }
    assert problems(db) == []


def test_fences_grow_with_every_claim_and_publication(db: Connection, lease: str) -> None:
    one_job(db, "1", "2")
    fences = [run["fence"] for run in claim(db, lease, "j", 2)]
    ask(db, "publish", "a", "3")
    fences.append(chunk(db, "a", "3")["fence"])
    fences += [run["fence"] for run in claim(db, open_lease(db), "j")]

    assert fences == sorted(set(fences))
    assert fences[0] > chunk(db, "a", "2")["fence"]


def test_fences_grow_although_the_database_has_forgotten_some_of_them(db: Connection, lease: str) -> None:
    one_job(db, "1", "2")
    (lost,) = claim(db, lease, "j", 1)
    db.execute("SELECT setval('opendataflow.fence', 3)")  # what an old dump brings back
    (run,) = claim(db, lease, "j", 1)
    assert run["fence"] > lost["fence"]
    db.execute("SELECT setval('opendataflow.fence', 3)")
    ask(db, "publish", "a", "3")
    assert chunk(db, "a", "3")["fence"] > run["fence"]


def test_fences_grow_although_the_clock_has_gone_back(db: Connection, lease: str) -> None:
    one_job(db, "1", "2")
    ahead = value(
        db, "SELECT setval('opendataflow.fence', (extract(epoch FROM now() + interval '1 day') * 1e6)::bigint)"
    )
    assert [run["fence"] for run in claim(db, lease, "j", 2)] == [ahead + 1, ahead + 2]


def test_no_fence_is_given_twice_however_many_sessions_ask(dsn: str) -> None:
    def ask_often(_: int) -> list[int]:
        with open_connection(dsn) as connection:
            asked = "SELECT opendataflow.next_fence() AS fence FROM generate_series(1, 20)"
            return [row["fence"] for _ in range(50) for row in connection.execute(asked).fetchall()]

    with ThreadPoolExecutor(4) as pool:
        given = list(pool.map(ask_often, range(4)))
    assert all(fences == sorted(fences) for fences in given)
    assert len({fence for fences in given for fence in fences}) == 4 * 50 * 20


def test_a_run_records_what_it_locked_and_the_versions_that_it_reads(db: Connection, lease: str) -> None:
    apply(db, [dataset("a2", "x"), dataset("a1"), dataset("b")], [job("j", ["a2", "a1"], ["b"])])
    ask(db, "publish", "a1", "x")
    versions = [chunk(db, name, "x")["fence"] for name in ("a1", "a2")]

    [run] = claim(db, lease, "j")
    ask(db, "publish", "a1", "x")

    row = db.execute("SELECT * FROM opendataflow.run WHERE id = %s", (run["run"],)).fetchone()
    assert row is not None
    assert dict(zip(row["reads"], row["read_fences"], strict=True)) == dict(zip(("a1", "a2"), versions, strict=True))
    assert (row["writes"], row["fence"], row["host"], row["runs_home"]) == (["b"], run["fence"], "host", "/runs")


def test_a_run_gets_the_bounds_of_its_chunks(db: Connection, lease: str) -> None:
    bounds = {"lower": 1, "upper": 9}
    apply(db, [{"id": "a", "chunks": [{"id": "x", "bounds": bounds}]}, dataset("b")], [job("j", ["a"], ["b"])])

    assert claim(db, lease, "j")[0]["bounds"] == {"a": bounds}


def test_a_claim_for_a_job_that_is_not_there_is_refused(db: Connection, lease: str) -> None:
    with pytest.raises(psycopg.Error, match="there is no job nobody") as error, db.transaction():
        claim(db, lease, "nobody")
    assert error.value.sqlstate == "DF002"
