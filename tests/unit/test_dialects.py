"""SQL for databases: conditions of chunks, and quoting of names and texts."""

import re
from pathlib import Path

import pytest

from opendataflow.core.chunks.chunk_bounds import Kind
from opendataflow.core.chunks.chunk_parts import Chunk, part_of_source
from opendataflow.core.chunks.chunk_predicates import Kind as ColumnKind
from opendataflow.core.databases.attempts import Attempt
from opendataflow.core.databases.dialect import Dialect
from opendataflow.core.databases.known_databases import find_dialect, find_writer
from opendataflow.core.databases.postgres import Postgres
from opendataflow.errors import InvalidInput
from opendataflow.model.projects.project import Source

ATTEMPT = Attempt("out", "0-9", "abc", 3)


@pytest.mark.parametrize(
    ("kind", "data_id", "condition"),
    [
        ("date", "2013-02", """"c" >= DATE '2013-02-01' AND "c" < DATE '2013-03-01'"""),
        ("range", "-5-7", '"c" >= -5 AND "c" < 8'),
        ("range", "..7", '"c" < 8'),
        ("range", "5..", '"c" >= 5'),
        ("range", "null", '"c" IS NULL'),
        ("list", "it's", """"c" = 'it''s'"""),
    ],
)
def test_the_condition_of_a_chunk_is_standard_sql(kind: Kind, data_id: str, condition: str) -> None:
    part = part_of_source(
        Source.model_validate({"name": "s", "partitioning": {"column": "c", "type": kind}}), Chunk(data_id)
    )
    assert part is not None
    assert Dialect().condition("c", part.bounds) == condition


def test_a_name_stays_a_name() -> None:
    assert Dialect().condition('c" OR "d', {"value": "x"}) == """"c"" OR ""d" = 'x'"""


def test_the_data_id_is_a_text_in_a_predicate() -> None:
    assert Dialect().fill_data_id("c = {data_id}", "x' OR 'a' = 'a") == "c = 'x'' OR ''a'' = ''a'"


BREAKOUT = "\\' UNION SELECT password FROM users -- "
"""Ends a literal in databases that read a backslash as an escape."""


@pytest.mark.parametrize("kind", [None, "text", "number", "date", "time", "other"])
@pytest.mark.parametrize("value", [BREAKOUT, "a\\", "a\0b", "a\nb", "\x1a", "1\\' OR 1=1"])
def test_a_database_of_unknown_escapes_gets_no_backslash_and_no_control_character(
    value: str, kind: ColumnKind | None
) -> None:
    for url in ("jdbc:mysql://h/d", "jdbc:oracle:thin:@h", "jdbc:h2:mem:x"):
        with pytest.raises(InvalidInput, match="a backslash or a control character"):
            find_dialect(url).literal(value, kind)


@pytest.mark.parametrize("kind", [None, "text", "number", "date", "time", "other"])
def test_a_literal_of_postgres_and_bigquery_ends_where_it_should(kind: ColumnKind | None) -> None:
    assert Postgres().literal(BREAKOUT, kind) == r"""E'\\'' UNION SELECT password FROM users -- '"""
    assert find_dialect("bigquery://p/d").literal(BREAKOUT, kind) == (
        r"""'\\\' UNION SELECT password FROM users -- '"""
    )


@pytest.mark.parametrize("number", ["1", "-1.50", "+7"])
def test_numbers_have_no_quotes(number: str) -> None:
    assert find_dialect("bigquery://p/d").literal(number, "number") == number
    assert Dialect().literal(number, "number") == number


@pytest.mark.parametrize("predicate", ["c = '{data_id}'", "c = {data_id} OR d LIKE 'x{data_id}%'", 'c = "{data_id}"'])
def test_a_placeholder_inside_of_quotes_is_refused(predicate: str) -> None:
    with pytest.raises(InvalidInput, match="inside of quotes: write it without quotes"):
        Postgres().fill_data_id(predicate, " OR 1=1 --")


def test_a_placeholder_after_a_quoted_text_is_filled() -> None:
    assert Postgres().fill_data_id("a = 'it''s' AND b = {data_id}", "1") == "a = 'it''s' AND b = '1'"


def test_a_database_without_a_known_hash_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no hash that is known here"):
        find_dialect("jdbc:h2:mem:x").condition("c", {"bucket": 1, "buckets": 3})


def test_other_databases_are_read_and_not_written() -> None:
    with pytest.raises(
        InvalidInput, match="jdbc:mysql: can be read here, and not written; written are jdbc:postgresql:, bigquery:"
    ):
        find_writer("jdbc:mysql://host/database")


def test_an_invalid_url_is_refused_without_showing_it() -> None:
    with pytest.raises(InvalidInput, match="is a JDBC URL") as refused:
        find_dialect("postgres://user:secret@host/database")
    assert "secret" not in str(refused.value)


def test_each_attempt_has_a_staging_table_in_the_schema_of_the_table() -> None:
    first = Postgres().staging_table("sales.orders", ATTEMPT)
    other = Postgres().staging_table("sales.orders", Attempt("out", "0-9", "abd", 3))
    assert first != other
    assert first.startswith("sales." + Postgres().staging_prefix(ATTEMPT))
    assert len(first.partition(".")[2]) <= 63


def test_keys_alone_are_merged_without_changing_anything() -> None:
    assert "WHEN MATCHED" not in Postgres().merge_rows("t", "s", ["a", "b"], ["b", "a"]).sql


def test_the_driver_that_maven_is_asked_for_is_that_of_the_image() -> None:
    assert Postgres.driver is not None
    group, name, version = Postgres.driver.package.split(":")
    ivy = (Path(__file__).parents[2] / "images/spark/ivy.xml").read_text()
    assert re.search(rf'org="{group}" name="{name}" rev="{re.escape(version)}"', ivy)
