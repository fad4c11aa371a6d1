"""Plans of real tables: every row in exactly one chunk, by the predicates themselves, and what can't be planned."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opendataflow.core.chunks.chunk_parts import Part, part_of_table
from opendataflow.core.chunks.natural_order import natural_key
from opendataflow.core.chunks.reconciliation import Spread, differences
from opendataflow.errors import DataflowError, InvalidInput, NoAccess, Refused, UnknownThing, Unreachable
from opendataflow.sources.checking import TableColumn, check_predicates, measure_spread
from opendataflow.sources.planning import Plan, PlanRequest, make_plan
from opendataflow.sources.postgres import PostgresSource, parse_address
from opendataflow.sources.source import Aggregates
from tests.sql.conftest import Connection, open_connection

ROWS = 5000

TABLES = f"""
CREATE SCHEMA shop;
CREATE TABLE shop.skewed WITH (autovacuum_enabled = false) AS
    SELECT i AS id, CASE WHEN i % 9 = 0 THEN NULL WHEN i % 2 = 0 THEN 7 ELSE (i * 7919) % 1000 - 500 END AS amount,
           (i % 100)::numeric / 3 - 10 AS price, i::smallint AS small,
           CASE i % 7 WHEN 0 THEN 'NaN' WHEN 1 THEN 'Infinity' WHEN 2 THEN '-Infinity' ELSE random() END::float8
               AS ratio,
           (ARRAY['it''s', 'a\\b', E'new\\nline', 'Zoë', 'zoe', '', ' ', 'ß', '%s', NULL])[1 + i % 10] AS word,
           md5(i::text) COLLATE "C" AS bytes, md5(i::text) AS "odd ""name", (i % 50)::text::char(4) AS padded,
           (ARRAY['-infinity', 'infinity', NULL])[1 + i % 500]::timestamptz AS rare,
           timestamptz '2013-10-26 20:00+00' + i * interval '1 minute' AS at, date '2013-01-28' + i % 40 AS day,
           timestamp '1999-12-31 23:59:59.999999' + i * interval '1 second' AS local,
           i % 3 = 0 AS yes, md5(i::text)::uuid AS uid, ARRAY[i % 3] AS several
    FROM generate_series(1, {ROWS}) i;
UPDATE shop.skewed SET rare = at WHERE rare IS NULL AND id % 500 > 2;
ALTER TABLE shop.skewed ALTER id SET NOT NULL;
CREATE DOMAIN shop.positive AS bigint CHECK (value > 0);
CREATE TABLE shop.domains WITH (autovacuum_enabled = false) AS
    SELECT i::shop.positive AS id FROM generate_series(1, {ROWS}) i;
CREATE VIEW shop.seen AS SELECT * FROM shop.skewed;
CREATE TABLE shop.parted (id int) PARTITION BY RANGE (id);
CREATE TABLE shop.parted_1 PARTITION OF shop.parted FOR VALUES FROM (0) TO (1000);
CREATE TABLE shop.parted_2 PARTITION OF shop.parted DEFAULT;
INSERT INTO shop.parted SELECT i FROM generate_series(1, {ROWS}) i;
CREATE TABLE shop.empty (id int, day date);
CREATE TABLE shop.one WITH (autovacuum_enabled = false) AS
    SELECT 1 AS id, NULL::int AS nothing FROM generate_series(1, 10);
CREATE TABLE shop.long WITH (autovacuum_enabled = false) AS
    SELECT repeat('x', 100000) || i AS text FROM generate_series(1, 2) i;
CREATE TABLE shop.far WITH (autovacuum_enabled = false) AS
    SELECT d::date AS day FROM unnest(ARRAY['0044-03-15 BC', '2013-01-01']) AS d;
