"""What the bounds of a chunk mean, as a condition in the SQL of a database. Pure.

Plans, reads by JDBC and writes by JDBC all ask here, so that one chunk has the same rows for all of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

Kind = Literal["integer", "number", "date", "time", "text", "uuid", "other"]
"""What a column has, as far as comparing goes. UUIDs are in the order of their texts everywhere."""
Value = int | str
"""Whole numbers as such; everything else as the database writes it."""


class Words(Protocol):
    """How a database writes what a predicate consists of."""

    def name(self, text: str) -> str:
        """A name, quoted."""

    def literal(self, value: Value, kind: Kind | None = None) -> str:
        """A value; `kind`: of the column that it is compared with, where that is known."""

    def bucket(self, column: str, buckets: int) -> str:
        """The number of the bucket, from 0, that a value of the expression `column` belongs to; the same in every
        session and version."""


def predicate_of(bounds: Mapping[str, Any], column: str, words: Words) -> str:
    """Return the condition for a column, or any expression, that is written as `column`."""
    inside = " AND ".join(_conditions(bounds, column, words))
    if not bounds.get("nulls"):
        return inside
    return f"({inside} OR {column} IS NULL)" if inside else f"{column} IS NULL"


def _conditions(bounds: Mapping[str, Any], column: str, words: Words) -> Iterator[str]:
    def literal(value: Value) -> str:
        return words.literal(value, bounds.get("kind"))

    if bounds.get("rest"):
        if "from" in bounds:
            yield f"({column} < {literal(bounds['from'])} OR {column} >= {literal(bounds['to'])})"
        else:
            yield f"{column} NOT IN ({', '.join(literal(value) for value in bounds['values'])})"
        return
    if "from" in bounds:
        yield f"{column} >= {literal(bounds['from'])}"
    if "to" in bounds:
        yield f"{column} < {literal(bounds['to'])}"
    if "value" in bounds:
        yield f"{column} = {literal(bounds['value'])}"
    if "bucket" in bounds:
        yield f"{words.bucket(column, int(bounds['buckets']))} = {int(bounds['bucket'])}"
