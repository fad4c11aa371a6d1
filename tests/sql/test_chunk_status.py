"""Every status of a chunk and everything that can happen to it: what it becomes, or the sentence that refuses it."""

import pytest

from tests.sql.conftest import Connection
from tests.sql.graph import (
    Run,
    apply,
    ask,
    chunk,
    claim,
    dataset,
    end,
    job,
    open_lease,
    problems,
    raw,
    task,
    tasks,
    transitions,
    value,
)
from tests.sql.tables import ENDS, cases

# The chunk b/x, which job j makes of a/x. FAILED-RETRY: the job has retries left, and the next one is due.
# HOLD:S is a HOLD that remembers S. After a status: `=` nothing changed, `?` remembered, `!` refused. `-`: no run is
# there whose end could be reported. Resubmit is the same through the job and through the data set.
TABLE = """
status            publish  claim          success        retried        failed         lost           resubmit       hold           release   accept         reject
DECLARED          READY    RUNNING        -              -              -              -              DECLARED=      HOLD:DECLARED  DECLARED= DECLARED!      DECLARED!
READY             READY    READY!         READY=         READY=         READY=         READY=         RESUBMIT       HOLD:READY     READY=    READY!         READY!
RUNNING           RUNNING! RUNNING!       READY          FAILED         FAILED         FAILED         RUNNING?       RUNNING!       RUNNING=  RUNNING!       RUNNING!
FAILED-RETRY      READY    RUNNING        FAILED=        FAILED=        FAILED=        FAILED=        RESUBMIT       HOLD:FAILED    FAILED=   FAILED!        FAILED!
FAILED            READY    FAILED!        FAILED=        FAILED=        FAILED=        FAILED=        RESUBMIT       HOLD:FAILED    FAILED=   FAILED!        FAILED!
RESUBMIT          READY    RUNNING        RESUBMIT=      RESUBMIT=      RESUBMIT=      RESUBMIT=      RESUBMIT=      HOLD:RESUBMIT  RESUBMIT= RESUBMIT!      RESUBMIT!
PENDING           READY    PENDING!       PENDING=       PENDING=       PENDING=       PENDING=       RESUBMIT       HOLD:PENDING   PENDING=  READY          FAILED
HOLD:DECLARED     READY    HOLD:DECLARED! -              -              -              -              HOLD:DECLARED= HOLD:DECLARED= DECLARED  HOLD:DECLARED! HOLD:DECLARED!
HOLD:READY        READY    HOLD:READY!    HOLD:READY=    HOLD:READY=    HOLD:READY=    HOLD:READY=    HOLD:RESUBMIT  HOLD:READY=    READY     HOLD:READY!    HOLD:READY!
HOLD:FAILED-RETRY READY    HOLD:FAILED!   HOLD:FAILED=   HOLD:FAILED=   HOLD:FAILED=   HOLD:FAILED=   HOLD:RESUBMIT  HOLD:FAILED=   FAILED    HOLD:FAILED!   HOLD:FAILED!
HOLD:FAILED       READY    HOLD:FAILED!   HOLD:FAILED=   HOLD:FAILED=   HOLD:FAILED=   HOLD:FAILED=   HOLD:RESUBMIT  HOLD:FAILED=   FAILED    HOLD:FAILED!   HOLD:FAILED!
HOLD:RESUBMIT     READY    HOLD:RESUBMIT! HOLD:RESUBMIT= HOLD:RESUBMIT= HOLD:RESUBMIT= HOLD:RESUBMIT= HOLD:RESUBMIT= HOLD:RESUBMIT= RESUBMIT  HOLD:RESUBMIT! HOLD:RESUBMIT!
HOLD:PENDING      READY    HOLD:PENDING!  HOLD:PENDING=  HOLD:PENDING=  HOLD:PENDING=  HOLD:PENDING=  HOLD:RESUBMIT  HOLD:PENDING=  PENDING   HOLD:PENDING!  HOLD:PENDING!
"""  # noqa: E501

