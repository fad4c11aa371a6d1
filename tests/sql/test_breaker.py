"""The breaker of a job: what opens it, what it lets through, what it costs, and what closes it.

Seen at others: an outage of one target consumes the retries of every task, and somebody has to restart them all.
"""

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.sql import graph
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import Run, apply, ask, claim, dataset, end, job, open_lease, problems, task, value

IDS = [str(n) for n in range(1, 9)]


@pytest.fixture
def db(rolled_back: Connection) -> Connection:
    return rolled_back


class Target:
    """Job j makes b of a, with 8 chunks; its runs end as a test says. Backoff: 10 s, 20 s … 60 s."""

    def __init__(self, db: Connection, **changes: Any) -> None:
        self.db = db
        limits = {"retry_limit": 2, "backoff_initial": 10, "backoff_maximum": 60, **changes}
        apply(db, [dataset("a", *IDS), dataset("b")], [job("j", ["a"], ["b"], **limits)])
        self.lease = open_lease(db)

    def claim(self, limit: int = 1) -> list[Run]:
        return claim(self.db, self.lease, "j", limit)

    def fail(self, *runs: Run, verdict: str = "RETRYING", **changes: Any) -> list[dict[str, Any]]:
        return [end(self.db, run, verdict, **{"delay": 3600, **changes}) for run in runs]

    def open(self) -> None:
        """Five chunks fail in a row."""
        self.fail(*self.claim(5))
        assert self.is_open()

    def probe(self) -> Run:
        """The next probe, after its pause."""
        self.pass_pause()
        [run] = self.claim(8)
        return run

    def pass_pause(self) -> None:
        self.db.execute(
            "UPDATE opendataflow.breaker SET next_probe_at = clock_timestamp() WHERE next_probe_at IS NOT NULL"
        )
        self.db.execute("SELECT opendataflow.retry_due()")

    def row(self) -> dict[str, Any] | None:
        return self.db.execute("SELECT * FROM opendataflow.breaker WHERE job = 'j'").fetchone()

    def is_open(self) -> bool:
        row = self.row()
        return row is not None and row["opened_at"] is not None

    @property
    def pause(self) -> float:
        """Seconds from the end of the run that has opened it, or of the last probe, to the next probe, rounded."""
        query = """SELECT round(extract(epoch FROM b.next_probe_at - max(r.finished_at)))
                   FROM opendataflow.breaker b, opendataflow.run r
                   WHERE r.finished_at <= b.opened_at OR r.claimed_at > b.opened_at GROUP BY b.next_probe_at"""
        return float(value(self.db, query))

    @property
    def attempts(self) -> dict[str, int]:
        """By data id, where there are any."""
        query = "SELECT data_id, attempts + infrastructure_attempts AS n FROM opendataflow.task ORDER BY sort_key"
        return {row["data_id"]: row["n"] for row in self.db.execute(query) if row["n"]}


@pytest.fixture
def target(db: Connection) -> Target:
    return Target(db)


# What opens it -------------------------------------------------------------------------------------------


def test_five_different_chunks_that_fail_in_a_row_open_it(target: Target) -> None:
    runs = target.claim(5)
    rows = target.fail(*runs[:4], message="no answer")
    assert not target.is_open()
    rows += target.fail(runs[4], message="connection refused")
    assert [row["spared"] for row in rows] == [False] * 4 + [True]
    assert target.is_open()
    breakers = [row["breaker"] for row in rows if row["breaker"]]
    assert breakers == [{"opened": True, "chunks": 5, "message": "connection refused", "pause": 10}]
    assert problems(target.db) == []


def test_a_success_between_starts_the_count_anew(target: Target) -> None:
    runs = target.claim(8)
    target.fail(*runs[:4])
    end(target.db, runs[4], "DONE")
    assert target.row() is None
    target.fail(*runs[5:])
    assert not target.is_open()


