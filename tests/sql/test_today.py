"""`today`, the data set that is built in: days come by themselves, any number of jobs takes them, nobody makes them."""

from typing import Any

import pytest
from psycopg import DatabaseError

from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import (
    apply,
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
    task,
    tasks,
    value,
)


def daily(
    job_id: str = "report", output: str = "table", first_day: str = "2026-11-26", **changes: Any
) -> dict[str, Any]:
    return job(job_id, ["today"], [output], first_day=first_day, **changes)


def publish(db: Connection, day: str, *jobs: str, catch_up: bool = True) -> list[str]:
    return list(
        value(db, "SELECT opendataflow.publish_today(%s, %s, %s, 'test')", list(jobs or ["report"]), day, catch_up)
    )


@pytest.fixture
def report(db: Connection) -> Connection:
    apply(db, [dataset("table")], [daily()])
    return db


def test_a_job_reads_it_without_declaring_it(report: Connection) -> None:
    assert publish(report, "2026-11-28") == ["2026-11-28"]
    assert tasks(report) == {"report/2026-11-28": "QUEUED"}
    assert problems(report) == []


def test_a_day_that_is_there_is_not_published_again(report: Connection) -> None:
    publish(report, "2026-11-28")
    before = chunk(report, "today", "2026-11-28")
    assert publish(report, "2026-11-28") == []
    assert chunk(report, "today", "2026-11-28") == before


def test_the_days_that_an_outage_has_cost_are_caught_up_with(report: Connection) -> None:
    publish(report, "2026-11-28")
    assert publish(report, "2026-12-01") == ["2026-11-29", "2026-11-30", "2026-12-01"]
    assert set(tasks(report).values()) == {"QUEUED"}


def test_a_day_that_somebody_else_published_meanwhile_hides_no_missed_one(report: Connection) -> None:
    publish(report, "2026-11-27")
    publish(report, "2026-11-30", catch_up=False)
    assert publish(report, "2026-11-30") == ["2026-11-28", "2026-11-29"]


def test_before_the_first_day_of_a_job_there_are_none(report: Connection) -> None:
    assert publish(report, "2026-12-24") == ["2026-12-24"]


def test_a_new_job_does_not_begin_with_the_days_of_older_ones(report: Connection) -> None:
    publish(report, "2026-11-27")
    publish(report, "2026-11-28")
    apply(report, [dataset("other")], [daily("second", "other", first_day="2026-11-28")])
    assert sorted(tasks(report)) == ["report/2026-11-27", "report/2026-11-28", "second/2026-11-28"]
    assert problems(report) == []


def test_a_job_that_is_applied_again_keeps_its_first_day(report: Connection) -> None:
    publish(report, "2026-11-27")
    apply(report, [], [daily(first_day="2026-12-24")])
    assert value(report, "SELECT chunk_from FROM opendataflow.job WHERE id = 'report'") == "2026-11-26"
    assert tasks(report) == {"report/2026-11-27": "QUEUED"}


def test_a_range_that_a_file_names_counts_more_than_the_first_day(db: Connection) -> None:
    apply(db, [dataset("table")], [daily(chunk_from="2026-11-01")])
    assert value(db, "SELECT chunk_from FROM opendataflow.job WHERE id = 'report'") == "2026-11-01"


def test_a_held_day_stays_held(report: Connection) -> None:
    publish(report, "2026-11-28")
    ask(report, "hold_chunks", "today", "2026-11-28")
    assert publish(report, "2026-11-28") == []
    assert chunks(report)["today/2026-11-28"] == "HOLD"


def test_jobs_that_do_not_read_it_get_no_days(db: Connection) -> None:
    apply(db, [dataset("a", "1"), dataset("b")], [job("plain", ["a"], ["b"])])
    assert publish(db, "2026-11-28", "plain") == []


def test_a_day_that_another_input_names_waits_until_it_comes(db: Connection) -> None:
    both = job("report", ["sales", "today"], ["table"], first_day="2026-11-26")
    apply(db, [dataset("sales", "2026-11-29"), dataset("table")], [both])
    assert tasks(db) == {"report/2026-11-29": "WAITING"}
    publish(db, "2026-11-29")
    assert tasks(db) == {"report/2026-11-29": "QUEUED"}


def test_a_run_holds_no_lock_on_a_day(report: Connection) -> None:
    publish(report, "2026-11-28")
    (run,) = claim(report, open_lease(report), "report")
    assert chunk(report, "today", "2026-11-28")["readers"] == 0
    assert value(report, "SELECT reads FROM opendataflow.run") == []
    assert problems(report) == []
    end(report, run, "DONE")
    assert task(report, "report", "2026-11-28")["state"] == "DONE"
    assert problems(report) == []


