"""Proposes chunks of a table: where to cut it, how many rows each chunk has, and whether each row has exactly one.

It decides what is asked of the source, and asks as little as will do; it writes nowhere.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from operator import itemgetter
from typing import Literal

from opendataflow.core.chunks.chunk_parts import Part
from opendataflow.core.chunks.chunk_plan import (
    MOST_CHUNKS,
    MOST_VALUES,
    By,
    Draft,
    Nulls,
    PlannedChunk,
    covers_everything,
    problems,
)
from opendataflow.core.chunks.quantiles import Cuts, Statistics, cuts_of, fine_enough
from opendataflow.core.chunks.reconciliation import Chunks, Group, grid_of, spread
from opendataflow.core.text.explain import counted as counted_text
from opendataflow.errors import DataflowError, InvalidInput, Refused
from opendataflow.sources.source import Figured, Source, Table

_SMALL = 1_000_000
"""Tables with so few rows are read as a whole."""

_SAMPLED = 100_000
_SAMPLED_A_CHUNK = 20_000
"""Rows to sample, at least. Whole blocks are read, and neighbours are alike, so it takes many to have enough blocks."""

_LONGEST = 100_000
"""Characters of the bounds of a chunk, at most: a run's context has to fit into the object of a pod."""

_MOST_SAMPLED = 20_000_000
"""Rows to sample, at most: they are sorted."""


@dataclass(frozen=True)
class Request:
    """What was asked for. Of `chunks` and `rows` (of each chunk) at most one. `exact`: bounds out of all rows;
    `count`: rows of each chunk out of all rows."""

    schema: str | None
    table: str
    column: str
    by: By
    chunks: int | None = None
    rows: int | None = None
    step: str = "day"
    zone: str | None = None
    nulls: Nulls = "own"
    rest: bool = False
    exact: bool = False
    count: bool = False


@dataclass(frozen=True)
class Plan:
    """The proposal. `rows`: of each chunk, by its id; `counted`: how they were found, out of all rows only by `exact`.
    `outside`: rows of no chunk. `notes`: sentences for people."""

    table: str
    column: str
    by: By
    chunks: Sequence[PlannedChunk]
    rows: Mapping[str, int]
    counted: Literal["exact", "sample", "statistics"]
    outside: int
    total: bool
    """Whether a value that comes later has a chunk, whatever it is."""
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def all_rows(self) -> int:
        """The rows of the table, as far as they were counted or estimated."""
        return sum(self.rows.values()) + self.outside

    @property
    def nulls(self) -> int | None:
        """Rows with NULL, where they have a chunk of their own."""
        return next((self.rows[chunk.id] for chunk in self.chunks if chunk.is_null), None)

    @property
    def skew(self) -> float:
        """How many times the mean the largest chunk has, those for NULLs and the rest left aside."""
        rows = [self.rows[chunk.id] for chunk in self.chunks if not (chunk.is_null or chunk.is_rest)]
        return max(rows) * len(rows) / sum(rows) if sum(rows) else 1.0


def plan(source: Source, asked: Request) -> Plan:
    """Propose chunks. Raises InvalidInput, UnknownThing, Refused and Unreachable with one sentence."""
    table = source.look(asked.schema, asked.table, asked.column)
    _check(table, asked)
    return _Planning(source, table, asked).plan()


