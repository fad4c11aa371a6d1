"""What planning and checking ask of a database: the seam for others than Postgres, which is the only one that there is.

Another database needs a class with these methods, a way to it in `opening/source.py`, and the tests of
`tests/sql/test_source_plans.py` with it. It compares values as its own predicates do; nobody else compares them.
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
    """A table and the column that it is to be divided by.

    `name`: quoted, with its schema. `type`: of the column, without a length. `rows`: as the database estimates them.
    `samples`: whether a part of it can be read. `hashes`: whether equal values of the column have one text in every
    session. `lists`: whether its values can be told apart by their texts.
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
class Figured:
    """What is computed beside the number of rows: sums of columns, and a checksum of some columns together, of which
    only the texts count."""

    sums: Sequence[str] = ()
    checksum: Sequence[str] = ()

    @property
    def names(self) -> list[str]:
        """What each is called."""
        checksum = [f"checksum of {', '.join(self.checksum)}"] if self.checksum else []
        return [*(f"sum of {column}" for column in self.sums), *checksum]


class Source(Protocol):
    """A database with users' tables. All answers are of one moment. `share`: of the rows to read, 1 for all.

    Raises InvalidInput, UnknownThing, Refused or Unreachable, each with one sentence.
    """

    @property
    def words(self) -> Words:
        """How it writes predicates."""

    def look(self, schema: str | None, table: str, column: str) -> Table:
        """Find the table and the column."""

    def statistics(self, table: Table) -> Statistics | str:
        """What is known of the column without reading the table; a sentence where nothing, or it is too old."""

    def count_rows(self, table: Table) -> int:
        """How many rows there are."""

    def cuts(self, table: Table, parts: int, share: float) -> Cuts | None:
        """Divide the rows that are read, by sorting them; None where there is no value."""

    def edges(self, table: Table, step: str, zone: str | None, most: int) -> Sequence[str]:
        """Beginnings of years, months, days or hours around all values, and one more than the last; at most `most`."""

    def values(self, table: Table, most: int) -> Sequence[Value]:
        """The values of the column, each once, in order; at most `most`."""

    def rises(self, table: Table, values: Sequence[Value]) -> bool:
        """Whether each of the values is greater than the one before."""

    def unfulfilled(self, table: Table, values: Sequence[tuple[str, Mapping[str, Any]]]) -> Sequence[int]:
        """The places, from 0, of those values, as texts, that do not fulfil the predicate of the bounds beside them."""

    def ranks(self, table: Table, values: Sequence[Value]) -> Sequence[int]:
        """The places of the values in the order of the column, from 1; equal ones have the same."""

    def groups(
        self, table: Table, grid: Grid, ranks: Sequence[int], figures: Figured, share: float = 1
    ) -> Sequence[Group]:
        """Put the rows that are read into groups which the chunks of the grid can't tell apart, in one pass."""

    def groups_by_id(self, table: Table, figures: Figured) -> Mapping[str | None, tuple[int, Figures]]:
        """Put all rows into groups by the column, as text, in one pass over the table."""
