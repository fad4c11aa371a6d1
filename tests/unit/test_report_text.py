"""A rendered report fits its size and can be parsed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opendataflow.core.pipelines.expectations import ExpectationResult
from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.pipelines.report import LARGEST, LARGEST_FILE, read_report
from opendataflow.core.pipelines.report_text import render_report
from opendataflow.model.records.run import Report
from opendataflow.names import StepStatus

DONE, FAILED, SKIPPED = StepStatus.DONE, StepStatus.FAILED, StepStatus.SKIPPED


def parsed(
    report: dict[str, object], steps: list[Step], checked: list[ExpectationResult], largest: int = LARGEST
) -> Report:
    text = render_report(report, steps, checked, largest)
    assert len(text.encode()) <= largest
    read = read_report(text, largest)
    assert read is not None, text
    return read


def test_a_file_has_room_for_the_output_of_steps() -> None:
    steps = [Step("read", DONE, 3, 0.251, "x" * 900), Step("write", FAILED, None, 1, "", "no\nFile a.py, line 3")]
    read, write = parsed({"failure": "no"}, steps, [], LARGEST_FILE).steps
    assert (read.ordinal, read.rows, read.seconds, read.stdout) == (1, 3, 0.25, "x" * 900)
    assert (write.error, write.rows) == ("no\nFile a.py, line 3", None)


def test_a_shortened_text_begins_with_a_whole_line() -> None:
    steps = [Step("a", DONE, stdout="a secret that must be found whole\n" * 2000), Step("b", DONE, stdout="x" * 90_000)]
    whole, endless = parsed({"rows": 1}, steps, [], LARGEST_FILE).steps
    assert whole.stdout is not None
    assert whole.stdout.startswith("a secret that must")
    assert endless.stdout is not None
    assert len(endless.stdout) > 9999


def test_of_many_steps_the_failed_one_and_its_neighbours_are_kept() -> None:
    sentence = "pipelines/p/s.py, line 3: KeyError: 'day'"
    steps = [Step(f"a step with a rather long name {n}", DONE, 10**9, 99.123, "printed\n" * 99) for n in range(60)]
    steps += [Step("guilty", FAILED, None, 0.02, "printed", f"{sentence}\nFile …")]
    steps += [Step(f"a step with a rather long name {n}", SKIPPED) for n in range(61, 100)]
    report = parsed({"commit": "c" * 40, "failure": f"guilty has failed: {sentence}"}, steps, [])
    known = {step.ordinal: step for step in report.steps}
    assert (known[61].name, known[61].status, known[61].error) == ("guilty", FAILED, sentence)
    assert (known[60].rows, known[60].seconds, known[62].status) == (10**9, 99.12, SKIPPED)
    assert all(known[n].name == steps[n - 1].name for n in known)
    assert 20 < len(known) < 100
    assert report.failure == f"guilty has failed: {sentence}"


def test_unmet_expectations_are_kept_before_others() -> None:
    checked = [
        ExpectationResult(f"number {n} of many that hold", True, "fail", "none of all the rows") for n in range(200)
    ]
    report = parsed({"rows": 1}, [Step("write", DONE)], [*checked, ExpectationResult("keys", False, "fail", "2 rows")])
    unmet = {"name": "keys", "held": False, "severity": "fail", "found": "2 rows"}
    assert unmet in report.metrics["expectations"]
    assert report.failed_expectations == [unmet]


def test_of_two_expectations_with_one_name_the_one_that_does_not_hold_is_reported() -> None:
    checked = [
        ExpectationResult("a", False, "fail", "2"),
        ExpectationResult("a", True, "fail", "0"),
        ExpectationResult("a", False, "warn", "1"),
    ]
    assert [it["found"] for it in parsed({}, [Step("write", FAILED)], checked).failed_expectations] == ["2"]


def test_nothing_known_is_no_reason_to_fail() -> None:
    assert render_report({"rows": None}, [], [], LARGEST) == "{}"


NASTY = st.text(st.characters(exclude_characters="\0"), max_size=40) | st.sampled_from(
    ["\x01" * 9000, '"' * 9000, "ü" * 9000, "\ud800" * 50]
)
STEPS = st.builds(
    Step,
    NASTY.filter(bool),
    st.sampled_from(StepStatus),
    st.none() | st.integers(0, 2**63 - 1),
    st.floats(0, 1e9),
    NASTY,
)
CHECKED = st.builds(ExpectationResult, NASTY, st.booleans(), st.sampled_from(["fail", "warn"]), NASTY)


@pytest.mark.parametrize("largest", [LARGEST, LARGEST_FILE])
@settings(max_examples=30)
@given(st.lists(STEPS, min_size=1, max_size=120), st.lists(CHECKED, max_size=60), NASTY.filter(str.strip))
def test_every_report_fits_and_is_valid(
    largest: int, steps: list[Step], checked: list[ExpectationResult], failure: str
) -> None:
    read = parsed({"commit": "c" * 200, "rows": 2**63 - 1, "failure": failure}, steps, checked, largest)
    assert "ignored" not in read.metrics
