"""Chunks of a table, out of where it is to be cut: their ids, bounds and predicates, and the proof that every row is in
exactly one of them. Pure: the cuts come from the database that has the table.

Texts and times are never compared here, since only their database knows its order (its collation, its time zones). A
plan does not need that: neighbours share one boundary, `< b` here and `>= b` there, so whatever order the database has,
a value is on exactly one side of each boundary. That the boundaries rise is asked of the database
(`sources.source.Source.rises`); with it and `problems`, no row is left out and none is in two chunks.
"""

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from opendataflow.core.chunks.chunk_predicates import Kind, Value, Words, predicate_of
from opendataflow.core.chunks.natural_order import natural_key
from opendataflow.model.fields.field_types import Id

By = Literal["range", "date", "list", "hash"]
Nulls = Literal["own", "first", "last"]

MOST_CHUNKS = 10_000
MOST_VALUES = 1_000
_LABEL = 40
_ID: TypeAdapter[str] = TypeAdapter(Id)


@dataclass(frozen=True)
class Column:
    """A column of the table. `nullable`: it may have NULLs, as far as the catalog says."""

    name: str
    kind: Kind
    nullable: bool


@dataclass(frozen=True)
class PlannedChunk:
    """A chunk as it is going to be declared.

    `bounds`: `column`, `predicate`, and of `from` (inside), `to` (outside), `value`, `bucket` and `buckets`, `nulls`
    (true: NULLs belong to it), `rest` (true: all that no other chunk has; by list, all but `values`) those that apply;
    `kind`: what texts in `from`, `to`, `value` and `values` are.
    """

    id: str
    bounds: Mapping[str, Any]

    @property
    def predicate(self) -> str:
        """The condition in the database's SQL."""
        return str(self.bounds["predicate"])

    @property
    def is_rest(self) -> bool:
        """Whether it has what no other chunk has."""
        return bool(self.bounds.get("rest"))

    @property
    def is_null(self) -> bool:
        """Whether it has NULLs only."""
        return self.bounds.keys() <= {"column", "nulls", "predicate"}


@dataclass(frozen=True)
class Draft:
    """What all chunks of one plan have in common."""

    column: Column
    words: Words
    nulls: Nulls = "own"
    rest: bool = False

    def by_range(self, cuts: Sequence[Value]) -> list[PlannedChunk]:
        """Divide at rising `cuts`, one or more. The first and the last chunk are open: they also have what comes later.

        Ids of whole numbers name the first and the last one, as those of chunk sources do; others the boundaries.
        """
        ends = [*pairwise([None, *cuts, None])]
        ids = in_order([_range_id(a, b) for a, b in ends])
        return self._with_nulls([(i, _ends(a, b)) for i, (a, b) in zip(ids, ends, strict=True)])

    def by_date(self, edges: Sequence[str], step: str, zone: str | None) -> list[PlannedChunk]:
        """One chunk from each edge to the next; what lies before and after is the rest."""
        width = {"year": 4, "month": 7, "day": 10, "hour": 13}[step]
        also = {"step": step, **({"zone": zone} if zone else {})}
        ids = in_order([edge[:width].replace(" ", "T") for edge in edges[:-1]])
        made = [(i, {**also, "from": a, "to": b}) for i, (a, b) in zip(ids, pairwise(edges), strict=True)]
        rest = {**also, "from": edges[0], "to": edges[-1], "rest": True}
        return self._with_nulls([*made, *([("rest", rest)] if self.rest else [])])

    def by_list(self, values: Sequence[Value]) -> list[PlannedChunk]:
        """One chunk for each value."""
        ids = _unique([_value_id(str(value)) for value in values])
        made: list[tuple[str, dict[str, Any]]] = [(i, {"value": v}) for i, v in zip(ids, values, strict=True)]
        rest = {"rest": True, "values": list(values)}
        return self._with_nulls([*made, *([("rest", rest)] if self.rest else [])])

    def by_hash(self, buckets: int) -> list[PlannedChunk]:
        """One chunk for each bucket."""
        return self._with_nulls([(f"{n}-of-{buckets}", {"bucket": n, "buckets": buckets}) for n in range(buckets)])

    def _with_nulls(self, made: list[tuple[str, dict[str, Any]]]) -> list[PlannedChunk]:
        """Where NULLs may be: give them to the chunk that is said, else a chunk of their own."""
        if self.column.nullable and self.nulls == "own":
            made = [*made, ("null", {"nulls": True})]
        elif self.column.nullable:
            parts = [bounds for _, bounds in made if not bounds.get("rest")]
            parts[0 if self.nulls == "first" else -1]["nulls"] = True
        ids = _unique([data_id for data_id, _ in made])
        return [self._chunk(data_id, bounds) for data_id, (_, bounds) in zip(ids, made, strict=True)]

    def _chunk(self, data_id: str, bounds: dict[str, Any]) -> PlannedChunk:
        texts = any(isinstance(bounds.get(name), str) for name in ("from", "to", "value")) or "values" in bounds
        bounds = {**bounds, **({"kind": self.column.kind} if texts and self.column.kind != "integer" else {})}
        predicate = predicate_of(bounds, self.words.name(self.column.name), self.words)
        return PlannedChunk(data_id, {"column": self.column.name, **bounds, "predicate": predicate})


