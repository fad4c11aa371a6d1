"""Which rows of a source and of a destination belong to a chunk. Pure.

The stored bounds of the chunk decide. Without stored bounds, the data id is parsed.

A source belongs to the data set that `dataset` names, else to the data set with the source's own name. A destination
uses the bounds of its own data set, else those of a source with the same partitioning column. A pipeline that a person
starts by hand has no stored bounds, unless the person gives a list of chunks.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from opendataflow.core.chunks.chunk_bounds import Kind, bounds_of
from opendataflow.errors import InvalidInput
from opendataflow.model.fields.partitioning import Partitioning
from opendataflow.model.projects.project import DATA_ID, Destination, Pipeline, Source

StoredBounds = Mapping[str, Any]
"""The bounds of a chunk as the database stores them."""
_ROW_FIELDS = {"from", "to", "value", "bucket", "nulls", "rest"}
"""Fields of bounds that select rows. Other fields describe the bounds, or come from the user."""


@dataclass(frozen=True)
class Chunk:
    """The chunk that a run processes. `bounds`: its stored bounds by data set; None if a data set stores none."""

    data_id: str
    bounds: Mapping[str, StoredBounds | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """The rows of a chunk in one table or file.

    `predicate`: the same rows in the SQL of the data set's own database; None if unknown. `column`: None if only the
    predicate is known.
    """

    column: str | None
    bounds: StoredBounds
    predicate: str | None = None


def part_of_source(source: Source, chunk: Chunk) -> Part | None:
    """Return which rows a run reads; None for all rows, or those of the source's own predicate.

    Raise InvalidInput if the bounds are unknown and the data id does not contain them.
    """
    if source.predicate is not None:
        return None
    partitioning, stored = source.partitioning, _stored(source, chunk)
    if partitioning is None and (stored is None or (source.database is None and DATA_ID in source.where)):
        return None
    if stored is None:
        return None if partitioning is None else _part_of_id(chunk.data_id, partitioning)
    column = stored.get("column") if partitioning is None else partitioning.column
    predicate = stored.get("predicate") if column == stored.get("column", column) else None
    if column is None and predicate is None:
        return None
    if predicate is None and not stored.keys() & _ROW_FIELDS:
        raise InvalidInput(
            f"the chunk {chunk.data_id} has a predicate for {stored['column']} only: leave partitioning out"
        )
    return Part(column, _complete(stored, None if partitioning is None else partitioning.type), predicate)


def part_of_destination(pipeline: Pipeline, chunk: Chunk) -> Part | None:
    """Return which rows of the destination's table belong to the chunk; None if its column of data ids identifies them.

    Raise InvalidInput if the data id contains no bounds, or if the stored bounds mean nothing in another database.
    """
    destination = pipeline.destination
    partitioning = destination.partitioning
    if partitioning is None:
        return None
    stored = _stored(destination, chunk) or next(_stored_of_sources(pipeline, partitioning.column, chunk), None)
    if stored is None:
        return _part_of_id(chunk.data_id, partitioning)
    part = Part(partitioning.column, _complete(stored, partitioning.type))
    check_elsewhere(
        part, chunk.data_id, "leave partitioning out: rows then have the data id in a column, which says it"
    )
    return part


def part_of_table(
    dataset: str, data_id: str, stored: StoredBounds | None, partitioning: Mapping[str, str] | None
) -> Part:
    """Return which rows of a data set's own table belong to a chunk. `partitioning`: column and type of the data set.

    Raise InvalidInput if neither the stored bounds nor the data id select rows.
    """
    stored = stored or {}
    chunk = f"chunk {data_id} of {dataset}"
    if not stored.keys() & (_ROW_FIELDS | {"predicate"}):
        if not partitioning:
            raise InvalidInput(f"{chunk} has no bounds, and the data set no partitioning that gives its id a meaning")
        kind = cast("Kind", partitioning["type"])
        return Part(partitioning["column"], _complete(bounds_of(data_id, kind), kind))
    column = stored.get("column") or (partitioning or {}).get("column")
    if column is None or not stored.keys() & _ROW_FIELDS:
        raise InvalidInput(f"{chunk} has bounds that do not name a column and its values, so its rows can't be found")
    declared_kind = cast("Kind | None", (partitioning or {}).get("type"))
    return Part(column, _complete(stored, declared_kind), stored.get("predicate"))


def check_elsewhere(part: Part, data_id: str, remedy: str) -> None:
    """Raise InvalidInput if the bounds have a meaning only in the database for which they were planned."""
    bounds = part.bounds
    if part.column is None or not bounds.keys() & _ROW_FIELDS:
        raise InvalidInput(f"the chunk {data_id} has a predicate of its database, which means nothing here; {remedy}")
    if bounds.get("kind") == "text" and bounds.keys() & {"from", "to"}:
        raise InvalidInput(
            f"the chunk {data_id} is a range of texts in the order of its database, which is another one here; {remedy}"
        )


def check_parts(place: Callable[..., str], pipeline: Pipeline, chunk: Chunk) -> None:
    """Raise InvalidInput for the first source or destination whose rows of the chunk are unknown.

    `place`: returns "project.yml, line N" for a field of the pipeline. `chunk.bounds`: the bounds of all data sets of
    the job.
    """
    for index, source in enumerate(pipeline.sources):
        _check(place("sources", index), source, pipeline, chunk)
    _check(place("destination"), pipeline.destination, pipeline, chunk)


def _check(place: str, end: Source | Destination, pipeline: Pipeline, chunk: Chunk) -> None:
    if end.dataset is not None and end.dataset not in chunk.bounds:
        raise InvalidInput(
            f"{place}: the job has no data set {end.dataset}; it has {', '.join(chunk.bounds)}: write another dataset"
        )
    try:
        if isinstance(end, Destination):
            part_of_destination(pipeline, chunk)
        elif (part := part_of_source(end, chunk)) is not None and end.database is None:
            check_elsewhere(part, chunk.data_id, FILES)
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from None


FILES = "write a predicate for these files, or {data_id} in their path"
"""The remedy if files can't be read by bounds."""


