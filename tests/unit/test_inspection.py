"""The five answers: the judgement on the evidence, without a database."""

from typing import Any

import pytest

from opendataflow.core.status.inspection import inspection_answers, place

TIME = "2026-01-02T03:04:05.678901+00:00"


def chunk(itemtype: str, **changes: Any) -> dict[str, Any]:
    """A data set of the evidence: READY in version 7, which the run has read or made, at a place that has not moved."""
    return {
        "dataset": "orders" if itemtype == "IN" else "rows",
        "itemtype": itemtype,
        "status": "READY",
        "held_status": None,
        "reason": None,
        "fence": 7,
        "run": 3 if itemtype == "OUT" else None,
        "published_at": TIME,
        "rows": None,
        "bytes": None,
        "checksum": None,
        "bounds": None,
        "used_fence": 7,
        "said": {"at": TIME, "event": "complete", "actor": "engine h", "reason": None, "run": 3},
        "then": {"hostname": "h1", "options": {}},
        "now": {"hostname": "h1", "options": {}},
        "readers": [],
        **changes,
    }


def evidence(*datasets: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The answer of opendataflow.inspection() for a task whose run has succeeded."""
    run = {
        "id": 3,
        "attempt": 1,
        "state": "SUCCEEDED",
        "forced": False,
        "host": "h",
        "claimed_at": TIME,
        "finished_at": TIME,
        "exit_code": 0,
        "message": "",
        "metrics": None,
    }
    return {
        "job": "load",
        "data_id": "1",
        "state": "DONE",
        "reason": None,
        "stale": False,
        "run": run,
        "seconds": 12.0,
        "datasets": list(datasets) or [chunk("IN"), chunk("OUT")],
        **changes,
    }


def answered(found: dict[str, Any]) -> list[str]:
    return [one.answer for one in inspection_answers(found)]


def said(found: dict[str, Any], number: int) -> str:
    return "\n".join(inspection_answers(found)[number].evidence)


def test_all_is_well() -> None:
    assert answered(evidence()) == [
        "yes",
        "yes, made from the present versions of its inputs",
        "yes",
        "by the exit code of its run only",
        "yes",
    ]


def test_a_newer_version_of_an_input_makes_it_stale() -> None:
    found = evidence(chunk("IN", fence=9), chunk("OUT"))
    assert answered(found)[1].startswith("not any more")
    assert "it read version 7 of chunk 1 of orders, which is version 9 now" in said(found, 1)


def test_an_input_that_is_asked_for_again_makes_it_uncertain() -> None:
    found = evidence(chunk("IN", status="RESUBMIT", reason="wrong rates"), chunk("OUT"))
    assert answered(found)[1] == "not certain: what it was made from is not READY any more"
    assert "it read version 7 of chunk 1 of orders, which is RESUBMIT (wrong rates)" in said(found, 1)


def test_a_job_that_was_given_other_data_sets_since_is_told() -> None:
    assert answered(evidence(stale=True))[1] == "not any more: the data sets of its job have changed since"


def test_what_was_measured_is_told() -> None:
    found = evidence(chunk("IN"), chunk("OUT", rows=5, bytes=70, checksum="ab"))
    assert "chunk 1 of rows has 5 rows, 70 bytes, checksum ab" in said(found, 1)


def test_where_nothing_was_kept_the_declarations_are_all_there_is() -> None:
    assert answered(evidence(chunk("OUT", then=None)))[2] == "as far as the declarations say"


def test_only_the_place_counts_and_not_the_user() -> None:
    moved = chunk("OUT", now={"hostname": "h1", "options": {}, "username": "other"})
    assert answered(evidence(moved))[2] == "yes"
    moved = chunk("OUT", now={"hostname": "h2", "options": {}})
    assert answered(evidence(moved))[2] == "no: it is where its data set was declared then"


def test_of_several_outputs_all_have_to_be_good() -> None:
    half = evidence(chunk("OUT"), chunk("OUT", dataset="more", status="HOLD", held_status="READY", reason="audit"))
    assert answered(half)[0] == "not yet"
    assert answered(half)[4] == "to read it, no; nor to change it"
    assert "chunk 1 of more is HOLD (held by a person: audit)" in said(half, 4)


def test_a_run_that_writes_right_now_is_named() -> None:
    running = evidence(chunk("OUT", status="RUNNING"), state="RUNNING")
    running["run"] |= {"state": "RUNNING", "finished_at": None, "exit_code": None}
    assert answered(running) == ["not yet", "not yet", "not yet", "not yet", "to read it, no; nor to change it"]
    assert said(running, 4) == "run 3 writes chunk 1 of rows right now"


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"kind": "table", "hostname": "h", "database": "d", "schemaname": "s", "tablename": "t"}, "table h d.s.t"),
        ({"url": "s3a://b/p", "format": "parquet"}, "s3a://b/p parquet"),
        ({}, "no declared location"),
    ],
)
def test_a_place_is_told_as_far_as_it_is_known(declared: dict[str, Any], words: str) -> None:
    assert place(declared) == words


def checked(name: str, held: bool, severity: str = "fail", found: str = "") -> dict[str, Any]:
    return {"name": name, "held": held, "severity": severity, "found": found}


def test_what_was_checked_and_holds_makes_it_validated() -> None:
    found = evidence()
    found["run"]["metrics"] = {"expectations": [checked("keys", True, found="none"), checked("paid", False, "warn")]}
    assert answered(found)[3] == "yes, by 2 expectations, with 1 warning"
    assert said(found, 3).splitlines() == [
        "chunk 1 of rows is READY because run 3 succeeded; the checks of the run are below",
        "paid: does not hold (a warning)",
        "keys: holds: none",
    ]


def test_an_expectation_that_kept_a_chunk_from_ready_is_the_reason_that_it_is_not_validated() -> None:
    found = evidence(chunk("OUT", status="FAILED"), state="FAILED")
    found["run"] |= {
        "state": "FAILED",
        "metrics": {"expectations": [checked("keys", False, found="2 values more than once"), checked("paid", True)]},
    }
    assert answered(found)[3] == "no: what is expected is not so"
    assert said(found, 3).splitlines() == [
        "run 3 has checked the rows before writing them",
        "keys: does not hold: 2 values more than once",
        "paid: holds",
    ]


def test_what_an_earlier_run_has_checked_says_nothing_while_another_one_runs() -> None:
    found = evidence(chunk("OUT", status="RUNNING"), state="RUNNING")
    found["run"] |= {"state": "RUNNING", "metrics": {"expectations": [checked("keys", False)]}}
    assert answered(found)[3] == "not yet"
