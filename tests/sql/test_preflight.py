"""The check of locations before a run starts: what a missing location costs, and what may start meanwhile."""

import pytest

from tests.sql.conftest import Connection
from tests.sql.graph import Run, apply, ask, claim, dataset, end, job, open_lease, problems, task, value

MISSING = {"class": "NotStarted", "state": "LOST", "delay": 0, "message": "there is no a/1.csv"}


@pytest.fixture
def db(rolled_back: Connection) -> Connection:
    return rolled_back


class Checked:
    """Job j makes b of a, with 4 chunks. Its runs check their locations first."""

    def __init__(self, db: Connection) -> None:
        self.db = db
        self.lease = open_lease(db)
        self.apply()

    def apply(self) -> None:
        limits = {"backoff_initial": 10, "backoff_maximum": 60, "parallelism": 4, "retry_limit": 1}
        apply(self.db, [dataset("a", "1", "2", "3", "4"), dataset("b")], [job("j", ["a"], ["b"], **limits)])

    def claim(self, limit: int = 1) -> list[Run]:
        self.db.execute("SELECT opendataflow.retry_due()")
        return claim(self.db, self.lease, "j", limit)

    def miss(self, run: Run, of: str) -> None:
        """End a run that found a location missing: that of its `chunk`, or one of the whole `job`."""
        end(self.db, run, "RETRYING", **MISSING, metrics={"preflight": of})

    def succeed(self, run: Run) -> None:
        end(self.db, run, "DONE", metrics={"preflight": "passed"})

    def pause_of(self, data_id: str) -> float:
        """Seconds until the next look at the location of a chunk, rounded."""
        query = "SELECT round(extract(epoch FROM due_at - clock_timestamp())) FROM opendataflow.task WHERE data_id = %s"
        return float(value(self.db, query, data_id))

    def pass_pauses(self) -> None:
        self.db.execute("SELECT opendataflow.begin_event('test', 'test')")
        self.db.execute("UPDATE opendataflow.task SET due_at = clock_timestamp() WHERE state = 'RETRYING'")
        self.db.execute("UPDATE opendataflow.gate SET next_look_at = clock_timestamp()")

    @property
    def alerts(self) -> list[tuple[str, int, str | None]]:
        rows = self.db.execute("SELECT kind, count, data_id FROM opendataflow.active_alert WHERE job = 'j'")
        return [(row["kind"], row["count"], row["data_id"]) for row in rows]

    @property
    def goes_on(self) -> bool:
        """Whether an engine that ends with its work waits for this job."""
        return not value(self.db, "SELECT probed_in_vain FROM opendataflow.progress(ARRAY['j'])")


@pytest.fixture
def checked(db: Connection) -> Checked:
    return Checked(db)


def test_a_missing_location_of_a_chunk_costs_no_retry_and_is_looked_at_again_after_growing_pauses(
    checked: Checked, db: Connection
) -> None:
    pauses = []
    for _ in range(4):
        run = next(run for run in checked.claim(4) if run["data_id"] == "1")
        checked.miss(run, "chunk")
        pauses.append(checked.pause_of("1"))
        checked.pass_pauses()
    row = task(db, "j", "1")
    assert pauses == [10, 20, 40, 60]
    assert (row["state"], row["attempts"], row["infrastructure_attempts"], row["looks"]) == ("RETRYING", 0, 0, 4)
    assert value(db, "SELECT count(*) FROM opendataflow.breaker") == 0
    assert problems(db) == []


def test_a_missing_location_of_a_chunk_does_not_hinder_other_chunks(checked: Checked) -> None:
    (first,) = checked.claim()
    checked.miss(first, "chunk")
    checked.pass_pauses()
    assert [run["data_id"] for run in checked.claim(4)] == ["2", "3", "4", "1"]


def test_a_missing_location_of_the_job_is_looked_at_by_one_run_at_a_time_after_growing_pauses(
    checked: Checked, db: Connection
) -> None:
    first, second = checked.claim(2)
    checked.miss(first, "job")
    checked.miss(second, "job")
    assert checked.claim(4) == []
    looks = []
    for _ in range(3):
        looks.append(value(db, "SELECT opendataflow.describe_gate('j', 'preflight') -> 'next_in_seconds'"))
        checked.pass_pauses()
        (look,) = checked.claim(4)
        assert checked.claim(4) == []
        checked.miss(look, "job")
    checked.pass_pauses()
    (look,) = checked.claim(4)
    checked.succeed(look)
    assert looks == [10, 20, 40]
    assert value(db, "SELECT sum(attempts + infrastructure_attempts)::int FROM opendataflow.task") == 0
    assert (len(checked.claim(4)), value(db, "SELECT count(*) FROM opendataflow.gate")) == (3, 0)


