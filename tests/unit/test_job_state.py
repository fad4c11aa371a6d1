"""The status of a job says how it is, and why nothing runs."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opendataflow.core.status.conditions import Fault
from opendataflow.core.status.job_state import ObservedJob, job_status, short_duration
from opendataflow.errors import Backpressure, CreateUncertain, NamespaceGone, NoRights, NotCreatable, NotStarted
from opendataflow.model.resources.statuses import LONGEST_SPEC, DataFlowJobStatus
from opendataflow.names import Reason
from tests.kstatus import kstatus

NOW = datetime(2026, 11, 28, 10, 0, tzinfo=UTC)
BREAKER = {
    "opened_at": "2026-11-28T09:00:00+00:00",
    "seconds": 3600,
    "chunks": 5,
    "message": "exit code 1: no route to host",
    "probes": 2,
    "probe": None,
    "next_probe_at": "2026-11-28T10:00:30+00:00",
    "next_in_seconds": 30,
}


def found(counts: dict[str, int], **more: Any) -> dict[str, Any]:
    """What Postgres says of a job."""
    return {
        "job": "load",
        "parallelism": 3,
        "suspended": False,
        "deleted": False,
        "sample": 500,
        "counts": counts,
        "next_due": None,
        "breaker": None,
        "tests": None,
        "preflight": None,
        "missing": None,
        "running": [],
        "failed": [],
        "waiting": [],
        "incomplete": [],
        "gaps": 0,
        "gap_examples": [],
        "watermark": None,
        "per_minute": None,
        "eta_seconds": None,
        "last_failures": [],
        "stale": 0,
        "stale_examples": [],
        "resubmit": None,
        **more,
    }


def facts(counts: dict[str, int] | None = None, **more: Any) -> ObservedJob:
    """A job that was taken over in generation 2; `counts`: what Postgres says, nothing where there are none."""
    known = {"job": "load", "generation": 2, "accepted": 2, "found": None if counts is None else found(counts)}
    return ObservedJob(**{**known, **more})


def status_of(these: ObservedJob) -> dict[str, Any]:
    """The status as the cluster gets it."""
    return job_status(these, NOW).body()


def condition(these: ObservedJob, kind: str) -> tuple[str, str, str]:
    """Status, reason and message of one condition."""
    one = next(c for c in status_of(these)["conditions"] if c["type"] == kind)
    return one["status"], one["reason"], one["message"]


FAILED = [{"reason": "exit code 1", "chunks": 2, "examples": ["7", "9"]}]
WAITS = [{"dataset": "bookings", "itemtype": "IN", "status": "DECLARED", "chunks": 4, "examples": ["1", "2", "3"]}]

STATES = [
    ("Running", facts({"RUNNING": 1, "FAILED": 1})),
    ("Failed", facts({"DONE": 1, "FAILED": 1, "QUEUED": 1})),
    ("Done", facts({"DONE": 3, "SKIPPED": 1})),
    ("Queued", facts({"QUEUED": 1, "WAITING": 5})),
    ("Waiting", facts({"WAITING": 5})),
    ("Waiting", facts({})),
    ("Suspended", facts(found=found({"RUNNING": 1}, suspended=True))),
    ("BreakerOpen", facts(found=found({"RUNNING": 1}, breaker=BREAKER))),
    ("Deleted", facts(found=found({"DONE": 1}, deleted=True, suspended=True))),
    ("Stalled", facts({"RUNNING": 1}, fault=Fault(Reason.INVALID_SPEC, "spec.retry: wrong"))),
    ("Pending", ObservedJob("load", 1)),
    ("Pending", ObservedJob("load", 1, fault=Fault(Reason.DATA_SET_MISSING, "there is no data set bookings"))),
]


@pytest.mark.parametrize(("word", "these"), STATES)
def test_the_state_is_one_word(word: str, these: ObservedJob) -> None:
    assert status_of(these)["state"] == word


QUOTA = Backpressure('create pods a/b: pods "b" is forbidden: exceeded quota: small')

WHY_NOTHING_RUNS = [
    (
        facts({"WAITING": 4}, found=found({"WAITING": 4}, waiting=WAITS)),
        "False",
        "WaitingForInputs",
        "input bookings is",
    ),
    (facts(found=found({"WAITING": 4}, waiting=WAITS)), "False", "WaitingForInputs", "dataflow why load 1"),
    (facts(found=found({"QUEUED": 1}, suspended=True)), "False", "Suspended", "dataflow resume load"),
    (facts(found=found({"RUNNING": 2}, suspended=True)), "True", "Draining", "2 runs under way"),
    (facts(found=found({"QUEUED": 2}, breaker=BREAKER)), "False", "BreakerOpen", "no route to host; 2 probes failed"),
    (facts({"QUEUED": 1}, start_error=QUOTA), "False", "QuotaExceeded", "exceeded quota: small"),
    (facts({"QUEUED": 1}, start_error=Backpressure("too many requests")), "False", "Throttled", "too many"),
    (
        facts({"QUEUED": 1, "RUNNING": 1}, start_error=CreateUncertain("no answer")),
        "True",
        "ApiUnreachable",
        "1 run under",
    ),
    (
        facts({"RUNNING": 2}, pods={"ImagePull": (2, "image pull: no image")}),
        "True",
        "ImagePull",
        "2 pods can't run",
    ),
    (facts(found=found({"QUEUED": 1}, parallelism=0)), "False", "NoParallelism", "dataflow scale load 1"),
    (facts(found=found({"FAILED": 2}, failed=FAILED)), "False", "ChunksFailed", "(7, 9): exit code 1; when the cause"),
    (
        facts(found=found({"FAILED": 2}, failed=[group | {"class": "ExpectationFailed"} for group in FAILED])),
        "False",
        "ExpectationFailed",
        "(7, 9): exit code 1; when the cause",
    ),
    (
        facts(found=found({"FAILED": 2}, failed=[*FAILED, FAILED[0] | {"class": "ExpectationFailed"}])),
        "False",
        "ChunksFailed",
        "2 chunks failed",
    ),
    (facts({"HELD": 1, "DONE": 3}), "False", "ChunksHeld", "1 chunk held by a person"),
    (facts({}), "False", "NoChunks", "no chunk"),
    (facts({"DONE": 2, "SKIPPED": 1}), "False", "Done", "2 chunks done, 1 skipped"),
    (facts({"RETRYING": 1}), "True", "Retrying", "1 chunk failed and will be tried again"),
    (facts({"QUEUED": 7}), "True", "Queued", "7 chunks may start"),
    (facts({"RUNNING": 2, "QUEUED": 7}), "True", "Running", "2 runs of at most 3"),
    (facts({"QUEUED": 1}, fault=Fault("IdTaken", "load is that of other/load")), "False", "IdTaken", "other/load"),
    (facts(unreachable="Postgres at db does not answer"), "Unknown", "DatabaseUnreachable", "db does not answer"),
    (facts(accepted=None), "Unknown", "NotTakenOver", "not taken over"),
]


@pytest.mark.parametrize(("these", "status", "reason", "words"), WHY_NOTHING_RUNS)
def test_progressing_says_what_goes_on_or_why_nothing_does(
    these: ObservedJob, status: str, reason: str, words: str
) -> None:
    progressing = condition(these, "Progressing")
    assert progressing[:2] == (status, reason)
    assert words in progressing[2]


SUCCEEDED = [
    ({"DONE": 1}, "True", "Done"),
    ({"DONE": 1, "SKIPPED": 2}, "True", "Done"),
    ({"SKIPPED": 2}, "True", "Done"),
    ({}, "False", "NoChunks"),
    ({"DONE": 1, "RUNNING": 1, "FAILED": 1}, "False", "Running"),
    ({"DONE": 1, "RETRYING": 1}, "False", "Running"),
    ({"DONE": 1, "FAILED": 1, "WAITING": 1}, "False", "ChunksFailed"),
    ({"DONE": 1, "WAITING": 1}, "False", "WaitingForInputs"),
    ({"DONE": 1, "HELD": 1}, "False", "ChunksHeld"),
]


@pytest.mark.parametrize(("counts", "status", "reason"), SUCCEEDED)
def test_a_job_has_succeeded_when_every_chunk_is_done_or_skipped_and_there_is_one(
    counts: dict[str, int], status: str, reason: str
) -> None:
    assert condition(facts(counts), "Succeeded")[:2] == (status, reason)


def test_a_job_without_an_output_that_it_never_made_has_not_succeeded() -> None:
    missing = [{"dataset": "kn", "chunks": 2, "examples": ["1", "2"]}]
    these = facts(found=found({"DONE": 2}, incomplete=missing))
    status, reason, message = condition(these, "Succeeded")
    assert (status, reason) == ("False", "OutputsMissing")
    assert message == (
        "incomplete: output kn of 2 chunks (1, 2) was never made; to make it: dataflow resubmit load 1 2; "
        "to exclude it: dataflow skip load 1 2"
    )
    assert condition(these, "Progressing")[:2] == ("False", "OutputsMissing")
    assert status_of(these)["state"] == "Incomplete"


STALLS: list[tuple[NotStarted, str, str]] = [
    (NotCreatable("spec.containers[0].image: Required value"), "True", "NotCreatable"),
    (NoRights("namespace a: this operator may not create pods"), "True", "RightsMissing"),
    (NamespaceGone("namespace team is being terminated"), "True", "NamespaceTerminating"),
    (QUOTA, "False", "NotStalled"),
    (CreateUncertain("no answer"), "False", "NotStalled"),
]


@pytest.mark.parametrize(("error", "status", "reason"), STALLS)
def test_what_no_waiting_helps_against_stalls(error: NotStarted, status: str, reason: str) -> None:
    assert condition(facts({"QUEUED": 1}, start_error=error), "Stalled")[:2] == (status, reason)


KSTATUS = [
    ("Current", facts({"RUNNING": 1})),
    ("Current", facts({"DONE": 1})),
    ("Current", facts({"WAITING": 1})),
    ("Current", facts({"FAILED": 1})),
    ("Current", facts(found=found({"QUEUED": 1}, suspended=True))),
    ("InProgress", ObservedJob("load", 1)),
    ("InProgress", facts({"DONE": 1}, generation=3)),
    ("InProgress", facts({"DONE": 1}, unreachable="Postgres at db does not answer")),
    ("InProgress", ObservedJob("load", 1, fault=Fault(Reason.DATA_SET_MISSING, "there is no data set bookings"))),
    ("Failed", ObservedJob("load", 1, fault=Fault(Reason.INVALID_SPEC, "spec.inputs: wrong"))),
    ("Failed", facts({"DONE": 1}, generation=3, fault=Fault(Reason.INVALID_SPEC, "spec.inputs: wrong"))),
    ("Failed", facts({"QUEUED": 1}, start_error=NotCreatable("image: Required value"))),
]


@pytest.mark.parametrize(("verdict", "these"), KSTATUS)
def test_tools_that_go_by_kstatus_see_what_is_so(verdict: str, these: ObservedJob) -> None:
    assert kstatus(these.generation, status_of(these)) == verdict


def test_a_spec_that_is_not_taken_over_yet_shows_the_generation_before_it() -> None:
    before = status_of(facts({"DONE": 1}))
    status = status_of(ObservedJob("load", 3, before=before))
    assert status["observedGeneration"] == 2
    assert kstatus(3, status) == "InProgress"


def test_a_forced_run_is_marked_among_the_last_failures() -> None:
    failure = {"data_id": "3", "run": 7, "message": "exit code 1", "at": "2026-11-28T09:00:00+00:00"}
    status = status_of(facts(found=found({"FAILED": 2}, last_failures=[failure | {"forced": True}, failure])))
    assert [it.get("forced") for it in status["lastFailures"]] == [True, None]


def test_while_postgres_is_unreachable_the_last_figures_stay() -> None:
    before = status_of(
        facts(
            found=found(
                {"DONE": 5, "RUNNING": 2, "QUEUED": 3},
                watermark="5",
                per_minute=1.5,
                eta_seconds=200,
                last_failures=[{"data_id": "3", "run": 7, "message": "exit code 1", "at": "2026-11-28T09:00:00+00:00"}],
                resubmit={
                    "id": "fix-1",
                    "answer": {"counts": {"done": 1}, "message": "resubmit: 1 done", "refusal": None},
                },
            )
        )
    )
    after = status_of(facts(unreachable="Postgres at db does not answer", before=before))
    changing = ("conditions",)
    assert {k: v for k, v in after.items() if k not in changing} == {
        k: v for k, v in before.items() if k not in changing
    }
    by_type = {c["type"]: c for c in after["conditions"]}
    assert by_type["DatabaseReachable"]["status"] == "False"
    assert by_type["Succeeded"] == next(c for c in before["conditions"] if c["type"] == "Succeeded")


def test_figures_of_another_job_are_not_taken_for_those_of_one_whose_id_is_taken() -> None:
    status = status_of(ObservedJob("load", 1, fault=Fault(Reason.ID_TAKEN, "load belongs to other/load")))
    assert "counts" not in status
    assert status["state"] == "Stalled"


def test_figures() -> None:
    status = status_of(facts(found=found({"DONE": 5, "RUNNING": 2, "QUEUED": 3}, per_minute=1.234, eta_seconds=13_000)))
    assert status["counts"]["total"] == 10
    assert (status["progress"], status["rate"], status["eta"], status["replicas"]) == ("5/10", 74.0, "3h37m", 2)
    assert status["selector"] == "opendataflow.io/job=load"


def test_a_request_that_was_refused_is_acknowledged_with_the_sentence() -> None:
    request = {
        "id": "fix-1",
        "answer": {"counts": {"done": 0}, "message": "there is no 2013-02-31", "refusal": "Unknown"},
    }
    assert status_of(facts(found=found({"DONE": 1}, resubmit=request)))["resubmit"] == {
        "id": "fix-1",
        "chunks": 0,
        "message": "there is no 2013-02-31",
    }


def test_a_condition_keeps_its_time_while_it_is_what_it_was() -> None:
    before = status_of(facts({"RUNNING": 1}))
    later = NOW + timedelta(hours=1)
    after = job_status(facts({"DONE": 1}, before=before), later)
    times = {c.type: c.last_transition_time for c in after.conditions}
    assert times["Ready"] == NOW
    assert times["Succeeded"] == later


def test_a_status_of_the_same_facts_is_the_same_a_minute_later() -> None:
    these = facts(found=found({"QUEUED": 1}, breaker=BREAKER), pods={"Unschedulable": (1, "unschedulable: 0/3 nodes")})
    first = job_status(these, NOW).body()
    again = facts(
        found=found({"QUEUED": 1}, breaker={**BREAKER, "next_in_seconds": 7, "seconds": 3660}),
        pods=these.pods,
        before=first,
    )
    assert job_status(again, NOW + timedelta(minutes=1)).body() == first


def test_what_can_not_be_read_of_the_status_before_is_left_out() -> None:
    status = status_of(facts(unreachable="away", before={"conditions": [{"type": "Ready"}, 7], "counts": "many"}))
    assert len(status["conditions"]) == 7 - 3  # what only Postgres knows
    assert "counts" not in status


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1s"), (59.4, "59s"), (60, "1m"), (3599, "1h"), (12_000, "3h20m"), (2 * 86400, "2d"), (400_000, "4d16h")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert short_duration(seconds) == text


words = st.text(min_size=1, max_size=2000)
numbers = st.integers(0, 2**50)
groups = st.lists(
    st.fixed_dictionaries(
        {
            "dataset": words,
            "itemtype": st.sampled_from(["IN", "OUT"]),
            "status": st.just("DECLARED"),
            "reason": words,
            "chunks": numbers,
            "examples": st.lists(words, min_size=1, max_size=3),
        }
    ),
    max_size=10,
)
failures = st.lists(
    st.fixed_dictionaries(
        {"data_id": words, "run": numbers, "message": words, "at": st.just("2026-11-28T09:00:00.123456+00:00")}
    ),
    min_size=10,
    max_size=10,
)


@given(
    st.dictionaries(st.sampled_from(["DONE", "WAITING", "FAILED", "QUEUED", "RUNNING", "HELD", "SKIPPED"]), numbers),
    groups,
    groups,
    failures,
    words,
    words,
)
@settings(max_examples=60)
def test_a_status_is_below_32_kib_whatever_is_in_it(
    counts: dict[str, int], failed: Any, waiting: Any, last: Any, text: str, name: str
) -> None:
    these = facts(
        job=name,
        found=found(counts, failed=failed, waiting=waiting, last_failures=last, watermark=name),
        start_error=NotCreatable(text),
        pods={"ImagePull": (3, text)},
    )
    status = job_status(these, NOW)
    DataFlowJobStatus.model_validate(status.body())
    assert len(json.dumps(status.body(), ensure_ascii=False).encode("utf-8", "surrogatepass")) < 32 * 1024


@pytest.mark.parametrize("letter", ["a", "é", "\U0001f600", "\x01", '"', "\\"])
def test_a_status_full_of_the_longest_texts_is_below_32_kib(letter: str) -> None:
    text = letter * 5000
    group = {"dataset": text, "itemtype": "IN", "status": "DECLARED", "reason": text, "chunks": 9, "examples": [text]}
    failure = {"data_id": text, "run": 2**53, "message": text, "at": "2026-11-28T09:00:00+00:00"}
    these = facts(
        job=text,
        found=found(
            {"FAILED": 10**9, "WAITING": 10**9},
            failed=[group] * 10,
            waiting=[group] * 10,
            last_failures=[failure] * 10,
            watermark=text,
            resubmit={"id": text, "answer": {"counts": {"done": 0}, "message": text, "refusal": "Refused"}},
            breaker={**BREAKER, "message": text},
            suspended=True,
        ),
        fault=Fault("IdTaken", text),
        unreachable=text,
    )
    status = job_status(these, NOW).body()
    assert len(json.dumps(status, ensure_ascii=False).encode()) < 32 * 1024


def stale(counts: dict[str, int]) -> ObservedJob:
    """A job of which one done chunk is stale."""
    return facts(found=found(counts, stale=1, stale_examples=["7"]))


def test_a_job_with_a_stale_chunk_has_not_succeeded_and_names_the_command_that_rebuilds() -> None:
    all_done = stale({"DONE": 3, "SKIPPED": 1})
    assert (status_of(all_done)["state"], status_of(all_done)["progress"]) == ("Stale", "3/4, 1 stale")
    assert status_of(all_done)["counts"]["stale"] == 1
    sentence = (
        "3 chunks done, 1 stale, 1 skipped: 1 chunk (7) was made from an older version of an input or of the job; "
        "to rebuild: dataflow resubmit load --stale"
    )
    for kind in ("Succeeded", "Progressing"):
        assert condition(all_done, kind) == ("False", "Stale", sentence)


def test_a_job_that_goes_on_says_what_of_it_is_stale() -> None:
    going_on = stale({"DONE": 3, "RUNNING": 1})
    assert status_of(going_on)["state"] == "Running"
    assert condition(going_on, "Succeeded") == ("False", "Running", "3 of 4 chunks done, 1 stale")


MISSING = {"chunks": 2, "lasting": 0, "examples": ["7", "9"], "reason": "there is no in/7.csv"}


def test_chunks_that_wait_for_their_locations_are_reported_while_one_of_them_is_looked_at() -> None:
    for counts in ({"RETRYING": 2}, {"RETRYING": 1, "RUNNING": 1}):
        these = facts(found=found(counts, missing=MISSING))
        assert condition(these, "Progressing") == (
            "True",
            "LocationMissing",
            "2 chunks wait for their locations (7, 9), which consumes no retry: there is no in/7.csv",
        )
    working = facts(found=found({"RETRYING": 2, "RUNNING": 1}, missing=MISSING))
    assert condition(working, "Progressing")[1] == "Running"


def test_a_location_that_all_chunks_need_is_reported_as_the_reason_of_no_progress() -> None:
    these = facts(found=found({"QUEUED": 2}, preflight={"failure": "there is no table t"}))
    assert condition(these, "Progressing") == (
        "False",
        "LocationMissing",
        "there is no table t; no run of the job starts until this location is there; one run at a time looks again",
    )


def test_the_accepted_spec_is_shown_and_kept_while_it_is_unknown() -> None:
    assert status_of(facts(accepted_spec='{"inputs":["a"]}'))["acceptedSpec"] == '{"inputs":["a"]}'
    before = {"acceptedSpec": '{"inputs":["b"]}'}
    assert status_of(facts(before=before))["acceptedSpec"] == '{"inputs":["b"]}'
    assert status_of(facts(before=before, accepted_spec='{"inputs":["a"]}'))["acceptedSpec"] == '{"inputs":["a"]}'


@pytest.mark.parametrize(
    "odd", [None, 7, {"inputs": ["a"]}, "x" * (LONGEST_SPEC + 1)], ids=["none", "7", "map", "long"]
)
def test_an_accepted_spec_that_is_no_text_or_too_long_is_left_out(odd: Any) -> None:
    assert "acceptedSpec" not in status_of(facts(before={"acceptedSpec": odd}))


def test_a_spec_that_is_too_long_replaces_none_before_and_blocks_no_status() -> None:
    status = status_of(facts(before={"acceptedSpec": "{}"}, accepted_spec="x" * (LONGEST_SPEC + 1)))
    assert "acceptedSpec" not in status
    assert len(status_of(facts(accepted_spec="x" * LONGEST_SPEC))["acceptedSpec"]) == LONGEST_SPEC