# The chunk z/x, which no job makes. It is never RUNNING.
UNPRODUCED = """
status        publish resubmit       hold           release   accept         reject
DECLARED      READY   DECLARED=      HOLD:DECLARED  DECLARED= DECLARED!      DECLARED!
READY         READY   RESUBMIT       HOLD:READY     READY=    READY!         READY!
FAILED        READY   RESUBMIT       HOLD:FAILED    FAILED=   FAILED!        FAILED!
RESUBMIT      READY   RESUBMIT=      HOLD:RESUBMIT  RESUBMIT= RESUBMIT!      RESUBMIT!
PENDING       READY   RESUBMIT       HOLD:PENDING   PENDING=  READY          FAILED
HOLD:DECLARED READY   HOLD:DECLARED= HOLD:DECLARED= DECLARED  HOLD:DECLARED! HOLD:DECLARED!
HOLD:READY    READY   HOLD:RESUBMIT? HOLD:READY=    READY     HOLD:READY!    HOLD:READY!
HOLD:FAILED   READY   HOLD:RESUBMIT? HOLD:FAILED=   FAILED    HOLD:FAILED!   HOLD:FAILED!
HOLD:RESUBMIT READY   HOLD:RESUBMIT= HOLD:RESUBMIT= RESUBMIT  HOLD:RESUBMIT! HOLD:RESUBMIT!
HOLD:PENDING  READY   HOLD:RESUBMIT? HOLD:PENDING=  PENDING   HOLD:PENDING!  HOLD:PENDING!
"""

SENTENCES = {
    ("publish", "refused"): "chunk x of b is being written by run {run}: publish it when the run has ended",
    ("hold_chunks", "refused"): "chunk x of b is being written by run {run}: hold it when the run has ended",
    ("hold_chunks", "unchanged"): "it is held already",
    ("release_chunks", "unchanged"): "it is {status}, not held",
    ("accept", "refused"): "chunk x of {dataset} is {status}: only PENDING ones can be accepted",
    ("reject", "refused"): "chunk x of {dataset} is {status}: only PENDING ones can be rejected",
    ("accept", "refused", "HOLD:PENDING"): "chunk x of {dataset} is held: release it first",
    ("reject", "refused", "HOLD:PENDING"): "chunk x of {dataset} is held: release it first",
    ("resubmit", "unchanged"): "it has not run yet: there is nothing to do again",
    ("resubmit", "remembered"): "it is running: it runs again after its end",
}
UNPRODUCED_SENTENCES = SENTENCES | {
    ("resubmit", "unchanged"): "it is {status}: there is nothing to do again",
    ("resubmit", "remembered"): "it is held: it waits to be published again after its release",
}


@pytest.fixture
def db(rolled_back: Connection) -> Connection:
    return rolled_back


def status(db: Connection, dataset_id: str = "b") -> str:
    """The status of chunk x, for HOLD with what it remembers."""
    row = chunk(db, dataset_id, "x")
    return f"HOLD:{row['held_status']}" if row["held_status"] else str(row["status"])


def brought_to(db: Connection, wanted: str) -> Run:
    """Job j and its chunk b/x in the status; return the run that brought it there, empty where there was none."""
    apply(db, [dataset("a", "x"), dataset("b")], [job("j", ["a"], ["b"])])
    run: Run = {}
    plain = wanted.removeprefix("HOLD:")
    if plain != "DECLARED":
        [run] = claim(db, open_lease(db), "j")
        if plain != "RUNNING":
            verdicts = {"FAILED-RETRY": "RETRYING", "FAILED": "FAILED"}
            end(db, run, verdicts.get(plain, "DONE"))
    if plain == "RESUBMIT":
        ask(db, "resubmit", "j", "x")
    if plain == "PENDING":
        raw(db, "UPDATE opendataflow.chunk SET status = 'PENDING' WHERE dataset = 'b'")
    if wanted != plain:
        ask(db, "hold_chunks", "b", "x")
    assert status(db) == wanted.removesuffix("-RETRY")
    return run


def brought_to_unproduced(db: Connection, wanted: str) -> None:
    """Chunk z/x in the status, without a producer."""
    apply(db, [dataset("z")], [])
    plain = wanted.removeprefix("HOLD:")
    value(db, "SELECT opendataflow.declare_chunks('z', '{x}', '{NULL}', 'test')")
    if plain != "DECLARED":
        ask(db, "publish", "z", "x")
    if plain == "RESUBMIT":
        ask(db, "resubmit_chunks", "z", "x")
    if plain in ("FAILED", "PENDING"):
        raw(db, "UPDATE opendataflow.chunk SET status = %s WHERE dataset = 'z'", plain)
    if wanted != plain:
        ask(db, "hold_chunks", "z", "x")
    assert status(db, "z") == wanted


