"""The unit tests of the project of a job: what runs report of them, and what may start meanwhile."""

from typing import Any

import pytest

from tests.sql.conftest import Connection
from tests.sql.graph import Run, apply, ask, claim, dataset, end, job, open_lease, task, value


@pytest.fixture
def db(rolled_back: Connection) -> Connection:
    return rolled_back


class Guarded:
    """Job j makes b of a, with 8 chunks, and wants its tests to pass."""

    def __init__(self, db: Connection) -> None:
        self.db = db
        self.lease = open_lease(db)
        self.apply("p1")

    def apply(self, subject: str | None) -> None:
        limits = {"backoff_initial": 10, "backoff_maximum": 60, "parallelism": 8}
        ids = [str(n) for n in range(1, 9)]
        apply(self.db, [dataset("a", *ids), dataset("b")], [job("j", ["a"], ["b"], **limits, tests=subject)])

    def claim(self, limit: int = 1) -> list[Run]:
        self.db.execute("SELECT opendataflow.retry_due()")
        return claim(self.db, self.lease, "j", limit)

    def fail(self, run: Run, commit: str, **more: Any) -> None:
        found = {"subject": "p1", "commit": commit, "passed": False, **more}
        end(
            self.db,
            run,
            "RETRYING",
            **{"class": "NotStarted", "state": "LOST", "delay": 0, "metrics": {"tests": found}},
        )

    def succeed(self, run: Run, commit: str) -> None:
        end(self.db, run, "DONE", metrics={"tests": {"subject": "p1", "commit": commit, "passed": True}})

    @property
    def gate(self) -> tuple[str | None, str | None]:
        """What has passed and what has failed."""
        row = self.db.execute("SELECT passed, failed FROM opendataflow.gate WHERE job = 'j'").fetchone()
        assert row is not None
        return row["passed"], row["failed"]

    @property
    def goes_on(self) -> bool:
        """Whether an engine that ends with its work waits for this job."""
        return not value(self.db, "SELECT probed_in_vain FROM opendataflow.progress(ARRAY['j'])")

    def pass_pause(self) -> None:
        self.db.execute("UPDATE opendataflow.gate SET next_look_at = clock_timestamp()")

    def pause_after(self, run: Run) -> float:
        """Seconds from the end of a run to the next look, rounded."""
        query = """SELECT round(extract(epoch FROM t.next_look_at - r.finished_at))
                   FROM opendataflow.gate t, opendataflow.run r WHERE r.id = %s"""
        return float(value(self.db, query, run["run"]))


@pytest.fixture
def tested(db: Connection) -> Guarded:
    return Guarded(db)


def test_while_nothing_passes_one_run_at_a_time_looks_with_growing_pauses(tested: Guarded) -> None:
    first, second = tested.claim(2)
    tested.fail(first, "c1")
    tested.fail(second, "c1")
    assert tested.claim(8) == []
    assert value(tested.db, "SELECT kind FROM opendataflow.active_alert") == "tests"  # it is reported
    assert tested.pause_after(first) == 10  # what failed beside it says nothing new
    tested.pass_pause()
    (look,) = tested.claim(8)
    assert tested.claim(8) == []
    tested.fail(look, "c1")
    assert tested.pause_after(look) == 20
    tested.pass_pause()
    (look,) = tested.claim(8)
    tested.succeed(look, "c2")
    assert (tested.gate, len(tested.claim(8))) == (("c2", None), 7)


def test_failing_tests_cost_a_chunk_nothing_and_open_no_breaker(tested: Guarded, db: Connection) -> None:
    for run in tested.claim(8):
        tested.fail(run, "c1")
    assert value(db, "SELECT sum(attempts + infrastructure_attempts)::int FROM opendataflow.task") == 0
    assert value(db, "SELECT count(*) FROM opendataflow.breaker") == 0
    assert task(db, "j", "1")["rank"] == 2


def test_what_has_passed_goes_on_being_used_unless_it_is_gone(tested: Guarded) -> None:
    (run,) = tested.claim()
    tested.succeed(run, "c1")
    (run,) = tested.claim()
    tested.fail(run, "c2")
    runs = tested.claim(8)
    assert (tested.gate, len(runs), tested.goes_on) == (("c1", "c2"), 7, True)
    tested.fail(runs[0], "c2", gone="c1")
    assert (tested.gate, tested.goes_on) == ((None, "c2"), False)


def test_the_later_run_counts_whichever_ends_first(tested: Guarded) -> None:
    slow, quick, last = tested.claim(3)
    tested.fail(quick, "c2")
    tested.succeed(slow, "c1")
    before = tested.gate
    tested.succeed(last, "c3")
    assert (before, tested.gate) == (("c1", "c2"), ("c3", None))


@pytest.mark.parametrize("verb", ["apply", "resubmit"])
def test_whoever_applies_the_job_or_asks_for_a_chunk_wants_it_to_be_tested_again(tested: Guarded, verb: str) -> None:
    (run,) = tested.claim()
    tested.fail(run, "c1")
    if verb == "apply":
        tested.apply("p1")
    else:
        ask(tested.db, verb, "j", "1")
    assert (tested.gate, len(tested.claim(8))) == ((None, None), 8)


def test_another_project_is_not_what_was_tested(tested: Guarded, db: Connection) -> None:
    run, late = tested.claim(2)
    tested.succeed(run, "c1")
    tested.apply("p2")
    tested.fail(late, "c1")  # of the project before
    assert tested.gate == (None, None)
    tested.apply(None)
    assert value(db, "SELECT count(*) FROM opendataflow.gate") == 0
