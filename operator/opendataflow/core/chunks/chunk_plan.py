"""Plan the chunks of a table: ids, bounds and predicates, and the proof that each row is in exactly one chunk. Pure.

The boundaries come from the database that has the table.

This module never compares texts or times, because only their database knows its order (collation, time zones). A plan
does not need to compare them. Neighbours share one boundary: `< b` for one chunk, `>= b` for the next. So a value is on
exactly one side of each boundary, whatever the order of the database is. The database confirms that the boundaries rise
(`sources.source.Source.is_increasing`). If they rise and `problems` finds none, each row is in exactly one chunk.
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
"""The most characters of one value in an id."""
_ID: TypeAdapter[str] = TypeAdapter(Id)


@dataclass(frozen=True)
class Column:
    """A column of the table. `nullable`: whether the catalog allows NULLs."""

    name: str
    kind: Kind
    nullable: bool


@dataclass(frozen=True)
class PlannedChunk:
    """A chunk of a plan, ready to be declared.

    `bounds` always has `column` and `predicate`. It has those of the following fields that apply: `from` (inclusive),
    `to` (exclusive), `value`, `bucket` and `buckets`, `nulls` (true: NULLs belong to the chunk), `rest` (true: all rows
    of no other chunk; by list, all but `values`), `kind` (of the texts in `from`, `to`, `value` and `values`).
    """

    id: str
    bounds: Mapping[str, Any]

    @property
    def predicate(self) -> str:
        """The condition in the SQL of the database."""
        return str(self.bounds["predicate"])

    @property
    def is_rest(self) -> bool:
        """Whether the chunk has all rows of no other chunk."""
        return bool(self.bounds.get("rest"))

    @property
    def is_null(self) -> bool:
        """Whether the chunk has only rows with NULL."""
        return self.bounds.keys() <= {"column", "nulls", "predicate"}


@dataclass(frozen=True)
class Draft:
    """Makes the chunks of one plan; its fields are common to all of them.

    `nulls`: which chunk gets the rows with NULL: one of its own, the first or the last. `rest`: whether a
    chunk is added for all other values.
    """

    column: Column
    words: Words
    nulls: Nulls = "own"
    rest: bool = False

    def by_range(self, cuts: Sequence[Value]) -> list[PlannedChunk]:
        """Divide at one or more rising `cuts`. The first and the last chunk are open, so that later values fit.

        The id of whole numbers names the first and the last one, as in chunk sources. Other ids name the boundaries.
        """
        ends = [*pairwise([None, *cuts, None])]
        ids = in_order([_range_id(a, b) for a, b in ends])
        return self._with_nulls([(i, _ends(a, b)) for i, (a, b) in zip(ids, ends, strict=True)])

    def by_date(self, edges: Sequence[str], step: str, zone: str | None) -> list[PlannedChunk]:
        """Make one chunk from each edge to the next. Earlier and later values belong to the rest."""
        width = {"year": 4, "month": 7, "day": 10, "hour": 13}[step]
        calendar = {"step": step, **({"zone": zone} if zone else {})}
        ids = in_order([edge[:width].replace(" ", "T") for edge in edges[:-1]])
        made = [(i, {**calendar, "from": a, "to": b}) for i, (a, b) in zip(ids, pairwise(edges), strict=True)]
        rest = {**calendar, "from": edges[0], "to": edges[-1], "rest": True}
        return self._with_nulls([*made, *([("rest", rest)] if self.rest else [])])

    def by_list(self, values: Sequence[Value]) -> list[PlannedChunk]:
        """Make one chunk for each value."""
        ids = _unique([_value_id(str(value)) for value in values])
        made: list[tuple[str, dict[str, Any]]] = [(i, {"value": v}) for i, v in zip(ids, values, strict=True)]
        rest = {"rest": True, "values": list(values)}
        return self._with_nulls([*made, *([("rest", rest)] if self.rest else [])])

    def by_hash(self, buckets: int) -> list[PlannedChunk]:
        """Make one chunk for each bucket."""
        return self._with_nulls([(f"{n}-of-{buckets}", {"bucket": n, "buckets": buckets}) for n in range(buckets)])

    def _with_nulls(self, made: list[tuple[str, dict[str, Any]]]) -> list[PlannedChunk]:
        """Return the chunks, and if the column is nullable, assign the NULLs according to `nulls`."""
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
    """Return a sentence for each gap and each overlap between chunks, from their bounds alone; empty if there is none.

    No values of ranges are compared, see above. Values before the first and after the last chunk are not checked, see
    `covers_everything`.
    """
    found = [f"two chunks have the id {chunk.id}" for chunk in _duplicates(chunks, lambda chunk: chunk.id)]
    with_nulls = [chunk for chunk in chunks if chunk.bounds.get("nulls")]
    if len(with_nulls) != (1 if nullable else 0):
        found.append(f"NULLs are in {len(with_nulls)} chunks")
    parts = [chunk for chunk in chunks if not (chunk.is_rest or chunk.is_null)]
    for one, two in pairwise(parts):
        if "value" in one.bounds or "bucket" in one.bounds:
            continue
        if "to" not in one.bounds or one.bounds["to"] != two.bounds.get("from"):
            found.append(f"{two.id} does not begin where {one.id} ends")
    found += [f"{chunk.id} has what another one has" for chunk in _duplicates(parts, _content)]
    buckets = [chunk.bounds for chunk in parts if "bucket" in chunk.bounds]
    if buckets and {b["bucket"] for b in buckets} != set(range(buckets[0]["buckets"])):
        found.append("there is not a chunk for each bucket")
    if len({tuple(sorted(chunk.bounds.keys() & {"value", "buckets"})) for chunk in parts}) > 1:
        found.append("ranges, values and buckets are mixed")
    return found


def covers_everything(chunks: Sequence[PlannedChunk]) -> bool:
    """Return whether every possible value has a chunk, including values that come later."""
    parts = [chunk for chunk in chunks if not (chunk.is_rest or chunk.is_null)]
    if any(chunk.is_rest for chunk in chunks) or not parts or "bucket" in parts[0].bounds:
        return bool(parts)
    return not any("value" in chunk.bounds for chunk in parts) and (
        "from" not in parts[0].bounds and "to" not in parts[-1].bounds
    )


def in_order(ids: Sequence[str]) -> list[str]:
    """Return the ids. Add a number to each if their natural order differs from the given order, or if ids are equal."""
    keys = [natural_key(data_id) for data_id in ids]
    if all(one < two for one, two in pairwise(keys)):
        return list(ids)
    width = len(str(len(ids)))
    return [f"{number:0{width}}_{data_id}" for number, data_id in enumerate(ids, 1)]


def _ends(start: Value | None, end: Value | None) -> dict[str, Any]:
    return {name: value for name, value in (("from", start), ("to", end)) if value is not None}


def _duplicates(chunks: Sequence[PlannedChunk], key: Callable[[PlannedChunk], Hashable]) -> Iterator[PlannedChunk]:
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
    """Return a value as a part of an id: short, and without characters that are special in shells or paths."""
    return re.sub(r"[^\w.:+-]", "_", re.sub(r"(?<=\d) (?=\d)", "T", str(value)))[:_LABEL] or "_"


def _value_id(text: str) -> str:
    """Return the text as an id: unchanged if it is a valid id, else as a label."""
    try:
        return _ID.validate_python(text)
    except ValidationError:
        return _label(text.strip())


def _unique(ids: Sequence[str]) -> list[str]:
    """Return the ids. An id that occurs again gets a number as suffix."""
    made: dict[str, None] = {}
    for data_id in ids:
        candidate, number = data_id, 1
        while candidate in made:
            number += 1
            candidate = f"{data_id}~{number}"
        made[candidate] = None
    return list(made)
