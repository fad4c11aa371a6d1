"""Whole jobs on the command line: how many runs at a time, none for a while, and who asked for that."""

import json
import signal
import time
from pathlib import Path

import pytest

from opendataflow.names import ExitCode
from tests.e2e.conftest import Inside, Program
from tests.e2e.jobs import squares
from tests.sql.conftest import Connection
from tests.sql.graph import apply, claim, dataset, job, open_lease, value
from tests.waiting import wait_until

FILE = squares("{range: {from: 0, to: 1000, step: 1}}", parallelism=4, retry="{}", command='[sleep, "0.2"]')


@pytest.fixture
def declared(db: Connection) -> Connection:
    """The job square with ten tasks, four of which may run at a time."""
    apply(db, [dataset("n", *map(str, range(10))), dataset("s")], [job("square", ["n"], ["s"], parallelism=4)])
    return db


def limits(db: Connection) -> tuple[int, bool]:
    row = db.execute("SELECT parallelism, suspended FROM opendataflow.job").fetchone()
    assert row is not None
    return row["parallelism"], row["suspended"]


def test_scaling_reports_the_old_and_the_new_and_what_happens(
    dataflow: Program, declared: Connection, inside: Inside
) -> None:
    assert inside.ask(dataflow, "scale", "square", "6").out == "job square: parallelism 4 -> 6; 0 are running\n"
    claim(declared, open_lease(declared), "square", 3)
    assert inside.ask(dataflow, "scale", "square", "2").out == (
        "job square: parallelism 6 -> 2; 3 runs still go on, nothing new starts while there are 2 or more\n"
    )
    assert limits(declared) == (2, False)
    assert claim(declared, open_lease(declared), "square", 3) == []


def test_a_parallelism_below_zero_is_refused(dataflow: Program, declared: Connection, inside: Inside) -> None:
    answer = inside.ask(dataflow, "scale", "square", "--", "-1")
    assert (answer.code, limits(declared)) == (ExitCode.USAGE, (4, False))


def test_an_unknown_job_is_named_with_the_one_that_was_meant(
    dataflow: Program, declared: Connection, inside: Inside
) -> None:
    for arguments in (("scale", "squar", "1"), ("suspend", "squar"), ("resume", "squar")):
        answer = inside.ask(dataflow, *arguments)
        assert answer.code == ExitCode.USAGE
        assert answer.err == "error: there is no job squar (did you mean square?)\n"
    assert limits(declared) == (4, False)


def test_suspending_drains_and_resuming_goes_on(dataflow: Program, declared: Connection, inside: Inside) -> None:
    claim(declared, open_lease(declared), "square", 2)
    output = inside.ask(dataflow, "suspend", "square", "--reason", "night batch").out
    assert output == "job square is suspended: nothing new starts; 2 runs still go on\n"
    assert claim(declared, open_lease(declared), "square", 2) == []
    assert "to resume it: dataflow resume square" in inside.ask(dataflow, "why", "square", "7").out
    assert inside.ask(dataflow, "suspend", "square").out == "job square was suspended already; 2 runs still go on\n"

    output = inside.ask(dataflow, "resume", "square").out
    assert output == "job square goes on: it may have 4 runs at a time, 2 are running\n"
    assert len(claim(declared, open_lease(declared), "square", 4)) == 2


def test_who_changed_a_job_and_why_is_kept_and_described(
    dataflow: Program, declared: Connection, inside: Inside
) -> None:
    inside.ask(dataflow, "scale", "square", "1", "--reason", "the source is slow")
    inside.ask(dataflow, "suspend", "square", "--reason", "audit")
    inside.ask(dataflow, "suspend", "square")  # changes nothing, so that there is nothing to keep
    apply(declared, [], [job("square", ["n"], ["s"], parallelism=4)])

    described = json.loads(inside.ask(dataflow, "describe", "job", "square", "-o", "json").out)
    events = [(e["event"], e["from"], e["to"], e["reason"]) for e in described["events"]]
    assert events[:2] == [
        ("scale", "parallelism 4", "parallelism 1", "the source is slow"),
        ("suspend", "active", "suspended", "audit"),
    ]
    assert set(events[2:]) == {
        ("apply", "parallelism 1", "parallelism 4", None),
        ("apply", "suspended", "active", None),
    }
    assert all("@" in e["actor"] for e in described["events"][:2])
    assert ": audit" in inside.ask(dataflow, "describe", "job", "square").out


def started(db: Connection) -> int:
    return int(value(db, "SELECT count(*) FROM opendataflow.run"))


def wait_for(db: Connection, more_than: int) -> None:
    wait_until(lambda: started(db) > more_than, "something new is started", 300)


def test_a_running_engine_starts_nothing_of_a_job_that_is_stopped(
    dataflow: Program, db: Connection, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(FILE)
    engine = dataflow.start("local", "-f", str(tmp_path / "job.yaml"), "--parallelism", "8")
    wait_for(db, 4)
    dataflow.run("suspend", "square")
    stopped = started(db)
    time.sleep(2)
    assert started(db) == stopped

    dataflow.run("resume", "square")
    wait_for(db, stopped)
    dataflow.run("scale", "square", "0")
    stopped = started(db)
    time.sleep(2)
    assert started(db) == stopped
    dataflow.run("scale", "square", "8")
    wait_for(db, stopped)

    engine.send_signal(signal.SIGINT)
    engine.communicate(timeout=300)
