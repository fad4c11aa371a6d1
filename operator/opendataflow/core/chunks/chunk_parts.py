"""Which rows of a source, and of a destination, are those of the chunk: by the bounds that are remembered of it, else
by what its data id says. Pure.

A source belongs to the data set of the job that `dataset` names, or that has its own name. What is remembered of the
chunk there decides. A destination has bounds of its own data set, or those of a source that is divided by the same
column. By hand nothing is remembered, unless a list of chunks is given.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from opendataflow.core.chunks.chunk_bounds import Kind, bounds_of
from opendataflow.errors import InvalidInput
from opendataflow.model.projects.project import DATA_ID, Destination, Pipeline, ProjectFile, Source

Known = Mapping[str, Any]
_SAYING = {"from", "to", "value", "bucket", "nulls", "rest"}
"""Fields of bounds that say which rows are meant; others are about them, or of the user."""


@dataclass(frozen=True)
class Chunk:
    """The chunk that is done. `bounds`: what is remembered of it, by data set; None where a data set has it without."""

    data_id: str
    bounds: Mapping[str, Known | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """The rows of a chunk in one table or file. `predicate`: the same in the SQL of the data set's own database;
    None where that is not known. Without a `column` there is a predicate only."""

    column: str | None
    bounds: Known
    predicate: str | None = None


def part_of_source(source: Source, chunk: Chunk) -> Part | None:
    """Return which rows are read; None: all, or those that the source's own predicate says. Raises InvalidInput where a
    data id says no bounds."""
    if source.predicate is not None:
        return None
    it, known = source.partitioning, _known(source, chunk)
    if it is None and (known is None or (source.database is None and DATA_ID in source.where)):
        return None
    if known is None:
        return None if it is None else Part(it.column, _complete(bounds_of(chunk.data_id, it.type), it.type))
    column = known.get("column") if it is None else it.column
    predicate = known.get("predicate") if column == known.get("column", column) else None
    if column is None and predicate is None:
        return None
    if predicate is None and not known.keys() & _SAYING:
        raise InvalidInput(
            f"the chunk {chunk.data_id} has a predicate for {known['column']} only: leave partitioning out"
        )
    return Part(column, _complete(known, None if it is None else it.type), predicate)


def part_of_destination(pipeline: Pipeline, chunk: Chunk) -> Part | None:
    """Return which rows of the destination's table are those of the chunk; None where its column of data ids says it.

    Raises InvalidInput where a data id says no bounds, or what is remembered can't be said in another database.
    """
    to = pipeline.destination
    it = to.partitioning
    if it is None:
        return None
    known = _known(to, chunk) or next(_of_sources(pipeline, it.column, chunk), None)
    if known is None:
        return Part(it.column, _complete(bounds_of(chunk.data_id, it.type), it.type))
    part = Part(it.column, _complete(known, it.type))
    check_elsewhere(
        part, chunk.data_id, "leave partitioning out: rows then have the data id in a column, which says it"
    )
    return part


def part_of_table(dataset: str, data_id: str, known: Known | None, partitioning: Mapping[str, str] | None) -> Part:
    """Return which rows of a data set's own table are those of a chunk. `partitioning`: the column and type of the data
    set. Raises InvalidInput where nobody can know."""
    known = known or {}
    of = f"chunk {data_id} of {dataset}"
    if not known.keys() & (_SAYING | {"predicate"}):
        if not partitioning:
            raise InvalidInput(f"{of} has no bounds, and the data set no partitioning that gives its id a meaning")
        kind = cast("Kind", partitioning["type"])
        return Part(partitioning["column"], _complete(bounds_of(data_id, kind), kind))
    column = known.get("column") or (partitioning or {}).get("column")
    if column is None or not known.keys() & _SAYING:
        raise InvalidInput(f"{of} has bounds that do not name a column and its values, so its rows can't be found")
    kind_given = cast("Kind | None", (partitioning or {}).get("type"))
    return Part(column, _complete(known, kind_given), known.get("predicate"))


def check_elsewhere(part: Part, data_id: str, remedy: str) -> None:
    """Raise InvalidInput where only the database that was planned for can say which rows are meant."""
    bounds = part.bounds
    if part.column is None or not bounds.keys() & _SAYING:
        raise InvalidInput(f"the chunk {data_id} has a predicate of its database, which means nothing here; {remedy}")
    if bounds.get("kind") == "text" and bounds.keys() & {"from", "to"}:
        raise InvalidInput(
            f"the chunk {data_id} is a range of texts in the order of its database, which is another one here; {remedy}"
        )


def check_parts(file: ProjectFile, pipeline: Pipeline, chunk: Chunk) -> None:
    """Raise InvalidInput, with its place, for the first source or destination whose rows can't be told in a job.
    `chunk.bounds`: of all data sets of the job."""
    number, _ = file.pipeline(pipeline.slug)
    for index, source in enumerate(pipeline.sources):
        _check(file.place("pipelines", number, "sources", index), source, pipeline, chunk)
    _check(file.place("pipelines", number, "destination"), pipeline.destination, pipeline, chunk)


def _check(place: str, it: Source | Destination, pipeline: Pipeline, chunk: Chunk) -> None:
    if it.dataset is not None and it.dataset not in chunk.bounds:
        raise InvalidInput(
            f"{place}: the job has no data set {it.dataset}; it has {', '.join(chunk.bounds)}: write another dataset"
        )
    try:
        if isinstance(it, Destination):
            part_of_destination(pipeline, chunk)
        elif (part := part_of_source(it, chunk)) is not None and it.database is None:
            check_elsewhere(part, chunk.data_id, FILES)
    except InvalidInput as error:
        raise InvalidInput(f"{place}: {error}") from None


FILES = "write a predicate for these files, or {data_id} in their path"
"""The remedy where files can't be read by bounds."""


