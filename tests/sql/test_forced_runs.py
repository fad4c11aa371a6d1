"""Forced runs are marked wherever their data went: `forced_runs_behind` finds them by the versions that were read."""

from typing import Any

from tests.sql.conftest import Connection
from tests.sql.graph import apply, ask, claim, dataset, end, job, open_lease, value

CHAIN = [job("ab", ["a"], ["b"]), job("bc", ["b"], ["c"]), job("cd", ["c"], ["d"])]


def declare(db: Connection) -> str:
    """Declare a -> b -> c -> d, with one chunk each. Return a lease."""
    apply(db, [dataset("a", "1"), dataset("b"), dataset("c"), dataset("d")], CHAIN)
    return open_lease(db)


def run_job(db: Connection, lease: str, job_id: str) -> dict[str, Any]:
    """Run the one task of a job to its end."""
    [run] = claim(db, lease, job_id)
    end(db, run, "DONE")
    return run


def force_without_input(db: Connection, lease: str) -> dict[str, Any]:
    """Run `ab` by force while its input is held."""
    ask(db, "hold_chunks", "a", "1")
    ask(db, "force", "ab", "1")
    return run_job(db, lease, "ab")


def behind(db: Connection, run: dict[str, Any], limit: int = 1000) -> dict[str, Any]:
    query = "SELECT opendataflow.forced_runs_behind(ARRAY[%s]::bigint[], %s)"
    found: dict[str, Any] = value(db, query, run["run"], limit)
    return found


def runs_behind(db: Connection, run: dict[str, Any]) -> list[tuple[int, str | None, list[str]]]:
    return [(one["run"], one["dataset"], one["missing"]) for one in behind(db, run)["forced"]]


def test_an_ordinary_run_has_no_forced_run_behind_it(db: Connection) -> None:
    lease = declare(db)
    run_job(db, lease, "ab")
    assert behind(db, run_job(db, lease, "bc")) == {"complete": True, "forced": []}


def test_a_forced_run_names_the_inputs_that_were_not_ready(db: Connection) -> None:
    forced = force_without_input(db, declare(db))
    assert runs_behind(db, forced) == [(forced["run"], None, ["a"])]


def test_a_forced_run_whose_inputs_were_ready_has_no_missing_input(db: Connection) -> None:
    lease = declare(db)
    ask(db, "force", "ab", "1")
    forced = run_job(db, lease, "ab")
    assert runs_behind(db, forced) == [(forced["run"], None, [])]


def test_a_chunk_two_jobs_later_names_the_forced_run_and_the_version_that_was_read(db: Connection) -> None:
    lease = declare(db)
    forced = force_without_input(db, lease)
    run_job(db, lease, "bc")
    last = run_job(db, lease, "cd")
    assert runs_behind(db, last) == [(forced["run"], "b", ["a"])]
    assert behind(db, last)["forced"][0]["fence"] == forced["fence"]


def test_a_version_that_was_made_again_without_force_clears_the_mark(db: Connection) -> None:
    lease = declare(db)
    force_without_input(db, lease)
    run_job(db, lease, "bc")
    ask(db, "release_chunks", "a", "1")
    ask(db, "resubmit", "ab", "1")
    run_job(db, lease, "ab")
    ask(db, "resubmit", "bc", "1")
    assert behind(db, run_job(db, lease, "bc"))["forced"] == []


def test_a_publication_by_a_person_replaces_the_version_of_the_forced_run(db: Connection) -> None:
    lease = declare(db)
    force_without_input(db, lease)
    ask(db, "publish", "b", "1")
    assert behind(db, run_job(db, lease, "bc"))["forced"] == []


def test_the_search_has_a_bound_and_reports_that_it_was_reached(db: Connection) -> None:
    lease = declare(db)
    force_without_input(db, lease)
    run_job(db, lease, "bc")
    last = run_job(db, lease, "cd")
    assert behind(db, last, 2) == {"complete": False, "forced": []}
    assert behind(db, last, 3)["complete"] is True


def test_two_ways_to_one_forced_run_name_it_once(db: Connection) -> None:
    apply(
        db,
        [dataset("a", "1"), *(dataset(name) for name in "bcde")],
        [job("ab", ["a"], ["b"]), job("bc", ["b"], ["c"]), job("bd", ["b"], ["d"]), job("all", ["c", "d"], ["e"])],
    )
    lease = open_lease(db)
    forced = force_without_input(db, lease)
    run_job(db, lease, "bc")
    run_job(db, lease, "bd")
    assert runs_behind(db, run_job(db, lease, "all")) == [(forced["run"], "b", ["a"])]


def test_lists_of_chunks_and_runs_and_the_last_failures_say_which_were_forced(db: Connection) -> None:
    lease = declare(db)
    forced = force_without_input(db, lease)
    run_job(db, lease, "bc")
    ask(db, "force", "cd", "1")
    [failed] = claim(db, lease, "cd")
    end(db, failed, "FAILED")
    chunks = db.execute("SELECT * FROM opendataflow.list_chunks(NULL, NULL, false, 10)").fetchall()
    assert {row["dataset"] for row in chunks if row["forced"]} == {"b", "d"}
    runs = db.execute("SELECT * FROM opendataflow.list_runs(NULL, NULL, 10)").fetchall()
    assert {row["run"] for row in runs if row["forced"]} == {forced["run"], failed["run"]}
    [failure] = db.execute("SELECT * FROM opendataflow.last_failures('cd', 10)").fetchall()
    assert failure["forced"]
