"""Parsing of reports, and messages that are only text."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.core.pipelines.report import LARGEST, LARGEST_FILE, LONGEST_NAME, LONGEST_TEXT, read_report
from opendataflow.model.records.run import Report, StepReport
from opendataflow.names import StepStatus


def test_a_whole_report() -> None:
    written = {"rows": 118, "rowsIn": 120, "bytes": 4711, "checksum": "sha256:ab", "expectations": {"keys": True}}
    report = read_report(json.dumps(written))
    assert report is not None
    assert report.metrics == {
        **written,
        "expectations": [{"name": "keys", "held": True, "severity": "fail", "found": ""}],
    }
    assert report.is_complete


def test_one_known_field_is_enough_and_others_are_kept() -> None:
    report = read_report('\n {"rows": 0, "mine": [1], "none": null}\n')
    assert report is not None
    assert report.metrics == {"rows": 0, "mine": [1]}


def test_a_commit_is_enough_and_a_failure_is_no_success() -> None:
    report = read_report('{"commit": "4f0c", "failure": "clean has failed"}')
    assert report is not None
    assert (report.metrics["commit"], report.failure) == ("4f0c", "clean has failed")
    done = read_report('{"rows": 1}')
    assert done is not None
    assert done.failure is None


@pytest.mark.parametrize(
    "message",
    [
        None,
        "",
        "done",
        "{",
        "[]",
        "{}",
        '{"mine": 1}',
        '{"rows": null}',
        '{"rows": -1}',
        '{"rows": 1.5}',
        '{"rows": "1"}',
        '{"rows": true}',
        '{"rows": 9223372036854775808}',
        '{"rows": 1, "checksum": 5}',
        '{"rows": 1, "unfinished": 1}',
        '{"rows": 1, "mine": 1e999}',
        '{"rows": 1, "mine": NaN}',
        '{"rows": 1} trailing',
        "{" * 4000,
        json.dumps({"rows": 1, "mine": "x" * LARGEST}),
    ],
)
def test_anything_else_is_no_report(message: str | None) -> None:
    assert read_report(message) is None


def read(**written: Any) -> Report:
    report = read_report(json.dumps({"rows": 1, **written}), LARGEST_FILE)
    assert report is not None
    return report


def test_steps_keep_their_numbers_if_some_are_left_out() -> None:
    steps = [["read", "DONE", 4, 0.5], 3, ["write", "FAILED", None, 1, "a sentence", "printed"]]
    assert read(steps=steps).steps == (
        StepReport(1, "read", StepStatus.DONE, 4, 0.5),
        StepReport(5, "write", StepStatus.FAILED, None, 1, "a sentence", "printed"),
    )


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [
        ("read", "steps is no list of at most 1000"),
        ([["s", "DONE"]] * 1001, "steps is no list of at most 1000"),
        ([["a", "DONE"], "b"], "step 2 is no list of name, status, rows, seconds, error and output"),
        ([["a"]], "step 1 is no list of name, status, rows, seconds, error and output"),
        ([0], "step 1 is no list of name, status, rows, seconds, error and output"),
        ([["a", "GONE"]], "step 1 has a value that can't be: ['a', 'GONE']"),
        ([["", "DONE"]], "step 1 has a value that can't be: ['', 'DONE']"),
        ([["a", "DONE", -1]], "step 1 has a value that can't be: ['a', 'DONE', -1]"),
        ([["a", "DONE", True]], "step 1 has a value that can't be: ['a', 'DONE', True]"),
        ([["a", "DONE", 1, "1"]], "step 1 has a value that can't be: ['a', 'DONE', 1, '1']"),
        ([["a", "DONE", 1, 1, 1]], "step 1 has a value that can't be: ['a', 'DONE', 1, 1, 1]"),
    ],
)
def test_steps_that_can_not_be_are_ignored_with_a_sentence_and_the_rest_is_kept(steps: Any, sentence: str) -> None:
    report = read(steps=steps)
    assert (report.steps, report.metrics) == ((), {"rows": 1, "ignored": sentence})


def test_names_and_texts_of_steps_are_shortened_and_storable() -> None:
    (step,) = read(steps=[["n\0" * 999, "FAILED", 1, 1, "e\ud800" * 30000, "o" * 30000 + "end"]]).steps
    assert step.name == "n" * LONGEST_NAME
    assert step.error == ("e?" * 30000)[:LONGEST_TEXT]
    assert step.stdout == ("o" * 30000 + "end")[-LONGEST_TEXT:]


def test_an_expectation_is_a_flag_or_an_object() -> None:
    report = read(expectations={"a": False, "b": {"found": "none"}, "c": {"held": False, "severity": "warn"}})
    assert report.metrics["expectations"] == [
        {"name": "a", "held": False, "severity": "fail", "found": ""},
        {"name": "b", "held": True, "severity": "fail", "found": "none"},
        {"name": "c", "held": False, "severity": "warn", "found": ""},
    ]
    assert [it["name"] for it in report.failed_expectations] == ["a"]
    assert not report.is_complete


@pytest.mark.parametrize("written", [["a"], {"a": 1}, {"a": {"held": 1}}, {"a": {"severity": "x"}}, {"a": {"mine": 1}}])
def test_invalid_expectations_are_ignored_with_a_sentence(written: Any) -> None:
    report = read(expectations=written)
    assert (report.failed_expectations, set(report.metrics)) == ([], {"rows", "ignored"})


def test_a_report_from_the_middle_never_says_done() -> None:
    assert not read(unfinished=True).is_complete


@given(st.text() | st.recursive(st.none() | st.integers(), lambda x: st.dictionaries(st.text(), x)).map(json.dumps))
def test_no_message_is_an_error(message: str) -> None:
    read_report(message)


LOOK = {"dataset": "delays", "place": "/data/delays", "found": "yes", "sentence": "has written 5 rows to /data/delays"}


def test_the_places_that_a_run_has_looked_at_are_kept() -> None:
    report = read_report(json.dumps({"rows": 1, "looks": [LOOK]}))
    assert report is not None
    assert report.metrics == {"rows": 1, "looks": [LOOK]}


@pytest.mark.parametrize(
    "looks",
    [5, {}, [5], [{}], [{**LOOK, "found": "perhaps"}], [{**LOOK, "found": []}], [{**LOOK, "who": "ada"}], [LOOK] * 101],
)
def test_invalid_looks_are_ignored_with_a_reason(looks: Any) -> None:
    report = read_report(json.dumps({"rows": 1, "looks": looks}), LARGEST_FILE)
    assert report is not None
    assert report.metrics == {
        "rows": 1,
        "ignored": "looks is no list of at most 100 objects with dataset, place, found and sentence",
    }
