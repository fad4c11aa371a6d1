"""Validation rules of user input, defined once for Python, API servers and people.

A `Rule` is in the annotation of a type, or in `rules` of a model. Python evaluates `check`. model/resources/crd.py
writes `cel` to the custom resource definition, for the API server. Both report the same sentence. A rule that CEL can't
express has no `cel`; the operator reports it in the condition Stalled. No rule here depends on a resource.
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
"""The key of a schema with its rules."""


class Place(Enum):
    """Where a rule applies: to files on one machine, to resources on a cluster, or to both."""

    ANYWHERE = "anywhere"
    MACHINE = "machine"
    CLUSTER = "cluster"


CLUSTER_CONTEXT = {"place": Place.CLUSTER}
"""The pydantic context to validate the body of a resource. Without a context, the input is a file on one machine."""


@dataclass(frozen=True, eq=False)
class Rule:
    """One validation rule.

    `sentence`: the error for people. `check`: returns whether a value is valid; None if only an API server can decide,
    because it knows the old value. `cel`: the same condition about `self`; None if CEL can't express it. `detailed`:
    returns the sentence with details that CEL does not have. `at`: the key or index of the fault below the value.
    `before`: whether to check the input before its types are validated. `schema`: keywords to add to the schema.
    """

    sentence: str
    check: Callable[[Any], bool] | None = None
    cel: str | None = None
    detailed: Callable[[Any], str] | None = None
    at: Callable[[Any], str] | str | None = None
    place: Place = Place.ANYWHERE
    before: bool = False
    schema: Mapping[str, Any] = field(default_factory=dict)

    def validate_value(self, value: Any, info: ValidationInfo) -> Any:
        """Return the value. Raise PydanticCustomError if the rule is broken."""
        if self.check is None or not self._applies_here(info) or self.check(value):
            return value
        sentence = self.sentence if self.detailed is None else self.detailed(value)
        at = self.at(value) if callable(self.at) else self.at
        raise PydanticCustomError(
            "refused", "{sentence}", {"sentence": sentence, "field": at, "by_schema": bool(self.cel or self.schema)}
        )

    def as_schema(self) -> list[dict[str, str]]:
        """Return the rule as a list for a schema; empty if the schema can't express it."""
        if self.cel is None or self.place is Place.MACHINE:
            return []
        path = {"fieldPath": f".{self.at.partition('[')[0]}"} if isinstance(self.at, str) else {}
        return [{"rule": self.cel, "message": self.sentence, **path}]

    def _applies_here(self, info: ValidationInfo) -> bool:
        here = (info.context or {}).get("place", Place.MACHINE)
        return self.place in (Place.ANYWHERE, here)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Make pydantic call `validate_value` for every value of an annotated type."""
        if self.before:
            return core_schema.with_info_before_validator_function(self.validate_value, handler(source))
        return core_schema.with_info_after_validator_function(self.validate_value, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the rule to the schema of an annotated type."""
        return add_to_schema(handler(schema), self)


def add_to_schema(schema: JsonSchemaValue, *rules: Rule) -> JsonSchemaValue:
    """Return the schema with these rules after its own."""
    found = {**schema}
    for rule in rules:
        found |= rule.schema
        if validations := rule.as_schema():
            found[VALIDATIONS] = [*found.get(VALIDATIONS, ()), *validations]
    return found


# Kinds of rules ------------------------------------------------------------------------------------------


def matching(pattern: str, sentence: str) -> Rule:
    """Return the rule that the whole text matches. `pattern`: valid in Python and RE2, without single quotes."""
    whole = re.compile(pattern)
    return Rule(sentence, lambda text: whole.fullmatch(text) is not None, f"self.matches(r'^(?:{pattern})$')")


def without(pattern: str, sentence: str) -> Rule:
    """Return the rule that no part of the text matches. `pattern`: as for `matching`, also with `\\uXXXX`."""
    part = re.compile(pattern)
    of_re2 = re.sub(r"\\u([0-9a-f]{4})", r"\\x{\1}", pattern)
    return Rule(sentence, lambda text: part.search(text) is None, f"!self.matches(r'{of_re2}')")


def keys_matching(pattern: str, sentence: str) -> Rule:
    """Return the rule that every key of a mapping matches as a whole."""
    whole = re.compile(pattern)

    def bad(written: Mapping[str, Any]) -> list[str]:
        return [key for key in written if not whole.fullmatch(key)]

    cel = f"self.all(key, key.matches(r'^(?:{pattern})$'))"
    return Rule(sentence, lambda written: not bad(written), cel, at=lambda written: bad(written)[0])


def keys_without(pattern: str, sentence: str) -> Rule:
    """Return the rule that no key of a mapping matches as a whole. Errors never contain the value of the key."""
    whole = re.compile(pattern)

    def bad(written: Any) -> list[str]:
        keys = written if isinstance(written, Mapping) else ()
        return [key for key in keys if isinstance(key, str) and whole.fullmatch(key)]

    cel = f"!self.exists(key, key.matches(r'^(?:{pattern})$'))"
    return Rule(sentence, lambda written: not bad(written), cel, at=lambda written: bad(written)[0], before=True)


def exactly_one(*names: str) -> Rule:
    """Return the rule that exactly one of the fields is written. `names`: as in YAML."""
    sentence = f"exactly one of {', '.join(names)} is wanted"
    present = ", ".join(f"has(self.{name})" for name in names)

    def given(model: BaseModel) -> list[str]:
        found = written_fields(model)
        return [name for name in names if name in found]

    return Rule(
        sentence,
        lambda model: len(given(model)) == 1,
        f"[{present}].filter(given, given).size() == 1",
        detailed=lambda model: f"{sentence}, found {' and '.join(given(model)) or 'none'}",
    )


def written_fields(model: BaseModel) -> set[str]:
    """Return the names, as in YAML, of all fields that are not None."""
    fields = type(model).model_fields
    return {info.alias or name for name, info in fields.items() if getattr(model, name) is not None}


def immutable(field: str, sentence: str) -> Rule:
    """Return the rule that a field can't be changed, added or removed."""
    same = f"(!has(self.{field}) || self.{field} == oldSelf.{field})"
    return Rule(sentence, cel=f"has(self.{field}) == has(oldSelf.{field}) && {same}", at=field)