OF_CHUNKS_ALONE = ("publish", "accept", "reject")
ASKED = cases(TABLE, "hold", "release", *OF_CHUNKS_ALONE)


@pytest.mark.parametrize(("before", "event", "after", "result"), ASKED)
def test_a_request_for_a_chunk_moves_it_or_says_why_not(
    db: Connection, before: str, event: str, after: str, result: str
) -> None:
    run = brought_to(db, before)
    verb = event if event in OF_CHUNKS_ALONE else f"{event}_chunks"

    [answer] = ask(db, verb, "b", "x")

    assert (status(db), answer["result"]) == (after, result)
    sentence = SENTENCES.get((verb, result, after)) or SENTENCES.get((verb, result), "")
    now = after.split(":")[0]
    assert (answer["message"] or "") == sentence.format(run=run.get("run"), status=now, dataset="b")
    assert problems(db) == []


@pytest.mark.parametrize(("verb", "owner"), [("resubmit", "j"), ("resubmit_chunks", "b")])
@pytest.mark.parametrize(("before", "event", "after", "result"), cases(TABLE, "resubmit"))
def test_resubmit_moves_a_chunk_in_the_same_way_through_its_job_and_its_data_set(
    db: Connection, before: str, event: str, after: str, result: str, verb: str, owner: str
) -> None:
    brought_to(db, before)

    [answer] = ask(db, verb, owner, "x")

    assert (status(db), answer["result"]) == (after, result)
    assert (answer["message"] or "") == SENTENCES.get((event, result), "")
    assert problems(db) == []


@pytest.mark.parametrize(("before", "event", "after", "result"), cases(TABLE, "claim"))
def test_a_claim_takes_a_chunk_only_from_a_status_that_does_not_lock_it(
    db: Connection, before: str, event: str, after: str, result: str
) -> None:
    brought_to(db, before)
    db.execute("SELECT * FROM opendataflow.retry_due()")

    runs = claim(db, open_lease(db), "j")

    assert (status(db), event, len(runs)) == (after, "claim", 1 if result == "done" else 0)
    assert [(run["run"], run["fence"]) for run in runs] in (
        [],
        [(chunk(db, "b", "x")["run"], chunk(db, "b", "x")["fence"])],
    )
    assert problems(db) == []


@pytest.mark.parametrize(("before", "event", "after", "result"), cases(TABLE, *ENDS))
def test_the_end_of_a_run_moves_the_chunk_that_it_writes_and_only_once(
    db: Connection, before: str, event: str, after: str, result: str
) -> None:
    run = brought_to(db, before)

    answer = end(db, run, **ENDS[event])

    assert (status(db), answer["already"]) == (after, result == "unchanged")
    assert problems(db) == []


@pytest.mark.parametrize(("before", "event", "after", "result"), cases(UNPRODUCED))
def test_a_chunk_that_no_job_makes_is_moved_from_outside_alone(
    db: Connection, before: str, event: str, after: str, result: str
) -> None:
    brought_to_unproduced(db, before)
    verb = event if event in OF_CHUNKS_ALONE else f"{event}_chunks"

    [answer] = ask(db, verb, "z", "x")

    assert (status(db, "z"), answer["result"]) == (after, result)
    written = event if event == "resubmit" else verb
    sentence = UNPRODUCED_SENTENCES.get((written, result, after)) or UNPRODUCED_SENTENCES.get((written, result), "")
    assert (answer["message"] or "") == sentence.format(status=after.split(":")[0], dataset="z")
    assert problems(db) == []


# Accept and reject


def pending(db: Connection) -> Run:
    """Job j has made b/x and c/x, b/x waits to be accepted; job k reads both. Return the run."""
    apply(
        db,
        [dataset("a", "x"), dataset("b"), dataset("c"), dataset("d")],
        [job("j", ["a"], ["b", "c"]), job("k", ["b", "c"], ["d"])],
    )
    [run] = claim(db, open_lease(db), "j")
    end(db, run, "DONE")
    ask(db, "hold_chunks", "b", "x")  # a status that no function reaches yet, with its consumers notified
    raw(db, "UPDATE opendataflow.chunk SET held_status = 'PENDING' WHERE dataset = 'b'")
    ask(db, "release_chunks", "b", "x")
    assert (status(db), tasks(db)) == ("PENDING", {"j/x": "DONE", "k/x": "WAITING"})
    return run


