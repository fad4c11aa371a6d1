"""The protocol of a source database for planning and checking. Postgres is the only implementation.

Another database needs a class with these methods, a case in `opening/source.py`, and the tests of
`tests/sql/test_source_plans.py`. Only the database compares values, as its own predicates do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from opendataflow.core.chunks.chunk_plan import Column
from opendataflow.core.chunks.chunk_predicates import Value, Words
from opendataflow.core.chunks.quantiles import Cuts, Statistics
from opendataflow.core.chunks.reconciliation import Figures, Grid, Group


@dataclass(frozen=True)
class Table:
    """A table and the column that divides the table.

    `name`: quoted, with its schema. `type`: of the column, without a length. `rows`: the database's estimate.
    `samples`: the table supports sampling. `hashes`: equal values of the column have the same text in every session.
    `lists`: different values of the column have different texts.
    """

    name: str
    column: Column
    type: str
    rows: int
    samples: bool
    hashes: bool
    lists: bool
    collation: str | None = None


@dataclass(frozen=True)
class Aggregates:
    """Aggregates beside the number of rows: sums of columns, and one checksum of the texts of some columns."""

    sums: Sequence[str] = ()
    checksum: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """The names of the aggregates."""
        checksum = [f"checksum of {', '.join(self.checksum)}"] if self.checksum else []
        return [*(f"sum of {column}" for column in self.sums), *checksum]


class Source(Protocol):
    """A database with users' tables, in one snapshot. `share`: the share of rows to read; 1 means all.

    Methods raise InvalidInput, UnknownThing, Refused or Unreachable with one sentence.
    """

    @property
    def dialect(self) -> Words:
        """The dialect of predicates."""

    def has_table(self, schema: str | None, table: str) -> bool:
        """Return whether a table or view exists."""

    def find_table(self, schema: str | None, table: str, column: str) -> Table:
        """Find the table and the column."""

    def statistics(self, table: Table) -> Statistics | str:
        """Return statistics of the column without reading the table, or a sentence why they are missing or old."""

    def count_rows(self, table: Table) -> int:
        """Return the number of rows."""

    def cuts(self, table: Table, parts: int, share: float) -> Cuts | None:
        """Divide rows into parts of equal size by sorting them. Return None if there is no value."""

    def edges(self, table: Table, step: str, zone: str | None, most: int) -> Sequence[str]:
        """Return the starts of years, months, days or hours around all values, and one later start; at most `most`."""

    def values(self, table: Table, most: int) -> Sequence[Value]:
        """Return the distinct values of the column in order, at most `most`."""

    def is_increasing(self, table: Table, values: Sequence[Value]) -> bool:
        """Return whether each value is greater than the one before."""

    def find_outside(self, table: Table, values: Sequence[tuple[str, Mapping[str, Any]]]) -> Sequence[int]:
        """Return the indices of values that do not match the predicate of their bounds. `values`: texts and bounds."""

    def ranks(self, table: Table, values: Sequence[Value]) -> Sequence[int]:
        """Return the ranks of the values in the order of the column, from 1. Equal values have equal ranks."""

    def groups(
        self, table: Table, grid: Grid, ranks: Sequence[int], figures: Aggregates, share: float = 1
    ) -> Sequence[Group]:
        """Group rows in one scan, so that all rows of a group belong to the same chunks of the grid."""

    def groups_by_id(self, table: Table, figures: Aggregates) -> Mapping[str | None, tuple[int, Figures]]:
        """Group all rows by the text of the column, in one scan."""
