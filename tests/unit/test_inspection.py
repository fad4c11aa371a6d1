"""The five answers: the judgement on the evidence, without a database. Unknown unless somebody has looked."""

from datetime import UTC, datetime
from typing import Any

import pytest

from opendataflow.core.status.inspection import InspectionAnswer, inspection_answers
from opendataflow.core.status.places import place
from opendataflow.model.records.look import Look
from opendataflow.names import Answer

TIME = "2026-01-02T03:04:05.678901+00:00"
READY, CORRECT, PLACE, VALIDATED, SAFE = range(5)
NOT_FORCED: dict[str, Any] = {"complete": True, "forced": [], "changes": {"complete": True, "changed": []}}


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
        "run_job": "load" if itemtype == "OUT" else None,
        "published_at": TIME,
        "rows": None,
        "bytes": None,
        "checksum": None,
        "bounds": None,
        "used_fence": 7,
        "publication": {"at": TIME, "event": "complete", "actor": "engine h", "reason": None, "run": 3},
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
        "missing_outputs": [],
        "run": run,
        "behind": NOT_FORCED,
        "seconds": 12.0,
        "datasets": list(datasets) or [chunk("IN"), chunk("OUT")],
        **changes,
    }


def answered(found: dict[str, Any], *looks: Look) -> list[str]:
    """The five answers in words."""
    return [one.text for one in inspection_answers(found, (), looks)]


def answer(found: dict[str, Any], number: int, *looks: Look) -> InspectionAnswer:
    return inspection_answers(found, (), looks)[number]


def shown(found: dict[str, Any], number: int, *looks: Look) -> str:
    return "\n".join(one.sentence for one in answer(found, number, *looks).evidence)


def test_a_chunk_of_a_script_that_succeeded_is_ready_and_its_place_and_its_rows_are_unknown() -> None:
    assert answered(evidence()) == [
        "Yes",
        "Yes: made from the present versions of its inputs",
        "Unknown: the place of rows was not looked at",
        "Unknown: no expectation and no person",
        "Yes",
    ]


def test_each_piece_of_evidence_names_who_looked_and_when_and_at_what() -> None:
    [output, read] = answer(evidence(), READY).evidence
    assert (output.who, output.when, output.what) == ("run 3 of job load", TIME, "version 7")
    [place_of_output, _] = answer(evidence(), PLACE).evidence
    assert (place_of_output.who, place_of_output.when, place_of_output.what) == ("nobody", None, "h1")
    assert read.sentence.startswith("input chunk 1 of orders is READY in version 7")


def test_a_newer_version_of_an_input_makes_it_stale() -> None:
    found = evidence(chunk("IN", fence=9), chunk("OUT"))
    assert answered(found)[CORRECT] == "No: it was made from data that has changed since"
    assert "it read version 7 of chunk 1 of orders, which is version 9 now" in shown(found, CORRECT)


def test_an_input_that_was_resubmitted_makes_it_unknown() -> None:
    found = evidence(chunk("IN", status="RESUBMIT", reason="wrong rates"), chunk("OUT"))
    assert answered(found)[CORRECT] == "Unknown: what it was made from is not READY any more"
    assert "it read version 7 of chunk 1 of orders, which is RESUBMIT (wrong rates)" in shown(found, CORRECT)


def test_an_output_that_was_resubmitted_is_not_the_correct_data() -> None:
    found = evidence(chunk("IN"), chunk("OUT", status="RESUBMIT"), state="QUEUED")
    assert answered(found)[CORRECT] == "No: it was asked for again"


def test_a_job_with_other_data_sets_since_the_run_has_no_correct_data() -> None:
    assert answered(evidence(stale=True))[CORRECT] == "No: the data sets of its job have changed since"


def test_a_task_that_never_made_one_of_its_outputs_has_no_correct_data() -> None:
    added = chunk("OUT", dataset="kn", status="DECLARED", run=None, used_fence=None, publication=None)
    found = evidence(chunk("IN"), chunk("OUT"), added, missing_outputs=["kn"])
    assert answered(found)[:2] == ["No: output kn was never made", "No: output kn was never made"]
    assert "to make it: dataflow resubmit load 1" in shown(found, CORRECT)


