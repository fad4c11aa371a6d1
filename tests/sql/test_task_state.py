"""Every state of a task and everything that can happen to it: what it becomes, or the sentence that refuses it."""

import pytest

from tests.sql.conftest import Connection
from tests.sql.graph import (
    Run,
    apply,
    ask,
    chunk,
    chunks,
    claim,
    dataset,
    end,
    job,
    open_lease,
    problems,
    task,
    tasks,
    transitions,
    value,
)
from tests.sql.tables import ENDS, cases

# Task x of job j, which makes b/x of a/x. `comes` and `goes`: its input is published, or held. `due`: the moment of
# the retry. `published`: its output is. HELD:S and SKIPPED:S remember S. After a state: `=` nothing changed, `?`
# remembered, `!` refused. `-`: no run is there whose end could be reported.
TABLE = """
state            comes            goes             claim             success           retried           failed            lost              due              resubmit          hold              release   published    skip              force    cancel
WAITING          QUEUED           WAITING          WAITING!          -                 -                 -                 -                 WAITING          WAITING=          HELD:WAITING      WAITING=  DONE         SKIPPED:WAITING   QUEUED   WAITING!
QUEUED           QUEUED           WAITING          RUNNING           -                 -                 -                 -                 QUEUED           QUEUED=           HELD:QUEUED       QUEUED=   DONE         SKIPPED:QUEUED    QUEUED   QUEUED!
RUNNING          RUNNING          RUNNING          RUNNING!          DONE              RETRYING          FAILED            RETRYING          RUNNING          RUNNING?          RUNNING!          RUNNING=  RUNNING!     RUNNING!          RUNNING! RUNNING
RETRYING         RETRYING         RETRYING         RETRYING!         RETRYING=         RETRYING=         RETRYING=         RETRYING=         QUEUED           QUEUED            HELD:RETRYING     RETRYING= DONE         SKIPPED:RETRYING  QUEUED   RETRYING!
DONE             DONE             DONE             DONE!             DONE=             DONE=             DONE=             DONE=             DONE             QUEUED            DONE!             DONE=     DONE         DONE!             QUEUED   DONE!
FAILED           FAILED           FAILED           FAILED!           FAILED=           FAILED=           FAILED=           FAILED=           FAILED           QUEUED            HELD:FAILED       FAILED=   DONE         SKIPPED:FAILED    QUEUED   FAILED!
HELD:WAITING     HELD:WAITING     HELD:WAITING     HELD:WAITING!     -                 -                 -                 -                 HELD:WAITING     HELD:WAITING?     HELD:WAITING=     WAITING   HELD:DONE    SKIPPED:WAITING   QUEUED   HELD:WAITING!
HELD:QUEUED      HELD:QUEUED      HELD:QUEUED      HELD:QUEUED!      -                 -                 -                 -                 HELD:QUEUED      HELD:QUEUED?      HELD:QUEUED=      QUEUED    HELD:DONE    SKIPPED:QUEUED    QUEUED   HELD:QUEUED!
HELD:RETRYING    HELD:RETRYING    HELD:RETRYING    HELD:RETRYING!    HELD:RETRYING=    HELD:RETRYING=    HELD:RETRYING=    HELD:RETRYING=    HELD:RETRYING    HELD:RETRYING?    HELD:RETRYING=    RETRYING  HELD:DONE    SKIPPED:RETRYING  QUEUED   HELD:RETRYING!
HELD:FAILED      HELD:FAILED      HELD:FAILED      HELD:FAILED!      HELD:FAILED=      HELD:FAILED=      HELD:FAILED=      HELD:FAILED=      HELD:FAILED      HELD:FAILED?      HELD:FAILED=      FAILED    HELD:DONE    SKIPPED:FAILED    QUEUED   HELD:FAILED!
HELD:DONE        HELD:DONE        HELD:DONE        HELD:DONE!        -                 -                 -                 -                 HELD:DONE        HELD:DONE?        HELD:DONE=        DONE      HELD:DONE    SKIPPED:DONE      QUEUED   HELD:DONE!
SKIPPED:WAITING  SKIPPED:WAITING  SKIPPED:WAITING  SKIPPED:WAITING!  -                 -                 -                 -                 SKIPPED:WAITING  SKIPPED:WAITING!  SKIPPED:WAITING!  WAITING   SKIPPED:DONE SKIPPED:WAITING=  QUEUED   SKIPPED:WAITING!
SKIPPED:QUEUED   SKIPPED:QUEUED   SKIPPED:QUEUED   SKIPPED:QUEUED!   -                 -                 -                 -                 SKIPPED:QUEUED   SKIPPED:QUEUED!   SKIPPED:QUEUED!   QUEUED    SKIPPED:DONE SKIPPED:QUEUED=   QUEUED   SKIPPED:QUEUED!
SKIPPED:FAILED   SKIPPED:FAILED   SKIPPED:FAILED   SKIPPED:FAILED!   SKIPPED:FAILED=   SKIPPED:FAILED=   SKIPPED:FAILED=   SKIPPED:FAILED=   SKIPPED:FAILED   SKIPPED:FAILED!   SKIPPED:FAILED!   FAILED    SKIPPED:DONE SKIPPED:FAILED=   QUEUED   SKIPPED:FAILED!
SKIPPED:RETRYING SKIPPED:RETRYING SKIPPED:RETRYING SKIPPED:RETRYING! SKIPPED:RETRYING= SKIPPED:RETRYING= SKIPPED:RETRYING= SKIPPED:RETRYING= SKIPPED:RETRYING SKIPPED:RETRYING! SKIPPED:RETRYING! RETRYING  SKIPPED:DONE SKIPPED:RETRYING= QUEUED   SKIPPED:RETRYING!
"""  # noqa: E501

