"""Convert the errors of the models to sentences with fault, place and remedy.

A place is spelled as in YAML. A sentence never contains a secret. Job files and custom resources both use this module,
so that the same mistake gets the same sentence.
"""

import difflib
import re
from collections.abc import Callable, Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from opendataflow.model.fields.field_types import contains_password
from opendataflow.stdio import visible

Path = tuple[str | int, ...]
Spelling = Callable[[Path, object], str]
"""Returns the spelling of a value in its source: 1.10 is not 1.1."""

_PRIVATE = {"credentials", "url", "options", "env", "conf", "podTemplate"}
"""Fields whose values are never shown."""
_LONGEST_VALUE = 40

_WANTED = {
    "bool_type": "true or false is wanted",
    "dict_type": "a mapping is wanted",
    "float_type": "a number is wanted",
    "finite_number": "a finite number is wanted",
    "greater_than_equal": "{ge} or more is wanted",
    "int_type": "a whole number is wanted",
    "less_than_equal": "{le} or less is wanted",
    "literal_error": "{expected} is wanted",
    "missing": "this field is needed",
    "model_type": "a mapping is wanted",
    "refused": "{sentence}",
    "string_too_long": "text of at most {max_length} characters is wanted",
    "string_too_short": "text of {min_length} or more characters is wanted",
    "string_type": "text is wanted",
    "too_long": "at most {max_length} items are wanted",
    "too_short": "{min_length} or more items are wanted",
    "tuple_type": "a list is wanted",
}
"""Pydantic's type of an error -> text for people."""


def sentences(model: type[BaseModel], error: ValidationError, spelling: Spelling | None = None) -> list[str]:
    """Return one sentence for each fault. `spelling`: of values in the source, if it may differ from JSON."""
    return [sentence for _, sentence in located_sentences(model, error, spelling)]


def located_sentences(
    model: type[BaseModel], error: ValidationError, spelling: Spelling | None = None
) -> list[tuple[Path, str]]:
    """Return one sentence for each fault, with its path: keys, and indices of lists."""
    spelling = spelling or (lambda _, value: shortened(str(value)))
    faults = [fault for fault in error.errors(include_url=False) if not _is_echo(fault)]
    return [(_path(fault), visible(_sentence(model, spelling, fault))) for fault in faults]


def _path(fault: ErrorDetails) -> Path:
    """Return the path of a fault. A rule may add a key or an index to the path of its value."""
    at = fault.get("ctx", {}).get("field")
    if at is None:
        return fault["loc"]
    below = (int(part) if part.isdecimal() else part for part in re.findall(r"[^.\[\]]+", at))
    return (*fault["loc"], *below)


def _sentence(model: type[BaseModel], spelling: Spelling, fault: ErrorDetails) -> str:
    """Return "spec.retry.limt: no such field; did you mean limit?" for one error of pydantic."""
    path, context = fault["loc"], fault.get("ctx", {})
    if fault["type"] == "extra_forbidden":
        return f"{_spelled(path)}: no such field; {_meant(path, _fields(model, path[:-1]))}"
    template = _WANTED.get(fault["type"])
    wanted = template.format(**context) if template else fault["msg"]
    field = context.get("field")
    place = _spelled(path if field is None else (*path, field)) or "the resource"
    if fault["type"] == "string_type" and isinstance(fault["input"], bool | int | float):
        value = "" if _is_private(path) else f': "{spelling(path, fault["input"])}"'
        return f"{place}: {wanted}; quote it{value}"
    return f"{place}: {wanted}{_found(spelling, path, fault)}"


def _is_echo(fault: ErrorDetails) -> bool:
    """Return whether a list is too short only because items with errors of their own are missing."""
    return fault["type"] == "too_short" and len(fault["input"]) >= fault["ctx"]["min_length"]


def _found(spelling: Spelling, path: Path, fault: ErrorDetails) -> str:
    """Return ", found X" for a short value that is not secret; an empty text if the value does not help."""
    value = fault["input"]
    if fault["type"] == "missing" or _is_private(path):
        return ""
    if isinstance(value, dict | list) and not fault["type"].endswith("_type"):
        return ""
    if isinstance(value, bool | int | float):
        return f", found {spelling(path, value)}"
    if isinstance(value, str) and (len(value) > _LONGEST_VALUE or contains_password(value)):
        return ""
    return f", found {describe_value(value)}"


def _is_private(path: Path) -> bool:
    return not _PRIVATE.isdisjoint(path)


def _meant(path: Path, known: list[str]) -> str:
    close = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.7)
    return f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"


def _spelled(path: Path) -> str:
    """Return ("spec", "inputs", 0) as spec.inputs[0]. A key in brackets is unchanged."""
    parts = (f"[{part}]" if isinstance(part, int) else part for part in path)
    return re.sub(r"\.\[(?=[0-9]+\])", "[", ".".join(parts))


def describe_value(value: Any) -> str:
    """Return a short description of a value, for "found …"."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    return f'"{shortened(value)}"' if isinstance(value, str) else shortened(str(value))


def shortened(text: str) -> str:
    """Return a text, truncated to fit into a sentence."""
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _fields(model: type[BaseModel], path: Path) -> list[str]:
    """Return the names of the fields at a path, as written in YAML."""
    for part in path:
        fields = {field.alias: field.annotation for field in model.model_fields.values()}
        model = next(_models(fields.get(str(part))), model)
    return [str(field.alias) for field in model.model_fields.values()]


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)
