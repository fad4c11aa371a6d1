"""Plan chunks of a table: where to cut, how many rows each chunk has, whether each row belongs to exactly one chunk.

Planning sends as few queries to the source as possible, and only reads.
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
from opendataflow.sources.source import Aggregates, Source, Table

_SMALL = 1_000_000
"""Number of rows up to which a table is read completely."""

_SAMPLED = 100_000
_SAMPLED_A_CHUNK = 20_000
"""Minimum number of rows to sample. Whole blocks with similar rows are sampled, so enough blocks need many rows."""

_LONGEST = 100_000
"""Maximum length of a chunk's bounds in characters: a run's context has to fit into the object of a pod."""

_MOST_SAMPLED = 20_000_000
"""Maximum number of rows to sample, as they are sorted."""


@dataclass(frozen=True)
class PlanRequest:
    """What to plan. At most one of `chunks` and `rows` (rows per chunk) is set.

    `exact`: compute bounds from all rows. `count`: count the rows of each chunk exactly.
    """

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
    """A plan. `rows`: per chunk, by id. `counted`: the method that found `rows`. `outside`: rows without a chunk.

    `notes`: sentences for people.
    """

    table: str
    column: str
    by: By
    chunks: Sequence[PlannedChunk]
    rows: Mapping[str, int]
    counted: Literal["exact", "sample", "statistics"]
    outside: int
    total: bool
    """Whether every later value will have a chunk."""
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def all_rows(self) -> int:
        """The counted or estimated rows of the table."""
        return sum(self.rows.values()) + self.outside

    @property
    def nulls(self) -> int | None:
        """The rows with NULL, if these have a chunk of their own."""
        return next((self.rows[chunk.id] for chunk in self.chunks if chunk.is_null), None)

    @property
    def skew(self) -> float:
        """The size of the largest chunk divided by the mean, without the chunks for NULLs and the rest."""
        rows = [self.rows[chunk.id] for chunk in self.chunks if not (chunk.is_null or chunk.is_rest)]
        return max(rows) * len(rows) / sum(rows) if sum(rows) else 1.0


def make_plan(source: Source, asked: PlanRequest) -> Plan:
    """Plan chunks of a table. Raises InvalidInput, UnknownThing, Refused or Unreachable with one sentence."""
    table = source.find_table(asked.schema, asked.table, asked.column)
    _check(table, asked)
    return _Planning(source, table, asked).plan()


class _Planning:
    def __init__(self, source: Source, table: Table, asked: PlanRequest) -> None:
        self._source = source
        self._table = table
        self._asked = asked
        self._draft = Draft(table.column, source.dialect, asked.nulls, asked.rest)
        self._notes: list[str] = []
        self._cuts: Cuts | None = None
        self._known: Statistics | None = None
        self._share = self._share_to_read()

    def plan(self) -> Plan:
        chunks = self._draft_chunks()
        self._check_lengths(chunks)
        self._verify(chunks)
        rows, outside, how = self._count_rows(chunks)
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
        """Return the share of rows to read if statistics are not sufficient."""
        if not self._table.samples or self._table.rows <= _SMALL:
            return 1.0
        parts = self._asked.chunks or self._parts(self._table.rows)
        wanted = min(max(_SAMPLED, _SAMPLED_A_CHUNK * parts), _MOST_SAMPLED)
        share = wanted / self._table.rows
        return share if share < 0.5 else 1.0

    def _draft_chunks(self) -> list[PlannedChunk]:
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
                raise self._explain_no_values()
            return self._draft.by_date(edges, asked.step, asked.zone if table.column.kind == "time" else None)
        values = self._source.values(table, MOST_VALUES + 1)
        if len(values) > MOST_VALUES:
            raise Refused(
                f"{table.column.name} has more than {MOST_VALUES} different values: {_suggest_method(table, 'list')}"
            )
        if not values:
            raise self._explain_no_values()
        return self._draft.by_list(values)

    def _by_range(self) -> list[PlannedChunk]:
        wanted, cuts = self._range_cuts()
        name = self._table.column.name
        if cuts is None:
            raise self._explain_no_values()
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
        """Return the number of parts and the cuts: from statistics if these are sufficient, else by reading."""
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

    def _check_lengths(self, chunks: Sequence[PlannedChunk]) -> None:
        longest, size = max(((chunk, len(json.dumps(dict(chunk.bounds)))) for chunk in chunks), key=itemgetter(1))
        if size > _LONGEST:
            raise Refused(
                f"the bounds of chunk {longest.id} have {size} characters and {_LONGEST} are allowed: divide by "
                "another column, or by hash"
            )

    def _verify(self, chunks: Sequence[PlannedChunk]) -> None:
        """Raise DataflowError for an inconsistent plan, caused by this program or by the database's sort order."""
        found = problems(chunks, nullable=self._table.column.nullable)
        starts = [chunk.bounds["from"] for chunk in chunks if "from" in chunk.bounds and not chunk.is_rest]
        if self._asked.by in ("range", "date") and not self._source.is_increasing(self._table, starts):
            found.append("the boundaries do not rise as the database sorts them")
        if found:
            raise DataflowError(f"no plan for {self._table.name}: {found[0]}")

    def _count_rows(
        self, chunks: Sequence[PlannedChunk]
    ) -> tuple[dict[str, int], int, Literal["exact", "sample", "statistics"]]:
        if self._known is not None and self._cuts is not None and not self._asked.count:
            return self._estimate_rows(chunks, self._cuts.shares, self._known.nulls), 0, "statistics"
        share = 1.0 if self._asked.count or self._asked.exact else self._share
        parts = {chunk.id: Part(self._table.column.name, chunk.bounds) for chunk in chunks}
        grid = grid_of(parts)
        of = Chunks(parts, grid, self._source.ranks(self._table, grid.edges))
        groups = self._source.groups(self._table, grid, of.ranks, Aggregates(), share)
        self._verify_ends(of, groups)
        found = spread(of, groups, self._table.column.name)
        outside = sum(stray.rows for stray in found.strays)
        scale = 1.0 if share == 1 or not found.total.rows else self._table.rows / found.total.rows
        rows = {name: round(tally.rows * scale) for name, tally in found.chunks.items()}
        return rows, round(outside * scale), "exact" if share == 1 else "sample"

    def _verify_ends(self, of: Chunks, groups: Sequence[Group]) -> None:
        """Raise DataflowError if the lowest or highest value between two bounds does not match the chunk's predicate.

        If both match, all values between them match.
        """
        ends = [
            (name, end, of.parts[name].bounds)
            for group in groups
            for name in of.of(group)
            for end in (group.low, group.high)
            if end is not None and of.parts[name].bounds.keys() & {"from", "to"}
        ]
        wrong = self._source.find_outside(self._table, [(end, bounds) for _, end, bounds in ends])
        if wrong:
            raise DataflowError(
                f"no plan for {self._table.name}: the predicate of {ends[wrong[0]][0]} does not hold for all rows "
                "between its bounds"
            )

    def _estimate_rows(self, chunks: Sequence[PlannedChunk], shares: Sequence[float], nulls: float) -> dict[str, int]:
        values = round(self._table.rows * (1 - nulls))
        parts = [chunk for chunk in chunks if not chunk.is_null]
        rows = {chunk.id: round(values * share) for chunk, share in zip(parts, shares, strict=True)}
        for chunk in chunks:
            if chunk.bounds.get("nulls"):
                rows[chunk.id] = rows.get(chunk.id, 0) + self._table.rows - values
        return rows

    def _explain_no_values(self) -> Refused:
        if self._source.count_rows(self._table):
            return Refused(
                f"{self._table.column.name} has no value in {self._table.name} to divide it by: take another column"
            )
        return Refused(f"{self._table.name} has no rows: there is nothing to plan by")


