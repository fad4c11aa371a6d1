"""Parse YAML to documents of plain values, or raise one error with its place.

The parser is stricter than YAML 1.1. A date is text, only true and false are booleans, numbers are decimal, duplicate
keys are refused, and all values have types of JSON. The nodes are returned too, so that callers can report the line and
the spelling of each value. This module does not know the models, and opens no file.
"""

import re
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from opendataflow.errors import InvalidInput
from opendataflow.model.fields.validation_errors import shortened

_TAG = "tag:yaml.org,2002:"
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2's core schema, and with the types of JSON only."""

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        """Return the value of a node. Raise an error with the place if the value does not fit its tag."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError):
            kind = node.tag.replace(_TAG, "!!")
            raise _fault(node, f"`{shortened(str(node.value))}` can't be read as {kind}") from None


def _unknown_tag(loader: _Loader, node: Node) -> None:  # noqa: ARG001 # PyYAML calls it with both
    kind = node.tag.replace(_TAG, "!!")
    raise _fault(node, f"the type {kind} is not known here; write text, numbers, lists and mappings")


_Loader.yaml_constructors = {
    tag: construct
    for tag, construct in yaml.SafeLoader.yaml_constructors.items()
    if tag and tag.removeprefix(_TAG) in {"null", "bool", "int", "float", "str", "seq", "map"}
}
_Loader.add_constructor(None, _unknown_tag)
_Loader.yaml_implicit_resolvers = {}
for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", ["t", "T", "f", "F"]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", r"[-+]?(?:0|[1-9][0-9]*)\.[0-9]*(?:[eE][-+]?[0-9]+)?", list("-+0123456789")),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), _first)


def documents(text: str, source: str) -> Iterator[tuple[Node, Any]]:
    """Yield the node and the value of each document that is not empty. `source`: the file's name, for errors.

    Raise InvalidInput for invalid YAML.
    """
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is not None and node.tag != f"{_TAG}null":
                _check(node, set())
                # Deep: a value that contains itself is an error here, instead of an endless loop later.
                yield node, loader.construct_object(node, deep=True)
    except yaml.MarkedYAMLError as error:
        raise InvalidInput(f"{source}{_place(error.problem_mark)}: {_problem(error)}") from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, error.position - before.rfind("\n")
        letter = f"the character U+{ord(text[error.position]):04X}"
        raise InvalidInput(f"{source}, line {line}, column {column}: {letter} is not allowed in YAML") from None
    except RecursionError:
        raise InvalidInput(f"{source}: the file is nested too deeply") from None


def _place(mark: yaml.Mark | None) -> str:
    return "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"


def _problem(error: yaml.MarkedYAMLError) -> str:
    if error.problem == "found character '\\t' that cannot start any token":
        return "a tab is no indentation in YAML; write spaces"
    return ", ".join(part for part in (error.context, error.problem) if part)


def line_of(node: Node) -> int:
    """Return the line of a node, from 1."""
    return int(node.start_mark.line) + 1


def _check(node: Node, seen: set[int]) -> None:
    """Refuse keys that are not text, duplicate keys, and characters that Postgres can't store."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, ScalarNode) and _UNSTORABLE.search(node.value):
        raise _fault(node, "NUL and halves of surrogate pairs can't be stored; take them out")
    if isinstance(node, SequenceNode):
        for child in node.value:
            _check(child, seen)
    if isinstance(node, MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            _check(key, seen)
            name = _key(key)
            if name in lines:
                raise _fault(key, f"the key {name} is written twice (first on line {lines[name]}); remove one")
            lines[name] = line_of(key)
            _check(value, seen)


def _key(key: Node) -> str:
    if not isinstance(key, ScalarNode):
        raise _fault(key, "a list or mapping can't be a key")
    if key.tag not in (f"{_TAG}str", f"{_TAG}merge"):
        raise _fault(key, f'the key {key.value} is not text; quote it: "{key.value}"')
    return str(key.value)


def _fault(node: Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def node_at(root: Node, path: tuple[str | int, ...]) -> Node:
    """Return the node of the value at a path; the innermost existing node around it if the path does not exist."""
    node = root
    for part in path:
        inner = _child(node, part)
        if inner is None:
            break
        node = inner
    return node


def _child(node: Node, part: str | int) -> Node | None:
    if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
        child: Node = node.value[part]
        return child
    if isinstance(node, MappingNode):
        # The last one counts: keys from a merge key are before the mapping's own keys.
        return next((child for key, child in reversed(node.value) if key.value == part), None)
    return None


def source_text(root: Node, path: tuple[str | int, ...], value: object) -> str:
    """Return a value as the file spells it: 1.10 is not 1.1."""
    node: Node | None = root
    for part in path:
        node = node and _child(node, part)
    return shortened(str(node.value if isinstance(node, ScalarNode) else value))
