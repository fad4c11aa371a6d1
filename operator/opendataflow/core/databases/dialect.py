"""Standard SQL, enough to read the rows of a chunk from any database by ranges, dates and lists. Pure.

Text of users enters SQL only through `name` and `literal`, or as SQL that users wrote.
"""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from opendataflow.core.chunks.chunk_predicates import Kind as ColumnKind
from opendataflow.core.chunks.chunk_predicates import Value, predicate_of
from opendataflow.errors import InvalidInput

NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")
"""Texts that SQL reads as exact numbers."""

_AMBIGUOUS = re.compile(r"[\\\x00-\x1f\x7f]")

PLACEHOLDER = "{data_id}"
"""Stands for the data id in a user's condition."""


@dataclass(frozen=True)
class Driver:
    """A JDBC driver or a connector of Spark: its class or format, the name of its jar, its Maven coordinates."""

    name: str
    jar: str
    package: str


def check_placeholders(predicate: str) -> None:
    """Raise InvalidInput if `{data_id}` is inside of quotes in a user's condition: its own quotes would end them."""
    for before in itertools.accumulate(predicate.split(PLACEHOLDER)[:-1]):
        if any(before.count(quote) % 2 for quote in "'\"`"):
            raise InvalidInput(f"the predicate has {PLACEHOLDER} inside of quotes: write it without quotes")


class Dialect:
    """Standard SQL."""

    spark_format: ClassVar[str] = "jdbc"
    """Spark's format for this database."""
    driver: ClassVar[Driver | None] = None
    read_options: ClassVar[dict[str, str]] = {}
    """Spark's options for reading. The project's options override them."""

    def name(self, text: str) -> str:
        """Return a quoted name."""
        return '"' + text.replace('"', '""') + '"'

    def literal(self, value: Value, kind: ColumnKind | None = None) -> str:
        """Return a value as an SQL literal. `kind`: of the column to compare with, if known.

        Raises InvalidInput for a value that some databases would read as the end of the literal.
        """
        if isinstance(value, int):
            return str(value)
        if kind == "number" and NUMBER.fullmatch(value):
            return value
        if _AMBIGUOUS.search(value):
            raise InvalidInput(
                "a value has a backslash or a control character, which databases read differently, and for this one it "
                "is not known how: leave it out of data ids and bounds"
            )
        quoted = "'" + value.replace("'", "''") + "'"
        return {"date": "DATE ", "time": "TIMESTAMP "}.get(kind or "", "") + quoted

    def condition(self, column: str, bounds: Mapping[str, Any]) -> str:
        """Return the condition for the rows of a chunk. Raises InvalidInput if SQL can't express the bounds."""
        return predicate_of(bounds, self.name(column), self)

    def bucket(self, column: str, buckets: int) -> str:  # noqa: ARG002 # for those that can
        """Return the bucket of an expression, a number from 0. NULLs have no bucket. See Postgres."""
        raise InvalidInput(
            "this database has no hash that is known here: take partitioning by range, date or list, or a predicate"
        )

    def select_rows(self, rows: str, condition: str | None) -> str:
        """Return the rows of a chunk for Spark's option `dbtable`. `rows`: a table or a query in brackets."""
        given = f"{rows} given" if rows.startswith("(") else rows
        return f"(SELECT * FROM {given}{f' WHERE {condition}' if condition else ''}) chunk"

    def fill_data_id(self, predicate: str, data_id: str) -> str:
        """Return a user's condition with `{data_id}` replaced by the data id, which is a text with quotes."""
        check_placeholders(predicate)
        return predicate.replace(PLACEHOLDER, self.literal(data_id))

    def table_name(self, url: str, table: str) -> str:  # noqa: ARG002 # for databases whose URL is a part of the name
        """Return the name of a table for statements, from a user's name such as `sales.orders`."""
        return table