def _check(table: Table, asked: PlanRequest) -> None:
    kind, name = table.column.kind, table.column.name
    if asked.by in ("range", "hash") and asked.chunks is None and asked.rows is None:
        raise InvalidInput(f"by {asked.by}, state how many chunks (--chunks) or rows in each (--rows) are wanted")
    if asked.by == "date" and kind not in ("date", "time"):
        raise InvalidInput(f"{name} has the type {table.type}, which is no time: {_suggest_method(table, 'date')}")
    if asked.by == "range" and kind == "other":
        raise InvalidInput(
            f"{name} has the type {table.type}, which can't be divided by range: {_suggest_method(table, 'range')}"
        )
    if asked.by == "list" and not table.lists:
        raise InvalidInput(
            f"{name} has the type {table.type}, whose values can't be compared with texts: "
            f"{_suggest_method(table, 'list')}"
        )
    if asked.by == "hash" and not table.hashes:
        raise InvalidInput(
            f"{name} has the type {table.type}, whose text depends on settings: {_suggest_method(table, 'hash')}"
        )
    if asked.by == "date" and kind == "date" and asked.step == "hour":
        raise InvalidInput(f"{name} has days without hours: take --step day, month or year")


def _suggest_method(table: Table, but: By) -> str:
    """Suggest methods that suit the type of the column."""
    kind = table.column.kind
    fit = {"range": kind != "other", "date": kind in ("date", "time"), "list": table.lists, "hash": table.hashes}
    *others, last = [method for method, fits in fit.items() if fits and method != but] or [""]
    return f"divide it by {', '.join(others)}{' or ' if others else ''}{last}" if last else "take another column"
