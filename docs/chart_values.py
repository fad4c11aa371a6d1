"""The reference of the chart's values, out of the comments in its values.yaml, for `generate`. It reads nothing else.

A value with a comment above it is one row, also where it is a map. A map without one is a heading of what is in it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

VALUES = Path(__file__).parents[1] / "helm" / "opendataflow" / "values.yaml"

HEAD = """# Values of the chart

<!-- Written by docs/generate.py out of helm/opendataflow/values.yaml. -->

Set them by `--set NAME=VALUE` or in a file that `-f` names: [install with Helm](../how-to/install-with-helm.md).
A value that is not listed here is refused, and so are values that contradict each other.

| value | default | what it means |
|---|---|---|
"""

_KEY = re.compile(r"( *)([A-Za-z]+):(?: +(.+))?")


def page() -> str:
    """The text of the page."""
    rows = [f"| `{name}` | `{_shown(default)}` | {_cell(text)} |\n" for name, default, text in values()]
    return HEAD + "".join(rows)


def values() -> Iterator[tuple[str, Any, str]]:
    """The path, the default and the comment of each value, as they are written."""
    text = VALUES.read_text("utf-8")
    defaults = yaml.safe_load(text)
    above: list[tuple[int, str]] = []
    comment: list[str] = []
    inside: int | None = None
    for line in text.splitlines():
        if line.strip().startswith("#"):
            comment.append(line.strip().removeprefix("#").strip())
            continue
        found = _KEY.fullmatch(line)
        said, comment = " ".join(comment), []
        if found is None or (inside is not None and len(found[1]) > inside):
            continue
        indent, inside = len(found[1]), None
        above = [*((depth, name) for depth, name in above if depth < indent), (indent, found[2])]
        if said or found[3]:
            path = [name for _, name in above]
            inside = indent
            yield ".".join(path), _at(defaults, path), said


def _at(value: Any, path: list[str]) -> Any:
    for name in path:
        value = value[name]
    return value


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
