"""What a person reads who asks why something is not running: the reason, and the command that helps."""

from typing import Any

import pytest

from opendataflow.core.text.explain import (
    breaker_note,
    breaker_sentence,
    counted,
    duration,
    explain,
    meaning,
    shell_command,
    stale_sentence,
    unmanaged_namespace_sentence,
)
from opendataflow.names import ChunkStatus, TaskState

RUN = {"run": 8, "attempt": 2, "state": "FAILED", "message": "exit code 1: oops", "seconds": 754.2, "host": "h1"}


def evidence(state: str, **changes: Any) -> dict[str, Any]:
    """The answer of opendataflow.why() for a task that nothing limits."""
    return {
        "job": "load",
        "data_id": "2013",
        "state": state,
        "reason": None,
        "held_from": None,
        "again": False,
        "forced": False,
        "stale": False,
        "missing_outputs": [],
        "attempts": 0,
        "retry_limit": 2,
        "due_in_seconds": None,
        "suspended": False,
        "breaker": None,
        "tests": None,
        "preflight": None,
        "looks": 0,
        "deleted": False,
        "parallelism": 2,
        "running": 0,
        "before_it": 0,
        "engines": 1,
        "engine_lives": True,
        "unmanaged_namespaces": None,
        "blockers": [],
        "last_run": None,
        "own_jvm": None,
        **changes,
    }


def blocked(itemtype: str, status: str, **changes: Any) -> str:
    """The sentence about one blocker of a WAITING task."""
    blocker = {
        "dataset": "orders",
        "itemtype": itemtype,
        "status": status,
        "readers": 0,
        "reason": None,
        "producer": None,
        "producer_state": None,
        "producer_reason": None,
        **changes,
    }
    first, second = explain(evidence("WAITING", blockers=[blocker]))
    assert first == "2013 of job load is WAITING"
    return second


def test_a_day_that_has_not_come_yet_comes_by_itself() -> None:
    sentence = blocked("IN", "DECLARED", dataset="today")
    assert sentence.endswith(
        "it comes with that day, by an engine or RunJob; to have it before: dataflow publish today 2013"
    )


def test_a_forced_task_is_told_apart() -> None:
    assert explain(evidence("QUEUED", forced=True))[1].startswith("it is forced: it waits neither for inputs")


# States --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", TaskState)
def test_the_first_sentence_shows_the_state(state: TaskState) -> None:
    why = evidence(state, held_from="QUEUED", due_in_seconds=4, last_run=RUN)
    assert explain(why)[0].startswith(f"2013 of job load is {state}")


def test_failed_shows_the_reason_the_log_and_the_way_on() -> None:
    assert explain(evidence("FAILED", reason="no retries left (2 allowed): exit code 1: oops", last_run=RUN)) == [
        "2013 of job load is FAILED: no retries left (2 allowed): exit code 1: oops",
        "last run: 8, attempt 2, FAILED: exit code 1: oops",
        "its log: dataflow logs --run 8",
        "when the cause is fixed: dataflow resubmit load 2013",
    ]


def test_a_run_that_did_not_start_is_not_called_a_failed_attempt() -> None:
    given_back = {**RUN, "state": "GIVEN_BACK", "message": "input a: /in does not exist"}
    assert explain(evidence("RETRYING", due_in_seconds=30, last_run=given_back))[0] == (
        "2013 of job load is RETRYING: its last run did not start, which consumes no retry; the next one is due in 30 s"
    )


def test_retry_shows_when_the_next_attempt_comes_and_how_many_are_left() -> None:
    assert explain(evidence("RETRYING", attempts=1, due_in_seconds=300, last_run=RUN)) == [
        "2013 of job load is RETRYING: the last attempt failed, the next one is due in 5 min; 1 more may fail after it",
        "last run: 8, attempt 2, FAILED: exit code 1: oops",
        "its log: dataflow logs --run 8",
    ]


