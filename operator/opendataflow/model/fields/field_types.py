"""The base class of input models, and the types of their fields.

All types can be expressed in a structural schema: no unions except with None, and durations are text. Lengths are
bounded, because an API server estimates the cost of rules in advance. No type depends on a resource, a file or a
folder.
"""

import re
from dataclasses import replace
from datetime import date
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    Strict,
    StringConstraints,
    ValidationInfo,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from opendataflow.model.fields.rules import Rule, add_to_schema, keys_matching, keys_without, matching, without
from opendataflow.names import CONTROLS, SHELL_NAME

LARGEST_INTEGER = 2**31 - 1
LARGEST_BIGINT = 2**63 - 1
MOST_ITEMS = 1000
"""The most data ids in one resource. Longer lists are loaded by `dataflow chunks load`."""

_AMOUNT = r"([0-9]{{1,{digits}}}(?:\.[0-9]{{1,9}})?)"
_HOURS, _MINUTES, _SECONDS = (_AMOUNT.format(digits=digits) for digits in (6, 7, 9))
_DURATION = f"(?:{_HOURS}h)?(?:{_MINUTES}m)?(?:{_SECONDS}s)?"
"""The numbers of digits fit into 292 years, the longest duration that an API server can store in nanoseconds."""

_PASSWORD_IN_URL = (
    r"(?i)//[^/?#@: \t-\r]*:[^/?#\t-\r ]+@"  # scheme://user:password@host
    r"|(?:^|[?&; \t-\r])[a-z_.]*(?:password|passwd|pwd)[ \t-\r]*=[ \t-\r]*[^&; \t-\r]"  # jdbc:…?user=u&password=p
    r"|^jdbc:oracle:[a-z0-9]+:[^/@ \t-\r]+/[^@ \t-\r]+@"  # jdbc:oracle:thin:user/password@host
)
_SECRET = r"password|passwd|pwd|token|secret|secret[_.-]?key|secret[_.-]?access[_.-]?key|account[_.-]?key|signature"
_LETTER = "%(?:4[1-9a-f]|5[0-9a]|6[1-9a-f]|7[0-9a])"
_SECRET_PARAMETER = (
    rf"(?i)(?:^|[?&;(, \t-\r])(?:[a-z_.-]*(?:{_SECRET})|sig)[ \t-\r]*=[ \t-\r]*[^&;,) \t-\r]"
    rf"|[?&;(,][^=&;?(, \t-\r]*{_LETTER}"  # a name with an encoded letter, such as pass%77ord: nobody needs it
)
_NO_PASSWORD = (
    "a password is never written in plain text; write spec.credentials.encryptedPassword of the data set instead "
    "(made by `dataflow crypt new`)"
)


def duration_seconds(text: str) -> float:
    """Return a duration like "90s", "5m", "1h30m" or "1.5s" in seconds. Raise ValueError for any other text."""
    match = re.fullmatch(_DURATION, text)
    if match is None or not text:
        raise ValueError(f'a duration is hours, minutes and seconds like "90s", "5m" or "1h30m", not "{text}"')
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def contains_password(text: str) -> bool:
    """Return whether a URL or connection string contains a password in plain text."""
    return any(re.search(pattern, text) for pattern in (_PASSWORD_IN_URL, _SECRET_PARAMETER))


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _first_duplicate(ids: tuple[str, ...]) -> int | None:
    seen: set[str] = set()
    for index, name in enumerate(ids):
        if name in seen:
            return index
        seen.add(name)
    return None


# Text

_NO_NUL = Rule("text can't hold the character NUL", lambda text: "\0" not in text, schema={"pattern": r"^[^\x00]*$"})
_NO_NUL_IN_KEY = replace(_NO_NUL, schema={})  # a structural schema can't restrict keys
_NO_PASSWORD_KEY = keys_without(r"(?i)password", _NO_PASSWORD)

Text = Annotated[str, Strict(), _NO_NUL]
Key = Annotated[str, Strict(), _NO_NUL_IN_KEY]
NonEmpty = Annotated[str, StringConstraints(strict=True, min_length=1), _NO_NUL]
Id = Annotated[
    str,
    StringConstraints(strict=True, min_length=1, max_length=253),
    Rule("an id can't begin or end with a blank", lambda text: text == text.strip(), "self == self.trim()"),
    without(f"[{CONTROLS}]", "an id can't hold control characters"),
]
ObjectId = Annotated[
    Id, without("/", "an id has no /: the part before it would be a namespace, which is that of the resource")
]
"""The id of a data set or a job in its namespace."""
InputId = Annotated[
    Id,
    matching(
        "[^/]+|[a-z0-9](?:[-a-z0-9]*[a-z0-9])?/[^/]+",
        "a data set is written as its id, or as namespace/id if it belongs to another namespace",
    ),
]
"""The data set that a job reads."""
Line = Annotated[str, Strict(), without(f"[{CONTROLS}]", "one line of text is wanted, without control characters")]
_NO_SECRET_PARAMETER = (
    "a secret in a URL (password, token, sig, SecretAccessKey) would be stored in plain text; take it out and write "
    "spec.credentials of the data set, or give it to the run as a variable from a Secret (names of parameters have no "
    "letters like %41)"
)
Url = Annotated[
    str,
    StringConstraints(strict=True, max_length=4096),
    _NO_NUL,
    without(
        _PASSWORD_IN_URL,
        "a password in a URL would be stored in plain text; take it out and write "
        "spec.credentials.encryptedPassword (made by `dataflow crypt new`)",
    ),
    without(_SECRET_PARAMETER, _NO_SECRET_PARAMETER),
]
Duration = Annotated[
    str,
    StringConstraints(strict=True, max_length=64),
    matching(_DURATION, 'a duration is hours, minutes and seconds like "90s", "5m" or "1h30m"'),
]
Day = Annotated[
    str,
    Strict(),
    Rule('a date is written like "2013-01-31"', _is_date, "self.getFullYear() > 0", schema={"format": "date"}),
]
Memory = Annotated[
    str,
    StringConstraints(strict=True, max_length=20),
    matching("[1-9][0-9]*[kmgtKMGT]", 'memory is a whole number with k, m, g or t like "512m" or "4g"'),
]
NamespaceName = Annotated[
    str,
    StringConstraints(strict=True, max_length=63),
    matching(
        "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?",
        "the name of a namespace has lower-case letters, digits and -, and begins and ends with no -",
    ),
]

