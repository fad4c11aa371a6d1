"""The nesting of JSON texts and of their values. Pure, and never recursive.

An API server accepts values that are nested 10,000 deep. Python's decoder, and libraries that walk through its value,
raise RecursionError at a depth of about 1000.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

DEEPEST_TEXT = 400
"""The maximum nesting of a decoded JSON text. It is far below Python's limit, because libraries recurse, too."""

_LONGEST_PATH = 100
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
"""The brackets of a JSON text, and its strings, which may contain brackets."""

_Path = tuple["_Path | None", str]


def decode(text: bytes) -> Any:
    """Return the value of a JSON text. If it can't be decoded because of its depth, return the value of `shallow`.

    Raises ValueError if the text is not JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        return json.loads(shallow(text))


def shallow(text: bytes) -> bytes:
    """Return a JSON text with `null` in the place of each value that is nested deeper than DEEPEST_TEXT."""
    if text.count(b"{") + text.count(b"[") <= DEEPEST_TEXT:
        return text
    kept: list[bytes] = []
    begin = depth = 0
    for token in _TOKENS.finditer(text):
        sign = text[token.start()]
        if sign in b"[{":
            depth += 1
            if depth == DEEPEST_TEXT + 1:
                kept += [text[begin : token.start()], b"null"]
        elif sign in b"]}":
            if depth == DEEPEST_TEXT + 1:
                begin = token.end()
            depth -= 1
    return b"".join([*kept, text[begin:]])


def too_deep(value: object, depth: int) -> str | None:
    """Return the path of a list or mapping that is nested deeper than `depth`; None if none is.

    `value` itself is level 1. A path looks like `spec.containers[0]`, and a long one is cut.
    """
    waiting: list[tuple[object, _Path | None, int]] = [(value, None, 1)]
    while waiting:
        one, path, level = waiting.pop()
        if level > depth:
            return _text(path)
        items = one.items() if isinstance(one, Mapping) else enumerate(one) if isinstance(one, Sequence) else ()
        for name, item in items:
            if isinstance(item, Mapping | Sequence) and not isinstance(item, str):
                step = f".{name}" if isinstance(one, Mapping) else f"[{name}]"
                waiting.append((item, (path, step), level + 1))
    return None


def _text(path: _Path | None) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(step)
    text = "".join(reversed(steps)).removeprefix(".")
    return text if len(text) <= _LONGEST_PATH else f"{text[:_LONGEST_PATH]}…"
