"""Generates the reference of the chart's values from the comments in values.yaml, for `generate`.

A value with a comment above it becomes one row, also if it is a map. The entries of a map without a comment become
rows.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

VALUES = Path(__file__).parents[1] / "helm" / "opendataflow" / "values.yaml"

HEAD = """# Values of the chart

<!-- Written by docs/generate.py from helm/opendataflow/values.yaml. -->

Set them with `--set NAME=VALUE` or in a file for `-f`: [install with Helm](../how-to/install-with-helm.md).
Values that are not listed here are refused, and so are contradictory values.

| value | default | what it means |
|---|---|---|
"""

_KEY = re.compile(r"( *)([A-Za-z]+):(?: +(.+))?")


def page() -> str:
    """Return the text of the page."""
    rows = [f"| `{name}` | `{_shown(default)}` | {_cell(text)} |\n" for name, default, text in values()]
    return HEAD + "".join(rows)


def values() -> Iterator[tuple[str, Any, str]]:
    """Yield the path, the default and the comment of each value, in the order of the file."""
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
        description, comment = " ".join(comment), []
        if found is None or (inside is not None and len(found[1]) > inside):
            continue
        indent, inside = len(found[1]), None
        above = [*((depth, name) for depth, name in above if depth < indent), (indent, found[2])]
        if description or found[3]:
            path = [name for _, name in above]
            inside = indent
            yield ".".join(path), _at(defaults, path), description


def _at(value: Any, path: list[str]) -> Any:
    for name in path:
        value = value[name]
    return value


def _shown(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
