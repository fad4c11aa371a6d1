"""Texts of a status are one line and bounded in bytes, and a merge patch says only what differs."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.control.status.status_writer import merge_patch
from opendataflow.core.status.conditions import truncated


@given(st.text(), st.integers(10, 200))
def test_a_text_fits_into_its_bytes(text: str, size: int) -> None:
    fitted = truncated(text, size)
    assert len(json.dumps(fitted, ensure_ascii=False).encode("utf-8", "surrogatepass")) - 2 <= size
    assert "\n" not in fitted
    assert fitted == " ".join(text.split()) or fitted.endswith("…")


@pytest.mark.parametrize(
    ("shown", "wanted", "patch"),
    [
        ({}, {"state": "Done"}, {"state": "Done"}),
        ({"state": "Done"}, {"state": "Done"}, {}),
        ({"state": "Done", "eta": "3h"}, {"state": "Done"}, {"eta": None}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, {"a": {"b": 1, "c": None}}),
        ({"gaps": [1, 2]}, {"gaps": [1]}, {"gaps": [1]}),
        ({"a": None}, {}, {}),
    ],
)
def test_a_merge_patch_has_what_differs(shown: Any, wanted: Any, patch: Any) -> None:
    assert merge_patch(shown, wanted) == patch


def apply(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = apply(target.get(name), value)
    return target


values = st.one_of(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=2), st.just("x"))
flat = st.dictionaries(st.sampled_from("abc"), values, max_size=3)
statuses = st.dictionaries(st.sampled_from("abc"), st.one_of(values, flat), max_size=3)


@given(statuses, statuses)
def test_a_merge_patch_makes_one_status_of_the_other(shown: Any, wanted: Any) -> None:
    assert apply(shown, merge_patch(shown, wanted)) == wanted