def test_the_order_in_which_the_runs_of_one_commit_ended_counts(target: Target) -> None:
    runs = target.claim(8)
    verdicts = [*["RETRYING"] * 4, "DONE", *["RETRYING"] * 3]
    outcomes = [
        {
            "run": run["run"],
            "fence": run["fence"],
            "verdict": verdict,
            "state": "SUCCEEDED" if verdict == "DONE" else "FAILED",
            "class": "Application",
            "delay": 0,
        }
        for run, verdict in zip(runs, verdicts, strict=True)
    ]
    target.db.execute("SELECT opendataflow.complete(%s, 'test')", (Jsonb(outcomes),))
    row = target.row()
    assert row is not None
    assert (row["failed"], row["opened_at"]) == (["6", "7", "8"], None)


def test_one_chunk_that_fails_again_and_again_is_one_chunk(target: Target) -> None:
    for _ in range(7):
        [run] = target.claim()
        assert run["data_id"] == "1"
        target.fail(run, delay=0)
        target.db.execute("SELECT opendataflow.retry_due()")
    row = target.row()
    assert row is not None
    assert row["failed"] == ["1"]


@pytest.mark.parametrize("kind", ["Application", "DeadlineExceeded", "OOMKilled", "Infrastructure"])
def test_every_kind_of_failure_that_the_target_may_cause_counts(target: Target, kind: str) -> None:
    target.fail(*target.claim(5), **{"class": kind})
    assert target.is_open()


@pytest.mark.parametrize(("state", "kind"), [("LOST", "Infrastructure"), ("CANCELLED", "Cancelled")])
def test_runs_that_a_person_cancels_or_whose_runner_dies_do_not_count(target: Target, state: str, kind: str) -> None:
    target.fail(*target.claim(8), verdict="FAILED", state=state, **{"class": kind})
    assert target.row() is None


def test_other_jobs_are_not_concerned(target: Target) -> None:
    target.open()
    apply(target.db, [dataset("c")], [job("k", ["a"], ["c"])])
    assert len(claim(target.db, target.lease, "k", 8)) == 8


# What it lets through ------------------------------------------------------------------------------------


def test_while_it_is_open_nothing_starts_before_the_pause_is_over_then_one_probe(target: Target) -> None:
    target.open()
    assert target.claim(8) == []
    target.pass_pause()
    assert [run["data_id"] for run in target.claim(8)] == ["6"]
    assert target.claim(8) == []  # also not by another engine: its rows say it
    assert claim(target.db, open_lease(target.db), "j", 8) == []
    assert problems(target.db) == []


@pytest.mark.parametrize("commits", [True, False])
def test_a_claim_that_comes_while_a_failure_is_committed_waits_to_see_whether_that_opens_it(
    dsn: str, *, commits: bool
) -> None:
    with open_connection(dsn) as db, open_connection(dsn) as other, ThreadPoolExecutor(1) as pool:
        target = Target(db)
        runs = target.claim(5)
        target.fail(*runs[:4])
        with db.transaction(force_rollback=not commits):
            target.fail(runs[4])
            claimed = pool.submit(claim, other, target.lease, "j", 8)
            with pytest.raises(FutureTimeoutError):
                claimed.result(0.3)
        assert target.is_open() == commits
        assert len(claimed.result()) == (0 if commits else 3)


def test_engines_are_not_sent_to_a_job_that_can_not_be_probed_now(target: Target) -> None:
    def claimable() -> list[str]:
        return [
            r["j"] for r in target.db.execute("SELECT claimable_jobs AS j FROM opendataflow.claimable_jobs(ARRAY['j'])")
        ]

    target.open()
    assert claimable() == []
    target.pass_pause()
    assert claimable() == ["j"]
    target.claim()
    assert claimable() == []


def test_chunks_take_turns_so_that_some_bad_ones_do_not_keep_it_open(target: Target) -> None:
    target.open()
    tried = []
    for _ in range(9):
        run = target.probe()
        tried.append(run["data_id"])
        target.fail(run)
    assert tried == ["6", "7", "8", "1", "2", "3", "4", "5", "6"]


def test_chunks_of_a_job_that_goes_downwards_take_turns_too(db: Connection) -> None:
    target = Target(db, descending=True)
    target.open()
    tried = []
    for _ in range(4):
        run = target.probe()
        tried.append(run["data_id"])
        target.fail(run)
    assert tried == ["3", "2", "1", "8"]


def test_the_pause_grows_by_the_backoff_of_the_job_with_each_failed_probe(target: Target) -> None:
    target.open()
    pauses = [target.pause]
    for _ in range(4):
        target.fail(target.probe())
        pauses.append(target.pause)
    assert pauses == [10, 20, 40, 60, 60]


