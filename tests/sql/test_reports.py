"""What the statuses of resources are made of: reports of jobs and of data sets."""

import random
from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from opendataflow.core.status.job_state import ObservedJob, job_status
from opendataflow.store.reports import dataset_counts, dataset_gaps, job_reports
from opendataflow.store.store import Store
from tests.sql.conftest import Connection
from tests.sql.graph import apply, ask, claim, dataset, end, job, open_lease, raw, value

NOW = datetime(2026, 11, 28, tzinfo=UTC)


def report(db: Connection, job_id: str = "j") -> dict[str, Any]:
    """The report of one job."""
    return dict(value(db, "SELECT report FROM opendataflow.job_reports(%s, 10)", [job_id]))


def of_dataset(db: Connection, dataset_id: str) -> dict[str, Any]:
    """The report of a data set."""
    gaps = value(db, "SELECT opendataflow.dataset_gaps(%s, 10)", dataset_id)
    return {"counts": value(db, "SELECT opendataflow.dataset_counts(%s)", dataset_id)["counts"], **gaps}


def three(db: Connection) -> str:
    """A job with three chunks; return a lease."""
    apply(db, [dataset("a", "1", "2", "3"), dataset("b")], [job("j", ["a"], ["b"], retry_limit=9)])
    return open_lease(db)


async def test_one_question_for_many_jobs(db: Connection, store: Store) -> None:
    apply(db, [dataset("a", "1"), dataset("b"), dataset("c")], [job("j", ["a"], ["b"]), job("k", ["b"], ["c"])])
    reports = await job_reports(store, ["j", "k", "unknown"])
    assert {name: r["counts"] for name, r in reports.items()} == {"j": {"QUEUED": 1}, "k": {"WAITING": 1}}


def test_a_status_names_the_engine_that_runs_fewer_runs_than_its_jobs_allow(db: Connection) -> None:
    three(db)
    query = "SELECT opendataflow.open_lease(gen_random_uuid(), 'local', %s, 'boot', '/runs', %s::interval, %s, %s)"
    db.execute("SELECT opendataflow.scale_job('j', 4, 'ada', NULL)")
    for host, ttl, slots, jobs in (
        ("laptop", "1 h", 3, ["j"]),
        ("wide", "1 h", 4, ["j"]),
        ("gone", "-1 s", 1, ["j"]),
        ("other", "1 h", 1, ["k"]),
    ):
        db.execute(query, (host, ttl, slots, jobs))
    found = value(db, "SELECT opendataflow.job_status('j') -> 'limits'")
    assert found == [{"host": "laptop", "slots": 3, "parallelism": 4, "jobs": 1}]
    db.execute("SELECT opendataflow.scale_job('j', 3, 'ada', NULL)")
    assert value(db, "SELECT opendataflow.job_status('j') -> 'limits'") == []


def test_the_last_failures_come_newest_first_and_stay_when_their_chunk_is_done(db: Connection) -> None:
    lease = three(db)
    runs = []
    for number in range(12):
        (run,) = claim(db, lease, "j")
        end(db, run, "RETRYING", message=f"exit code {number}")
        runs.append(run["run"])
        db.execute("SELECT opendataflow.retry_due()")
        raw(db, "DELETE FROM opendataflow.breaker")
    for run in claim(db, lease, "j", 3):
        end(db, run, "DONE")
    found = report(db)
    assert found["counts"] == {"DONE": 3}
    assert [failure["run"] for failure in found["last_failures"]] == runs[:1:-1]
    assert found["last_failures"][0]["message"] == "exit code 11"


def test_runs_that_a_person_has_cancelled_are_no_failures(db: Connection) -> None:
    lease = three(db)
    (run,) = claim(db, lease, "j")
    end(db, run, "FAILED", state="CANCELLED", **{"class": "Cancelled"})
    assert report(db)["last_failures"] == []


