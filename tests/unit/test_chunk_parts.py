"""Which rows of sources and destinations are of a chunk: by what is remembered of it, else by its id."""

from functools import partial
from typing import Any

import pytest

from opendataflow.core.chunks.chunk_parts import Chunk, check_parts, part_of_destination, part_of_source, part_of_table
from opendataflow.core.databases.postgres import Postgres
from opendataflow.errors import InvalidInput
from opendataflow.model.projects.project import Pipeline, ProjectFile, Source, parse_project

BY_ID = {"column": "id", "type": "range"}
TABLE = {"database": {"url": "jdbc:postgresql://h/d"}, "table": "orders"}
PLANNED: dict[str, Any] = {"column": "id", "to": -20, "predicate": '"id" < -20'}


def source(**fields: Any) -> Source:
    return Source.model_validate({"name": "orders", **fields})


def pipeline(*sources: Source, **destination: Any) -> Pipeline:
    return Pipeline.model_validate(
        {
            "slug": "p",
            "sources": [it.model_dump(by_alias=True, exclude_unset=True) for it in sources],
            "transformations": ["t"],
            "destination": {"name": "out", **TABLE, **destination},
        }
    )


@pytest.mark.parametrize(
    ("written", "bounds", "column", "condition", "predicate"),
    [
        ({**TABLE}, PLANNED, "id", '"id" < -20', '"id" < -20'),
        ({**TABLE, "partitioning": BY_ID}, PLANNED, "id", '"id" < -20', '"id" < -20'),
        ({**TABLE, "partitioning": {**BY_ID, "column": "number"}}, PLANNED, "number", '"number" < -20', None),
        ({"partitioning": BY_ID}, {"from": 5, "to": 8}, "id", '"id" >= 5 AND "id" < 8', None),
        ({"partitioning": BY_ID}, None, "id", '"id" >= 1 AND "id" < 4', None),
        ({"partitioning": BY_ID}, {"owner": "me"}, "id", '"id" >= 1 AND "id" < 4', None),
    ],
    ids=["planned", "planned by the column", "another name", "of a chunk source", "unknown", "nothing of rows"],
)
def test_what_is_remembered_of_a_chunk_says_its_rows_else_its_id(
    written: dict[str, Any], bounds: dict[str, Any] | None, column: str, condition: str, predicate: str | None
) -> None:
    part = part_of_source(source(**written), Chunk("1-3", {"orders": bounds}))
    assert part is not None
    assert (part.column, part.predicate) == (column, predicate)
    assert Postgres().condition(column, part.bounds) == condition


@pytest.mark.parametrize(
    "written",
    [{}, {"predicate": "id = {data_id}", **TABLE}, {"dataset": "other", **TABLE}, {"path": "sources/{data_id}.csv"}],
    ids=["whole", "a predicate of its own", "another data set", "a file for each chunk"],
)
def test_other_sources_are_not_restricted_by_bounds(written: dict[str, Any]) -> None:
    bounds = {"from": 1} if not written else PLANNED
    assert part_of_source(source(**written), Chunk("x", {"orders": bounds})) is None


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        ({"from": 1.5}, "1.5 is neither a whole number nor a text"),
        ({"bucket": "3"}, "a bucket has its number in `bucket`"),
        ({"bucket": 3, "buckets": 3}, "a bucket has its number in `bucket`"),
        ({"rest": True}, "with `rest` they need"),
        ({"column": "number", "predicate": "number = 1"}, "the chunk x has a predicate for number only: leave part"),
    ],
)
def test_bounds_of_lists_that_mean_nothing_are_reported(bounds: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        part_of_source(source(**TABLE, partitioning=BY_ID), Chunk("x", {"orders": bounds}))
    assert sentence in str(raised.value)


def test_only_what_nobody_has_planned_has_nulls_in_its_first_bucket() -> None:
    by_hash = source(partitioning={"column": "id", "type": "hash"})
    parts = [part_of_source(by_hash, Chunk(f"{bucket}-of-2")) for bucket in range(2)]
    parts.append(part_of_source(by_hash, Chunk("x", {"orders": {"column": "id", "bucket": 0, "buckets": 2}})))
    assert [part is not None and bool(part.bounds.get("nulls")) for part in parts] == [True, False, False]


def test_a_destination_takes_the_bounds_of_its_own_data_set_or_of_a_source_divided_alike() -> None:
    orders, chunk = source(**TABLE), Chunk("1_..-21", {"orders": PLANNED, "out": {"column": "id", "from": 7}})
    own = part_of_destination(pipeline(orders, partitioning=BY_ID), chunk)
    other = part_of_destination(pipeline(orders, partitioning=BY_ID), Chunk("1_..-21", {"orders": PLANNED}))
    named = part_of_destination(
        pipeline(orders, partitioning={**BY_ID, "column": "number"}, dataset="orders"), Chunk("x", {"orders": PLANNED})
    )
    parts = [part for part in (own, other, named) if part is not None]
    assert [(part.column, part.bounds.get("to")) for part in parts] == [("id", None), ("id", -20), ("number", -20)]
    assert {part.predicate for part in parts} == {None}
    with pytest.raises(InvalidInput, match='the data id "1_b" contains no bounds'):
        part_of_destination(
            pipeline(orders, partitioning={**BY_ID, "column": "day"}), Chunk("1_b", {"orders": PLANNED})
        )


PROJECT = """\
version: 2
name: x
pipelines:
  - slug: p
    sources:
      - {name: orders, partitioning: {column: id, type: range}}
    transformations: [t]
    destination:
      name: out
      database: {url: "jdbc:postgresql://h/d"}
      table: orders
      partitioning: {column: id, type: range}
"""
TEXTS = {"column": "id", "from": "b", "to": "m", "kind": "text", "predicate": "…"}


@pytest.mark.parametrize(
    ("project", "bounds", "sentence"),
    [
        (PROJECT.replace("{name: orders", "{name: orders, dataset: order"), {},
         "project.yml, line 6: the job has no data set order; it has orders, out: write another dataset"),
        (PROJECT, TEXTS, "line 6: the chunk x is a range of texts in the order of its database, which is another one "),
        (PROJECT, {"predicate": "a = 1"}, "line 6: the chunk x has a predicate of its database, which means nothing "),
        (PROJECT.replace("{name: orders", "{name: orders, predicate: id > 0").replace(", partitioning:", "", 1)
         .replace("{column: id, type: range}}", "}", 1).replace("partitioning", "dataset: orders\n      partitioning"),
         TEXTS, "line 9: the chunk x is a range of texts in the order of its database, which is another one here; "),
        (PROJECT, None, 'line 6: the data id "x" contains no bounds'),
    ],
    ids=["no such data set", "texts in files", "a predicate for files", "texts in a destination", "an id of no kind"],
)  # fmt: skip
def test_parts_that_cannot_be_known_are_one_sentence_with_its_line(project: str, bounds: Any, sentence: str) -> None:
    file: ProjectFile = parse_project(project, "project.yml")
    with pytest.raises(InvalidInput) as raised:
        check_parts(
            partial(file.place, "pipelines", 0), file.project.pipelines[0], Chunk("x", {"orders": bounds, "out": None})
        )
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("bounds", "partitioning"),
    [(None, None), ({"predicate": "a = 1"}, None), ({"from": 1}, None)],
)
def test_rows_of_which_nobody_knows_the_chunk_are_reported(bounds: Any, partitioning: Any) -> None:
    with pytest.raises(InvalidInput, match="chunk x of orders has "):
        part_of_table("orders", "x", bounds, partitioning)