def test_a_task_whose_location_is_missing_shows_when_it_is_looked_at_again_and_that_no_retry_is_consumed() -> None:
    reason = "not started: project.yml, line 16: there is no in/2013.csv"
    assert explain(evidence("RETRYING", looks=3, due_in_seconds=40, reason=reason))[0] == (
        f"2013 of job load is RETRYING: {reason}; it was looked at 3 times, which consumes no retry; the next look is "
        "due in 40 s; to look at once: dataflow resubmit load 2013"
    )


def test_a_location_that_all_chunks_need_keeps_every_task_from_its_start() -> None:
    gate = {"failure": "there is no table t", "looks": 1, "failing_since": "2013-01-01T00:00:00+00:00"}
    (_, sentence, *_) = explain(evidence("QUEUED", preflight={**gate, "next_in_seconds": 0}))
    assert sentence.startswith("there is no table t; no run of the job starts until this location is there")
    assert "looked at once since 2013-01-01" in sentence
    assert sentence.endswith("the next look is due now; to look at once: dataflow resubmit load 2013")


def test_a_retry_that_is_due_comes_now() -> None:
    assert "the next one is due now; 0 more" in explain(evidence("RETRYING", attempts=2, due_in_seconds=0))[0]


def test_running_shows_where_and_for_how_long_and_its_log() -> None:
    assert explain(evidence("RUNNING", last_run={**RUN, "state": "RUNNING", "message": None})) == [
        "2013 of job load is RUNNING: run 8, attempt 2, for 13 min at h1",
        "its log: dataflow logs --run 8",
    ]


def test_a_run_that_could_not_share_a_jvm_says_why() -> None:
    assert explain(evidence("DONE", last_run=RUN, own_jvm="the reason"))[-2:] == [
        "its run did not share a JVM with other chunks: the reason",
        "its log: dataflow logs --run 8",
    ]


def test_running_shows_that_it_was_asked_for_again() -> None:
    [sentence, _] = explain(evidence("RUNNING", again=True, last_run=RUN))
    assert sentence.endswith("; it was asked for again and runs once more after its end")


@pytest.mark.parametrize("state", ["HELD", "SKIPPED"])
def test_held_shows_what_it_was_and_how_to_release_it(state: str) -> None:
    assert explain(evidence(state, held_from="RETRYING", reason="audit")) == [
        f"2013 of job load is {state} by a person (it was RETRYING): audit; to release it: dataflow release load 2013"
    ]


def test_held_shows_that_it_was_asked_for_again() -> None:
    assert "; it was asked for again meanwhile;" in explain(evidence("HELD", held_from="FAILED", again=True))[0]


def test_done_shows_its_run() -> None:
    run = {**RUN, "state": "SUCCEEDED", "message": "exit code 0"}
    assert explain(evidence("DONE", last_run=run)) == [
        "2013 of job load is DONE",
        "last run: 8, attempt 2, SUCCEEDED: exit code 0",
        "its log: dataflow logs --run 8",
    ]


def test_done_but_stale_shows_how_to_make_it_again() -> None:
    [sentence] = explain(evidence("DONE", stale=True))
    assert sentence.startswith("2013 of job load is DONE, but made from data that has changed since; ")
    assert sentence.endswith("to make it again: dataflow resubmit load 2013")


def test_done_without_an_output_names_both_remedies() -> None:
    [sentence] = explain(evidence("DONE", missing_outputs=["kn"]))
    assert sentence == (
        "2013 of job load is DONE, but its output kn was never made; to make it: dataflow resubmit load 2013; "
        "to exclude it: dataflow skip load 2013"
    )


# What limits a job ---------------------------------------------------------------------------------------


def test_ready_with_nothing_in_its_way_needs_no_more_words() -> None:
    assert explain(evidence("QUEUED")) == ["2013 of job load is QUEUED"]


def test_ready_without_an_engine_shows_how_to_start_one() -> None:
    assert explain(evidence("QUEUED", engines=0))[1:] == ["no engine is running; to start one: dataflow local -f FILE"]


