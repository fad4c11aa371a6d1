"""What a data id says of its chunk."""

import pytest

from opendataflow.core.chunks.chunk_bounds import Kind, bounds_of, partition_folder
from opendataflow.errors import InvalidInput
from opendataflow.model.resources.chunk_source import Bounds, ChunkSource


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        ("date", {"dateRange": {"from": "2012-02-01", "to": "2012-03-02", "step": "day"}}),
        ("date", {"dateRange": {"from": "2012-11-01", "to": "2013-03-01", "step": "month"}}),
        ("range", {"range": {"from": -25, "to": 33, "step": 10}}),
        ("hash", {"hash": {"buckets": 3}}),
    ],
)
def test_the_bounds_are_those_of_the_chunk_source_that_made_the_id(kind: Kind, source: Bounds) -> None:
    chunks = list(ChunkSource.model_validate(source).chunks())
    assert len(chunks) > 2
    assert [(data_id, bounds_of(data_id, kind)) for data_id, _ in chunks] == chunks


@pytest.mark.parametrize(
    ("kind", "data_id", "bounds"),
    [
        ("range", "..9", {"to": 10}),
        ("range", "10..", {"from": 10}),
        ("range", "1_..-21", {"to": -20}),
        ("range", "2_-20-4", {"from": -20, "to": 5}),
        ("range", "null", {"nulls": True}),
        ("date", "null", {"nulls": True}),
        ("list", "null", {"value": "null"}),
    ],
)
def test_ids_of_plans_say_open_ends_and_nulls(kind: Kind, data_id: str, bounds: Bounds) -> None:
    assert bounds_of(data_id, kind) == bounds


def test_a_chunk_of_a_list_is_the_rows_of_its_value() -> None:
    assert bounds_of("b.10", "list") == {"value": "b.10"}


@pytest.mark.parametrize(
    ("kind", "data_id"),
    [
        ("date", "2013-02-30"),
        ("date", "2013-W13"),
        ("date", "20130105"),
        ("date", "2013-01-05T00"),
        ("date", "2013"),
        ("date", "9999-12"),  # no day follows it
        ("date", "9999-12-31"),
        ("date", ""),
        ("range", "9-3"),
        ("range", "x"),
        ("range", ".."),
        ("range", "٣-٤"),
        ("hash", "null"),
        ("hash", "4-of-3"),
    ],
)
def test_an_id_of_another_kind_is_refused_with_an_example(kind: Kind, data_id: str) -> None:
    with pytest.raises(
        InvalidInput, match=rf'the data id "{data_id}" contains no bounds: with partitioning by {kind} it is '
    ):
        bounds_of(data_id, kind)


def test_the_folder_of_a_chunk_has_no_slash_of_its_data_id() -> None:
    assert partition_folder("month", "2013-01") == "month=2013-01"
    assert partition_folder("data id", "../a=b:%") == "data id=..%2Fa%3Db%3A%25"