class _Planning:
    def __init__(self, source: Source, table: Table, asked: Request) -> None:
        self._source = source
        self._table = table
        self._asked = asked
        self._draft = Draft(table.column, source.words, asked.nulls, asked.rest)
        self._notes: list[str] = []
        self._cuts: Cuts | None = None
        self._known: Statistics | None = None
        self._share = self._share_to_read()

    def plan(self) -> Plan:
        chunks = self._chunks()
        self._measure(chunks)
        self._prove(chunks)
        rows, outside, how = self._rows(chunks)
        if not sum(rows.values()) + outside:
            raise Refused(f"{self._table.name} has no rows: there is nothing to plan by")
        return Plan(
            table=self._table.name,
            column=self._table.column.name,
            by=self._asked.by,
            chunks=chunks,
            rows=rows,
            counted=how,
            outside=outside,
            total=covers_everything(chunks),
            notes=self._notes,
        )

    def _share_to_read(self) -> float:
        """The share of rows that has to be read where no statistics help."""
        if not self._table.samples or self._table.rows <= _SMALL:
            return 1.0
        parts = self._asked.chunks or self._parts(self._table.rows)
        wanted = min(max(_SAMPLED, _SAMPLED_A_CHUNK * parts), _MOST_SAMPLED)
        share = wanted / self._table.rows
        return share if share < 0.5 else 1.0

    def _chunks(self) -> list[PlannedChunk]:
        asked, table = self._asked, self._table
        if asked.by == "range":
            return self._by_range()
        if asked.by == "hash":
            return self._draft.by_hash(asked.chunks or self._parts(self._total()))
        if asked.by == "date":
            edges = self._source.edges(table, asked.step, asked.zone, MOST_CHUNKS + 2)
            if len(edges) > MOST_CHUNKS + 1:
                raise Refused(
                    f"{table.name} by {asked.step} has more than {MOST_CHUNKS} chunks from its first to its last "
                    "value: take a longer step"
                )
            if not edges:
                raise self._nothing()
            return self._draft.by_date(edges, asked.step, asked.zone if table.column.kind == "time" else None)
        values = self._source.values(table, MOST_VALUES + 1)
        if len(values) > MOST_VALUES:
            raise Refused(
                f"{table.column.name} has more than {MOST_VALUES} different values: {_instead(table, 'list')}"
            )
        if not values:
            raise self._nothing()
        return self._draft.by_list(values)

    def _by_range(self) -> list[PlannedChunk]:
        wanted, cuts = self._range_cuts()
        name = self._table.column.name
        if cuts is None:
            raise self._nothing()
        if cuts.lowest == cuts.highest:
            raise Refused(
                f"{name} has one value only ({cuts.lowest}), which can't divide {self._table.name}: take another column"
            )
        if not cuts.at:
            raise Refused(
                f"all rows of {self._table.name} fit into one chunk: ask for more chunks, or fewer rows in each"
            )
        if len(cuts.at) + 1 < wanted:
            self._notes.append(
                f"{counted_text(wanted, 'chunk')} would need more different values of {name}, so there are "
                f"{len(cuts.at) + 1}: rows of one value stay together"
            )
        self._cuts = cuts
        return self._draft.by_range(cuts.at)

    def _range_cuts(self) -> tuple[int, Cuts | None]:
        """How many parts were wanted, and the cuts: from statistics where these will do, else by reading."""
        if not self._asked.exact:
            wanted = self._asked.chunks or self._parts(self._table.rows)
            known = self._source.statistics(self._table)
            if isinstance(known, str):
                self._notes.append(f"{known}; {self._reads()}")
            elif fine_enough(known, wanted) and (cuts := cuts_of(known, wanted)).at:
                self._known = known
                return wanted, cuts
            else:
                self._notes.append(f"the statistics are not fine enough for {wanted} chunks; {self._reads()}")
        share = 1.0 if self._asked.exact else self._share
        wanted = self._asked.chunks or self._parts(self._total() if share == 1 else self._table.rows)
        return wanted, self._source.cuts(self._table, wanted, share) if wanted > 1 else Cuts([], 0, 1)

    def _reads(self) -> str:
        return "all rows were read" if self._share == 1 else f"{self._share:.1%} of the rows were read"

    def _parts(self, rows: int) -> int:
        parts = ceil(rows / (self._asked.rows or rows or 1))
        if parts > MOST_CHUNKS:
            raise Refused(f"this makes {parts} chunks and {MOST_CHUNKS} are allowed: put more rows into each")
        return max(parts, 1)

    def _total(self) -> int:
        return self._source.count_rows(self._table) if self._share == 1 else self._table.rows

    def _measure(self, chunks: Sequence[PlannedChunk]) -> None:
        longest, size = max(((chunk, len(json.dumps(dict(chunk.bounds)))) for chunk in chunks), key=itemgetter(1))
        if size > _LONGEST:
            raise Refused(
                f"the bounds of chunk {longest.id} have {size} characters and {_LONGEST} are allowed: divide by "
                "another column, or by hash"
            )

    def _prove(self, chunks: Sequence[PlannedChunk]) -> None:
        """What is not so is a fault of this program or of the database's order; nobody may work by such a plan."""
        found = problems(chunks, nullable=self._table.column.nullable)
        starts = [chunk.bounds["from"] for chunk in chunks if "from" in chunk.bounds and not chunk.is_rest]
        if self._asked.by in ("range", "date") and not self._source.rises(self._table, starts):
            found.append("the boundaries do not rise as the database sorts them")
        if found:
            raise DataflowError(f"no plan for {self._table.name}: {found[0]}")

    def _rows(
        self, chunks: Sequence[PlannedChunk]
    ) -> tuple[dict[str, int], int, Literal["exact", "sample", "statistics"]]:
        if self._known is not None and self._cuts is not None and not self._asked.count:
            return self._estimated(chunks, self._cuts.shares, self._known.nulls), 0, "statistics"
        share = 1.0 if self._asked.count or self._asked.exact else self._share
        parts = {chunk.id: Part(self._table.column.name, chunk.bounds) for chunk in chunks}
        grid = grid_of(parts)
        of = Chunks(parts, grid, self._source.ranks(self._table, grid.edges))
        groups = self._source.groups(self._table, grid, of.ranks, Figured(), share)
        self._prove_ends(of, groups)
        found = spread(of, groups, self._table.column.name)
        outside = sum(stray.rows for stray in found.strays)
        scale = 1.0 if share == 1 or not found.total.rows else self._table.rows / found.total.rows
        rows = {name: round(tally.rows * scale) for name, tally in found.chunks.items()}
        return rows, round(outside * scale), "exact" if share == 1 else "sample"

    def _prove_ends(self, of: Chunks, groups: Sequence[Group]) -> None:
        """The lowest and the highest value that were found between two boundaries have to fulfil the predicate of their
        chunk, as all values between them do then."""
        ends = [
            (name, end, of.parts[name].bounds)
            for group in groups
            for name in of.of(group)
            for end in (group.low, group.high)
            if end is not None and of.parts[name].bounds.keys() & {"from", "to"}
        ]
        wrong = self._source.unfulfilled(self._table, [(end, bounds) for _, end, bounds in ends])
        if wrong:
            raise DataflowError(
                f"no plan for {self._table.name}: the predicate of {ends[wrong[0]][0]} does not hold for all rows "
                "between its bounds"
            )

    def _estimated(self, chunks: Sequence[PlannedChunk], shares: Sequence[float], nulls: float) -> dict[str, int]:
        values = round(self._table.rows * (1 - nulls))
        parts = [chunk for chunk in chunks if not chunk.is_null]
        rows = {chunk.id: round(values * share) for chunk, share in zip(parts, shares, strict=True)}
        for chunk in chunks:
            if chunk.bounds.get("nulls"):
                rows[chunk.id] = rows.get(chunk.id, 0) + self._table.rows - values
        return rows

    def _nothing(self) -> Refused:
        if self._source.count_rows(self._table):
            return Refused(
                f"{self._table.column.name} has no value in {self._table.name} to divide it by: take another column"
            )
        return Refused(f"{self._table.name} has no rows: there is nothing to plan by")