def test_a_run_without_inputs_has_no_versions_to_compare() -> None:
    assert answered(evidence(chunk("OUT")))[CORRECT] == "Unknown: its run read no versions that can be compared"


def test_a_day_has_no_version() -> None:
    found = evidence(chunk("IN", dataset="today", used_fence=None), chunk("OUT"))
    assert "it read chunk 1 of today, and a day has no versions" in shown(found, CORRECT)


def test_measured_rows_bytes_and_checksum_are_evidence() -> None:
    found = evidence(chunk("IN"), chunk("OUT", rows=5, bytes=70, checksum="ab"))
    assert "chunk 1 of rows has 5 rows, 70 bytes, checksum ab" in shown(found, CORRECT)


def test_of_several_outputs_all_have_to_be_good() -> None:
    half = evidence(chunk("OUT"), chunk("OUT", dataset="more", status="HOLD", held_status="READY", reason="audit"))
    assert answered(half)[READY] == "No: not yet"
    assert answered(half)[SAFE] == "No: neither to read nor to change"
    assert "chunk 1 of more is HOLD (held by a person: audit)" in shown(half, SAFE)


def test_while_a_run_writes_every_answer_is_no() -> None:
    running = evidence(chunk("OUT", status="RUNNING"), state="RUNNING")
    running["run"] |= {"state": "RUNNING", "finished_at": None, "exit_code": None}
    assert answered(running) == [*["No: not yet"] * 4, "No: neither to read nor to change"]
    assert shown(running, SAFE) == "run 3 writes chunk 1 of rows right now"


def test_a_chunk_whose_id_was_withdrawn_is_not_called_one_that_is_still_to_come() -> None:
    found = evidence(chunk("IN"), chunk("OUT", status="RETIRED"), state="RETIRED")
    texts = answered(found)
    assert [texts[READY], texts[PLACE], texts[VALIDATED]] == ["No: its id was withdrawn"] * 3


def test_a_chunk_that_is_being_read_is_safe_to_read_only() -> None:
    found = evidence(chunk("IN"), chunk("OUT", readers=[{"job": "sum", "run": 4}]))
    assert answered(found)[SAFE] == "No: it is safe to read, but not to change"


# Where it is expected ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ({"hostname": "nohost.invalid", "tablename": "t"}, "rows is declared at nohost.invalid t, as it was for run 3"),
        ({"url": "/no/such/path"}, "rows is declared at /no/such/path, as it was for run 3"),
        ({}, "rows declares no location, so nobody can look there"),
    ],
)
def test_a_place_that_nobody_looked_at_is_unknown(declared: dict[str, Any], sentence: str) -> None:
    found = evidence(chunk("IN"), chunk("OUT", then=declared, now=declared))
    assert answer(found, PLACE).answer is Answer.UNKNOWN
    assert shown(found, PLACE).startswith(sentence)


def reported(where: str, **declared: Any) -> dict[str, Any]:
    """The evidence of a run that reported that it has written 5 rows to a place."""
    found = evidence(chunk("IN"), chunk("OUT", then=declared, now=declared))
    look = {"dataset": "rows", "place": where, "found": "yes", "sentence": f"wrote 5 rows to {where}", "at": TIME}
    found["run"]["metrics"] = {"looks": [look]}
    return found


@pytest.mark.parametrize(
    ("where", "declared"),
    [
        ("/data/rows/id=1", {"url": "/data/rows"}),
        ("/data/rows/id=1", {"url": "file:///data/rows/"}),
        ("/home/me/data/rows/id=1", {"url": "data/rows", "format": "parquet", "tablename": "rows"}),
        ("s3a://bucket/rows/id=1", {"url": "s3a://bucket/rows"}),
        ("jdbc:postgresql://h1:5432/dw sales.rows", {"hostname": "h1", "database": "dw", "tablename": "rows"}),
        ("/data/rows/id=1", {}),
    ],
)
def test_a_run_that_reported_what_it_wrote_there_has_looked(where: str, declared: dict[str, Any]) -> None:
    found = reported(where, **declared)
    assert answered(found)[PLACE] == "Yes"
    [first, *_] = answer(found, PLACE).evidence
    assert (first.who, first.when, first.what) == ("run 3 of job load", "2026-01-02T03:04:05+00:00", where)
    assert first.sentence == f"run 3 of job load: wrote 5 rows to {where}"


