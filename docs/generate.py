"""Writes docs/reference/job-file.md out of the models: `python docs/generate.py`. A test compares the two.

It never writes anything but that page, and says nothing that the models do not say.
"""

import typing
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from opendataflow.model.resources import DataFlowJob, DataSet

PAGE = Path(__file__).parent / "reference" / "job-file.md"

HEAD = """# Job files

<!-- Written by docs/generate.py out of operator/opendataflow/model/resources.py. -->

A job file holds any number of resources, divided by `---`. A field that is not listed here is refused, by name.
Numbers where text is wanted are refused: quote data ids like `"1.0"`. Durations are like `90s`, `5m` or `1h30m`.
Passwords are never written in plain text.
"""


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *_resource(DataSet), *_resource(DataFlowJob)])


def _resource(model: type[BaseModel]) -> Iterator[str]:
    yield f"## {model.__name__}\n\n{model.__doc__}\n"
    yield "| field | type | default | what it is |\n|---|---|---|---|"
    yield from _fields(model, "")
    yield ""


def _fields(model: type[BaseModel], path: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        spelled = f"{path}{field.alias or name}"
        nested = _model(field.annotation)
        kind = "" if nested else _type(field.annotation)
        yield f"| `{spelled}` | {kind} | {_default(field)} | {field.description} |"
        if nested is not None:
            yield from _fields(nested, f"{spelled}.")


def _model(annotation: Any) -> type[BaseModel] | None:
    for part in (annotation, *get_args(annotation)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    return None


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin in (typing.Union, UnionType):
        return _type(next(a for a in arguments if a is not NoneType))
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "map of text"
    return {str: "text", int: "whole number", float: "number", bool: "true or false"}[annotation]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**needed**"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or isinstance(value, BaseModel) or value in ((), {}):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