SENTENCES = {
    ("resubmit", "unchanged"): "it has not run yet: there is nothing to do again",
    ("resubmit", "remembered", "RUNNING"): "it is running: it runs again after its end",
    ("resubmit", "remembered", "HELD"): "it is held: it runs again after its release",
    ("resubmit", "refused"): "x of job j is skipped: release it first",
    ("hold", "unchanged"): "it is held already",
    ("hold", "refused", "RUNNING"): "x of job j is running: hold it when the run has ended",
    ("hold", "refused"): "x of job j is {state}: only a task that is still to do can be held",
    ("release", "unchanged"): "it is {state}, neither held nor skipped",
    ("skip", "unchanged"): "it is skipped already",
    ("skip", "refused", "RUNNING"): "x of job j is running: skip it when the run has ended",
    ("skip", "refused"): "x of job j is {state}: only a task that is still to do can be skipped",
    ("cancel", "done"): "run {run} is cancelled in a moment",
    ("cancel", "refused"): "x of job j is {state}: only a running task can be cancelled",
    ("force", "refused"): "x of job j is running (run {run}): force it when the run has ended",
    ("publish", "refused"): "chunk x of b is being written by run {run}: publish it when the run has ended",
}


@pytest.fixture
def db(rolled_back: Connection) -> Connection:
    return rolled_back


def state(db: Connection) -> str:
    """The state of task x, with what it remembers."""
    row = task(db, "j", "x")
    return f"{row['state']}:{row['held_from']}" if row["held_from"] else str(row["state"])


