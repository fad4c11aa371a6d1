"""Lists of chunks: what may be written, and the sentence with the line for what may not."""

import pytest

from opendataflow.core.chunks.chunk_list import header_warning, parse_chunk_list
from opendataflow.errors import InvalidInput


def listed(text: str) -> list[tuple[int, str, object]]:
    return [(one.line, one.id, one.bounds) for one in parse_chunk_list(text, "list")]


def test_one_id_a_line_is_a_list() -> None:
    assert listed("1\n\n2\n10") == [(1, "1", None), (3, "2", None), (4, "10", None)]


def test_a_header_names_the_bounds_and_they_are_text() -> None:
    assert listed("from,id,to\n1,a,2\n") == [(2, "a", {"from": "1", "to": "2"})]


def test_a_bound_that_is_empty_is_none() -> None:
    assert listed("id,from,to\na,1,\nb,,\n") == [(2, "a", {"from": "1"}), (3, "b", None)]


def test_ids_with_commas_and_quotes_are_quoted_as_csv_does() -> None:
    assert listed('id,from\n"a,""b""",1\n') == [(2, 'a,"b"', {"from": "1"})]


def test_json_lines_keep_the_types_of_bounds() -> None:
    assert listed('{"id": "0-9", "bounds": {"from": 0, "to": 10}}\n{"id": "x"}\n') == [
        (1, "0-9", {"from": 0, "to": 10}),
        (2, "x", None),
    ]


def test_the_mark_that_some_editors_write_and_their_line_ends_are_no_part_of_an_id() -> None:
    assert listed("\ufeffid\r\na\r\n") == [(2, "a", None)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "list: there is no chunk in it"),
        ("id,from\n", "list: there is no chunk in it"),
        ("a\nb\na\n", "list, line 3: a is in line 1 already: keep one"),
        ("a\n b\n", "list, line 2: the id ' b' can't be one: an id can't begin or end with a blank"),
        ("id,from\n,1\n", "list, line 2: the id '' can't be one: String should have at least 1 character"),
        ("a\nb,c\n", "list, line 2: 2 fields, but without a header it is one id a line"),
        ("id,from\na\n", "list, line 2: 1 fields, but the header has 2"),
        ("id,from,from\na,1,2\n", "list, line 1: the column from is there twice"),
        ("id,\na,1\n", "list, line 1: a column has no name"),
        ('id,from\n"a,1\n', "list, line 2: this is no CSV: unexpected end of data"),
        ('{"id": "a"}\n{"id": 5}', 'list, line 2: an object with a text as its id is wanted: {"id": "2013-01"}'),
        ('{"id": "a"}\n[1]', 'list, line 2: an object with a text as its id is wanted: {"id": "2013-01"}'),
        ('{"id": "a"\n', "list, line 1: this is no JSON: Expecting ',' delimiter at column 11"),
        ('{"id": "a", "bound": {}}', "list, line 1: there is bound, but a chunk has an id and bounds only"),
        ('{"id": "a", "bounds": 3}', "list, line 1: bounds are an object with names and values"),
        ('{"id": "a", "bounds": {"x": "\\u0000"}}', "list, line 1: text can't hold the character NUL"),
        ("a\0b", "list, line 1: the id 'a\\x00b' can't be one: an id can't hold control characters"),
    ],
)
def test_the_first_mistake_is_reported_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as error:
        parse_chunk_list(text, "list")
    assert str(error.value) == sentence


def test_the_column_of_the_ids_may_be_named_data_id() -> None:
    [chunk] = parse_chunk_list("from,data_id\n1,a\n", "list")
    assert (chunk.id, chunk.bounds) == ("a", {"from": "1"})


@pytest.mark.parametrize("header", ["dataid", "Chunk", "KEY", "DATA_ID", "chunk,from,to", "id,data_id"])
def test_another_header_is_refused_by_its_name(header: str) -> None:
    with pytest.raises(InvalidInput) as error:
        parse_chunk_list(f"{header}\n2013-01\n", "list")
    assert (
        str(error.value)
        == f"list, line 1: the header is {header.replace(',', ', ')}; one column must be named id or data_id"
    )


@pytest.mark.parametrize(
    ("text", "warns"),
    [("month\n2013-01\n2013-02\n", True), ("monday\ntuesday\n", False), ("monday\n", False), ("1\n2\n", False)],
)
def test_a_first_line_that_looks_like_a_header_is_a_warning(text: str, warns: bool) -> None:
    warning = header_warning(parse_chunk_list(text, "list"))
    assert (warning is not None) == warns
    assert warning is None or warning.startswith("line 1: month counts as a data id")
