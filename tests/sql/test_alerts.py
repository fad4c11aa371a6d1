"""What is reported to people: once when it begins, once when it has recovered, to each target, by one engine only."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.sql import graph
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import apply, ask, claim, dataset, end, job, open_lease, value

IDS = [str(n) for n in range(1, 9)]


@pytest.fixture
def db(shared: Connection) -> Iterator[Connection]:
    """Jobs j and k, which read a; nothing has run yet."""
    with shared.transaction(force_rollback=True):
        datasets = [dataset("a", *IDS), dataset("b"), dataset("c")]
        apply(shared, datasets, [job("j", ["a"], ["b"], backoff_initial=10), job("k", ["a"], ["c"])])
        yield shared


def reported(db: Connection, target: str = "t", *, pause: float = 0, limit: int = 10, ttl: float = 60) -> list[str]:
    """What a target gets now, and takes: "j failed" where it fails, "j failed well" where it does not any more."""
    alerts = taken_on(db, target, pause=pause, limit=limit, ttl=ttl)
    for a in alerts:
        db.execute("SELECT opendataflow.record_alert(%s, %s, %s, %s)", (target, a["job"], a["kind"], a["failing"]))
    return sorted(f"{a['job']} {a['kind']}{'' if a['failing'] else ' well'}" for a in alerts)


def taken_on(
    db: Connection, target: str = "t", *, pause: float = 0, limit: int = 10, ttl: float = 60
) -> list[dict[str, Any]]:
    query = "SELECT * FROM opendataflow.claim_alerts(%s, %s, make_interval(secs => %s), make_interval(secs => %s))"
    return db.execute(query, (target, limit, pause, ttl)).fetchall()


def fail(db: Connection, job_id: str, number: int = 1) -> None:
    """Let some chunks fail for the last time, and none open a breaker."""
    lease = open_lease(db)
    for run in claim(db, lease, job_id, number):
        end(db, run, "FAILED", message="exit code 3: oops", **{"class": "Cancelled", "state": "CANCELLED"})


def test_nothing_is_reported_where_nothing_fails(db: Connection) -> None:
    assert reported(db) == []


def test_the_first_failed_chunk_is_reported_with_its_reason_and_no_other_after_it(db: Connection) -> None:
    fail(db, "j")
    [alert] = taken_on(db)
    assert (alert["job"], alert["kind"], alert["failing"]) == ("j", "failed", True)
    assert (alert["count"], alert["data_id"], alert["message"]) == (1, "1", "exit code 3: oops")
    assert alert["since"] is not None
    db.execute("SELECT opendataflow.record_alert('t', 'j', 'failed', true)")
    fail(db, "j", 3)
    assert reported(db) == []


def test_a_thousand_failed_chunks_are_one_message(db: Connection) -> None:
    apply(db, [dataset("a", *map(str, range(1000)))], [])
    fail(db, "k", 100)
    for _ in range(10):
        fail(db, "k", 100)
    [alert] = taken_on(db)
    assert alert["count"] == value(db, "SELECT count(*) FROM opendataflow.task WHERE state = 'FAILED'") == 1000


def test_the_end_is_reported_once(db: Connection) -> None:
    fail(db, "j", 2)
    assert reported(db) == ["j failed"]
    ask(db, "resubmit", "j", "1")
    assert reported(db) == []  # one is left
    ask(db, "resubmit", "j", "2")
    assert reported(db) == ["j failed well"]
    assert reported(db) == []


def test_jobs_and_kinds_are_told_apart(db: Connection) -> None:
    fail(db, "k")
    for run in claim(db, open_lease(db), "j", 5):
        end(db, run, "RETRYING", delay=3600)
    assert reported(db) == ["j breaker", "k failed"]
    db.execute("UPDATE opendataflow.breaker SET next_probe_at = clock_timestamp()")
    [probe] = claim(db, open_lease(db), "j")
    end(db, probe, "DONE")
    assert reported(db) == ["j breaker well"]


def test_an_open_breaker_is_reported_with_the_number_of_chunks_and_the_last_message(db: Connection) -> None:
    for run in claim(db, open_lease(db), "j", 5):
        end(db, run, "RETRYING", message="no answer", delay=3600)
    [alert] = taken_on(db)
    assert (alert["count"], alert["data_id"], alert["message"]) == (5, None, "no answer")


def test_a_job_that_is_deleted_is_not_failing_any_more(db: Connection) -> None:
    fail(db, "j")
    assert reported(db) == ["j failed"]
    db.execute("UPDATE opendataflow.job SET deleted = true WHERE id = 'j'")
    assert reported(db) == ["j failed well"]


def test_each_target_gets_reports_of_its_own(db: Connection) -> None:
    fail(db, "j")
    assert reported(db, "mail") == ["j failed"]
    assert reported(db, "webhook") == ["j failed"]
    assert reported(db, "mail") == []


def test_what_fails_and_recovers_before_its_report_is_not_reported(db: Connection) -> None:
    fail(db, "j")
    assert len(taken_on(db, ttl=0)) == 1  # and could not be delivered
    ask(db, "resubmit", "j", "1")
    assert reported(db) == []
    assert value(db, "SELECT count(*) FROM opendataflow.alert") == 0


def test_what_flaps_is_reported_at_most_once_in_a_pause_and_then_as_it_is(db: Connection) -> None:
    reports = []
    for _ in range(50):
        fail(db, "j")
        reports += reported(db, pause=60)
        ask(db, "resubmit", "j", "1")
        reports += reported(db, pause=60)
    assert reports == ["j failed"]
    db.execute("UPDATE opendataflow.alert SET reported_at = reported_at - interval '1 minute'")
    assert reported(db, pause=60) == ["j failed well"]


def test_what_one_caller_has_taken_on_no_other_gets(db: Connection) -> None:
    fail(db, "j")
    assert len(taken_on(db)) == 1
    assert taken_on(db) == []


def test_what_was_taken_on_and_not_reported_in_time_is_given_to_the_next(db: Connection) -> None:
    fail(db, "j")
    assert len(taken_on(db, ttl=0)) == 1
    assert reported(db) == ["j failed"]
    assert reported(db) == []


def test_what_could_not_be_delivered_is_given_back_and_comes_again(db: Connection) -> None:
    fail(db, "j")
    fail(db, "k")
    assert len(taken_on(db)) == 2
    db.execute("SELECT opendataflow.release_alerts('t', ARRAY['k'], ARRAY['failed'])")
    assert reported(db) == ["k failed"]


def test_no_more_is_taken_on_at_a_time_than_is_asked_for(db: Connection) -> None:
    fail(db, "j")
    fail(db, "k")
    assert reported(db, limit=1) == ["j failed"]
    assert reported(db, limit=1) == ["k failed"]


def test_what_is_healthy_for_a_day_is_forgotten(db: Connection) -> None:
    fail(db, "j")
    reported(db)
    ask(db, "resubmit", "j", "1")
    reported(db)
    assert value(db, "SELECT count(*) FROM opendataflow.alert") == 1
    db.execute("UPDATE opendataflow.alert SET reported_at = reported_at - interval '2 days'")
    reported(db)
    assert value(db, "SELECT count(*) FROM opendataflow.alert") == 0


def test_a_failed_task_is_found_by_an_index(db: Connection) -> None:
    db.execute("SET LOCAL enable_seqscan = off")
    query = "EXPLAIN SELECT job, kind FROM opendataflow.active_alert"
    plan = "\n".join(next(iter(row.values())) for row in db.execute(query))
    assert "task_state" in plan
    assert "Seq Scan on task" not in plan


def test_two_engines_at_once_get_it_once(dsn: str) -> None:
    with open_connection(dsn) as first, open_connection(dsn) as second:
        apply(first, [dataset("a", "1"), dataset("b")], [job("j", ["a"], ["b"])])
        [run] = claim(first, open_lease(first), "j")
        end(first, run, "FAILED")
        with first.transaction():
            assert len(taken_on(first)) == 1
            second.execute("SET lock_timeout = '300ms'")
            try:
                taken = taken_on(second)  # it may wait for the row that the first one makes
            except graph.TRY_AGAIN:
                taken = []
            assert taken == []
        assert taken_on(second) == []