def brought_to(db: Connection, wanted: str, delay: float = 0) -> Run:
    """Job j and its task x in the state; return the run that brought it there, empty where there was none."""
    apply(db, [dataset("a"), dataset("b")], [job("j", ["a"], ["b"])])
    value(db, "SELECT opendataflow.declare_chunks('a', '{x}', '{NULL}', 'test')")
    run: Run = {}
    kept, _, plain = wanted.rpartition(":")
    if plain != "WAITING":
        ask(db, "publish", "a", "x")
    if plain in ("RUNNING", "RETRYING", "DONE", "FAILED") and wanted != "HELD:DONE":
        [run] = claim(db, open_lease(db), "j")
    if plain in ("RETRYING", "DONE", "FAILED") and run:
        end(db, run, plain, delay=delay)
    if kept == "HELD":
        ask(db, "hold", "j", "x")
    if kept == "SKIPPED":
        ask(db, "skip", "j", "x")
    if wanted == "HELD:DONE":
        ask(db, "publish", "b", "x")
    assert state(db) == wanted
    return run


@pytest.mark.parametrize(("before", "event", "after", "result"), cases(TABLE, "comes", "goes", "due"))
def test_what_happens_around_a_task_moves_it_only_while_it_is_open(
    db: Connection, before: str, event: str, after: str, result: str
) -> None:
    brought_to(db, before)

    if event == "comes":
        ask(db, "publish", "a", "x")
    elif event == "goes":
        ask(db, "hold_chunks", "a", "x")
    else:
        db.execute("SELECT * FROM opendataflow.retry_due()")

    assert (state(db), result) == (after, "done")
    assert problems(db) == []


@pytest.mark.parametrize(("before", "event", "after", "result"), cases(TABLE, "claim"))
def test_only_queued_tasks_are_claimed(db: Connection, before: str, event: str, after: str, result: str) -> None:
    brought_to(db, before)

    runs = claim(db, open_lease(db), "j")

    assert (state(db), event, len(runs)) == (after, "claim", 1 if result == "done" else 0)
    assert problems(db) == []


@pytest.mark.parametrize(("before", "event", "after", "result"), cases(TABLE, *ENDS))
def test_the_end_of_a_run_moves_its_task_and_only_once(
    db: Connection, before: str, event: str, after: str, result: str
) -> None:
    run = brought_to(db, before)

    answer = end(db, run, **ENDS[event])

    assert (state(db), answer["already"]) == (after, result == "unchanged")
    assert answer["task_state"] == after.split(":")[0]
    assert problems(db) == []


@pytest.mark.parametrize(
    ("before", "event", "after", "result"),
    cases(TABLE, "resubmit", "hold", "release", "published", "skip", "force", "cancel"),
)
def test_a_request_for_a_task_moves_it_or_says_why_not(
    db: Connection, before: str, event: str, after: str, result: str
) -> None:
    run = brought_to(db, before)
    verb, owner = ("publish", "b") if event == "published" else (event, "j")

    [answer] = ask(db, verb, owner, "x")

    assert (state(db), answer["result"]) == (after, result)
    now = after.split(":")[0]
    sentence = SENTENCES.get((verb, result, now)) or SENTENCES.get((verb, result)) or ""
    if (before, verb) == ("DONE", "force"):
        sentence = "a warning: it was DONE and not stale, and is made once more"
    assert (answer["message"] or "") == sentence.format(state=now, run=run.get("run"))
    assert problems(db) == []


# Resubmit


@pytest.mark.parametrize("outcome", ENDS)
def test_a_task_resubmitted_while_it_runs_is_open_again_at_its_end_whatever_that_is(
    db: Connection, outcome: str
) -> None:
    run = brought_to(db, "RUNNING")
    ask(db, "resubmit", "j", "x")
    assert chunks(db)["b/x"] == "RUNNING"

    answer = end(db, run, **ENDS[outcome])

    assert answer["task_state"] == "QUEUED"
    assert answer["woken"] == ["j"]
    assert transitions(db, "chunk", "b", "x") == ["DECLARED", "RUNNING", "RESUBMIT"]
    assert transitions(db, "task", "j", "x") == ["WAITING", "QUEUED", "RUNNING", "WAITING", "QUEUED"]
    row = task(db, "j", "x")
    assert (row["again"], row["rank"], row["attempts"], row["infrastructure_attempts"]) == (False, 1, 0, 0)


