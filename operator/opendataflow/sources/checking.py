"""Finds out where the rows of a data set's table are, and where those of the table that they were brought to.

Each table is read once, as it is at one moment; the two moments are not the same. It writes nowhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from opendataflow.core.chunks.chunk_parts import Part
from opendataflow.core.chunks.chunk_predicates import predicate_of
from opendataflow.core.chunks.reconciliation import Chunks, Spread, grid_of, spread, spread_by_id
from opendataflow.errors import InvalidInput
from opendataflow.sources.source import Figured, Source


@dataclass(frozen=True)
class Place:
    """A table, and the column that says which chunk a row is of: by the bounds, or, `by_id`, by the data id in it."""

    schema: str | None
    table: str
    column: str
    by_id: bool = False


def spread_of(source: Source, place: Place, parts: Mapping[str, Part], figures: Figured) -> Spread:
    """Return where the rows of a table are. `parts`: of the data set's chunks, by their ids.

    Raises InvalidInput where the bounds do not fit the table, and as the source does.
    """
    table = source.look(place.schema, place.table, place.column)
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
    """Raise InvalidInput where runs read by another condition than the one that the bounds say."""
    for name, part in parts.items():
        said = predicate_of(part.bounds, source.words.name(str(part.column)), source.words)
        if part.predicate not in (None, said):
            raise InvalidInput(
                f"chunk {name} has the predicate {part.predicate}, and its bounds say {said}: load it once more"
            )