def test_an_accepted_chunk_has_the_version_of_its_run_and_wakes_its_consumers(db: Connection) -> None:
    run = pending(db)
    raw(db, "UPDATE opendataflow.chunk SET published_at = NULL WHERE dataset = 'b'")

    ask(db, "accept", "b", "x")

    row = chunk(db, "b", "x")
    assert (row["fence"], row["run"], row["published_at"] is None) == (run["fence"], run["run"], False)
    assert tasks(db) == {"j/x": "DONE", "k/x": "QUEUED"}
    assert problems(db) == []


def test_the_task_that_made_a_rejected_chunk_has_failed_until_it_is_asked_for_again(db: Connection) -> None:
    pending(db)

    value(db, "SELECT result FROM opendataflow.reject('b', '{x}', 'ada', 'too few rows')")

    assert tasks(db) == {"j/x": "FAILED", "k/x": "WAITING"}
    assert (chunk(db, "b", "x")["reason"], status(db, "c")) == ("rejected: too few rows", "READY")
    assert task(db, "j", "x")["reason"] == "chunk x of b was rejected: too few rows"
    for verb in ("hold_chunks", "release_chunks"):  # of its other output, which is good
        ask(db, verb, "c", "x")
    assert (tasks(db)["j/x"], problems(db)) == ("FAILED", [])

    ask(db, "resubmit", "j", "x")

    assert (tasks(db)["j/x"], status(db, "b"), status(db, "c")) == ("QUEUED", "RESUBMIT", "RESUBMIT")
    assert problems(db) == []


def test_consumers_that_are_done_are_stale_when_another_version_is_accepted(db: Connection) -> None:
    brought_to(db, "READY")
    raw(
        db,
        "UPDATE opendataflow.chunk SET status = 'PENDING', fence = nextval('opendataflow.fence') WHERE dataset = 'a'",
    )

    ask(db, "accept", "a", "x")

    assert (tasks(db)["j/x"], task(db, "j", "x")["stale"], problems(db)) == ("DONE", True, [])


def test_a_version_that_came_during_a_hold_makes_consumers_stale_at_its_release(db: Connection) -> None:
    apply(db, [dataset("a", "x"), dataset("b")], [job("j", ["a"], ["b"])])
    (run,) = claim(db, open_lease(db), "j")
    ask(db, "publish", "a", "x")
    ask(db, "hold_chunks", "a", "x")
    end(db, run, "DONE")

    ask(db, "release_chunks", "a", "x")

    assert (task(db, "j", "x")["state"], task(db, "j", "x")["stale"]) == ("DONE", True)


def test_what_a_person_publishes_in_place_of_a_stale_output_is_not_stale(db: Connection) -> None:
    apply(db, [dataset("a", "x"), dataset("b")], [job("j", ["a"], ["b"])])
    (run,) = claim(db, open_lease(db), "j")
    end(db, run, "DONE")
    ask(db, "publish", "a", "x")
    assert task(db, "j", "x")["stale"]

    ask(db, "publish", "b", "x")
    ask(db, "publish", "a", "x")

    assert (task(db, "j", "x")["state"], task(db, "j", "x")["stale"]) == ("DONE", False)


# What else the table says


@pytest.mark.parametrize("before", ["DECLARED", "READY", "FAILED", "RESUBMIT", "PENDING", "HOLD:READY"])
def test_a_published_chunk_has_a_new_version_that_no_run_made(db: Connection, before: str) -> None:
    brought_to(db, before)
    earlier = chunk(db, "b", "x")["fence"] or 0

    ask(db, "publish", "b", "x")

    row = chunk(db, "b", "x")
    assert row["fence"] > earlier
    assert (row["run"], row["published_at"] is None) == (None, False)


def test_publishing_a_chunk_again_makes_consumers_stale_that_are_done(db: Connection) -> None:
    brought_to(db, "READY")
    assert task(db, "j", "x")["stale"] is False

    ask(db, "publish", "a", "x")

    assert (task(db, "j", "x")["state"], task(db, "j", "x")["stale"]) == ("DONE", True)