def test_a_run_that_reached_all_shared_locations_opens_the_gate_although_its_chunk_is_missing(checked: Checked) -> None:
    (run,) = checked.claim()
    checked.miss(run, "job")
    checked.pass_pauses()
    (look,) = checked.claim(4)
    checked.miss(look, "chunk")
    assert [run["data_id"] for run in checked.claim(4)] == ["2", "3", "4"]


def test_a_report_of_a_missing_location_counts_only_if_the_run_did_not_start(checked: Checked, db: Connection) -> None:
    one, other = checked.claim(2)
    end(db, one, "RETRYING", metrics={"preflight": "job"})
    end(db, other, "DONE", metrics={"preflight": "chunk"})
    assert value(db, "SELECT count(*) FROM opendataflow.gate") == 0
    assert (task(db, "j", "1")["attempts"], task(db, "j", "2")["state"]) == (1, "DONE")
    assert value(db, "SELECT sum(looks)::int FROM opendataflow.task") == 0


@pytest.mark.parametrize("verb", ["apply", "resubmit"])
def test_an_apply_and_a_resubmit_look_at_once(checked: Checked, db: Connection, verb: str) -> None:
    (run,) = checked.claim()
    checked.miss(run, "job")
    if verb == "apply":
        checked.apply()
    else:
        ask(db, verb, "j", "1")
    assert len(checked.claim(4)) == 4


def test_a_resubmit_of_a_chunk_with_a_missing_location_looks_at_once(checked: Checked, db: Connection) -> None:
    (run,) = checked.claim()
    checked.miss(run, "chunk")
    ask(db, "resubmit", "j", "1")
    (look,) = checked.claim()
    assert (look["data_id"], task(db, "j", "1")["looks"]) == ("1", 0)


def test_an_engine_that_ends_with_its_work_does_not_wait_for_missing_locations(checked: Checked) -> None:
    first, *others = checked.claim(4)
    checked.miss(first, "chunk")
    going_on = checked.goes_on
    for run in others:
        checked.succeed(run)
    assert (going_on, checked.goes_on) == (True, False)


def test_an_engine_that_ends_with_its_work_does_not_wait_for_an_unreachable_server(checked: Checked) -> None:
    (run,) = checked.claim()
    checked.miss(run, "job")
    assert not checked.goes_on


def test_a_location_that_stays_missing_is_reported_to_people(checked: Checked) -> None:
    (run,) = checked.claim()
    checked.miss(run, "chunk")
    early = checked.alerts  # the file may be late
    checked.pass_pauses()
    run = next(run for run in checked.claim(4) if run["data_id"] == "1")
    checked.miss(run, "chunk")
    assert (early, checked.alerts) == ([], [("preflight", 1, "1")])


def test_an_unreachable_server_is_reported_to_people_at_once(checked: Checked) -> None:
    (run,) = checked.claim()
    checked.miss(run, "job")
    assert checked.alerts == [("preflight", 0, None)]


def test_a_failure_after_a_look_in_vain_consumes_a_retry_in_natural_order(checked: Checked, db: Connection) -> None:
    (run,) = checked.claim()
    checked.miss(run, "chunk")
    checked.pass_pauses()
    run = next(run for run in checked.claim(4) if run["data_id"] == "1")
    end(db, run, "RETRYING", metrics={"preflight": "passed"})
    row = task(db, "j", "1")
    assert (row["attempts"], row["looks"], row["rank"]) == (1, 0, 2)


def test_status_and_why_name_the_missing_locations(checked: Checked, db: Connection) -> None:
    one, other = checked.claim(2)
    checked.miss(one, "chunk")
    status = value(db, "SELECT opendataflow.job_status('j')")
    checked.miss(other, "job")
    why = value(db, "SELECT opendataflow.why('j', '1')")
    assert {**status["missing"], "since": ""} == {
        "chunks": 1, "lasting": 0, "examples": ["1"], "reason": "there is no a/1.csv", "since": "",
    }  # fmt: skip
    assert (why["looks"], why["preflight"]["failure"]) == (1, "there is no a/1.csv")