def test_runs_that_were_in_flight_do_not_make_the_pause_grow(target: Target) -> None:
    runs = target.claim(8)
    target.fail(*runs[:5])
    target.fail(*runs[5:])
    assert target.pause == 10
    assert problems(target.db) == []


def test_a_forced_chunk_is_the_probe_at_once(target: Target) -> None:
    target.open()
    assert ask(target.db, "force", "j", "4", "7")[0]["result"] == "done"
    [run] = target.claim(8)
    assert run["data_id"] == "4"
    assert target.claim(8) == []
    end(target.db, run, "DONE")
    assert not target.is_open()


def test_a_forced_chunk_that_fails_waits_like_the_others(target: Target) -> None:
    target.open()
    ask(target.db, "force", "j", "4")
    target.fail(*target.claim(8))
    target.db.execute("SELECT opendataflow.retry_due()")
    assert target.claim(8) == []
    assert target.pause == 20
    assert problems(target.db) == []


def test_a_resubmit_does_not_close_it_and_is_probed_next(target: Target) -> None:
    target.open()
    ask(target.db, "resubmit", "j", "5")
    assert target.claim(8) == []
    assert target.probe()["data_id"] == "5"


def test_a_probe_that_is_lost_or_cancelled_is_followed_by_another_with_no_longer_pause(target: Target) -> None:
    target.open()
    for state, kind in (("LOST", "Infrastructure"), ("CANCELLED", "Cancelled")):
        target.fail(target.probe(), verdict="FAILED", state=state, **{"class": kind})
    row = target.row()
    assert row is not None
    assert (row["probes"], row["probe"]) == (0, None)
    assert len(target.claim(8)) == 1


# What it costs -------------------------------------------------------------------------------------------


def test_the_failures_that_open_it_get_their_attempts_back(target: Target) -> None:
    target.open()
    assert target.attempts == {}
    assert [graph.tasks(target.db)[f"j/{i}"] for i in IDS[:5]] == ["RETRYING"] * 5


def test_what_was_failed_already_for_them_is_tried_again(db: Connection) -> None:
    target = Target(db, retry_limit=0)
    runs = target.claim(5)
    target.fail(*runs[:4], verdict="FAILED")
    assert list(graph.tasks(db).values()).count("FAILED") == 4
    target.fail(runs[4], verdict="FAILED")
    assert "FAILED" not in graph.tasks(db).values()
    target.db.execute("SELECT opendataflow.retry_due()")
    assert set(graph.tasks(db).values()) == {"QUEUED"}
    assert problems(db) == []


def test_all_attempts_that_a_chunk_consumed_since_the_last_success_come_back(target: Target) -> None:
    runs = target.claim(4)
    target.fail(*runs, verdict="RETRYING", delay=0)
    target.db.execute("SELECT opendataflow.retry_due()")
    target.fail(*target.claim(4), verdict="RETRYING")
    assert target.attempts == dict.fromkeys(IDS[:4], 2)
    target.fail(*target.claim())
    assert target.attempts == {}


def test_attempts_that_were_consumed_before_a_success_stay_consumed(target: Target) -> None:
    runs = target.claim(6)
    target.fail(runs[0], delay=0)
    end(target.db, runs[5], "DONE")
    target.db.execute("SELECT opendataflow.retry_due()")
    target.fail(*runs[1:5], *target.claim())
    assert target.is_open()
    assert target.attempts == {"1": 1}


@pytest.mark.parametrize("kind", ["Application", "Infrastructure"])
def test_failures_while_it_is_open_consume_no_budget_whatever_the_engine_reports(target: Target, kind: str) -> None:
    runs = target.claim(8)
    target.fail(*runs[:5])
    rows = target.fail(*runs[5:], verdict="FAILED", **{"class": kind})
    assert {row["task_state"] for row in rows} == {"RETRYING"}
    row = target.fail(target.probe(), verdict="FAILED", **{"class": kind})[0]
    assert row["task_state"] == "RETRYING"
    assert target.attempts == {}
    assert problems(target.db) == []