def test_queued_behind_the_pod_of_a_lost_run_names_the_pod_and_the_remedy() -> None:
    orphan = {"namespace": "team", "name": "load-r500-c0ffee", "run": 500, "data_id": "2013"}
    (sentence,) = explain(evidence("QUEUED", orphan=orphan))[1:]
    assert sentence.startswith(
        "pod team/load-r500-c0ffee of run 500, which the database does not know any more, may still"
    )
    assert sentence.endswith("write chunk 2013: it is being deleted; if its node is gone: kubectl delete node NODE")


def test_ready_behind_others_shows_how_many() -> None:
    assert explain(evidence("QUEUED", before_it=1))[1:] == ["before it: 1 queued task of the job"]
    assert explain(evidence("QUEUED", before_it=10_000))[1:] == ["before it: at least 10000 queued tasks of the job"]
    assert explain(evidence("QUEUED", before_it=70))[1:] == ["before it: 70 queued tasks of the job"]


def test_ready_in_a_busy_job_shows_its_parallelism() -> None:
    assert explain(evidence("QUEUED", running=2))[1:] == [
        "job load runs 2 at a time (its parallelism) and all of them are busy: it has to wait"
    ]


def test_ready_in_a_job_with_no_parallelism_advises_to_raise_it() -> None:
    assert explain(evidence("QUEUED", parallelism=0))[1:] == [
        "job load has parallelism 0, nothing new starts; to let it run: dataflow scale load 1"
    ]


@pytest.mark.parametrize("state", ["WAITING", "QUEUED", "RETRYING"])
def test_a_suspended_job_is_named_for_all_open_tasks(state: str) -> None:
    sentence = "job load is suspended, nothing new starts; to resume it: dataflow resume load"
    assert sentence in explain(evidence(state, suspended=True, due_in_seconds=4))


@pytest.mark.parametrize("state", ["WAITING", "QUEUED", "RETRYING"])
def test_a_deleted_job_is_named_for_all_open_tasks(state: str) -> None:
    sentence = "job load is deleted: apply its file again"
    assert sentence in explain(evidence(state, deleted=True, due_in_seconds=4))


# Inputs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["DECLARED", "RESUBMIT", "FAILED"])
def test_an_input_that_no_job_makes_has_to_be_published(status: str) -> None:
    sentence = blocked("IN", status)
    assert sentence.startswith(f"waits for input chunk 2013 of orders, which is {status} (")
    assert sentence.endswith("; no job makes it; when it is there: dataflow publish orders 2013")


def test_the_reason_of_an_input_is_reported() -> None:
    assert "FAILED (not usable: checksum differs)" in blocked("IN", "FAILED", reason="checksum differs")


def test_an_input_whose_job_failed_shows_why_and_how_to_run_that_job_again() -> None:
    failed = {"producer": "export", "producer_state": "FAILED", "producer_reason": "no retries left: exit code 1"}
    assert blocked("IN", "FAILED", reason="exit code 1", **failed) == (
        "waits for input chunk 2013 of orders, which is FAILED (not usable); job export, which makes it, is FAILED "
        "(no retries left: exit code 1); when the cause is fixed: dataflow resubmit export 2013"
    )


def test_an_input_that_was_set_failed_although_its_job_is_done_has_to_be_made_again() -> None:
    sentence = blocked("IN", "FAILED", reason="bad rows", producer="export", producer_state="DONE")
    assert "FAILED (not usable: bad rows)" in sentence
    assert sentence.endswith("is DONE; when the cause is fixed: dataflow resubmit export 2013")


@pytest.mark.parametrize("state", ["WAITING", "QUEUED", "RUNNING", "RETRYING", "HELD", "SKIPPED"])
def test_an_input_whose_job_is_not_done_shows_where_to_look_on(state: str) -> None:
    assert blocked("IN", "DECLARED", producer="export", producer_state=state) == (
        "waits for input chunk 2013 of orders, which is DECLARED (not made yet); job export, which makes it, is "
        f"{state}; see: dataflow why export 2013"
    )


def test_an_input_that_its_job_leaves_out_has_to_be_published() -> None:
    assert blocked("IN", "DECLARED", producer="export") == (
        "waits for input chunk 2013 of orders, which is DECLARED (not made yet); job export makes orders, but not "
        "this chunk; when it is there: dataflow publish orders 2013"
    )