"""


@pytest.fixture(scope="module")
def tables(lasting_dsn: str) -> Iterator[Connection]:
    """A connection to a database with tables of all kinds; nobody changes them."""
    with open_connection(lasting_dsn) as connection:
        connection.execute(TABLES)
        yield connection


@pytest.fixture(scope="module")
def address(tables: Connection, lasting_dsn: str) -> dict[str, str]:
    """How to connect to it."""
    assert tables
    return parse_address(lasting_dsn)


def proposed(address: dict[str, str], asked: PlanRequest) -> Plan:
    with PostgresSource.open(address) as source:
        return make_plan(source, asked)


def skewed(column: str, by: Any, **more: Any) -> PlanRequest:
    return PlanRequest("shop", "skewed", column, by, **more)


def rows_of_each(db: Connection, found: Plan) -> tuple[dict[str, int], int]:
    """Count with the predicates alone: the rows of each chunk, and those that are not in exactly one."""
    times = " + ".join(f"coalesce(({chunk.predicate}), false)::int" for chunk in found.chunks)
    counts = ", ".join(f"count(*) FILTER (WHERE {chunk.predicate})" for chunk in found.chunks)
    query = f"SELECT count(*) FILTER (WHERE {times} <> 1) AS bad, ARRAY[{counts}] AS rows FROM {found.table}"
    row = db.execute(query.encode()).fetchone()
    assert row is not None
    return dict(zip((chunk.id for chunk in found.chunks), row["rows"], strict=True)), row["bad"]


def checked(address: dict[str, str], found: Plan, asked: PlanRequest) -> Spread:
    """Where a check finds all rows."""
    parts = {chunk.id: part_of_table("it", chunk.id, chunk.bounds, None) for chunk in found.chunks}
    with PostgresSource.open(address) as source:
        check_predicates(source, parts)
        return measure_spread(source, TableColumn(asked.schema, asked.table, asked.column), parts, Aggregates())


RANGES = [
    "id",
    "amount",
    "price",
    "small",
    "ratio",
    "word",
    "bytes",
    'odd "name',
    "padded",
    "rare",
    "at",
    "day",
    "local",
    "uid",
]


def test_a_value_beyond_the_boundaries_of_its_chunk_is_found(address: dict[str, str]) -> None:
    bounds = {"from": "2013-01-28", "to": "2013-02-01", "kind": "date"}
    with PostgresSource.open(address) as source:
        table = source.find_table("shop", "skewed", "day")
        days = [(day, bounds) for day in ("2013-01-28", "2013-01-31", "2013-02-01", "0044-03-15 BC")]
        assert source.find_outside(table, days) == [2, 3]


@pytest.mark.parametrize("nulls", ["own", "first", "last"])
@pytest.mark.parametrize("column", RANGES)
def test_ranges_have_every_row_once(tables: Connection, address: dict[str, str], column: str, nulls: Any) -> None:
    asked = skewed(column, "range", chunks=7, nulls=nulls, count=True)
    found = proposed(address, asked)
    counted, bad = rows_of_each(tables, found)
    seen = checked(address, found, asked)
    assert ({name: tally.rows for name, tally in seen.chunks.items()}, seen.strays) == (counted, [])
    assert bad == 0
    assert counted == found.rows
    assert sum(counted.values()) == found.all_rows == ROWS
    assert found.total
    assert found.counted == "exact"


@pytest.mark.parametrize(
    "asked",
    [
        skewed("at", "date", step="hour", zone="Europe/Berlin"),
        skewed("at", "date", step="day", nulls="first"),
        skewed("at", "date", step="month", zone="America/New_York", rest=True),
        skewed("day", "date", step="month"),
        skewed("day", "date", step="day", nulls="last", rest=True),
        skewed("local", "date", step="year"),
        skewed("rare", "date", step="day", rest=True),
        skewed("word", "list"),
        skewed("word", "list", nulls="last", rest=True),
        skewed("padded", "list"),
        skewed("yes", "list"),
        skewed("price", "list", rest=True),
        *(skewed(column, "hash", chunks=5) for column in ("id", "amount", "price", "word", "padded", "yes", "uid")),
        skewed("word", "hash", chunks=5, nulls="first"),
        skewed("id", "hash", rows=900),
        skewed("id", "range", rows=900, exact=True),
        PlanRequest("shop", "domains", "id", "range", chunks=4),
        PlanRequest("shop", "seen", "id", "range", chunks=4),
        PlanRequest("shop", "parted", "id", "range", chunks=4),
    ],
    ids=str,
)
def test_every_method_has_every_row_once(tables: Connection, address: dict[str, str], asked: PlanRequest) -> None:
    found = proposed(address, replace(asked, count=True))
    counted, bad = rows_of_each(tables, found)
    seen = checked(address, found, asked)
    assert ({name: tally.rows for name, tally in seen.chunks.items()}, seen.strays) == (counted, [])
    assert bad == 0
    assert counted == found.rows
    assert sum(counted.values()) == ROWS
    assert found.outside == 0


def test_predicates_mean_the_same_in_a_session_of_another_zone_and_style(
    tables: Connection, address: dict[str, str]
) -> None:
    found = proposed(address, skewed("at", "date", step="day", zone="Asia/Tokyo", count=True))
    with tables.transaction(force_rollback=True):
        tables.execute("SET LOCAL TimeZone = 'America/New_York'; SET LOCAL DateStyle = 'SQL, DMY'")
        tables.execute("SET LOCAL standard_conforming_strings = off; SET LOCAL escape_string_warning = off")
        assert rows_of_each(tables, found) == (found.rows, 0)
        words = proposed(address, skewed("word", "list", count=True))
        assert rows_of_each(tables, words) == (words.rows, 0)


@pytest.fixture(scope="module")
def by_dictionary(tables: Connection) -> str:
    """A collation that sorts as dictionaries do, and not by bytes."""
    candidates = tables.execute(
        "SELECT format('%I.%I', collnamespace::regnamespace, collname) AS name FROM pg_collation "
        "WHERE collprovider <> 'd' AND collencoding IN (-1, pg_char_to_encoding(getdatabaseencoding())) "
        "AND collisdeterministic ORDER BY collname"
    ).fetchall()
    for row in candidates:
        query = f"SELECT 'a' < 'B' COLLATE {row['name']} AND 'B' < 'c' COLLATE {row['name']} AS found"
        with contextlib.suppress(psycopg.errors.FeatureNotSupported):
            found = tables.execute(query.encode()).fetchone()
            if found and found["found"]:
                return str(row["name"])
    pytest.skip("this Postgres sorts texts by bytes only: DATAFLOW_TEST_DSN can name one with ICU or with locales")


@pytest.mark.parametrize("statistics", [True, False])
def test_texts_are_divided_in_the_order_of_their_collation(
    tables: Connection, address: dict[str, str], by_dictionary: str, statistics: bool
) -> None:
    name = f"sorted_{statistics}".lower()
    tables.execute(
        f"""CREATE TABLE shop.{name} WITH (autovacuum_enabled = false) AS
            SELECT (CASE WHEN i % 2 = 0 THEN upper(letters) ELSE letters END)
            COLLATE {by_dictionary} AS word
            FROM (SELECT i, translate(md5(i::text), '0123456789', 'ghijklmnop') AS letters
                  FROM generate_series(1, 20000) i) l""".encode()
    )
    if statistics:
        tables.execute("SELECT pg_stat_force_next_flush()")
        tables.execute(f"ANALYZE shop.{name}".encode())
    found = proposed(address, PlanRequest("shop", name, "word", "range", chunks=9))
    assert found.counted == ("statistics" if statistics else "exact")
    real, bad = rows_of_each(tables, found)
    assert bad == 0
    seen = checked(address, found, PlanRequest("shop", name, "word", "range"))
    assert ({name: tally.rows for name, tally in seen.chunks.items()}, seen.strays) == (real, [])
    assert all(real[chunk.id] == pytest.approx(20000 / 9, rel=0.2) for chunk in found.chunks if not chunk.is_null)
    cuts = [chunk.bounds["from"] for chunk in found.chunks if "from" in chunk.bounds]
    assert cuts != sorted(cuts)


def test_values_outside_are_counted_and_the_rest_takes_them(address: dict[str, str]) -> None:
    found = proposed(address, skewed("rare", "date", step="day", count=True))
    assert found.outside == 20
    assert not found.total
    whole = proposed(address, skewed("rare", "date", step="day", count=True, rest=True))
    assert (whole.outside, whole.rows["rest"], whole.total) == (0, 20, True)


def test_rows_of_no_chunk_and_of_two_are_found_with_their_sums(tables: Connection, address: dict[str, str]) -> None:
    tables.execute(
        """CREATE TABLE shop.stray AS SELECT nullif(i, 9) AS id, i * 0.5 AS price, i * 1.1::float8 AS ratio,
               CASE i % 3 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE 'a,b' END AS word, (i / 5)::text AS data_id
           FROM generate_series(1, 12) i"""
    )
    bounds = {"0": {"to": 4}, "1": {"from": 3, "to": 6}, "2": {"from": 8}}
    parts = {name: Part("id", one) for name, one in bounds.items()}
    figures = Aggregates(("price", "ratio"), ("id", "word"))
    with PostgresSource.open(address) as source:
        found = measure_spread(source, TableColumn("shop", "stray", "id"), parts, figures)
        named = measure_spread(source, TableColumn("shop", "stray", "data_id", by_id=True), parts, figures)
    assert [(one.description, one.rows, one.chunks) for one in found.strays] == [
        ("id is 3", 1, ("0", "1")),
        ("id is from 6 to 7", 2, ()),
        ("id is NULL", 1, ()),
    ]
    assert [(name, tally.rows, *tally.figures[:2]) for name, tally in found.chunks.items()] == [
        ("0", 3, Decimal("3.0"), Decimal("6.6")),
        ("1", 3, Decimal("6.0"), Decimal("13.2")),
        ("2", 4, Decimal("20.5"), Decimal("45.1")),
    ]
    assert [tally.rows for tally in named.chunks.values()] == [4, 5, 3]
    assert found.total == named.total
    tables.execute("UPDATE shop.stray SET word = '' WHERE id = 12")  # a NULL before
    with PostgresSource.open(address) as source:
        changed = measure_spread(source, TableColumn("shop", "stray", "id"), parts, figures)
    assert [one.chunk for one in differences(found, changed, figures.names)] == ["2"]


def test_bounds_that_the_table_sorts_otherwise_are_reported(tables: Connection, address: dict[str, str]) -> None:
    tables.execute("""CREATE TABLE shop.words AS SELECT 'x'::text COLLATE "C" AS word""")
    parts = {"a..B": Part("word", {"from": "a", "to": "B", "kind": "text"}, "word > 'a'")}
    with PostgresSource.open(address) as source:
        with pytest.raises(
            InvalidInput, match=r'chunk a\.\.B ends before it begins, as "shop"\."words" sorts its bounds'
        ):
            measure_spread(source, TableColumn("shop", "words", "word"), parts, Aggregates())
        with pytest.raises(InvalidInput, match="has the predicate word > 'a', and its bounds say"):
            check_predicates(source, parts)


def test_days_begin_where_they_were_asked_to_also_when_clocks_change(address: dict[str, str]) -> None:
    found = proposed(address, skewed("at", "date", step="day", zone="Europe/Berlin", count=True))
    assert [(chunk.id, chunk.bounds["from"]) for chunk in found.chunks[:2]] == [
        ("2013-10-26", "2013-10-26 00:00:00+02"),
        ("2013-10-27", "2013-10-27 00:00:00+02"),
    ]
    assert found.rows["2013-10-27"] == 25 * 60


def test_rows_are_divided_equally_and_the_ids_of_numbers_say_so(address: dict[str, str]) -> None:
    found = proposed(address, skewed("id", "range", chunks=4, exact=True))
    assert [chunk.id for chunk in found.chunks] == ["..1250", "1251-2500", "2501-3750", "3751.."]
    assert found.skew == 1
    assert found.nulls is None


def test_where_values_are_few_there_are_fewer_chunks_and_a_note(address: dict[str, str]) -> None:
    found = proposed(address, skewed("word", "range", chunks=40))
    assert len(found.chunks) == 10
    assert any("40 chunks would need more different values of word, so there are 9" in note for note in found.notes)


@pytest.mark.parametrize(
    ("asked", "kind", "sentence"),
    [
        (
            PlanRequest("shop", "skewd", "id", "range", chunks=2),
            UnknownThing,
            r"there is no table shop\.skewd in .*\(did you mean skewed\?\)",
        ),
        (PlanRequest(None, "skewed", "id", "range", chunks=2), UnknownThing, "there is no table skewed in "),
        (PlanRequest("no", "skewed", "id", "range", chunks=2), UnknownThing, r"there is no table no\.skewed in "),
        (
            skewed("amuont", "range", chunks=2),
            UnknownThing,
            r'"shop"\."skewed" has no column amuont \(did you mean amount\?\)',
        ),
        (skewed("id", "range"), InvalidInput, r"by range, state how many chunks \(--chunks\) or rows"),
        (
            skewed("yes", "range", chunks=2),
            InvalidInput,
            "yes has the type .* can't be divided by range: divide it by list or hash",
        ),
        (skewed("id", "date"), InvalidInput, "id has the type .*, which is no time"),
        (skewed("day", "date", step="hour"), InvalidInput, "day has days without hours"),
        (skewed("at", "date", zone="Mars/Olympus"), InvalidInput, "knows no time zone Mars/Olympus"),
        (
            skewed("at", "hash", chunks=2),
            InvalidInput,
            "whose text depends on settings: divide it by range, date or list",
        ),
        (skewed("id", "list"), Refused, "id has more than 1000 different values"),
        (skewed("several", "list"), InvalidInput, "values can't be compared with texts: take another column"),
        (skewed("id", "range", rows=9000, exact=True), Refused, "all rows of .* fit into one chunk"),
        (PlanRequest("shop", "empty", "id", "range", chunks=2), Refused, r'"shop"\."empty" has no rows'),
        (PlanRequest("shop", "empty", "id", "hash", chunks=2), Refused, r'"shop"\."empty" has no rows'),
        (PlanRequest("shop", "empty", "day", "date"), Refused, r'"shop"\."empty" has no rows'),
        (
            PlanRequest("shop", "one", "id", "range", chunks=2),
            Refused,
            r"id has one value only \(1\), which can't divide",
        ),
        (
            PlanRequest("shop", "one", "nothing", "range", chunks=2),
            Refused,
            "nothing has no value in .* to divide it by",
        ),
        (PlanRequest("shop", "one", "nothing", "list"), Refused, "nothing has no value in .* to divide it by"),
        (
            PlanRequest("shop", "long", "text", "list"),
            Refused,
            r"have \d{6} characters and 100000 are allowed: divide by",
        ),
        (PlanRequest("shop", "far", "day", "date", step="day"), Refused, "by day has more than 10000 chunks"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_what_can_not_be_planned_is_reported_in_a_sentence(
    address: dict[str, str], asked: PlanRequest, kind: type[DataflowError], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence) as error:
        proposed(address, asked)
    assert type(error.value) is kind
    assert "\n" not in str(error.value)


@pytest.fixture
def stranger(tables: Connection, address: dict[str, str]) -> Iterator[dict[str, str]]:
    """The address with a user who has a password and no rights."""
    tables.execute("DROP ROLE IF EXISTS stranger_of_plans")
    tables.execute(
        "CREATE ROLE stranger_of_plans LOGIN PASSWORD 'sesame'; GRANT USAGE ON SCHEMA shop TO stranger_of_plans"
    )
    yield {**address, "user": "stranger_of_plans", "password": "sesame"}
    tables.execute("DROP OWNED BY stranger_of_plans; DROP ROLE stranger_of_plans")


def test_a_table_that_may_not_be_read_is_reported_with_the_remedy(stranger: dict[str, str]) -> None:
    with pytest.raises(Refused, match=r"may not read shop\.skewed in .*: GRANT SELECT on it"):
        proposed(stranger, skewed("id", "range", chunks=2))


def test_a_wrong_password_is_reported_and_not_shown(stranger: dict[str, str]) -> None:
    with pytest.raises(NoAccess, match=r"the source database at .* can't be reached: .*authentication failed") as error:
        proposed({**stranger, "password": "open-barley"}, skewed("id", "range", chunks=2))
    assert "open-barley" not in str(error.value)


def test_a_server_that_is_not_there_is_reported(address: dict[str, str]) -> None:
    with pytest.raises(Unreachable, match=r"the source database at 127\.0\.0\.1:1/") as error:
        proposed({**address, "host": "127.0.0.1", "port": "1"}, skewed("id", "range", chunks=2))
    assert error.value.retryable


def test_nothing_can_be_written_to_a_source(address: dict[str, str]) -> None:
    with PostgresSource.open(address) as source, pytest.raises(DataflowError, match="read-only transaction"):
        source._rows("CREATE TABLE shop.mine (id int)")


@pytest.fixture(scope="module")
def million(tables: Connection) -> str:
    """A table of a million rows with statistics."""
    tables.execute("SELECT setseed(0.5)")
    tables.execute(
        """CREATE TABLE shop.million WITH (autovacuum_enabled = false) AS
            SELECT i AS id, (random() ^ 3 * 1e9)::bigint AS skewed, md5(i::text) AS word,
                  CASE WHEN i % 5 > 0 THEN i % 97 END AS common FROM generate_series(1, 1000000) i"""
    )
    tables.execute("SELECT pg_stat_force_next_flush()")  # else the rows count as changed since ANALYZE
    tables.execute("ANALYZE shop.million")
    return "million"


@pytest.mark.parametrize("column", ["id", "skewed", "word", "common"])
def test_statistics_are_enough_for_parts_that_are_nearly_equal(
    tables: Connection, address: dict[str, str], million: str, column: str
) -> None:
    found = proposed(address, PlanRequest("shop", million, column, "range", chunks=10))
    assert found.counted == "statistics"
    assert found.notes == []
    real, bad = rows_of_each(tables, found)
    assert bad == 0
    assert len([chunk for chunk in found.chunks if not chunk.is_null]) == 10
    for chunk in found.chunks:
        assert real[chunk.id] == pytest.approx(found.rows[chunk.id], abs=25_000)


def test_statistics_that_are_missing_or_old_are_reported_and_a_sample_is_read(
    tables: Connection, address: dict[str, str], million: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opendataflow.sources.planning._SMALL", 10_000)
    monkeypatch.setattr("opendataflow.sources.planning._SAMPLED_A_CHUNK", 30_000)
    asked = PlanRequest("shop", million, "skewed", "range", chunks=5)
    tables.execute("CREATE TABLE shop.fresh WITH (autovacuum_enabled = false) AS SELECT * FROM shop.million")
    found = proposed(address, replace(asked, table="fresh"))
    assert found.counted == "sample"
    assert "ANALYZE" in found.notes[0]
    assert "of the rows were read" in found.notes[0]
    real, bad = rows_of_each(tables, found)
    assert bad == 0
    for chunk in found.chunks:
        assert real[chunk.id] == pytest.approx(found.rows[chunk.id], abs=25_000)
    tables.execute("SELECT pg_stat_force_next_flush()")
    tables.execute("ANALYZE shop.fresh")
    tables.execute("UPDATE shop.fresh SET skewed = -skewed WHERE id < 200000")
    tables.execute("SELECT pg_stat_force_next_flush()")
    found = proposed(address, replace(asked, table="fresh"))
    assert 'the statistics of "shop"."fresh" are old: ANALYZE' in found.notes[0]


def test_statistics_of_a_table_with_partitions_are_old_when_these_have_grown(
    tables: Connection, address: dict[str, str]
) -> None:
    tables.execute(
        """CREATE TABLE shop.growing (id int) PARTITION BY RANGE (id);
           CREATE TABLE shop.growing_1 PARTITION OF shop.growing DEFAULT WITH (autovacuum_enabled = false);
           INSERT INTO shop.growing SELECT i FROM generate_series(1, 5000) i"""
    )
    tables.execute("SELECT pg_stat_force_next_flush()")
    tables.execute("ANALYZE shop.growing")
    asked = PlanRequest("shop", "growing", "id", "range", chunks=4)
    assert proposed(address, asked).notes == []
    tables.execute("INSERT INTO shop.growing SELECT i FROM generate_series(5001, 50000) i")
    found = proposed(address, asked)
    assert 'the statistics of "shop"."growing" are old: ANALYZE' in found.notes[0]
    assert max(found.rows.values()) == 12_500


def test_a_view_gets_no_hint_to_analyze_it(address: dict[str, str]) -> None:
    found = proposed(address, PlanRequest("shop", "seen", "id", "range", chunks=4))
    assert found.notes == ['"shop"."seen" is a view, which has no statistics; all rows were read']


def test_a_foreign_table_gets_no_hint_to_analyze_it(tables: Connection, address: dict[str, str]) -> None:
    tables.execute("CREATE EXTENSION postgres_fdw; CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw")
    tables.execute("CREATE USER MAPPING FOR public SERVER far; CREATE FOREIGN TABLE shop.there (id int) SERVER far")
    with PostgresSource.open(address) as source:
        found = source.statistics(source.find_table("shop", "there", "id"))
    assert found == '"shop"."there" is a foreign table, of which nobody knows how old its statistics are'


@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
    | st.from_regex(r"[-.0-9a_]{1,9}", fullmatch=True)
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
def test_the_natural_order_here_is_that_of_the_database(tables: Connection, data_id: str) -> None:
    row = tables.execute("SELECT opendataflow.sort_key(%s) AS key", (data_id,)).fetchone()
    assert row is not None
    assert row["key"] == natural_key(data_id)
