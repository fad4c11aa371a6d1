"""Reads a job file: the text of a multi-document YAML becomes data sets and jobs, or one error.

YAML without its traps: a date stays text, only true and false are booleans, numbers are decimal, a key is
written once, and a number where text is wanted is refused instead of altered (1.10 would become 1.1). Each
error is a sentence with the place in the spelling of the file; a secret is never repeated in it.

It opens no file and looks at no folder: relative paths are resolved by `absolute_path`, from a folder given.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from opendataflow.errors import InvalidInput
from opendataflow.model.datasets import DataSet
from opendataflow.model.faults import cut, sentences, shape
from opendataflow.model.jobs import DataFlowJob
from opendataflow.names import API_VERSION

_KINDS: dict[str, type[DataSet] | type[DataFlowJob]] = {"DataFlowJob": DataFlowJob, "DataSet": DataSet}


@dataclass(frozen=True)
class JobFile:
    """What one file declares, in the order written."""

    datasets: tuple[DataSet, ...]
    jobs: tuple[DataFlowJob, ...]


def parse_job_file(text: str, source: str) -> JobFile:
    """Return what the text declares. `source`: the file's name, for errors.

    Raises InvalidInput: for a fault of YAML at once, else with one line for each fault of the whole file.
    """
    resources: list[tuple[DataSet | DataFlowJob, int]] = []
    faults: list[str] = []
    for node, written in _documents(text, source):
        try:
            resources.append((_resource(node, written, source), _line(node)))
        except InvalidInput as error:
            faults.append(str(error))
    faults += _taken_ids(resources, source)
    if faults:
        raise InvalidInput("\n".join(faults))
    if not resources:
        raise InvalidInput(f"{source}: nothing is declared here; write a DataSet or a DataFlowJob")
    return JobFile(
        datasets=tuple(resource for resource, _ in resources if isinstance(resource, DataSet)),
        jobs=tuple(resource for resource, _ in resources if isinstance(resource, DataFlowJob)),
    )


def absolute_path(written: str | None, folder: Path) -> Path:
    """Return the path that `workingDirectory` or `spark.main` means. `folder`: the file's, absolute.

    Nothing written means the folder itself. Neither `~` nor variables are expanded.
    """
    if not folder.is_absolute():
        raise ValueError(f"the folder of the job file is not absolute: {folder}")
    return folder if written is None else folder / written


# YAML ----------------------------------------------------------------------------------------------------

_TAG = "tag:yaml.org,2002:"
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class _Loader(yaml.SafeLoader):
    """SafeLoader with the plain values of YAML 1.2's core schema, and no other types than those of JSON."""

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        """Build the value of a node; a tag that does not fit its value is an error with a place."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, KeyError):
            kind = node.tag.replace(_TAG, "!!")
            raise _fault(node, f"`{cut(str(node.value))}` can't be read as {kind}") from None


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


def _documents(text: str, source: str) -> Iterator[tuple[Node, Any]]:
    """Yield the node and the value of each document that is not empty."""
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is not None and node.tag != f"{_TAG}null":
                _check(node, set())
                # Deep: a value inside itself is an error here instead of an endless loop later.
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
    return ", ".join(part for part in (error.context, error.problem) if part)


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _check(node: Node, seen: set[int]) -> None:
    """Refuse keys that are not text or written twice, and letters that no database can store."""
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
            lines[name] = _line(key)
            _check(value, seen)


def _key(key: Node) -> str:
    if not isinstance(key, ScalarNode):
        raise _fault(key, "a list or mapping can't be a key")
    if key.tag not in (f"{_TAG}str", f"{_TAG}merge"):
        raise _fault(key, f'the key {key.value} is not text; quote it: "{key.value}"')
    return str(key.value)


def _fault(node: Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


# Resources -----------------------------------------------------------------------------------------------


def _resource(node: Node, written: Any, source: str) -> DataSet | DataFlowJob:
    place = f"{source}, line {_line(node)}"
    if not isinstance(written, dict):
        raise InvalidInput(f"{place}: a resource has apiVersion, kind, metadata and spec, this is {shape(written)}")
    if written.get("apiVersion") != API_VERSION:
        raise InvalidInput(f"{place}: {_unknown('apiVersion', written, [API_VERSION])}")
    kind = written.get("kind")
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise InvalidInput(f"{place}: {_unknown('kind', written, list(_KINDS))}")
    try:
        return model.model_validate(written, by_alias=True, by_name=False)
    except ValidationError as error:
        metadata = written.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        title = f"{source}, {kind} {name}" if isinstance(name, str) else f"{place}, {kind}"
        told = sentences(model, error, lambda path, value: _source_text(node, path, value))
        raise InvalidInput("\n".join(f"{title}: {sentence}" for sentence in told)) from None


def _unknown(field: str, written: Mapping[str, Any], known: list[str]) -> str:
    names = " and ".join(known)
    if field not in written:
        return f"{field} is missing; known here: {names}"
    return f"{field} {shape(written[field])} is not known; known here: {names}"


def _taken_ids(resources: Iterable[tuple[DataSet | DataFlowJob, int]], source: str) -> Iterator[str]:
    first: dict[tuple[str, str], int] = {}
    for resource, line in resources:
        key = (resource.kind, resource.id)
        if key in first:
            yield (
                f"{source}, line {line}: there is another {resource.kind} with the id {resource.id} on line "
                f"{first[key]}; give one of them another spec.id"
            )
        first.setdefault(key, line)


def _source_text(root: Node, path: tuple[str | int, ...], value: object) -> str:
    """Return a number as the file spells it: 1.10 is not 1.1."""
    node: Node | None = root
    for part in path:
        if isinstance(node, SequenceNode) and isinstance(part, int):
            node = node.value[part]
        elif isinstance(node, MappingNode):
            # The last one counts: what a merge key brought in stands before the mapping's own keys.
            node = next((child for key, child in reversed(node.value) if key.value == part), None)
    return cut(str(node.value if isinstance(node, ScalarNode) else value))