def test_consumers_never_see_the_output_of_a_run_that_was_resubmitted_meanwhile(db: Connection) -> None:
    apply(
        db,
        [dataset("a", "x"), dataset("b"), dataset("c")],
        [job("j", ["a"], ["b"]), job("k", ["b"], ["c"])],
    )
    [run] = claim(db, open_lease(db), "j")
    ask(db, "resubmit", "j", "x")

    end(db, run, "DONE")

    assert transitions(db, "task", "k", "x") == []
    assert tasks(db) == {"j/x": "QUEUED", "k/x": "WAITING"}


@pytest.mark.parametrize(
    ("held", "output"), [("WAITING", "DECLARED"), ("RETRYING", "RESUBMIT"), ("FAILED", "RESUBMIT")]
)
def test_a_resubmit_of_a_held_task_is_done_at_its_release(db: Connection, held: str, output: str) -> None:
    brought_to(db, f"HELD:{held}", delay=3600)
    ask(db, "resubmit", "j", "x")
    ask(db, "publish", "a", "x")
    assert tasks(db) == {"j/x": "HELD"}

    ask(db, "release", "j", "x")

    assert (state(db), chunks(db)["b/x"]) == ("QUEUED", output)
    row = task(db, "j", "x")
    assert (row["again"], row["rank"], row["attempts"], row["due_at"]) == (False, 1, 0, None)
    assert problems(db) == []


def test_a_held_task_whose_output_was_published_and_resubmitted_runs_again_after_its_release(db: Connection) -> None:
    brought_to(db, "HELD:DONE")
    ask(db, "resubmit", "j", "x")

    ask(db, "release", "j", "x")

    assert (state(db), chunks(db)["b/x"]) == ("QUEUED", "RESUBMIT")


def test_a_publication_after_the_resubmit_of_a_held_task_is_the_answer_to_it(db: Connection) -> None:
    brought_to(db, "HELD:QUEUED")
    ask(db, "resubmit", "j", "x")
    ask(db, "publish", "b", "x")

    ask(db, "release", "j", "x")

    assert (state(db), chunks(db)["b/x"]) == ("DONE", "READY")


def test_a_resubmitted_task_has_its_budgets_back(db: Connection) -> None:
    end(db, brought_to(db, "RUNNING"), **ENDS["lost"])
    db.execute("SELECT * FROM opendataflow.retry_due()")
    end(db, claim(db, open_lease(db), "j")[0], **ENDS["failed"])
    row = task(db, "j", "x")
    assert (row["attempts"], row["infrastructure_attempts"]) == (1, 1)

    ask(db, "resubmit", "j", "x")

    row = task(db, "j", "x")
    assert (row["attempts"], row["infrastructure_attempts"]) == (0, 0)
    assert claim(db, open_lease(db), "j")[0]["attempt"] == 1


def test_an_open_task_with_a_failed_output_is_opened_like_a_task_that_failed(db: Connection) -> None:
    apply(db, [dataset("a", "x"), dataset("b"), dataset("c")], [job("j", ["a"], ["b"])])
    end(db, claim(db, open_lease(db), "j")[0], "FAILED")
    apply(db, [], [job("other", ["a"], ["c"]), job("j", ["a"], [])])
    apply(db, [], [job("other", ["a"], ["c", "b"])])
    assert tasks(db)["other/x"] == "WAITING"

    [answer] = ask(db, "resubmit", "other", "x")

    assert (answer["result"], tasks(db)["other/x"], chunks(db)["b/x"]) == ("done", "QUEUED", "RESUBMIT")


