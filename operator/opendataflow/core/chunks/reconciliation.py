"""Check that each row of a table is in exactly one chunk, and that another table has the same rows. Pure.

A database counts rows in groups. All rows of a group belong to the same chunks: they lie between the same boundaries,
or have the same listed value, or the same bucket. Grouping takes one pass and one look-up per row, regardless of the
number of chunks. This module finds the chunks of each group: one is correct, none or several are an error. Only the
database compares boundaries, as in plans.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context
from typing import Any

from opendataflow.core.chunks.chunk_parts import Part
from opendataflow.core.chunks.chunk_predicates import Value
from opendataflow.errors import InvalidInput

Figures = tuple[Any, ...]
"""Sums and checksums in the requested order. None is the sum of no value."""

_EXACT = Context(prec=150_000, traps=[])
"""Keeps all digits that a database may have. The sum of two opposite infinities is NaN, as in databases."""


@dataclass(frozen=True)
class Grid:
    """The criteria of grouping: boundaries, listed values, and numbers of buckets. Each occurs once."""

    edges: tuple[Value, ...]
    values: tuple[Value, ...]
    buckets: tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """Rows of one table that belong to the same chunks.

    `null`: whether their value is NULL. `segment`: the number of boundaries that are not above them. `place`: the
    position of their value in the listed values, from 1. `numbers`: their bucket for each number of buckets of the
    grid. `low`, `high`: their lowest and highest value.
    """

    null: bool
    segment: int | None
    place: int | None
    numbers: tuple[int | None, ...]
    rows: int
    figures: Figures = ()
    low: str | None = None
    high: str | None = None


@dataclass
class Tally:
    """The number of some rows, and their figures."""

    rows: int = 0
    figures: Figures = ()

    def add(self, rows: int, figures: Figures) -> None:
        """Add the number and the figures of more rows."""
        self.rows += rows
        before = self.figures or (0,) * len(figures)
        self.figures = tuple(_EXACT.add(a or 0, b or 0) for a, b in zip(before, figures, strict=True))


@dataclass(frozen=True)
class Strays:
    """Rows that are not in exactly one chunk. `description`: for people. `chunks`: the chunks that contain them."""

    description: str
    rows: int
    chunks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Spread:
    """The rows of one table by chunk. Rows of several chunks count in each of them, and once in `total`."""

    total: Tally
    chunks: Mapping[str, Tally]
    strays: Sequence[Strays] = ()


@dataclass(frozen=True)
class Difference:
    """A chunk whose rows differ between two tables. `description`: of the difference, for people."""

    chunk: str
    description: str


def grid_of(parts: Mapping[str, Part]) -> Grid:
    """Return the criteria by which the rows have to be grouped. Raise InvalidInput if the parts use several columns."""
    columns = sorted({str(part.column) for part in parts.values()})
    if len(columns) > 1:
        raise InvalidInput(f"the chunks are divided by several columns: {', '.join(columns)}; that proves nothing")
    bounds = [part.bounds for part in parts.values()]
    edges = [one[end] for one in bounds for end in ("from", "to") if end in one]
    values = [value for one in bounds for value in one.get("values", ())]
    values += [one["value"] for one in bounds if "value" in one]
    buckets = [int(one["buckets"]) for one in bounds if "buckets" in one]
    return Grid(tuple(dict.fromkeys(edges)), tuple(dict.fromkeys(values)), tuple(dict.fromkeys(buckets)))


@dataclass
class Chunks:
    """Finds the chunks of a group. `ranks`: the rank of each boundary of the grid in the database's order, from 1."""

    parts: Mapping[str, Part]
    grid: Grid
    ranks: Sequence[int]
    _by: dict[tuple[Any, ...], list[str]] = field(default_factory=lambda: defaultdict(list))
    _rest: list[tuple[str, set[Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Index the chunks by segment, listed value and bucket."""
        rank = dict(zip(self.grid.edges, self.ranks, strict=True))
        last = max(self.ranks, default=0)
        places = {value: place for place, value in enumerate(self.grid.values, 1)}
        for name, part in self.parts.items():
            bounds = part.bounds
            start = rank[bounds["from"]] if "from" in bounds else 0
            span = range(start, rank[bounds["to"]] if "to" in bounds else last + 1)
            if bounds.get("nulls"):
                self._by["null",].append(name)
            if bounds.get("rest"):
                excluded = {("segment", segment) for segment in span} if "from" in bounds else set()
                excluded |= {("place", places[value]) for value in bounds.get("values", ())}
                self._rest.append((name, excluded))
            elif "bucket" in bounds:
                self._by["bucket", int(bounds["buckets"]), int(bounds["bucket"])].append(name)
            elif "value" in bounds:
                self._by["place", places[bounds["value"]]].append(name)
            elif bounds.keys() & {"from", "to"}:
                for segment in span:
                    self._by["segment", segment].append(name)

    def of(self, group: Group) -> tuple[str, ...]:
        """Return the ids of all chunks that contain a group."""
        if group.null:
            return tuple(self._by.get(("null",), ()))
        keys: list[tuple[Any, ...]] = [("segment", group.segment), ("place", group.place)]
        keys += [("bucket", *pair) for pair in zip(self.grid.buckets, group.numbers, strict=True)]
        found = [name for key in keys for name in self._by.get(key, ())]
        return (*found, *(name for name, excluded in self._rest if not excluded & set(keys)))


def spread(chunks: Chunks, groups: Sequence[Group], column: str) -> Spread:
    """Return the rows of a table by chunk. `column`: the partitioning column, for descriptions."""
    found = {name: Tally() for name in chunks.parts}
    total, strays = Tally(), []
    for group in groups:
        names = chunks.of(group)
        total.add(group.rows, group.figures)
        for name in names:
            found[name].add(group.rows, group.figures)
        if len(names) != 1:
            strays.append(Strays(_describe(group, column), group.rows, names))
    return Spread(total, found, strays)


def spread_by_id(ids: Sequence[str], groups: Mapping[str | None, tuple[int, Figures]], column: str) -> Spread:
    """Return the rows by chunk of a table that stores the data id of each row in a column."""
    found = {name: Tally() for name in ids}
    total, strays = Tally(), []
    for data_id, (rows, figures) in groups.items():
        total.add(rows, figures)
        if data_id in found:
            found[str(data_id)].add(rows, figures)
        else:
            strays.append(Strays(f"{column} is {'NULL' if data_id is None else data_id}", rows))
    return Spread(total, found, strays)


def _describe(group: Group, column: str) -> str:
    if group.null:
        return f"{column} is NULL"
    return f"{column} is {group.low}" if group.low == group.high else f"{column} is from {group.low} to {group.high}"


def differences(source: Spread, target: Spread, names: Sequence[str]) -> Iterator[Difference]:
    """Yield the chunks whose rows differ between source and target. `names`: the names of the figures."""
    for chunk, ours in source.chunks.items():
        found = _compare(ours, target.chunks[chunk], names)
        if found:
            yield Difference(chunk, "; ".join(found))


def _compare(ours: Tally, theirs: Tally, names: Sequence[str]) -> list[str]:
    """Return one description for each figure that differs."""
    found = [] if ours.rows == theirs.rows else [f"rows {ours.rows} and {theirs.rows}"]
    for name, one, other in zip(names, _padded(ours, names), _padded(theirs, names), strict=True):
        if (one or 0) != (other or 0) and not (one != one and other != other):  # NaN equals NaN here
            found.append(name if name.startswith("checksum") else f"{name} {one or 0} and {other or 0}")
    return found


def _padded(tally: Tally, names: Sequence[str]) -> Figures:
    return tally.figures or (0,) * len(names)
