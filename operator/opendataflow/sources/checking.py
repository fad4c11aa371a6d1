"""Count the rows of a data set's chunks, in its own table or in a copy of the table.

Each table is read once, in one snapshot. Two tables have two snapshots.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from opendataflow.core.chunks.chunk_parts import Part
from opendataflow.core.chunks.chunk_predicates import predicate_of
from opendataflow.core.chunks.reconciliation import Chunks, Spread, grid_of, spread, spread_by_id
from opendataflow.errors import InvalidInput
from opendataflow.sources.source import Aggregates, Source


@dataclass(frozen=True)
class TableColumn:
    """A table and the column that assigns rows to chunks: by the chunks' bounds, or (`by_id`) by data ids."""

    schema: str | None
    table: str
    column: str
    by_id: bool = False


def measure_spread(source: Source, place: TableColumn, parts: Mapping[str, Part], figures: Aggregates) -> Spread:
    """Return the rows per chunk. `parts`: of the data set's chunks, by id.

    Raises InvalidInput if the bounds do not fit the table, and the errors of the source.
    """
    table = source.find_table(place.schema, place.table, place.column)
    if place.by_id:
        return spread_by_id([*parts], source.groups_by_id(table, figures), place.column)
    grid = grid_of(parts)
    if grid.buckets and not table.hashes:
        raise InvalidInput(f"{place.column} of {table.name} has the type {table.type}, which has no buckets")
    ranks = source.ranks(table, grid.edges)
    rank = dict(zip(grid.edges, ranks, strict=True))
    for name, part in parts.items():
        ends = [rank[part.bounds[end]] for end in ("from", "to") if end in part.bounds]
        if ends != sorted(set(ends)):
            raise InvalidInput(f"chunk {name} ends before it begins, as {table.name} sorts its bounds")
    return spread(Chunks(parts, grid, ranks), source.groups(table, grid, ranks, figures), place.column)


def check_predicates(source: Source, parts: Mapping[str, Part]) -> None:
    """Raise InvalidInput if the predicate of a chunk differs from its bounds."""
    for name, part in parts.items():
        expected = predicate_of(part.bounds, source.dialect.name(str(part.column)), source.dialect)
        if part.predicate not in (None, expected):
            raise InvalidInput(
                f"chunk {name} has the predicate {part.predicate}, and its bounds say {expected}: load it once more"
            )