def test_a_resubmitted_producer_waits_for_its_inputs_and_its_consumers_wait_for_it(db: Connection) -> None:
    apply(
        db,
        [dataset("a", "x"), dataset("b"), dataset("c")],
        [job("j", ["a"], ["b"]), job("k", ["b"], ["c"])],
    )
    end(db, claim(db, open_lease(db), "j")[0], "DONE")
    assert tasks(db) == {"j/x": "DONE", "k/x": "QUEUED"}
    ask(db, "hold_chunks", "a", "x")

    [answer] = ask(db, "resubmit", "j", "x")

    assert (answer["result"], answer["state"]) == ("done", "WAITING")
    assert tasks(db) == {"j/x": "WAITING", "k/x": "WAITING"}


# Hold and release


def test_a_released_task_looks_at_its_blockers_of_now(db: Connection) -> None:
    brought_to(db, "HELD:WAITING")
    ask(db, "publish", "a", "x")
    ask(db, "release", "j", "x")
    assert state(db) == "QUEUED"

    ask(db, "hold", "j", "x")
    ask(db, "hold_chunks", "a", "x")
    ask(db, "release", "j", "x")
    assert state(db) == "WAITING"
    assert problems(db) == []


def test_a_task_keeps_the_moment_of_its_retry_while_it_is_held(db: Connection) -> None:
    brought_to(db, "RETRYING", delay=3600)
    due = task(db, "j", "x")["due_at"]
    ask(db, "hold", "j", "x")
    db.execute("SELECT * FROM opendataflow.retry_due()")
    ask(db, "release", "j", "x")

    assert (state(db), task(db, "j", "x")["due_at"]) == ("RETRYING", due)


def test_a_resubmit_that_a_held_task_remembers_outlasts_that_it_is_skipped(db: Connection) -> None:
    brought_to(db, "HELD:FAILED")
    ask(db, "resubmit", "j", "x")
    ask(db, "skip", "j", "x")
    assert state(db) == "SKIPPED:FAILED"

    ask(db, "release", "j", "x")

    assert (state(db), chunks(db)["b/x"], task(db, "j", "x")["rank"]) == ("QUEUED", "RESUBMIT", 1)
    assert problems(db) == []


# Force


def two_inputs(db: Connection) -> None:
    """Job j makes b of a and m; a/x is READY, m/x is not there. Job k reads b."""
    apply(
        db,
        [dataset("a", "x"), dataset("b"), dataset("c"), dataset("m")],
        [job("j", ["a", "m"], ["b"]), job("k", ["b"], ["c"])],
    )
    assert tasks(db)["j/x"] == "WAITING"


def test_a_forced_task_runs_without_its_inputs_and_reads_only_those_that_are_there(db: Connection) -> None:
    two_inputs(db)

    [answer] = ask(db, "force", "j", "x")
    [run] = claim(db, open_lease(db), "j")

    assert (answer["result"], answer["state"], answer["message"]) == ("done", "QUEUED", None)
    row = db.execute("SELECT * FROM opendataflow.run WHERE id = %s", (run["run"],)).fetchone()
    assert row is not None
    assert (row["reads"], row["writes"], row["forced"]) == (["a"], ["b"], True)
    assert (chunk(db, "a", "x")["readers"], chunk(db, "m", "x")["readers"]) == (1, 0)
    assert problems(db) == []

    assert end(db, run, "DONE")["task_state"] == "DONE"
    assert (chunk(db, "a", "x")["readers"], task(db, "j", "x")["forced"], tasks(db)["k/x"]) == (0, False, "QUEUED")
    assert problems(db) == []


@pytest.mark.parametrize("before", ["READY", "FAILED", "HOLD", "HOLD:READY"])
def test_a_forced_task_writes_an_output_that_was_locked(db: Connection, before: str) -> None:
    if before == "HOLD":
        brought_to(db, "QUEUED")
    else:
        brought_to(db, "FAILED" if before == "FAILED" else "DONE")
    if before.startswith("HOLD"):
        ask(db, "hold_chunks", "b", "x")

    ask(db, "force", "j", "x")

    assert (chunk(db, "b", "x")["status"], chunk(db, "b", "x")["held_status"]) == ("RESUBMIT", None)
    [run] = claim(db, open_lease(db), "j")
    assert end(db, run, "DONE")["task_state"] == "DONE"
    assert problems(db) == []


