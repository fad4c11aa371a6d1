"""A rule of what users write, said once: to Python, to an API server, and to people.

`Rule` stands in the annotation of a type or in `rules` of a model. Python checks it with `check`;
model/resources/crd.py finds `cel`, the same in the language of rules of custom resource definitions; both answer with
the same sentence. What CEL can't say has no `cel`: the operator tells it as condition Stalled. Nothing here knows a
resource.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

VALIDATIONS = "x-kubernetes-validations"
"""Where a schema holds its rules."""


class Place(Enum):
    """Where a rule holds: for a file on one machine, for a resource on a cluster, or for both."""

    ANYWHERE = "anywhere"
    MACHINE = "machine"
    CLUSTER = "cluster"


ON_A_CLUSTER = {"place": Place.CLUSTER}
"""The context of pydantic with which the body of a resource is read; without any it is a file on one machine."""


@dataclass(frozen=True, eq=False)
class Rule:
    """What must hold.

    `sentence`: for people, where it does not. `check`: whether a value is right; None where only an API server can
    know (it sees what was there before). `cel`: the same about `self`; None where it can't be said. `told`: the
    sentence with details that CEL has not. `at`: the key or index below the value where the fault is.
    `before`: look at what is written before its types are checked. `schema`: what else a schema can say of it.
    """

    sentence: str
    check: Callable[[Any], bool] | None = None
    cel: str | None = None
    told: Callable[[Any], str] | None = None
    at: Callable[[Any], str] | str | None = None
    place: Place = Place.ANYWHERE
    before: bool = False
    schema: Mapping[str, Any] = field(default_factory=dict)

    def hold(self, value: Any, info: ValidationInfo) -> Any:
        """Return the value; raise where the rule is broken."""
        if self.check is None or not self._holds_here(info) or self.check(value):
            return value
        sentence = self.sentence if self.told is None else self.told(value)
        at = self.at(value) if callable(self.at) else self.at
        raise PydanticCustomError(
            "refused", "{sentence}", {"sentence": sentence, "field": at, "by_schema": bool(self.cel or self.schema)}
        )

    def as_json(self) -> list[dict[str, str]]:
        """Return the rule as a schema has it; nothing where it can't be said."""
        if self.cel is None or self.place is Place.MACHINE:
            return []
        path = {"fieldPath": f".{self.at.partition('[')[0]}"} if isinstance(self.at, str) else {}
        return [{"rule": self.cel, "message": self.sentence, **path}]

    def _holds_here(self, info: ValidationInfo) -> bool:
        here = (info.context or {}).get("place", Place.MACHINE)
        return self.place in (Place.ANYWHERE, here)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Let pydantic ask `hold` for every value of an annotated type."""
        if self.before:
            return core_schema.with_info_before_validator_function(self.hold, handler(source))
        return core_schema.with_info_after_validator_function(self.hold, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Write the rule into the schema of an annotated type."""
        return add_to_schema(handler(schema), self)


def add_to_schema(schema: JsonSchemaValue, *rules: Rule) -> JsonSchemaValue:
    """Return the schema with these rules behind its own."""
    found = {**schema}
    for rule in rules:
        found |= rule.schema
        if said := rule.as_json():
            found[VALIDATIONS] = [*found.get(VALIDATIONS, ()), *said]
    return found


# Kinds of rules ------------------------------------------------------------------------------------------


def matching(pattern: str, sentence: str) -> Rule:
    """The whole text matches. `pattern`: means the same to Python and to RE2, and has no single quote."""
    whole = re.compile(pattern)
    return Rule(sentence, lambda text: whole.fullmatch(text) is not None, f"self.matches(r'^(?:{pattern})$')")


def without(pattern: str, sentence: str) -> Rule:
    """The pattern is nowhere in the text."""
    part = re.compile(pattern)
    return Rule(sentence, lambda text: part.search(text) is None, f"!self.matches(r'{pattern}')")


def keys_matching(pattern: str, sentence: str) -> Rule:
    """Every key of a mapping matches as a whole."""
    whole = re.compile(pattern)

    def bad(written: Mapping[str, Any]) -> list[str]:
        return [key for key in written if not whole.fullmatch(key)]

    cel = f"self.all(key, key.matches(r'^(?:{pattern})$'))"
    return Rule(sentence, lambda written: not bad(written), cel, at=lambda written: bad(written)[0])


def keys_without(pattern: str, sentence: str) -> Rule:
    """No key of a mapping matches as a whole, whatever its value is: nothing ever shows it."""
    whole = re.compile(pattern)

    def bad(written: Any) -> list[str]:
        keys = written if isinstance(written, Mapping) else ()
        return [key for key in keys if isinstance(key, str) and whole.fullmatch(key)]

    cel = f"!self.exists(key, key.matches(r'^(?:{pattern})$'))"
    return Rule(sentence, lambda written: not bad(written), cel, at=lambda written: bad(written)[0], before=True)


def exactly_one(*names: str) -> Rule:
    """Exactly one of the fields is written. The names are those of YAML."""
    sentence = f"exactly one of {', '.join(names)} is wanted"
    present = ", ".join(f"has(self.{name})" for name in names)

    def given(model: BaseModel) -> list[str]:
        found = written(model)
        return [name for name in names if name in found]

    return Rule(
        sentence,
        lambda model: len(given(model)) == 1,
        f"[{present}].filter(given, given).size() == 1",
        told=lambda model: f"{sentence}, found {' and '.join(given(model)) or 'none'}",
    )


def written(model: BaseModel) -> set[str]:
    """Return the names, as in YAML, of the fields that are not None."""
    fields = type(model).model_fields
    return {info.alias or name for name, info in fields.items() if getattr(model, name) is not None}


def unchangeable(field: str, sentence: str) -> Rule:
    """A field keeps what it was made with; nothing stays nothing."""
    same = f"(!has(self.{field}) || self.{field} == oldSelf.{field})"
    return Rule(sentence, cel=f"has(self.{field}) == has(oldSelf.{field}) && {same}", at=field)