def test_a_stale_task_is_counted(db: Connection) -> None:
    lease = three(db)
    for run in claim(db, lease, "j", 3):
        end(db, run, "DONE")
    assert report(db)["stale"] == 0
    ask(db, "publish", "a", "2", "3")
    assert (report(db)["stale"], report(db)["stale_examples"]) == (2, ["2", "3"])


def test_the_request_that_was_done_last_is_reported(db: Connection) -> None:
    three(db)
    assert report(db)["resubmit"] is None
    answer = {"counts": {"done": 1}, "message": "resubmit: 1 done", "refusal": None}
    db.execute("SELECT opendataflow.record_answer('job j', 'fix-1', %s)", (Jsonb(answer),))
    assert report(db)["resubmit"] == {"id": "fix-1", "answer": answer}


def rows_read(db: Connection, table: str) -> int:
    """How many rows of a table were read so far, by scans and by indexes."""
    db.execute("SELECT pg_stat_force_next_flush()")
    query = "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = %s"
    return int(value(db, query, table))


def test_the_last_failures_are_found_by_an_index_however_many_runs_have_succeeded_since(db: Connection) -> None:
    ids = [f"{n:05}" for n in range(1500)]
    apply(db, [dataset("a", *ids), dataset("b")], [job("j", ["a"], ["b"], parallelism=5000, retry_limit=0)])
    lease = open_lease(db)
    for run in claim(db, lease, "j", 3):
        end(db, run, "FAILED")
    for run in claim(db, lease, "j", 1400):
        end(db, run, "DONE")
    db.execute("VACUUM ANALYZE")
    before = rows_read(db, "run")
    assert len(db.execute("SELECT * FROM opendataflow.last_failures('j', 10)").fetchall()) == 3
    assert rows_read(db, "run") - before <= 10


STATES: dict[str, list[str]] = {
    "Done": [],
    "Stale": ["UPDATE opendataflow.task SET stale = true WHERE data_id = '1'"],
    "Waiting": ["UPDATE opendataflow.task SET state = 'WAITING', blockers = 1"],
    "Failed": ["UPDATE opendataflow.task SET state = 'FAILED' WHERE data_id = '1'"],
    "Suspended": ["UPDATE opendataflow.job SET suspended = true"],
    "Deleted": ["UPDATE opendataflow.job SET suspended = true, deleted = true"],
    "Queued": ["UPDATE opendataflow.task SET state = 'QUEUED' WHERE data_id = '1'"],
    "Declaring": [
        """INSERT INTO opendataflow.declaring (kind, id, source, total, batch, actor)
           VALUES ('dataset', 'a', '{"hash": {"buckets": 9}}', 9, 5, 'test')"""
    ],
}


@pytest.mark.parametrize("state", STATES)
def test_the_word_for_a_job_is_the_one_of_list_jobs(db: Connection, state: str) -> None:
    lease = three(db)
    for run in claim(db, lease, "j", 3):
        end(db, run, "DONE")
    for statement in STATES[state]:
        raw(db, statement)
    facts = ObservedJob("j", 1, 1, found=report(db))
    assert job_status(facts, NOW).state == value(db, "SELECT state FROM opendataflow.list_jobs()") == state


def test_the_word_for_a_job_that_runs_or_whose_breaker_is_open_is_the_one_of_list_jobs(db: Connection) -> None:
    ids = list("123456")
    apply(db, [dataset("a", *ids), dataset("b")], [job("j", ["a"], ["b"], retry_limit=0)])
    lease = open_lease(db)
    runs = claim(db, lease, "j", 6)
    for state in ("Running", "BreakerOpen"):
        status = job_status(ObservedJob("j", 1, 1, found=report(db)), NOW)
        assert status.state == value(db, "SELECT state FROM opendataflow.list_jobs()") == state
        for run in runs[:5]:
            end(db, run, "FAILED")
    assert status.last_failures[0].message == "exit code 1"