def test_running_readers_do_not_hinder_a_forced_run(db: Connection) -> None:
    apply(db, [dataset("a", "x"), dataset("b"), dataset("c")], [job("j", ["a"], ["b"]), job("k", ["b"], ["c"])])
    end(db, claim(db, open_lease(db), "j")[0], "DONE")
    [reader] = claim(db, open_lease(db), "k")

    ask(db, "force", "j", "x")
    [writer] = claim(db, open_lease(db), "j")

    assert (chunk(db, "b", "x")["status"], chunk(db, "b", "x")["readers"]) == ("RUNNING", 1)
    assert problems(db) == []
    end(db, reader, "DONE")
    end(db, writer, "DONE")
    assert (tasks(db)["k/x"], task(db, "k", "x")["stale"]) == ("DONE", True)
    assert problems(db) == []


def test_a_task_is_not_forced_beside_a_run_of_another_job_that_writes_the_same_chunk(db: Connection) -> None:
    apply(db, [dataset("a", "x"), dataset("b")], [job("j", ["a"], ["b"])])
    [run] = claim(db, open_lease(db), "j")
    apply(db, [], [job("j", ["a"], []), job("other", ["a"], ["b"])])

    [answer] = ask(db, "force", "other", "x")

    assert answer["result"] == "refused"
    assert answer["message"] == (
        f"chunk x of b is being written by run {run['run']}: force job other when the run has ended"
    )


def test_a_hold_that_comes_after_the_force_is_kept(db: Connection) -> None:
    brought_to(db, "WAITING")
    ask(db, "force", "j", "x")
    ask(db, "hold_chunks", "b", "x")
    assert (state(db), claim(db, open_lease(db), "j"), problems(db)) == ("WAITING", [], [])

    ask(db, "force", "j", "x")

    assert state(db) == "QUEUED"


def test_a_forced_task_comes_before_all_other_tasks(db: Connection) -> None:
    apply(db, [dataset("a", "1", "2", "3"), dataset("b")], [job("j", ["a"], ["b"])])
    lease = open_lease(db)
    end(db, claim(db, lease, "j", 2)[1], "DONE")
    ask(db, "resubmit", "j", "2")
    ask(db, "force", "j", "3")
    assert ask(db, "force", "j", "3")[0]["message"] == "it is forced already"

    assert [run["data_id"] for run in claim(db, lease, "j", 2)] == ["3", "2"]


def test_a_task_stays_forced_until_its_retries_are_used_up(db: Connection) -> None:
    two_inputs(db)
    ask(db, "force", "j", "x")
    end(db, claim(db, open_lease(db), "j")[0], "RETRYING")
    assert (state(db), task(db, "j", "x")["forced"], problems(db)) == ("RETRYING", True, [])
    db.execute("SELECT * FROM opendataflow.retry_due()")

    end(db, claim(db, open_lease(db), "j")[0], "FAILED")

    assert (state(db), task(db, "j", "x")["forced"], problems(db)) == ("FAILED", False, [])


def test_a_forced_task_that_was_held_is_forced_after_its_release(db: Connection) -> None:
    two_inputs(db)
    ask(db, "force", "j", "x")
    ask(db, "hold", "j", "x")
    assert state(db) == "HELD:QUEUED"

    ask(db, "release", "j", "x")

    assert (state(db), problems(db)) == ("QUEUED", [])


def test_the_history_says_what_was_forced(db: Connection) -> None:
    brought_to(db, "WAITING")
    ask(db, "force", "j", "x")
    events = "SELECT array_agg(kind || ' ' || event ORDER BY id) FROM opendataflow.history WHERE event = 'force'"
    assert value(db, events) == ["chunk force", "task force"]