def _check(table: Table, asked: Request) -> None:
    kind, name = table.column.kind, table.column.name
    if asked.by in ("range", "hash") and asked.chunks is None and asked.rows is None:
        raise InvalidInput(
            f"by {asked.by} it has to be said how many chunks (--chunks) or rows in each (--rows) are wanted"
        )
    if asked.by == "date" and kind not in ("date", "time"):
        raise InvalidInput(f"{name} has the type {table.type}, which is no time: {_instead(table, 'date')}")
    if asked.by == "range" and kind == "other":
        raise InvalidInput(
            f"{name} has the type {table.type}, which can't be divided by range: {_instead(table, 'range')}"
        )
    if asked.by == "list" and not table.lists:
        raise InvalidInput(
            f"{name} has the type {table.type}, whose values can't be compared with texts: {_instead(table, 'list')}"
        )
    if asked.by == "hash" and not table.hashes:
        raise InvalidInput(
            f"{name} has the type {table.type}, whose text depends on settings: {_instead(table, 'hash')}"
        )
    if asked.by == "date" and kind == "date" and asked.step == "hour":
        raise InvalidInput(f"{name} has days without hours: take --step day, month or year")


def _instead(table: Table, but: By) -> str:
    """What can be done with a column of this type."""
    kind = table.column.kind
    fit = {"range": kind != "other", "date": kind in ("date", "time"), "list": table.lists, "hash": table.hashes}
    *others, last = [method for method, fits in fit.items() if fits and method != but] or [""]
    return f"divide it by {', '.join(others)}{' or ' if others else ''}{last}" if last else "take another column"