@pytest.mark.parametrize(
    ("where", "declared"),
    [
        ("/data/rows/id=1", {"url": "/data/row"}),
        ("s3a://bucket/rows/id=1", {"url": "/rows"}),
        ("jdbc:postgresql://h1:5432/dw sales.rows", {"hostname": "h2", "database": "dw", "tablename": "rows"}),
    ],
)
def test_a_run_that_wrote_elsewhere_leaves_the_declared_place_unknown(where: str, declared: dict[str, Any]) -> None:
    found = reported(where, **declared)
    assert answer(found, PLACE).answer is Answer.UNKNOWN
    assert "whether that is the place of the run is not known" in shown(found, PLACE)


@pytest.mark.parametrize("look", [{}, {"dataset": "rows"}, "text", {"dataset": "rows", "found": "perhaps"}, None])
def test_an_invalid_look_in_a_report_is_no_evidence(look: Any) -> None:
    found = evidence()
    found["run"]["metrics"] = {"looks": [look]}
    assert answer(found, PLACE).answer is Answer.UNKNOWN


def test_a_report_cannot_name_somebody_else_as_the_one_who_looked() -> None:
    found = reported("/data/rows", url="/data/rows")
    found["run"]["metrics"]["looks"][0]["who"] = "ada"
    assert answer(found, PLACE).evidence[0].who == "run 3 of job load"


@pytest.mark.parametrize("since", [{"run": None, "run_job": None}, {"run": 9, "run_job": "other"}])
def test_the_report_of_a_run_is_no_evidence_of_a_version_that_somebody_else_has_made(since: dict[str, Any]) -> None:
    found = reported("/data/rows/id=1", url="/data/rows")
    found["datasets"][-1] |= since
    assert answer(found, PLACE).answer is Answer.UNKNOWN


def test_the_report_of_a_failed_run_is_no_evidence_of_a_place() -> None:
    found = reported("/data/rows", url="/data/rows")
    found["run"]["state"] = "LOST"
    assert answer(found, PLACE).answer is Answer.UNKNOWN


def test_a_run_names_its_data_sets_without_the_namespace() -> None:
    found = reported("/data/rows/id=1", url="/data/rows")
    for one in found["datasets"]:
        one["dataset"] = f"team-a/{one['dataset']}"
    assert answered(found)[PLACE] == "Yes"


def look(found: Answer, dataset: str = "rows") -> Look:
    """A look of `dataflow inspect --check`."""
    return Look(dataset, "h1", found, "it answers", "`dataflow inspect --check` at h", datetime(2026, 2, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Answer.YES, "Yes: its location exists, and nobody looked for the rows of the chunk"),
        (Answer.NO, "No: the place of rows was not found"),
        (Answer.UNKNOWN, "Unknown: the place of rows was not looked at"),
    ],
)
def test_a_check_answers_for_a_place_that_no_run_has_looked_at(found: Answer, text: str) -> None:
    assert answered(evidence(), look(found))[PLACE] == text
    assert answer(evidence(), PLACE, look(found)).evidence[0].who == "`dataflow inspect --check` at h"


def test_a_check_is_newer_than_the_report_of_the_run() -> None:
    found = reported("/data/rows", url="/data/rows")
    assert answered(found, look(Answer.NO))[PLACE].startswith("No")
    assert answered(found, look(Answer.UNKNOWN))[PLACE] == "Yes"


def test_an_input_that_a_check_does_not_find_is_named() -> None:
    assert answered(evidence(), look(Answer.NO, "orders"))[PLACE] == (
        "Unknown: the place of rows was not looked at; its input orders was not found"
    )


def test_a_data_set_that_moved_since_the_run_is_not_where_it_is_expected() -> None:
    moved = chunk("OUT", now={"hostname": "h2", "options": {}})
    assert answered(evidence(moved))[PLACE] == "No: its data set is declared at another place since it was made"
    assert "the run got rows at h1; now it is declared at h2" in shown(evidence(moved), PLACE)
    other_user = chunk("OUT", now={"hostname": "h1", "options": {}, "username": "other"})
    assert answer(evidence(other_user), PLACE).answer is Answer.UNKNOWN