# Cancel


CANCELLED = {"verdict": "FAILED", "state": "CANCELLED", "class": "Cancelled", "message": "cancelled"}


def runs_to_cancel(db: Connection, lease: str) -> list[int]:
    return [r["run"] for r in db.execute("SELECT opendataflow.runs_to_cancel(%s::uuid) AS run", (lease,))]


def test_the_engine_of_a_run_that_is_to_be_cancelled_is_notified_until_it_has_ended(db: Connection) -> None:
    apply(db, [dataset("a", "x"), dataset("b")], [job("j", ["a"], ["b"])])
    lease = open_lease(db)
    [run] = claim(db, lease, "j")
    assert runs_to_cancel(db, lease) == []

    ask(db, "cancel", "j", "x")

    assert (runs_to_cancel(db, lease), runs_to_cancel(db, open_lease(db))) == ([run["run"]], [])
    assert ask(db, "cancel", "j", "x")[0]["message"] == f"run {run['run']} is being cancelled already"
    end(db, run, **CANCELLED)
    assert (state(db), runs_to_cancel(db, lease), problems(db)) == ("FAILED", [], [])
    assert task(db, "j", "x")["reason"] == "cancelled"


@pytest.mark.parametrize("outcome", ["retried", "failed", "lost"])
def test_a_run_that_was_to_be_cancelled_is_not_tried_again_however_it_ends(db: Connection, outcome: str) -> None:
    run = brought_to(db, "RUNNING")
    ask(db, "cancel", "j", "x")

    assert end(db, run, **ENDS[outcome])["run_state"] == "CANCELLED"

    assert (state(db), chunks(db)["b/x"], task(db, "j", "x")["due_at"]) == ("FAILED", "FAILED", None)
    assert problems(db) == []


def test_a_run_that_succeeds_before_it_is_cancelled_is_good(db: Connection) -> None:
    run = brought_to(db, "RUNNING")
    ask(db, "cancel", "j", "x")
    assert end(db, run, "DONE")["run_state"] == "SUCCEEDED"
    assert (state(db), problems(db)) == ("DONE", [])


def test_a_task_that_was_resubmitted_runs_again_after_it_is_cancelled(db: Connection) -> None:
    run = brought_to(db, "RUNNING")
    ask(db, "resubmit", "j", "x")
    assert ask(db, "cancel", "j", "x")[0]["message"].endswith("runs once more")
    end(db, run, **CANCELLED)
    assert (state(db), problems(db)) == ("QUEUED", [])


def test_the_history_says_who_cancelled(db: Connection) -> None:
    brought_to(db, "RUNNING")
    value(db, "SELECT result FROM opendataflow.cancel('j', '{x}', 'ada', 'wrong table')")
    query = "SELECT actor || ': ' || reason FROM opendataflow.history WHERE event = 'cancel'"
    assert (value(db, query), problems(db)) == ("ada: wrong table", [])


@pytest.mark.parametrize("verb", ["resubmit", "hold", "release", "skip", "force", "cancel"])
def test_a_task_that_is_not_there_is_unknown(db: Connection, verb: str) -> None:
    brought_to(db, "QUEUED")

    [answer] = ask(db, verb, "j", "y")

    assert (answer["result"], answer["message"]) == ("unknown", "job j has no task for y")


# Failures and retries


def test_each_class_of_failure_consumes_its_own_budget(db: Connection) -> None:
    run = brought_to(db, "RUNNING")
    consumed = []
    for failure in ("Application", "Infrastructure", "DeadlineExceeded", "OOMKilled", "Infrastructure"):
        end(db, run, "RETRYING", **{"class": failure})
        db.execute("SELECT * FROM opendataflow.retry_due()")
        row = task(db, "j", "x")
        consumed.append((row["attempts"], row["infrastructure_attempts"]))
        [run] = claim(db, open_lease(db), "j")

    assert consumed == [(1, 0), (1, 1), (2, 1), (3, 1), (3, 2)]
    assert run["attempt"] == 6