def problems(chunks: Sequence[PlannedChunk], *, nullable: bool) -> list[str]:
    """Return a sentence for each gap and each overlap between chunks, by their bounds alone; none where all is well.

    Of ranges it needs no order of values: see above. What lies before the first and after the last chunk is not looked
    at, see `covers_everything`.
    """
    found = [f"two chunks have the id {chunk.id}" for chunk in _twice(chunks, lambda chunk: chunk.id)]
    with_nulls = [chunk for chunk in chunks if chunk.bounds.get("nulls")]
    if len(with_nulls) != (1 if nullable else 0):
        found.append(f"NULLs are in {len(with_nulls)} chunks")
    parts = [chunk for chunk in chunks if not (chunk.is_rest or chunk.is_null)]
    for one, two in pairwise(parts):
        if "value" in one.bounds or "bucket" in one.bounds:
            continue
        if "to" not in one.bounds or one.bounds["to"] != two.bounds.get("from"):
            found.append(f"{two.id} does not begin where {one.id} ends")
    found += [f"{chunk.id} has what another one has" for chunk in _twice(parts, _content)]
    buckets = [chunk.bounds for chunk in parts if "bucket" in chunk.bounds]
    if buckets and {b["bucket"] for b in buckets} != set(range(buckets[0]["buckets"])):
        found.append("there is not a chunk for each bucket")
    if len({tuple(sorted(chunk.bounds.keys() & {"value", "buckets"})) for chunk in parts}) > 1:
        found.append("ranges, values and buckets are mixed")
    return found


def covers_everything(chunks: Sequence[PlannedChunk]) -> bool:
    """Whether a value that comes later has a chunk, whatever it is."""
    parts = [chunk for chunk in chunks if not (chunk.is_rest or chunk.is_null)]
    if any(chunk.is_rest for chunk in chunks) or not parts or "bucket" in parts[0].bounds:
        return bool(parts)
    return not any("value" in chunk.bounds for chunk in parts) and (
        "from" not in parts[0].bounds and "to" not in parts[-1].bounds
    )


def in_order(ids: Sequence[str]) -> list[str]:
    """Return the ids; numbered where their natural order is another one, or two of them are the same."""
    keys = [natural_key(data_id) for data_id in ids]
    if all(one < two for one, two in pairwise(keys)):
        return list(ids)
    width = len(str(len(ids)))
    return [f"{number:0{width}}_{data_id}" for number, data_id in enumerate(ids, 1)]


def _ends(start: Value | None, end: Value | None) -> dict[str, Any]:
    return {name: value for name, value in (("from", start), ("to", end)) if value is not None}


def _twice(chunks: Sequence[PlannedChunk], key: Callable[[PlannedChunk], Hashable]) -> Iterator[PlannedChunk]:
    seen: set[Hashable] = set()
    for chunk in chunks:
        if key(chunk) in seen:
            yield chunk
        seen.add(key(chunk))


def _content(chunk: PlannedChunk) -> tuple[Any, ...]:
    return tuple(chunk.bounds.get(name) for name in ("from", "to", "value", "bucket", "buckets"))


def _range_id(start: Value | None, end: Value | None) -> str:
    if isinstance(start, int) and isinstance(end, int):
        return f"{start}-{end - 1}"
    last = end - 1 if isinstance(end, int) else end
    return "..".join("" if value is None else _label(value) for value in (start, last))


def _label(value: Value) -> str:
    """A value as a part of an id: short, and without what a shell or a path would stumble over."""
    return re.sub(r"[^\w.:+-]", "_", re.sub(r"(?<=\d) (?=\d)", "T", str(value)))[:_LABEL] or "_"


def _value_id(text: str) -> str:
    """The value itself, where it can be an id."""
    try:
        return _ID.validate_python(text)
    except ValidationError:
        return _label(text.strip())


def _unique(ids: Sequence[str]) -> list[str]:
    """The ids; one that is there already gets a number that makes it another one."""
    made: dict[str, None] = {}
    for data_id in ids:
        one, number = data_id, 1
        while one in made:
            number += 1
            one = f"{data_id}~{number}"
        made[one] = None
    return list(made)