def test_a_job_without_outputs_has_no_place_and_nothing_to_validate() -> None:
    found = evidence(chunk("IN"))
    assert answered(found)[READY] == "Yes: its task is DONE, and the job has no outputs"
    assert {answered(found)[number] for number in (PLACE, VALIDATED, SAFE)} == {"Unknown: the job has no outputs"}


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        ({"kind": "table", "hostname": "h", "database": "d", "schemaname": "s", "tablename": "t"}, "table h d.s.t"),
        ({"url": "s3a://b/p", "format": "parquet"}, "s3a://b/p parquet"),
        ({}, "no declared location"),
    ],
)
def test_a_place_in_words_has_the_declared_parts(declared: dict[str, Any], words: str) -> None:
    assert place(declared) == words


# Validated ---------------------------------------------------------------------------------------------------


def checked(name: str, held: bool, severity: str = "fail", found: str = "") -> dict[str, Any]:
    return {"name": name, "held": held, "severity": severity, "found": found}


def test_expectations_that_hold_make_it_validated() -> None:
    found = evidence()
    found["run"]["metrics"] = {"expectations": [checked("keys", True, found="none"), checked("paid", False, "warn")]}
    assert answered(found)[VALIDATED] == "Yes: by 2 expectations, with 1 warning"
    assert shown(found, VALIDATED).splitlines() == [
        "chunk 1 of rows is READY because run 3 succeeded; the checks of the run are below",
        "paid: does not hold (a warning)",
        "keys: holds: none",
    ]


def test_expectations_of_which_none_holds_do_not_validate() -> None:
    found = evidence()
    found["run"]["metrics"] = {"expectations": [checked("paid", False, "warn")]}
    assert answered(found)[VALIDATED] == "No: none of 1 expectation holds"


def test_an_expectation_that_kept_a_chunk_from_ready_is_the_reason_that_it_is_not_validated() -> None:
    found = evidence(chunk("OUT", status="FAILED"), state="FAILED")
    found["run"] |= {
        "state": "FAILED",
        "metrics": {"expectations": [checked("keys", False, found="2 values more than once"), checked("paid", True)]},
    }
    assert answered(found)[VALIDATED] == "No: an expectation does not hold"
    assert shown(found, VALIDATED).splitlines() == [
        "run 3 has checked the rows before writing them",
        "keys: does not hold: 2 values more than once",
        "paid: holds",
    ]


def test_expectations_of_an_earlier_run_say_nothing_while_another_one_runs() -> None:
    found = evidence(chunk("OUT", status="RUNNING"), state="RUNNING")
    found["run"] |= {"state": "RUNNING", "metrics": {"expectations": [checked("keys", False)]}}
    assert answered(found)[VALIDATED] == "No: not yet"


def by(event: str, actor: str = "ada") -> dict[str, Any]:
    """An output that an event without a run made READY."""
    publication = {"at": TIME, "event": event, "actor": actor, "reason": None}
    return chunk("OUT", run=None, run_job=None, used_fence=None, publication=publication)


def test_a_person_who_published_a_chunk_validates_it_and_is_named() -> None:
    found = evidence(by("publish"))
    assert answered(found)[CORRECT] == "Yes: as ada says"
    assert answered(found)[VALIDATED] == "Yes: by a person"
    assert answer(found, VALIDATED).evidence[0].who == "ada"
    assert answer(found, PLACE).answer is Answer.UNKNOWN


def with_one_output_published(**changes: Any) -> dict[str, Any]:
    """The evidence of a task whose run made rows, and of whose other output ada says that it is there."""
    return evidence(chunk("IN", **changes), chunk("OUT"), by("publish") | {"dataset": "totals"})


def test_a_person_who_published_a_chunk_does_not_vouch_for_it_after_a_change_of_its_job() -> None:
    found = evidence(by("publish"), stale=True)
    assert answered(found)[CORRECT].startswith("No: ")