def test_a_run_that_was_in_flight_at_the_opening_consumes_nothing_also_when_it_ends_after_the_close(
    target: Target,
) -> None:
    first = target.claim(8)[0]
    target.fail(first, delay=0)
    target.db.execute("SELECT opendataflow.retry_due()")
    [late] = target.claim()
    assert (late["data_id"], late["attempt"]) == ("1", 2)
    others = target.db.execute(
        "SELECT run, fence, data_id FROM opendataflow.task WHERE state = 'RUNNING' AND data_id <> '1'"
    )
    runs = {row["data_id"]: row for row in others.fetchall()}
    target.fail(*(runs[i] for i in ("2", "3", "4", "5")))
    assert target.is_open()
    end(target.db, runs["6"], "DONE")
    assert not target.is_open()
    assert target.fail(late, verdict="FAILED")[0]["task_state"] == "RETRYING"
    assert target.attempts == {}


def test_a_cancelled_run_is_not_tried_again_also_while_it_is_open(target: Target) -> None:
    target.open()
    probe = target.probe()
    ask(target.db, "cancel", "j", probe["data_id"])
    assert target.fail(probe)[0]["task_state"] == "FAILED"
    assert problems(target.db) == []


def test_the_same_chunks_are_not_forgiven_twice_in_a_row(db: Connection) -> None:
    target = Target(db, parallelism=1)
    good = iter(["6", "7", "8"])
    for consumed in (0, 1, 2):
        for i in IDS[:5]:  # they are bad themselves, and come first in order
            [run] = target.claim()
            assert run["data_id"] == i
            target.fail(run, delay=0)
        assert target.attempts == ({} if consumed == 0 else dict.fromkeys(IDS[:5], consumed))
        probe = target.probe()
        assert probe["data_id"] == next(good)
        end(db, probe, "DONE")
        target.db.execute("SELECT opendataflow.retry_due()")
    assert problems(db) == []


def test_forgiveness_is_forgotten_when_the_chunks_have_succeeded(target: Target) -> None:
    target.open()
    end(target.db, target.probe(), "DONE")
    assert target.row() is not None
    for run in target.claim(8):
        end(target.db, run, "DONE")
    assert target.row() is None


# What closes it ------------------------------------------------------------------------------------------


def test_one_success_closes_it_at_once_and_everything_goes_on_in_parallel(target: Target) -> None:
    target.open()
    target.fail(target.probe())
    probe = target.probe()
    row = end(target.db, probe, "DONE")
    assert (row["breaker"]["opened"], row["breaker"]["probes"]) == (False, 1)
    assert len(target.claim(8)) == 7


def test_the_success_of_a_run_that_was_in_flight_closes_it_too(target: Target) -> None:
    runs = target.claim(8)
    target.fail(*runs[:5])
    end(target.db, runs[5], "DONE")
    assert not target.is_open()
    assert problems(target.db) == []


# Who sees it ---------------------------------------------------------------------------------------------


def test_status_why_and_the_list_of_jobs_show_it(target: Target) -> None:
    target.open()
    status = value(target.db, "SELECT opendataflow.job_status('j')")["breaker"]
    assert (status["chunks"], status["message"], status["probes"]) == (5, "exit code 1", 0)
    assert value(target.db, "SELECT opendataflow.why('j', '7')")["breaker"]["opened_at"] == status["opened_at"]
    assert value(target.db, "SELECT state FROM opendataflow.list_jobs()") == "BreakerOpen"
    end(target.db, target.probe(), "DONE")
    assert value(target.db, "SELECT opendataflow.job_status('j')")["breaker"] is None


def test_a_job_is_probed_in_vain_when_more_probes_have_failed_than_a_chunk_has_retries(target: Target) -> None:
    target.open()
    seen = []
    for _ in range(4):
        seen.append(value(target.db, "SELECT probed_in_vain FROM opendataflow.progress(ARRAY['j'])"))
        target.fail(target.probe())
    assert seen == [False, False, False, True]


def test_nothing_is_written_where_nothing_fails(target: Target) -> None:
    for run in target.claim(8):
        end(target.db, run, "DONE")
    assert value(target.db, "SELECT count(*) FROM opendataflow.breaker") == 0
    assert task(target.db, "j", "1")["state"] == "DONE"
