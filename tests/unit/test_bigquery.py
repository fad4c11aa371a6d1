"""SQL for BigQuery: names, texts, conditions, and statements that a parser of its language accepts."""

from collections.abc import Mapping

import pytest
import sqlglot
from sqlglot import exp

from opendataflow.core.chunks.chunk_bounds import Kind, bounds_of
from opendataflow.core.chunks.chunk_parts import Chunk, part_of_source
from opendataflow.core.databases.attempts import Attempt, Seen
from opendataflow.core.databases.bigquery import BigQuery
from opendataflow.core.databases.destination import Statement
from opendataflow.core.databases.known_databases import find_dialect, find_writer
from opendataflow.errors import InvalidInput
from opendataflow.model.projects.project import Source
from opendataflow.spark.pipeline.storage.bigquery import chunk_condition

BIGQUERY = BigQuery()
SHOP = "bigquery://my-shop/sales"
TABLE = BIGQUERY.table_name(SHOP, "orders")
ATTEMPT = Attempt("or'ders\\", "2013-01\n", "abc", 3)
OWNED = Attempt("or'ders\\", "2013-01\n", "abc", 3, "a/team")
STAGING = BIGQUERY.staging_table(TABLE, ATTEMPT)
COLUMNS = ["id", "select", "it`s"]
DAY = BIGQUERY.condition("day", {"from": "2013-01-01", "to": "2013-01-02", "kind": "date", "nulls": True})


@pytest.mark.parametrize(
    ("url", "table", "name"),
    [
        (SHOP, "orders", "`my-shop`.`sales`.`orders`"),
        (SHOP, "other.orders", "`my-shop`.`other`.`orders`"),
        (SHOP, '"her-shop".other."orders of 2013"', "`her-shop`.`other`.`orders of 2013`"),
        ("bigquery://my-shop", "other.orders", "`my-shop`.`other`.`orders`"),
        ("bigquery://example.com:shop/sales/", "orders", "`example.com:shop`.`sales`.`orders`"),
    ],
)
def test_the_url_completes_the_name_of_a_table(url: str, table: str, name: str) -> None:
    assert isinstance(find_writer(url), BigQuery)
    assert BIGQUERY.table_name(url, table) == name


@pytest.mark.parametrize("url", ["bigquery://my-shop", "bigquery://", "bigquery://my-shop/sales/orders"])
def test_a_table_without_project_or_data_set_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="bigquery://PROJECT/DATASET"):
        BIGQUERY.table_name(url, "orders")


def test_an_invalid_bigquery_url_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"is a JDBC URL, such as .*, or bigquery://PROJECT/DATASET"):
        find_dialect("bigquery:my-shop")


@pytest.mark.parametrize(
    ("kind", "data_id", "condition"),
    [
        ("date", "2013-02", "`c` >= '2013-02-01' AND `c` < '2013-03-01'"),
        ("range", "-5-7", "`c` >= -5 AND `c` < 8"),
        ("list", "it's \\", "`c` = 'it\\'s \\\\'"),
        (
            "hash",
            "3-of-16",
            "MOD(CAST(CONCAT('0x', SUBSTR(TO_HEX(MD5(CAST(`c` AS STRING))), 1, 15)) AS INT64), 16) = 3",
        ),
    ],
)
def test_the_condition_of_a_chunk_is_written_for_bigquery(kind: Kind, data_id: str, condition: str) -> None:
    assert BIGQUERY.condition("c", bounds_of(data_id, kind)) == condition


def rows(known: Mapping[str, object]) -> str | None:
    """The condition for a source whose chunk is planned."""
    source = Source.model_validate({"name": "orders"})
    return chunk_condition(BIGQUERY, source, part_of_source(source, Chunk("x", {"orders": known})), "x")


def test_a_plan_of_another_database_is_taken_by_its_bounds() -> None:
    assert rows({"column": "id", "from": 1, "to": 5, "kind": "integer", "predicate": '"id" >= 1 AND "id" < 5'}) == (
        "`id` >= 1 AND `id` < 5"
    )


def test_a_range_of_texts_in_the_order_of_another_database_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a range of texts in the order of its database"):
        rows({"column": "name", "from": "a", "to": "b", "kind": "text", "predicate": """"name" >= 'a'"""})


def test_texts_and_names_arrive_as_they_are() -> None:
    text, name = 'it\'s "a"\\\n\r`?', "it`s \\"
    (read,) = sqlglot.parse(f"SELECT {BIGQUERY.literal(text)} AS {BIGQUERY.name(name)}", dialect="bigquery")
    assert read is not None
    assert [it.this for it in read.find_all(exp.Literal)] == [text]
    assert len(read.expressions) == 1


@pytest.mark.parametrize(
    "statement",
    [
        BIGQUERY.create_chunk_table(TABLE),
        BIGQUERY.query_columns(TABLE),
        BIGQUERY.record_start(TABLE, ATTEMPT),
        BIGQUERY.query_attempt(TABLE, ATTEMPT),
        BIGQUERY.record_start(TABLE, OWNED),
        BIGQUERY.add_owner_column(TABLE),
        BIGQUERY.hand_over(TABLE, OWNED, "a"),
        BIGQUERY.record_commit(TABLE, ATTEMPT, Seen(3, "it")),
        BIGQUERY.record_commit(TABLE, ATTEMPT, Seen(3, None)),
        BIGQUERY.forget_chunks(TABLE, "it's"),
        BIGQUERY.query_leftovers(TABLE, ATTEMPT),
        BIGQUERY.count_rows(STAGING, DAY),
        BIGQUERY.count_duplicates(STAGING, COLUMNS, null=True),
        BIGQUERY.delete_rows(TABLE, DAY),
        BIGQUERY.delete_rows(TABLE, None),
        BIGQUERY.insert_rows(TABLE, STAGING, COLUMNS, 2),
        BIGQUERY.merge_rows(TABLE, STAGING, COLUMNS, ["id"]),
        BIGQUERY.merge_rows(TABLE, STAGING, COLUMNS, COLUMNS),
        *BIGQUERY.drop_staging(STAGING),
    ],
)
def test_a_statement_is_one_in_its_language_and_has_its_values_in_it(statement: Statement) -> None:
    parsed = sqlglot.parse(statement.sql, dialect="bigquery")
    assert len(parsed) == 1
    assert not isinstance(parsed[0], exp.Command)  # what the parser does not understand
    assert statement.values == ()


def test_an_attempt_with_an_older_fence_changes_nothing_and_a_person_always_does() -> None:
    assert "WHEN MATCHED AND known.fence <= 3 THEN" in BIGQUERY.record_start(TABLE, ATTEMPT).sql
    assert "WHEN MATCHED THEN" in BIGQUERY.record_start(TABLE, Attempt("out", "x", "abc")).sql


def test_an_attempt_changes_only_chunks_of_its_owner_and_those_without_one() -> None:
    mine = "known.owner IS NULL OR known.owner = 'a' OR known.owner"
    begin = BIGQUERY.record_start(TABLE, Attempt("out", "x", "abc", 3, "a/team")).sql
    assert f"WHEN MATCHED AND known.fence <= 3 AND ({mine} = 'a/team') THEN" in begin
    assert f"AND ({mine} LIKE 'a/%') THEN" in BIGQUERY.record_start(TABLE, Attempt("out", "x", "abc", 3, "a")).sql
