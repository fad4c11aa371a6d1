"""What a program may tell of its work, and what is only text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.core.report import LARGEST, read_report


def test_a_whole_report() -> None:
    told = {"rows": 118, "rowsIn": 120, "bytes": 4711, "checksum": "sha256:ab", "expectations": {"not null": True}}
    report = read_report(json.dumps(told))
    assert report is not None
    assert report.metrics == told


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
        '{"rows": 1, "expectations": ["a"]}',
        '{"rows": 1, "expectations": {"a": 1}}',
        '{"rows": 1, "mine": NaN}',
        '{"rows": 1} trailing',
        "{" * 4000,
        json.dumps({"rows": 1, "mine": "x" * LARGEST}),
    ],
)
def test_anything_else_is_no_report(message: str | None) -> None:
    assert read_report(message) is None


@given(st.text() | st.recursive(st.none() | st.integers(), lambda x: st.dictionaries(st.text(), x)).map(json.dumps))
def test_no_message_is_an_error(message: str) -> None:
    read_report(message)
