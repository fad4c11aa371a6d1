"""Staleness is followed up the stream: data that was made from stale data is not called correct."""

from typing import Any

import pytest

from opendataflow.core.status.inspection import inspection_answers
from tests.sql.conftest import Connection
from tests.sql.graph import apply, ask, job, source, task, value
from tests.sql.test_forced_runs import CHAIN, declare, run_job

STALE = "an input further up is stale"


def correct(db: Connection, job_id: str) -> tuple[str, list[str]]:
    """The answer to "Is it the correct data?" and its evidence."""
    found: dict[str, Any] = value(db, "SELECT opendataflow.inspection(%s, '1')", job_id)
    answer = inspection_answers(found)[1]
    return answer.text, [one.sentence for one in answer.evidence]


def made(db: Connection) -> list[int]:
    """Make a -> b -> c -> d; return the runs."""
    lease = declare(db)
    return [run_job(db, lease, job_id)["run"] for job_id in ("ab", "bc", "cd")]


def test_what_was_made_from_present_versions_all_the_way_up_is_correct(db: Connection) -> None:
    made(db)
    assert correct(db, "cd")[0].startswith("Yes")


def test_what_was_made_from_a_stale_chunk_is_not_correct_and_names_the_command(db: Connection) -> None:
    first, *_ = made(db)
    ask(db, "publish", "a", "1")
    assert (task(db, "ab", "1")["stale"], task(db, "bc", "1")["stale"]) == (True, False)
    for job_id in ("bc", "cd"):
        text, evidence = correct(db, job_id)
        assert text.startswith(f"No: {STALE}: run {first} of job ab ")
        assert evidence[-1] == "to make it and all that was made from it again: dataflow resubmit ab 1 --cascade"
        assert any(line.startswith(f"further up, run {first} of job ab read version") for line in evidence)
    assert "further up" not in " ".join(correct(db, "ab")[1])


def test_a_resubmit_with_all_that_follows_makes_the_answers_yes(db: Connection) -> None:
    made(db)
    ask(db, "publish", "a", "1")
    db.execute("SELECT * FROM opendataflow.resubmit_cascade('ab', '{1}', 'test')")
    lease = value(db, "SELECT id FROM opendataflow.lease LIMIT 1")
    for job_id in ("ab", "bc", "cd"):
        run_job(db, lease, job_id)
    assert correct(db, "cd")[0].startswith("Yes")


def test_a_job_further_up_with_other_inputs_makes_what_follows_incorrect(db: Connection) -> None:
    first, *_ = made(db)
    apply(db, [source("e", "1")], [job("ab", ["a", "e"], ["b"])])
    text, evidence = correct(db, "cd")
    assert text.startswith(f"No: {STALE}: run {first} of job ab made it from a declaration")
    assert f"further up, run {first} of job ab made 1 before its declaration changed" in evidence


@pytest.mark.parametrize("verb", ["hold_chunks", "resubmit_chunks"])
def test_an_input_further_up_that_is_not_ready_makes_the_answer_unknown(db: Connection, verb: str) -> None:
    made(db)
    ask(db, verb, "a", "1")
    assert correct(db, "cd")[0] == "Unknown: chunk 1 of a, further up, is not READY any more"


def test_a_publication_ends_the_search(db: Connection) -> None:
    lease = declare(db)
    run_job(db, lease, "ab")
    ask(db, "publish", "b", "1")
    run_job(db, lease, "bc")
    ask(db, "publish", "a", "1")
    assert correct(db, "bc")[0].startswith("Yes")


def test_the_search_ends_after_so_many_runs_and_says_so(db: Connection) -> None:
    *_, last = made(db)
    found = value(db, "SELECT opendataflow.changes_behind(ARRAY[%s]::bigint[], 2)", last)
    assert found == {"complete": False, "changed": []}
    assert value(db, "SELECT opendataflow.changes_behind(ARRAY[%s]::bigint[], 3)", last)["complete"]
    assert len(CHAIN) == 3