def test_a_person_who_published_one_output_vouches_for_that_one_only() -> None:
    assert answered(with_one_output_published())[CORRECT] == (
        "Yes: totals as ada says, and made from the present versions of its inputs"
    )
    assert answered(with_one_output_published(fence=8))[CORRECT] == "No: it was made from data that has changed since"


def test_an_output_that_was_excluded_is_not_the_correct_data() -> None:
    found = evidence(chunk("IN"), chunk("OUT"), chunk("OUT", dataset="totals", status="DECLARED"), state="SKIPPED")
    assert answered(found)[CORRECT] == "No: output totals was never made"


@pytest.mark.parametrize("event", ["apply", "declare", "import"])
def test_a_chunk_that_was_only_declared_ready_is_neither_correct_nor_validated(event: str) -> None:
    found = evidence(by(event))
    assert answered(found)[CORRECT] == "Unknown: it was declared READY, and nobody vouches for it"
    assert answered(found)[VALIDATED] == "Unknown: no expectation and no person"


# Forced runs -------------------------------------------------------------------------------------------------


def forced(missing: list[str] | None, dataset: str | None = None, run: int = 3) -> dict[str, Any]:
    return {
        "run": run,
        "job": "load",
        "data_id": "1",
        "at": TIME,
        "state": "SUCCEEDED",
        "dataset": dataset,
        "fence": 5,
        "missing": missing,
    }


def behind(*runs: dict[str, Any], complete: bool = True) -> dict[str, Any]:
    """The evidence of a task with forced runs behind it."""
    return evidence(behind={**NOT_FORCED, "complete": complete, "forced": list(runs)})


def test_a_forced_run_without_its_input_makes_the_correct_data_unknown() -> None:
    found = behind(forced(["orders"]))
    found["datasets"] = [chunk("IN", used_fence=None, status="DECLARED", fence=None), chunk("OUT")]
    found["run"]["forced"] = True
    assert answered(found)[CORRECT] == "Unknown: made by force without its input orders"
    assert "it read no version of chunk 1 of orders: it was not READY, and the run was forced" in shown(found, CORRECT)
    assert "run 3 was forced, without its input orders" in shown(found, CORRECT)


def test_a_forced_run_far_upstream_is_named_with_its_chunk_and_its_missing_inputs() -> None:
    found = behind(forced(["a", "b"], "raw", run=2))
    assert answered(found)[CORRECT] == (
        "Unknown: made from chunk 1 of raw, which run 2 wrote by force without its inputs a, b"
    )
    assert "made from chunk 1 of raw, which run 2 of job load wrote by force, without its inputs a, b" in shown(
        found, CORRECT
    )


@pytest.mark.parametrize("number", [READY, CORRECT, VALIDATED, SAFE])
def test_a_forced_run_is_marked_in_every_answer_about_the_data(number: int) -> None:
    found = behind(forced([], "raw", run=2))
    assert answer(found, number).qualification.endswith("a forced run is behind it")
    assert answer(found, number).evidence[-1].who == "run 2 of job load"


def test_a_forced_run_that_had_all_inputs_is_marked_and_changes_no_answer() -> None:
    found = behind(forced([], "raw", run=2))
    assert [one.answer for one in inspection_answers(found)] == [one.answer for one in inspection_answers(evidence())]
    assert "although each of its inputs was READY" in shown(found, CORRECT)


def test_a_forced_run_whose_inputs_are_not_known_makes_the_correct_data_unknown() -> None:
    assert answer(behind(forced(None)), CORRECT).answer is Answer.UNKNOWN


def test_of_very_many_forced_runs_the_nearest_are_named_and_the_others_counted() -> None:
    found = behind(*(forced(["a"], "raw", run=number) for number in range(100, 125)))
    assert shown(found, CORRECT).count("wrote by force") == 20
    assert "and made from 5 more chunks of forced runs" in shown(found, CORRECT)


def test_a_search_that_reached_its_bound_says_so() -> None:
    assert "only the nearest versions" in shown(behind(complete=False), CORRECT)


def test_a_person_who_published_the_output_replaces_the_forced_run() -> None:
    found = behind(forced(["orders"])) | {"datasets": [by("publish")]}
    assert answered(found)[READY] == "Yes"
    assert answered(found)[CORRECT] == "Yes: as ada says"
