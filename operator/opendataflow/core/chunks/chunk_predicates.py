"""Render the bounds of a chunk as a condition in the SQL of a database. Pure.

Plans, reads by JDBC and writes by JDBC all use this module. So a chunk has the same rows for all of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

Kind = Literal["integer", "number", "date", "time", "text", "uuid", "other"]
"""How values of a column are compared. Every database sorts UUIDs like their texts."""
Value = int | str
"""A whole number, or the text form that the database uses for any other value."""


class Words(Protocol):
    """The SQL spelling of the parts of a predicate in one database."""

    def name(self, text: str) -> str:
        """Return a quoted name."""

    def literal(self, value: Value, kind: Kind | None = None) -> str:
        """Return a literal. `kind`: of the column with which the value is compared, if known."""

    def bucket(self, column: str, buckets: int) -> str:
        """Return an expression for the bucket, from 0, of a value of the expression `column`.

        The result is the same in every session and version of the database.
        """


def predicate_of(bounds: Mapping[str, Any], column: str, words: Words) -> str:
    """Return the condition. `column`: a quoted column, or any other SQL expression."""
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