def _stored(end: Source | Destination, chunk: Chunk) -> StoredBounds | None:
    """Return the stored bounds of the chunk; None if they select no rows."""
    stored = chunk.bounds.get(end.dataset or end.name) or {}
    return stored if stored.keys() & (_ROW_FIELDS | {"predicate"}) else None


def _stored_of_sources(pipeline: Pipeline, column: str, chunk: Chunk) -> Iterator[StoredBounds]:
    """Yield the stored bounds of the chunk for each source that is partitioned by `column`."""
    for source in pipeline.sources:
        stored = _stored(source, chunk)
        if stored is not None and (part := part_of_source(source, chunk)) is not None and part.column == column:
            yield stored


def _part_of_id(data_id: str, partitioning: Partitioning) -> Part:
    """Return the rows that a data id selects by itself."""
    return Part(partitioning.column, _complete(bounds_of(data_id, partitioning.type), partitioning.type))


def _fault(bounds: StoredBounds) -> str | None:
    """Return why bounds are meaningless; None if they are valid."""
    values = [*(bounds[name] for name in ("from", "to", "value") if name in bounds), *bounds.get("values", ())]
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | str):
            return f"{value!r} is neither a whole number nor a text"
    numbers = [str(bounds[name]) for name in ("bucket", "buckets") if name in bounds]
    if numbers and not (len(numbers) == 2 and all(map(str.isdecimal, numbers)) and int(numbers[0]) < int(numbers[1])):
        return "a bucket has its number in `bucket`, which is less than their number in `buckets`"
    if bounds.get("rest") and not ({"from", "to"} <= bounds.keys() or bounds.get("values")):
        return "with `rest` they need `from` and `to`, or `values`"
    return None


def _complete(bounds: StoredBounds, kind: Kind | None) -> StoredBounds:
    """Return bounds with the defaults for chunks that no plan made: the kind `date`, and NULLs in the first bucket.

    Raise InvalidInput if the bounds, for example from a list of chunks, are meaningless.
    """
    fault = _fault(bounds)
    if fault is not None:
        raise InvalidInput(f"the bounds of the chunk mean nothing: {fault}")
    if "column" in bounds:
        return bounds
    days = {"kind": "date"} if kind == "date" and "kind" not in bounds else {}
    nulls = {"nulls": True} if int(bounds.get("bucket", -1)) == 0 else {}
    return {**bounds, **days, **nulls}