def statuses(db: Connection, dataset_id: str, of: dict[str, str]) -> None:
    """Give a new data set chunks in these states."""
    apply(db, [{"id": dataset_id}], [])
    for data_id, status in of.items():
        db.execute("SELECT opendataflow.declare_chunks(%s, %s, %s::jsonb[], 'test')", (dataset_id, [data_id], [None]))
        if status == "READY":
            ask(db, "publish", dataset_id, data_id)
        elif status == "HOLD":
            ask(db, "hold_chunks", dataset_id, data_id)


def test_a_data_set_is_counted_with_its_watermark_and_gaps_in_natural_order(db: Connection) -> None:
    ready = {"1.1", "1.2", "1.3", "1.9", "1.11", "1.12"}
    known = {f"1.{n}": "READY" if f"1.{n}" in ready else "DECLARED" for n in range(1, 14)}
    statuses(db, "d", known | {"1.8": "HOLD"})
    assert of_dataset(db, "d") == {
        "counts": {"READY": 6, "DECLARED": 6, "HOLD": 1},
        "watermark": "1.3",
        "gaps": [{"from": "1.4", "to": "1.8", "chunks": 5}, {"from": "1.10", "to": "1.10", "chunks": 1}],
    }


@pytest.mark.parametrize(
    ("known", "watermark"),
    [({}, None), ({"1": "DECLARED", "2": "DECLARED"}, None), ({"1": "READY", "2": "READY"}, "2")],
)
def test_without_gaps(db: Connection, known: dict[str, str], watermark: str | None) -> None:
    statuses(db, "d", known)
    assert (of_dataset(db, "d")["watermark"], of_dataset(db, "d")["gaps"]) == (watermark, [])


async def test_a_data_set_that_is_not_there(store: Store) -> None:
    assert await dataset_counts(store, "nowhere") is None
    assert await dataset_gaps(store, "nowhere") == {"watermark": None, "gaps": []}


def test_which_chunks_are_missing_is_told_apart_where_their_number_stays(db: Connection) -> None:
    def missing() -> int:
        return int(value(db, "SELECT opendataflow.dataset_counts('d')")["missing"])

    statuses(db, "d", {"1": "READY", "2": "HOLD", "3": "READY"})
    before = missing()
    assert missing() == before
    ask(db, "hold_chunks", "d", "3")
    ask(db, "publish", "d", "2")
    assert of_dataset(db, "d")["counts"] == {"READY": 2, "HOLD": 1}
    assert missing() != before


@pytest.mark.parametrize("ids", [["2013-12-31", "2014-01-01", "2014-01-02"], ["01", "02", "10"], ["é1", "é2", "é3"]])
def test_ids_with_digits_in_the_same_places_are_in_natural_order(db: Connection, ids: list[str]) -> None:
    statuses(db, "d", {ids[2]: "READY", ids[0]: "READY", ids[1]: "DECLARED"})
    assert of_dataset(db, "d")["watermark"] == ids[0]
    assert of_dataset(db, "d")["gaps"] == [{"from": ids[1], "to": ids[1], "chunks": 1}]


def expected(ready: list[bool]) -> tuple[str | None, list[dict[str, Any]]]:
    """Watermark and gaps of chunks 0, 1, 2 …, by counting."""
    first = ready.index(False) if False in ready else len(ready)
    last = max((n for n, is_ready in enumerate(ready) if is_ready), default=-1)
    gaps: list[dict[str, Any]] = []
    for n in range(last):
        if not ready[n]:
            if n and not ready[n - 1]:
                gaps[-1] |= {"to": str(n), "chunks": gaps[-1]["chunks"] + 1}
            else:
                gaps.append({"from": str(n), "to": str(n), "chunks": 1})
    return (str(first - 1) if first else None), gaps[:10]


@pytest.mark.parametrize("seed", range(5))
def test_watermark_and_gaps_are_what_counting_finds(db: Connection, seed: int) -> None:
    chance = random.Random(seed)
    ready = [chance.random() < 0.7 for _ in range(60)]
    statuses(db, "d", {str(n): "READY" if is_ready else "DECLARED" for n, is_ready in enumerate(ready)})
    found = of_dataset(db, "d")
    assert (found["watermark"], found["gaps"]) == expected(ready)