def test_publishing_an_output_finishes_its_producers_open_task(db: Connection) -> None:
    brought_to(db, "FAILED-RETRY")

    ask(db, "publish", "b", "x")

    assert tasks(db) == {"j/x": "DONE"}


def test_a_chunk_resubmitted_while_it_is_written_is_never_ready_in_between(db: Connection) -> None:
    run = brought_to(db, "RUNNING")
    ask(db, "resubmit_chunks", "b", "x")

    end(db, run, "DONE")

    assert transitions(db, "chunk", "b", "x") == ["DECLARED", "RUNNING", "RESUBMIT"]


def test_all_outputs_of_the_task_are_resubmitted_together(db: Connection) -> None:
    apply(db, [dataset("a", "x"), dataset("b"), dataset("c")], [job("j", ["a"], ["b", "c"])])
    end(db, claim(db, open_lease(db), "j")[0], "DONE")
    ask(db, "hold_chunks", "c", "x")

    ask(db, "resubmit_chunks", "b", "x")

    assert (status(db, "b"), status(db, "c")) == ("RESUBMIT", "HOLD:RESUBMIT")


def test_a_chunk_without_a_producer_waits_after_a_resubmit_until_it_is_published(db: Connection) -> None:
    apply(db, [dataset("a", "x"), dataset("b")], [job("j", ["a"], ["b"])])
    ask(db, "resubmit_chunks", "a", "x")
    assert tasks(db) == {"j/x": "WAITING"}

    ask(db, "publish", "a", "x")

    assert tasks(db) == {"j/x": "QUEUED"}


def test_a_held_chunk_returns_to_what_was_asked_meanwhile(db: Connection) -> None:
    brought_to(db, "HOLD:READY")
    ask(db, "resubmit", "j", "x")

    ask(db, "release_chunks", "b", "x")

    assert status(db) == "RESUBMIT"
    assert tasks(db) == {"j/x": "QUEUED"}


def test_a_ready_chunk_that_was_held_when_its_producer_came_finishes_the_task_at_its_release(db: Connection) -> None:
    apply(db, [dataset("a", "x"), dataset("b", "x")], [])
    ask(db, "hold_chunks", "b", "x")
    apply(db, [dataset("a", "x"), dataset("b")], [job("j", ["a"], ["b"])])

    ask(db, "release_chunks", "b", "x")

    assert tasks(db) == {"j/x": "DONE"}
    assert problems(db) == []


@pytest.mark.parametrize("verb", ["resubmit_chunks", "hold_chunks", "release_chunks", "accept", "reject"])
def test_a_chunk_that_is_not_there_is_unknown(db: Connection, verb: str) -> None:
    brought_to_unproduced(db, "READY")

    [answer] = ask(db, verb, "z", "y")

    assert (answer["result"], answer["message"]) == ("unknown", "data set z has no chunk y")


def test_the_rows_of_one_request_are_answered_one_by_one(db: Connection) -> None:
    apply(db, [dataset("z", "1", "2", "10")], [])
    ask(db, "hold_chunks", "z", "2")

    answers = ask(db, "hold_chunks", "z", "10", "2", "3", "1", "1")

    assert [(a["data_id"], a["result"]) for a in answers] == [
        ("1", "done"),
        ("2", "unchanged"),
        ("3", "unknown"),
        ("10", "done"),
    ]


@pytest.mark.parametrize("how", ["set", "reject"])
def test_a_task_that_is_done_and_has_no_id_any_more_does_not_fail_with_its_chunk(db: Connection, how: str) -> None:
    apply(db, [dataset("made", "x")], [job("make", [], ["made"])])
    end(db, claim(db, open_lease(db), "make")[0], "DONE")
    db.execute("SELECT opendataflow.set_chunks('made', '{x}', 'PENDING', 'test')")
    apply(db, [], [job("make", [], ["made"], chunk_from="y")])

    if how == "set":
        db.execute("SELECT opendataflow.set_chunks('made', '{x}', 'FAILED', 'test')")
    else:
        ask(db, "reject", "made", "x")

    assert chunk(db, "made", "x")["status"] == "FAILED"
    assert task(db, "make", "x")["state"] == "DONE"
    assert problems(db) == []