def test_a_success_consumes_no_budget(db: Connection) -> None:
    end(db, brought_to(db, "RUNNING"), "DONE")
    row = task(db, "j", "x")
    assert (row["attempts"], row["infrastructure_attempts"], row["reason"]) == (0, 0, None)


def test_a_retry_waits_until_it_is_due(db: Connection) -> None:
    brought_to(db, "RETRYING", delay=3600)

    row = db.execute("SELECT * FROM opendataflow.retry_due()").fetchone()

    assert row is not None
    assert (state(db), row["woken"]) == ("RETRYING", [])


def test_a_retry_that_is_due_waits_for_inputs_that_have_gone(db: Connection) -> None:
    brought_to(db, "RETRYING")
    ask(db, "hold_chunks", "a", "x")
    db.execute("SELECT * FROM opendataflow.retry_due()")
    assert state(db) == "WAITING"

    ask(db, "release_chunks", "a", "x")

    assert state(db) == "QUEUED"


def test_due_retries_are_reported_to_the_engine(db: Connection) -> None:
    brought_to(db, "RETRYING")

    row = db.execute("SELECT * FROM opendataflow.retry_due()").fetchone()

    assert row == {"woken": ["j"]}


def test_a_task_says_why_it_failed(db: Connection) -> None:
    end(db, brought_to(db, "RUNNING"), "FAILED", message="exit code 7", reason="exit code 7, after 2 of 2 attempts")
    assert task(db, "j", "x")["reason"] == "exit code 7, after 2 of 2 attempts"
    assert chunk(db, "b", "x")["reason"] == "exit code 7"


# Inputs that change under a run


@pytest.mark.parametrize("verb", ["resubmit_chunks", "hold_chunks"])
def test_a_task_goes_on_when_its_input_is_withdrawn(db: Connection, verb: str) -> None:
    run = brought_to(db, "RUNNING")
    ask(db, verb, "a", "x")
    assert (state(db), problems(db)) == ("RUNNING", [])

    end(db, run, "DONE")

    assert (state(db), chunks(db)["b/x"]) == ("DONE", "READY")
    assert chunk(db, "a", "x")["readers"] == 0
    assert problems(db) == []


def test_a_task_whose_input_was_withdrawn_is_stale_once_it_is_published_anew(db: Connection) -> None:
    run = brought_to(db, "RUNNING")
    ask(db, "resubmit_chunks", "a", "x")
    end(db, run, "DONE")
    assert task(db, "j", "x")["stale"] is False

    ask(db, "publish", "a", "x")

    assert (state(db), task(db, "j", "x")["stale"]) == ("DONE", True)


def test_a_task_is_stale_at_its_end_when_its_input_was_published_anew_meanwhile(db: Connection) -> None:
    run = brought_to(db, "RUNNING")
    ask(db, "publish", "a", "x")

    end(db, run, "DONE")

    assert (state(db), task(db, "j", "x")["stale"]) == ("DONE", True)


def test_consumers_that_are_done_are_stale_once_their_producer_has_made_a_new_version(db: Connection) -> None:
    apply(
        db,
        [dataset("a", "x"), dataset("b"), dataset("c")],
        [job("j", ["a"], ["b"]), job("k", ["b"], ["c"])],
    )
    lease = open_lease(db)
    end(db, claim(db, lease, "j")[0], "DONE")
    end(db, claim(db, lease, "k")[0], "DONE")
    ask(db, "resubmit", "j", "x")
    assert task(db, "k", "x")["stale"] is False

    end(db, claim(db, lease, "j")[0], "DONE")

    assert (task(db, "k", "x")["state"], task(db, "k", "x")["stale"]) == ("DONE", True)