_QUANTITY = r"[0-9]+(?:\.[0-9]+)?(?:m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?"
Quantity = Annotated[
    str,
    BeforeValidator(lambda given: str(given) if type(given) is int and given <= LARGEST_BIGINT else given),
    StringConstraints(strict=True, max_length=40),
    Rule(
        'a quantity is a number like "2", "500m", "1.5" or "4Gi"',
        lambda text: re.fullmatch(_QUANTITY, text) is not None,
        f"type(self) == int ? self >= 0 : self.matches(r'^(?:{_QUANTITY})$')",
        schema={"x-kubernetes-int-or-string": True},
    ),
]
"""A quantity of a resource, as in Kubernetes. A whole number needs no quotes."""

NEVER_NULL = Rule(
    "null is not allowed; leave the field out",
    lambda given: given is not None,
    before=True,
    schema={"nullable": False},
)
"""For an optional choice of words: an API server does not accept null in an enum."""

# Numbers

Flag = Annotated[bool, Strict()]
Priority = Annotated[int, Strict(), Field(ge=-1000, le=1000)]
Count = Annotated[int, Strict(), Field(ge=0, le=LARGEST_INTEGER)]

# Collections

TextMap = Annotated[dict[Key, Text], Field(max_length=1000), _NO_PASSWORD_KEY]
Options = Annotated[
    dict[Key, Url],
    Field(max_length=100),
    replace(keys_without(rf"(?i).*(?:{_SECRET})", _NO_PASSWORD), cel=None),  # too long for an API server's budget
    keys_without(r"(?i).*password", _NO_PASSWORD),  # is asked first; connectors have options like `sfPassword`
]
Env = Annotated[
    dict[Key, Text],
    Field(max_length=1000),
    _NO_PASSWORD_KEY,
    keys_matching(SHELL_NAME, "the name of a variable has only letters, digits and _ and does not begin with a digit"),
]
_UNIQUE = Rule(
    "an id is written twice",
    lambda ids: _first_duplicate(ids) is None,
    detailed=lambda ids: f"{ids[_first_duplicate(ids)]} is written twice",
    at=lambda ids: f"[{_first_duplicate(ids)}]",
    schema={"x-kubernetes-list-type": "set"},
)
Aliases = Annotated[
    dict[Key, InputId],
    Field(max_length=100),
    keys_matching(
        "[A-Za-z0-9][-A-Za-z0-9._]*", "an alias has letters, digits, -, _ and . only, and begins with a letter or digit"
    ),
]
InputIds = Annotated[tuple[InputId, ...], Field(max_length=100), _UNIQUE]
OutputIds = Annotated[tuple[ObjectId, ...], Field(max_length=100), _UNIQUE]
DataIds = Annotated[tuple[Id, ...], Field(min_length=1, max_length=MOST_ITEMS), _UNIQUE]
Arguments = Annotated[tuple[Text, ...], Field(max_length=MOST_ITEMS)]


class InputModel(BaseModel):
    """The base class of all models of user input: frozen, no unknown fields, camel case in YAML."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,  # an error must not write a secret to a log
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    """Rules about several fields. The first broken rule is reported."""

    @model_validator(mode="before")
    @classmethod
    def _check_no_password(cls, written: Any, info: ValidationInfo) -> Any:
        return _NO_PASSWORD_KEY.validate_value(written, info)

    @model_validator(mode="after")
    def _check_rules(self, info: ValidationInfo) -> Self:
        for rule in self.rules:
            rule.validate_value(self, info)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Add the rules to the schema."""
        found = handler(schema)
        definition = handler.resolve_ref_schema(found)
        definition.update(add_to_schema(definition, *cls.rules))
        return found


class Metadata(InputModel):
    """The name and the labels of the resource."""

    name: ObjectId = Field(description="The name of the resource. It is also the id, unless spec.id is written.")
    namespace: Id | None = Field(default=None, description="The Kubernetes namespace of the resource.")
    labels: TextMap | None = Field(default=None, description="Labels to select resources by.")
    annotations: TextMap | None = Field(default=None, description="Annotations of tools and people.")


class SecretKey(InputModel):
    """A value in a Secret of the resource's namespace. Only run pods read it; the operator never does."""

    name: Annotated[
        str,
        StringConstraints(strict=True, max_length=253),
        matching(
            r"[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?",
            "the name of a Secret has lower-case letters, digits, - and ., and begins and ends with a letter or digit",
        ),
    ] = Field(description="The name of the Secret.")
    key: Annotated[
        str,
        StringConstraints(strict=True, max_length=253),
        matching(r"[-._a-zA-Z0-9]+", "a key of a Secret has letters, digits, -, _ and . only"),
    ] = Field(description="The key in the Secret.")
