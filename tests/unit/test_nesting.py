"""JSON of any depth is decoded, and a deep value is found and named without recursion."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.core.kubernetes.nesting import DEEPEST_TEXT, decode, shallow, too_deep


def nested(depth: int, inner: str = "1", left: str = '{"a":', right: str = "}") -> bytes:
    return (left * depth + inner + right * depth).encode()


@pytest.mark.parametrize("depth", [DEEPEST_TEXT + 1, 990, 2000, 10_000])
@pytest.mark.parametrize(("left", "right"), [('{"a":', "}"), ("[", "]"), ('[0, {"]}\\"": ', ', "b": "{[" }, 2]')])
def test_a_text_is_decoded_at_any_depth(depth: int, left: str, right: str) -> None:
    text = b'{"before": [1], "deep": ' + nested(depth, left=left, right=right) + b', "after": "}"}'
    value = decode(text)
    assert (value["before"], value["after"]) == ([1], "}")
    assert too_deep(value, 64) is not None
    assert too_deep(json.loads(shallow(text)), DEEPEST_TEXT) is None


@given(st.recursive(st.none() | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)))
def test_a_text_that_is_not_deep_stays_as_it_is(value: object) -> None:
    text = json.dumps([value, [[]] * DEEPEST_TEXT]).encode()
    assert shallow(text) == text
    assert decode(text) == json.loads(text)


@pytest.mark.parametrize("text", [b"{", b'["', b'"\\', b"[" * 2000, b"]" * 2000, b'{"a":' * 2000, b'"' + b"[" * 2000])
def test_a_text_that_is_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"(delimiter|string|value|data|property name|quotes)"):
        decode(text)


@pytest.mark.parametrize(
    ("value", "depth", "path"),
    [
        ({}, 1, None),
        ({"a": "text", "b": 1}, 1, None),
        ({"a": {}}, 1, "a"),
        ({"a": {}}, 2, None),
        ({"a": [0, {"b": []}]}, 3, "a[1].b"),
        ([[[]]], 2, "[0][0]"),
        (json.loads(nested(70)), 64, ".".join("a" * 50) + ".…"),
        ({"n" * 200: {}}, 1, "n" * 100 + "…"),
    ],
)
def test_the_path_of_a_value_that_is_too_deep_is_named(value: object, depth: int, path: str | None) -> None:
    assert too_deep(value, depth) == path