def test_the_run_sees_it_among_its_data_sets(report: Connection) -> None:
    publish(report, "2026-11-28")
    facts = claim_all(report, open_lease(report), "report")["facts"]
    assert [(d["id"], d["itemtype"]) for d in facts["datasets"]] == [("today", "IN"), ("table", "OUT")]


def test_a_hundred_jobs_claim_the_same_day_at_the_same_moment(db: Connection, dsn: str) -> None:
    """Each in a transaction that is still open when the next one claims: nothing is dropped, nobody waits."""
    names = [f"job{number}" for number in range(100)]
    apply(db, [dataset(f"out-{name}") for name in names], [daily(name, f"out-{name}") for name in names])
    publish(db, "2026-11-28", *names)
    lease = open_lease(db)
    connections = [open_connection(dsn) for _ in range(20)]
    for number, name in enumerate(names):
        connection = connections[number % len(connections)]
        if number < len(connections):
            connection.execute("BEGIN")
        answer = claim_all(connection, lease, name)
        assert (len(answer["runs"]), answer["dropped"]) == (1, 0), name
    for connection in connections:
        connection.execute("COMMIT")
        connection.close()
    assert problems(db) == []


def test_nobody_declares_it(db: Connection) -> None:
    with pytest.raises(DatabaseError, match="the data set today is built in"):
        apply(db, [dataset("today", "2026-11-28")], [])
    with pytest.raises(DatabaseError, match="job maker can't make the data set today"):
        apply(db, [dataset("a")], [job("maker", ["a"], ["today"])])


@pytest.mark.parametrize(("verb", "state"), [("skip", "SKIPPED"), ("hold", "HELD")])
def test_a_holiday_is_skipped_or_held_before_it_exists_and_never_starts(
    report: Connection, verb: str, state: str
) -> None:
    [answer] = ask(report, verb, "report", "2026-12-25")
    assert (answer["result"], answer["state"]) == ("done", state)
    assert publish(report, "2026-12-24") == ["2026-12-24"]
    assert publish(report, "2026-12-26") == ["2026-12-25", "2026-12-26"]
    expected = {"report/2026-12-24": "QUEUED", "report/2026-12-25": state, "report/2026-12-26": "QUEUED"}
    assert tasks(report) == expected
    assert [run["data_id"] for run in claim(report, open_lease(report), "report", 5)] == ["2026-12-24", "2026-12-26"]
    assert problems(report) == []


def test_a_day_is_held_for_all_jobs_before_it_exists_and_begins_with_its_release(report: Connection) -> None:
    [answer] = ask(report, "hold_chunks", "today", "2026-12-25")
    assert (answer["result"], answer["state"]) == ("done", "HOLD")
    assert publish(report, "2026-12-25") == []
    assert tasks(report) == {"report/2026-12-25": "WAITING"}
    ask(report, "release_chunks", "today", "2026-12-25")
    assert publish(report, "2026-12-25") == ["2026-12-25"]
    assert tasks(report) == {"report/2026-12-25": "QUEUED"}
    assert problems(report) == []


def test_a_day_is_published_in_advance_and_in_the_past(report: Connection) -> None:
    ask(report, "publish", "today", "2026-12-25", "2026-11-27")
    assert tasks(report) == {"report/2026-12-25": "QUEUED", "report/2026-11-27": "QUEUED"}


@pytest.mark.parametrize("data_id", ["2026-12-32", "2026-02-29", "christmas", "2026-1-1"])
def test_what_is_no_day_is_not_declared_by_a_skip(report: Connection, data_id: str) -> None:
    [answer] = ask(report, "skip", "report", data_id)
    assert answer["result"] == "unknown"
    assert not [key for key in chunks(report) if key.startswith("today/")]


def test_a_skip_of_another_job_declares_no_day(report: Connection) -> None:
    apply(report, [dataset("a", "1"), dataset("b")], [job("other", ["a"], ["b"])])
    [answer] = ask(report, "skip", "other", "2026-12-25")
    assert answer["result"] == "unknown"
    assert not [key for key in chunks(report) if key.startswith("today/")]


@pytest.mark.parametrize("verb", ["skip", "hold"])
def test_a_day_that_one_job_skips_or_holds_in_advance_is_no_task_of_another(report: Connection, verb: str) -> None:
    apply(report, [dataset("daily-out")], [job("daily", ["today"], ["daily-out"], first_day="2026-11-01")])
    ask(report, verb, "report", "2026-12-25")
    assert list(tasks(report)) == ["report/2026-12-25"]
    assert chunks(report) == {}
    ask(report, "release", "report", "2026-12-25")
    assert tasks(report) == {}
    assert problems(report) == []