def _known(it: Source | Destination, chunk: Chunk) -> Known | None:
    """What is remembered of the chunk; None where it says nothing of rows."""
    known = chunk.bounds.get(it.dataset or it.name) or {}
    return known if known.keys() & (_SAYING | {"predicate"}) else None


def _of_sources(pipeline: Pipeline, column: str, chunk: Chunk) -> Iterator[Known]:
    """What is remembered of the chunk for sources that are divided by a column."""
    for source in pipeline.sources:
        known = _known(source, chunk)
        if known is not None and (part := part_of_source(source, chunk)) is not None and part.column == column:
            yield known


def _wrong(bounds: Known) -> str | None:
    values = [*(bounds[name] for name in ("from", "to", "value") if name in bounds), *bounds.get("values", ())]
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | str):
            return f"{value!r} is neither a whole number nor a text"
    numbers = [str(bounds[name]) for name in ("bucket", "buckets") if name in bounds]
    if numbers and not (len(numbers) == 2 and all(map(str.isdecimal, numbers)) and int(numbers[0]) < int(numbers[1])):
        return "a bucket has its number in `bucket`, which is less than their number in `buckets`"
    if bounds.get("rest") and not ({"from", "to"} <= bounds.keys() or bounds.get("values")):
        return "with `rest` they say what others have, by `from` and `to` or by `values`"
    return None


def _complete(bounds: Known, kind: Kind | None) -> Known:
    """Add what is understood where nobody has planned: days are days, and rows without a value are in the first
    bucket. Raises InvalidInput where a list has bounds that mean nothing."""
    wrong = _wrong(bounds)
    if wrong is not None:
        raise InvalidInput(f"the bounds of the chunk mean nothing: {wrong}")
    if "column" in bounds:
        return bounds
    days = {"kind": "date"} if kind == "date" and "kind" not in bounds else {}
    nulls = {"nulls": True} if int(bounds.get("bucket", -1)) == 0 else {}
    return {**bounds, **days, **nulls}