@pytest.mark.parametrize("producer", [{}, {"producer": "export", "producer_state": "DONE"}])
def test_an_input_under_hold_has_to_be_released_whoever_makes_it(producer: dict[str, str]) -> None:
    assert blocked("IN", "HOLD", reason="audit", **producer) == (
        "waits for input chunk 2013 of orders, which is HOLD (held by a person: audit); to release it: "
        "dataflow release --dataset orders 2013"
    )


def test_an_input_that_waits_for_a_person_shows_how_to_accept_it() -> None:
    assert blocked("IN", "PENDING", producer="export", producer_state="DONE") == (
        "waits for input chunk 2013 of orders, which is PENDING (not accepted yet); when it is good: "
        "dataflow accept orders 2013; when it is not: dataflow reject orders 2013"
    )


# Outputs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["FAILED", "PENDING", "READY"])
def test_an_output_that_must_not_be_overwritten_shows_how_to_allow_it(status: str) -> None:
    sentence = blocked("OUT", status)
    assert sentence.startswith(f"may not write its output chunk 2013 of orders, which is {status} (")
    assert sentence.endswith("; to write it anew: dataflow resubmit load 2013")


def test_an_output_under_hold_has_to_be_released() -> None:
    assert blocked("OUT", "HOLD").endswith("; to release it: dataflow release --dataset orders 2013")


def test_an_output_that_is_being_written_only_takes_time() -> None:
    assert blocked("OUT", "RUNNING") == (
        "may not write its output chunk 2013 of orders, which is RUNNING (being written)"
    )


@pytest.mark.parametrize(("readers", "runs"), [(1, "1 running run"), (3, "3 running runs")])
def test_an_output_that_is_being_read_only_takes_time(readers: int, runs: str) -> None:
    assert blocked("OUT", "RESUBMIT", readers=readers) == (
        f"waits for {runs} to end reading its output chunk 2013 of orders"
    )


@pytest.mark.parametrize("itemtype", ["IN", "OUT"])
@pytest.mark.parametrize("status", ChunkStatus)
@pytest.mark.parametrize("state", [None, *TaskState])
def test_every_blocker_has_a_sentence(itemtype: str, status: ChunkStatus, state: TaskState | None) -> None:
    sentence = blocked(itemtype, status, producer="export" if state else None, producer_state=state)
    assert "None" not in sentence
    assert status in sentence


def test_all_blockers_are_reported() -> None:
    blocker = {"itemtype": "IN", "status": "DECLARED", "readers": 0, "reason": None}
    blocker |= {"producer": None, "producer_state": None, "producer_reason": None}
    why = evidence("WAITING", blockers=[{**blocker, "dataset": name} for name in ("orders", "prices")])
    assert [sentence.split(",")[0] for sentence in explain(why)[1:]] == [
        "waits for input chunk 2013 of orders",
        "waits for input chunk 2013 of prices",
    ]


# Words ---------------------------------------------------------------------------------------------------


def test_a_command_can_be_pasted_whatever_the_ids_are() -> None:
    assert shell_command("resubmit", "load all", "it's", "$x") == "dataflow resubmit 'load all' 'it'\"'\"'s' '$x'"


def test_an_id_below_zero_is_not_taken_for_an_option() -> None:
    assert shell_command("hold", "numbers", "-10--1", dataset=True) == "dataflow hold --dataset -- numbers -10--1"


def test_a_status_comes_with_its_meaning_and_its_reason() -> None:
    assert meaning("DECLARED") == "DECLARED (not made yet)"
    assert meaning("HOLD", "audit") == "HOLD (held by a person: audit)"
    assert meaning("RESUBMIT", "late data") == "RESUBMIT (late data)"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (0.2, "0.2 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (89, "89 s"),
        (90, "2 min"),
        (3600, "60 min"),
        (5400, "1.5 h"),
        (100_000, "27.8 h"),
        (172_800, "2 days"),
        (2_419_200, "28 days"),
    ],
)
def test_durations_are_written_as_people_do(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_one_is_not_many() -> None:
    assert [counted(number, "gap") for number in (0, 1, 2)] == ["0 gaps", "1 gap", "2 gaps"]


def test_a_run_whose_engine_is_not_heard_of_shows_what_to_do() -> None:
    last = {"run": 7, "attempt": 1, "state": "RUNNING", "seconds": 5.0, "host": "laptop", "message": None}
    sentences = explain(evidence("RUNNING", engine_lives=False, last_run=last))
    assert any("lease of its engine at laptop has expired" in s and "dataflow lost 7" in s for s in sentences)


BREAKER = {
    "opened_at": "2013-02-01T03:00:00+00:00",
    "chunks": 5,
    "message": "exit code 1: connection refused",
    "probes": 0,
    "probe": None,
    "next_in_seconds": 20,
}


@pytest.mark.parametrize("state", ["WAITING", "QUEUED", "RETRYING"])
def test_an_open_breaker_is_named_for_all_open_tasks_with_what_tries_it_at_once(state: str) -> None:
    [sentence] = [s for s in explain(evidence(state, breaker=BREAKER, due_in_seconds=4)) if "breaker" in s]
    assert (
        "5 chunks failed in a row, the last with: exit code 1: connection refused; the next probe in 20 s" in sentence
    )
    assert sentence.endswith("dataflow force load 2013")


@pytest.mark.parametrize(
    ("changes", "end"),
    [
        ({"next_in_seconds": 0}, "; the next probe now"),
        ({"probe": 17}, "; run 17 is its probe"),
        ({"probes": 1}, "; 1 probe failed since then; the next probe in 20 s"),
        ({"probes": 3, "probe": 17}, "; 3 probes failed since then; run 17 is its probe"),
    ],
)
def test_an_open_breaker_says_what_it_waits_for(changes: dict[str, Any], end: str) -> None:
    assert breaker_sentence({**BREAKER, **changes}).endswith(end)


def test_the_opening_and_the_close_of_a_breaker_are_one_line_each() -> None:
    opened = {"opened": True, "chunks": 5, "message": "exit code 1", "pause": 10.0}
    assert breaker_note("load", opened).startswith(
        "load: 5 chunks failed in a row, the last with: exit code 1. The breaker"
    )
    assert breaker_note("load", {"opened": False, "seconds": 720.4, "probes": 2}) == (
        "load: a run has succeeded: the breaker is closed, after 12 min and 2 failed probes"
    )
    assert breaker_note("load", {"opened": False, "seconds": 3.0, "probes": 0}).endswith("closed, after 3 s")


def test_a_run_in_a_namespace_that_nobody_watches_is_reported_with_both_ways_out() -> None:
    last = RUN | {"state": "RUNNING"}
    unseen = {"namespace": "team", "jobs": [], "runs": [last["run"]]}
    sentences = explain(evidence("RUNNING", unmanaged_namespaces=unseen, last_run=last))
    assert sentences[1] == (
        f"the operator does not work in namespace team, so the end of 1 run there ({last['run']}) is not seen: take "
        f"team into its namespaces again; if nothing of a run is alive any more: dataflow lost {last['run']}"
    )


def test_of_many_jobs_that_stand_still_some_are_named() -> None:
    sentence = unmanaged_namespace_sentence({"namespace": "team", "jobs": list("abcdefg"), "runs": []})
    assert sentence == (
        "the operator does not work in namespace team, so a, b, c, d, e … start nothing: take team into its namespaces "
        "again"
    )


def test_what_is_stale_comes_with_the_command_that_rebuilds_it() -> None:
    rest = "made from an older version of an input or of the job; to rebuild: dataflow resubmit 'a b' --stale"
    assert stale_sentence("a b", 1) == f"1 chunk was {rest}"
    assert stale_sentence("a b", 2, ["1", "2"]) == f"2 chunks (1, 2) were {rest}"


def test_a_command_for_stale_chunks_keeps_ids_below_zero() -> None:
    assert shell_command("resubmit", "-5", stale=True) == "dataflow resubmit --stale -- -5"
