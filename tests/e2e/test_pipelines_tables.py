"""Tables as sources and destinations: a real Postgres, and a real Spark that is started once for this module."""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from opendataflow.core.chunks.chunk_parts import Chunk, part_of_source
from opendataflow.core.databases.attempts import Attempt
from opendataflow.core.databases.postgres import Postgres
from opendataflow.model.projects.project import Source, parse_project
from opendataflow.names import ExitCode
from opendataflow.sources.planning import PlanRequest, make_plan
from opendataflow.sources.postgres import PostgresSource, parse_address
from opendataflow.spark.pipeline.io.reading_sources import read_source
from opendataflow.spark.pipeline.io.reading_tables import read_table
from opendataflow.spark.pipeline.project.project_folder import OpenProject
from opendataflow.spark.pipeline.storage.copying import copy_rows
from opendataflow.spark.pipeline.storage.jdbc_connection import JdbcConnection
from tests.e2e.conftest import Answer, Inside
from tests.e2e.postgres_values import VALUES
from tests.e2e.projects import DATABASE, Project, copying, shop_variables
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

POSTGRES = Postgres()


class Shop:
    """A database for sources and destinations, and what is in it."""

    def __init__(self, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dsn = dsn
        self._set = monkeypatch.setenv
        variables = shop_variables(dsn)
        self.word = variables["SHOP_WORD"]
        for name, value in variables.items():
            self._set(name, value)

    def sql(self, text: str, *values: object) -> list[Any]:
        """Run SQL; return its rows, those of one column as that."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(text, values or None)
            rows = cursor.fetchall() if cursor.description else []
        return [row[0] if len(row) == 1 else row for row in rows]

    def as_run(self, data_id: str, fence: int) -> None:
        """Let the next command be that of a run."""
        self._set("DATAFLOW_DATA_ID", data_id)
        self._set("DATAFLOW_FENCE", str(fence))

    def left_over(self) -> list[Any]:
        """The staging tables that are there."""
        return self.sql("SELECT relname FROM pg_class WHERE relname LIKE 'opendataflow_staging%' AND relkind = 'r'")


@pytest.fixture
def shop(bare_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Shop:
    made = Shop(bare_dsn, monkeypatch)
    made.sql(
        "CREATE TABLE orders AS SELECT id, date '2013-01-01' + (id / 10)::int AS day, 'c' || id % 3 AS customer, "
        "(id * 1.5)::numeric(10, 2) AS amount FROM generate_series(0::bigint, 99) id"
    )
    made.sql("INSERT INTO orders VALUES (NULL, '2013-01-05', NULL, 0)")
    return made


YML = copying("id", "range")


@pytest.fixture
def project(spark: "SparkSession", shop: Shop, inside: Inside, tmp_path: Path) -> Project:  # noqa: ARG001 # they run
    """A project that copies a table by ranges of its id."""
    made = Project(tmp_path, inside)
    made.write("project.yml", YML)
    made.step("one", "def run(df):\n    return df\n")
    return made


def to(project: Project, **fields: object) -> None:
    """Write the project with more fields of the destination."""
    more = "".join(f"      {name}: {json.dumps(value)}\n" for name, value in fields.items())
    project.write("project.yml", YML + more)


def done(project: Project, data_id: str) -> Answer:
    answer = project.ask("run", "p", "--data-id", data_id)
    assert answer.code == ExitCode.OK, answer.err
    return answer


def source(**fields: object) -> Source:
    database = {"url": "${SHOP_URL}", "user": "${SHOP_USER}", "passwordVariable": "SHOP_WORD"}
    return Source.model_validate({"name": "orders", "database": database, **fields})


def rows_of(spark: "SparkSession", it: Source, data_id: str, bounds: Mapping[str, Any] | None = None) -> "DataFrame":
    """What a chunk is read as, in a job whose data set has its bounds."""
    return read_table(spark, it, part_of_source(it, Chunk(data_id, {"orders": bounds})), data_id, "project.yml, line 6")


def test_values_are_the_same_as_where_they_come_as_texts(spark: "SparkSession", shop: Shop) -> None:
    kinds = {f"c{number}": kind for number, kind in enumerate(VALUES)}
    shop.sql(f"CREATE TABLE every (id int, {', '.join(f'{name} {kind}' for name, kind in kinds.items())})")
    for (name, kind), values in zip(kinds.items(), VALUES.values(), strict=True):
        rows = ", ".join(f"({number}, {value}::{kind})" for number, value in enumerate(values))
        shop.sql(f"INSERT INTO every (id, {name}) VALUES {rows}")

    def read(**options: str) -> list[tuple[str, ...]]:
        given = {"table": "every", "partitioning": {"column": "id", "type": "range"}, "options": options}
        frame = rows_of(spark, source(**given), "0-9")
        assert frame.count() == sum(map(len, VALUES.values()))
        return sorted(tuple(row) for row in frame.selectExpr(*(f"to_json(struct({name}))" for name in kinds)).collect())

    assert read() == read(prepareThreshold="5", binaryTransfer="false")


@pytest.mark.parametrize(
    ("fields", "data_id", "ids", "asked"),
    [
        ({"table": "orders", "partitioning": {"column": "id", "type": "range"}}, "5-7", [5, 6, 7],
         """(SELECT * FROM orders WHERE "id" >= 5 AND "id" < 8) chunk"""),
        ({"table": "orders", "partitioning": {"column": "day", "type": "date"}}, "2013-01-02", [*range(10, 20)],
         """WHERE "day" >= '2013-01-02' AND "day" < '2013-01-03'"""),
        ({"table": "orders", "partitioning": {"column": "id", "type": "list"}}, "7", [7], """WHERE "id" = '7'"""),
        ({"query": "SELECT id, day AS d FROM orders", "partitioning": {"column": "d", "type": "date"}}, "2012-01", [],
         """(SELECT * FROM (SELECT id, day AS d FROM orders) given WHERE "d" >= '2012-01-01' """),
        ({"query": "SELECT id FROM orders --;", "partitioning": {"column": "id", "type": "range"}}, "5-7", [5, 6, 7],
         """WHERE "id" >= 5 AND "id" < 8"""),
        ({"table": "orders", "predicate": "customer = {data_id} AND id < 7"}, "c1", [1, 4],
         "WHERE customer = 'c1' AND id < 7"),
    ],
    ids=["range", "date", "list", "query", "query with an end", "predicate"],
)  # fmt: skip
def test_the_database_is_asked_for_the_rows_of_the_chunk_only(
    spark: "SparkSession", shop: Shop, fields: dict[str, object], data_id: str, ids: list[int], asked: str
) -> None:
    frame = rows_of(spark, source(**fields), data_id)
    assert sorted(row["id"] for row in frame.collect()) == ids
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert asked in plan
    assert shop.word not in plan


def test_the_buckets_of_a_table_are_all_rows_and_each_row_once(spark: "SparkSession", shop: Shop) -> None:  # noqa: ARG001
    it = source(table="orders", partitioning={"column": "id", "type": "hash"})
    found = [row["id"] for bucket in range(3) for row in rows_of(spark, it, f"{bucket}-of-3").collect()]
    assert sorted(found, key=lambda it: -1 if it is None else it) == [None, *range(100)]


WORDS = ["it's", "a\\b", "Zoë", "zoe", "", None]


@pytest.mark.parametrize(
    "asked",
    [
        PlanRequest(None, "kinds", "id", "range", chunks=3, nulls="last"),
        PlanRequest(None, "kinds", "price", "range", chunks=3),
        PlanRequest(None, "kinds", "at", "date", step="day", zone="Europe/Berlin", rest=True),
        PlanRequest(None, "kinds", "day", "date", step="month", nulls="first"),
        PlanRequest(None, "kinds", "word", "list", rest=True),
        PlanRequest(None, "kinds", "id", "hash", chunks=3),
        PlanRequest(None, "kinds", "word", "hash", chunks=3, nulls="first"),
    ],
    ids=lambda it: f"{it.by} {it.column}",
)
def test_the_chunks_of_a_plan_are_the_same_rows_in_its_database_in_files_and_in_another_table(
    spark: "SparkSession", shop: Shop, tmp_path: Path, asked: PlanRequest
) -> None:
    shop.sql(
        "CREATE TABLE kinds AS SELECT nullif(id, 7) AS id, id * 1.25 AS price, date '2013-01-28' + id AS day, "
        "timestamptz '2013-03-30 20:00+00' + id * interval '5 hours' AS at, "
        "nullif((%s::text[])[1 + id %% 6], '-') AS word, id AS number FROM generate_series(-10, 19) id",
        WORDS,
    )
    with PostgresSource.open(parse_address(shop.dsn)) as opened:
        chunks = make_plan(opened, asked).chunks
    everything = rows_of(spark, source(table="kinds"), "all")
    everything.repartition(1).write.parquet(str(tmp_path / "sources/orders.parquet"))
    project = OpenProject(tmp_path, parse_project(YML, "project.yml"))
    files = Source.model_validate({"name": "orders", "format": "parquet"})
    found: list[int] = []
    for chunk in chunks:
        table = [row["number"] for row in rows_of(spark, source(table="kinds"), chunk.id, chunk.bounds).collect()]
        known = Chunk(chunk.id, {"orders": chunk.bounds})
        assert sorted(row["number"] for row in read_source(spark, project, files, known, "here").collect()) == sorted(
            table
        )
        elsewhere = POSTGRES.condition(asked.column, chunk.bounds)
        assert sorted(shop.sql(f"SELECT number FROM kinds WHERE {elsewhere}")) == sorted(table)
        found += table
    assert sorted(found) == list(range(-10, 20))


def test_the_database_reads_only_the_rows_of_the_chunk_also_by_several_connections(
    spark: "SparkSession", shop: Shop
) -> None:
    shop.sql("CREATE TABLE many AS SELECT id, id % 7 AS part FROM generate_series(1, 20000) id")
    shop.sql("CREATE UNIQUE INDEX ON many (id)")
    shop.sql("VACUUM ANALYZE many")
    scans = "SELECT seq_scan FROM pg_stat_user_tables WHERE relid = 'many'::regclass"
    scanned = shop.sql(scans)
    bounds = {"column": "id", "from": 5001, "to": 5101, "predicate": '"id" >= 5001 AND "id" < 5101'}
    it = source(table="many", connections=4, splitBy="id")
    assert sorted(row["id"] for row in rows_of(spark, it, "any", bounds).collect()) == list(range(5001, 5101))

    read = "SELECT idx_tup_read::int FROM pg_stat_user_indexes WHERE relid = 'many'::regclass"
    wait_until(lambda: shop.sql(read) >= [100], "the database has reported its reads", 60)
    assert shop.sql(read) < [200]  # Spark's first part also looks for NULLs in the chunk
    assert shop.sql(scans) == scanned


def test_what_spark_filters_itself_goes_to_the_database_too(spark: "SparkSession", shop: Shop) -> None:  # noqa: ARG001
    frame = rows_of(spark, source(table="orders", partitioning={"column": "id", "type": "range"}), "0-9")
    plan = frame.where("amount > 10")._jdf.queryExecution().executedPlan().toString()
    assert "GreaterThan(amount,10.00)" in plan


@pytest.mark.parametrize(
    ("fields", "data_id"),
    [
        ({"partitioning": {"column": "id", "type": "range"}}, "0-99"),
        ({"partitioning": {"column": "day", "type": "date"}, "splitBy": "id"}, "2013-01"),
        ({"splitBy": "day"}, "all"),
        ({"splitBy": "amount"}, "all"),
    ],
)
def test_several_connections_divide_a_chunk(
    spark: "SparkSession", shop: Shop, fields: dict[str, object], data_id: str
) -> None:
    it = source(table="orders", connections=4, **fields)
    frame = rows_of(spark, it, data_id)
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row["id"] for row in frame.where("id IS NOT NULL").collect()) == list(range(100))
    assert shop.left_over() == []


def test_a_list_of_chunks_says_by_hand_what_is_read_and_replaced(project: Project, shop: Shop) -> None:
    to(project, partitioning={"column": "id", "type": "range"})
    bounds = {
        "column": "id",
        "from": 3,
        "to": 5,
        "nulls": True,
        "predicate": '("id" >= 3 AND "id" < 5 OR "id" IS NULL)',
    }
    project.write("chunks.jsonl", json.dumps({"id": "2_some", "bounds": bounds}))
    shop.sql("CREATE TABLE result AS SELECT * FROM orders WHERE id IN (2, 3, 7)")
    shop.sql("INSERT INTO result VALUES (NULL)")
    for _ in range(2):
        answer = project.ask("run", "p", "--data-id", "2_some", "--chunks", "chunks.jsonl")
        assert answer.code == ExitCode.OK, answer.err
    assert shop.sql("SELECT id FROM result ORDER BY id") == [2, 3, 4, 7, None]
    answer = project.ask("run", "p", "--data-id", "2_sum", "--chunks", "chunks.jsonl")
    assert answer.code == ExitCode.USAGE
    assert answer.err == "error: chunks.jsonl: there is no chunk 2_sum (did you mean 2_some?)\n"


def test_a_chunk_of_a_table_done_twice_equals_once(project: Project, shop: Shop) -> None:
    done(project, "0-9")
    done(project, "10-19")
    shop.sql("UPDATE orders SET amount = 7 WHERE id = 3")
    shop.sql("DELETE FROM orders WHERE id = 4")
    answer = done(project, "0-9")
    assert "wrote result" in answer.out
    assert shop.sql("SELECT id FROM result ORDER BY id") == [0, 1, 2, 3, *range(5, 20)]
    assert shop.sql("SELECT amount FROM result WHERE id = 3 AND data_id = '0-9'") == [7]
    assert shop.left_over() == []


def test_the_destination_remembers_what_was_written(project: Project, shop: Shop) -> None:
    shop.as_run("0-9", 3)
    done(project, "0-9")
    ((dataset, data_id, fence, written, rows, checksum),) = shop.sql(
        "SELECT dataset, data_id, fence, written_fence, rows, checksum FROM opendataflow_chunk"
    )
    assert (dataset, data_id, fence, written, rows) == ("out", "0-9", 3, 3, 10)
    done(project, "0-9")
    assert shop.sql("SELECT checksum FROM opendataflow_chunk") == [checksum]
    shop.sql("UPDATE orders SET amount = 7 WHERE id = 3")
    done(project, "0-9")
    assert shop.sql("SELECT checksum FROM opendataflow_chunk") != [checksum]


def test_a_late_older_attempt_is_refused(project: Project, shop: Shop) -> None:
    shop.as_run("0-9", 4)
    done(project, "0-9")
    shop.sql("DELETE FROM orders")
    shop.as_run("0-9", 3)
    answer = project.ask("run", "p", "--data-id", "0-9")
    assert answer.code == ExitCode.FAILED
    assert answer.err == (
        "error: write out has failed: project.yml, line 12: out knows a newer attempt of the chunk 0-9 (fence 4) than "
        "this one (fence 3): nothing was written\n"
    )
    assert shop.sql("SELECT count(*) FROM result") == [10]


def test_an_attempt_that_another_one_has_overtaken_writes_nothing(
    project: Project, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = JdbcConnection.write_staging

    def overtaken(connection: JdbcConnection, frame: "DataFrame", table: str) -> None:
        stage(connection, frame, table)
        monkeypatch.setattr(JdbcConnection, "write_staging", stage)
        done(project, "0-9")  # and takes the staging table of the other one away
        shop.sql("DELETE FROM result WHERE id = 3")

    monkeypatch.setattr(JdbcConnection, "write_staging", overtaken)
    answer = project.ask("run", "p", "--data-id", "0-9")
    assert answer.err == (
        "error: write out has failed: project.yml, line 12: another attempt of the chunk 0-9 has begun meanwhile: this "
        "one has written nothing\n"
    )
    assert shop.sql("SELECT count(*) FROM result") == [9]
    assert shop.left_over() == []


def test_a_connection_that_is_lost_while_the_rows_are_staged_is_opened_again(
    project: Project, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(frame: "DataFrame", *given: Any) -> None:
        copy_rows(frame, *given)
        shop.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name LIKE '%JDBC%'"
        )

    monkeypatch.setattr("opendataflow.spark.pipeline.storage.copying.copy_rows", lost)
    done(project, "0-9")
    assert shop.sql("SELECT count(*) FROM result") == [10]
    assert shop.left_over() == []


def at_once(shop: Shop, first: Sequence[str], then: Callable[[], object]) -> None:
    """Do something while a transaction is open, which ends when the other one waits for it."""
    waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = %s)"
    name = conninfo_to_dict(shop.dsn)["dbname"]
    with psycopg.connect(shop.dsn) as connection, ThreadPoolExecutor(1) as others:
        for statement in first:
            connection.execute(statement)
        over = Event()

        def end() -> None:
            wait_until(lambda: over.is_set() or bool(shop.sql(waiting, name)), "the other one waits")
            connection.commit()

        ended = others.submit(end)
        try:
            then()
        finally:
            over.set()
        ended.result()


def test_two_pipelines_that_begin_at_once_in_an_empty_schema_both_write(project: Project, shop: Shop) -> None:
    begins = [*POSTGRES.lock_database(), POSTGRES.create_chunk_table("another")]
    at_once(shop, [it.sql for it in begins], lambda: done(project, "0-9"))
    assert shop.sql("SELECT count(*) FROM result") == [10]


@pytest.mark.parametrize(("mode", "ids"), [("merge", [0, 1, 2, 3, 4]), ("replace", [2, 3, 4])])
def test_two_chunks_that_merge_or_replace_at_once_do_so_one_by_one(
    project: Project, shop: Shop, mode: str, ids: list[int]
) -> None:
    shop.sql("CREATE TABLE result (id bigint, day date, customer text, amount numeric(10, 2))")
    shop.sql("CREATE TABLE other AS SELECT id FROM generate_series(0, 2) id")
    to(project, mode=mode, **({"keys": ["id"]} if mode == "merge" else {}))
    lock = [it.sql for it in POSTGRES.lock_table("result")]
    moved = POSTGRES.merge_rows("result", "other", ["id"], ["id"]) if mode == "merge" else None
    at_once(shop, [*lock, moved.sql if moved else "INSERT INTO result (id) TABLE other"], lambda: done(project, "2-4"))
    assert shop.sql("SELECT id FROM result ORDER BY id") == ids


def staging_of(data_id: str) -> str:
    """The name of the staging table of another attempt."""
    return POSTGRES.staging_table("result", Attempt("out", data_id, "another"))


def test_what_killed_attempts_have_left_is_removed(project: Project, shop: Shop) -> None:
    done(project, "0-9")
    shop.sql(f"CREATE TABLE {staging_of('0-9')} (id int)")
    shop.sql(f"CREATE TABLE {staging_of('10-19')} (id int)")
    done(project, "0-9")
    assert shop.left_over() == [staging_of("10-19")]


def test_the_rows_of_a_chunk_may_be_selected_by_their_own_column(project: Project, shop: Shop) -> None:
    shop.sql("CREATE TABLE result (LIKE orders)")
    to(project, partitioning={"column": "id", "type": "range"})
    for data_id in ("0-9", "10-19", "0-9"):
        done(project, data_id)
    assert shop.sql("SELECT id FROM result ORDER BY id") == list(range(20))
    project.step("one", "def run(df):\n    return df.withColumn('id', df.id + 1)\n")
    answer = project.ask("run", "p", "--data-id", "0-9")
    assert "line 12: 1 of 10 rows are not of the chunk 0-9, as their id says" in answer.err
    assert shop.sql("SELECT id FROM result ORDER BY id") == list(range(20))


def test_merge_changes_and_adds_rows_by_their_keys(project: Project, shop: Shop) -> None:
    shop.sql("CREATE TABLE result (id bigint, day date, customer text, amount numeric(10, 2), note text DEFAULT 'new')")
    shop.sql("INSERT INTO result VALUES (3, NULL, NULL, 0, 'old'), (77, NULL, NULL, 0, 'old')")
    to(project, mode="merge", keys=["id"])
    done(project, "0-4")
    done(project, "0-4")
    assert shop.sql("SELECT id, amount::float, note FROM result ORDER BY id") == [
        (0, 0, "new"), (1, 1.5, "new"), (2, 3, "new"), (3, 4.5, "old"), (4, 6, "new"), (77, 0, "old"),
    ]  # fmt: skip
    project.step("one", "def run(df):\n    return df.withColumn('id', df.id % 2)\n")
    answer = project.ask("run", "p", "--data-id", "0-4")
    assert "id: 2 keys are NULL or belong to several rows, so they can't be merged" in answer.err


def test_append_adds_a_chunk_once_and_replace_takes_the_place_of_all(project: Project, shop: Shop) -> None:
    to(project, mode="append")
    done(project, "0-4")
    answer = done(project, "0-4")
    assert "result has the chunk already, so that nothing was added" in answer.out
    done(project, "5-6")
    assert shop.sql("SELECT id FROM result ORDER BY id") == list(range(7))
    to(project, mode="replace")
    done(project, "8-9")
    assert shop.sql("SELECT id FROM result ORDER BY id") == [8, 9]


def test_a_chunk_is_appended_to_a_table_that_is_made_anew(project: Project, shop: Shop) -> None:
    to(project, mode="append")
    done(project, "0-4")
    done(project, "5-6")
    shop.sql("DROP TABLE result")
    done(project, "0-4")
    done(project, "5-6")
    assert shop.sql("SELECT id FROM result ORDER BY id") == list(range(7))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("table: orders", "table: nothing", "read orders has failed: project.yml, line 6: ERROR: relation "),
        ("SHOP_WORD}\n        table", "NO_WORD}\n        table", "line 6: the variable NO_WORD is not set; "),
        ("${SHOP_USER}", "nobody", "authentication failed for user \"nobody\""),
        ("${SHOP_URL}", "jdbc:postgresql://127.0.0.1:1/x", "Connection to 127.0.0.1:1 refused."),
        ("${SHOP_URL}", "jdbc:h2:mem:x", "the JDBC driver is not there: put its jar into Spark's folder `jars`"),
        ("{url: '${SHOP_URL}', user: '${SHOP_USER}', passwordVariable: SHOP_WORD}", "{url: 'bigquery://shop/sales'}",
            "the connector of Spark for BigQuery is not there: put its jar into Spark's folder `jars`"),
        ("column: id", "column: nothing", "ERROR: column \"nothing\" does not exist"),
        ("partitioning: {column: id, type: range}", 'predicate: "1 / (id - 3) > 0"',
         "read orders has failed: project.yml, line 6: ERROR: division by zero\n"),
        ("partitioning: {column: id, type: range}", 'predicate: "pg_terminate_backend(pg_backend_pid())"',
         "read orders has failed: project.yml, line 6: FATAL: terminating connection due to administrator command\n"),
        ("table: result", "table: nowhere.result", "ERROR: schema \"nowhere\" does not exist"),
        ("SHOP_WORD}\n      table: result",
         "SHOP_WORD, options: {options: '-c role=pg_read_all_data'}}\n      table: result",
         "line 12: the user pg_read_all_data may make no tables in the schema public, where rows are staged "),
    ],
    ids=["no table", "no password", "no user", "no server", "no driver", "no connector", "no column",
         "while it is read", "gone while it is read", "no schema", "no right"],
)  # fmt: skip
def test_the_refusal_of_a_database_is_one_sentence(project: Project, old: str, new: str, sentence: str) -> None:
    project.write("project.yml", YML.replace(old, new, 1))
    answer = project.ask("run", "p", "--data-id", "0-9")
    assert answer.code == ExitCode.FAILED
    assert sentence in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new"), [("table: result", "table: dataflow.result"), ("${SHOP_URL}", "${SHOP_URL}?currentSchema=dataflow")]
)
def test_no_table_is_made_in_a_schema_of_this_program(
    project: Project, dsn: str, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    here = Shop(dsn, monkeypatch)
    here.sql("CREATE TABLE public.orders AS SELECT 1 AS id")
    read, write = YML.split("    destination:")
    project.write("project.yml", f"{read}    destination:{write.replace(old, new)}")
    answer = project.ask("run", "p", "--data-id", "0-9")
    assert answer.code == ExitCode.FAILED
    assert (
        "would be in the schema dataflow, which is OpenDataFlow's own; write another schema, such as public.result\n"
    ) in answer.err
    assert here.sql("SELECT count(*) FROM pg_class WHERE relname = 'opendataflow_chunk'") == [0]


EVERY_TYPE = """
CREATE TABLE result (id bigint, small smallint, whole int, single real, double double precision, exact numeric(38, 18),
    money numeric(12, 2), yes boolean, day date, at timestamptz, local timestamp, words text, short varchar(9),
    key uuid, notes jsonb, bytes bytea, names text[], numbers int[], prices numeric(9, 3)[], moments timestamptz[]);
INSERT INTO result VALUES
(1, -32768, 2147483647, 1.1, 1e300, 12345678901234567890.123456789012345678, 0.10, true, '0001-01-01',
    '2020-10-25 00:59:59.999999+00', '2020-10-25 02:30:00',
    (SELECT string_agg(chr(i), '') FROM generate_series(1, 12287) i), 'a,b"c',
    '00000000-0000-4000-8000-000000000000', '{"a": ["\\"", null]}',
    (SELECT string_agg(set_byte('0', 0, i), '') FROM generate_series(0, 255) i),
    ARRAY['', 'NULL', NULL, '{a,"b\\', E'\n'], ARRAY[1, NULL, -3], ARRAY[0.001],
    ARRAY[timestamptz '2020-10-25 01:00:00+00']),
(2, 1, 1, 'NaN', 'Infinity', -0.000000000000000001, -1, false, '9999-12-31', '9999-12-31 23:59:59+00', '1500-01-01',
    '', '', NULL, 'null', '', '{}', '{}', '{}', '{}'),
(3, 1, 1, '-Infinity', '-0', 0, 0, NULL, '1970-01-01', '1970-01-01 00:00:00+00', '1969-12-31',
    E'\\.', E'\\N', NULL, '1', '\\x5c2e0a', NULL, NULL, NULL, NULL);
INSERT INTO result (id) VALUES (4);
CREATE TABLE given AS SELECT * FROM result;
TRUNCATE result;
ALTER TABLE result ADD rounded int, ADD ides date, ADD late timestamptz, ADD nothing inet;
"""

BY_SPARK = DATABASE.replace("SHOP_WORD", "SHOP_WORD, options: {numPartitions: '1'}")
"""What is not known to mean the same to libpq is left to Spark's own writer."""


@pytest.mark.parametrize("database", [DATABASE, BY_SPARK], ids=["by COPY", "by Spark"])
def test_every_value_arrives_as_it_is(project: Project, shop: Shop, database: str) -> None:
    shop.sql(EVERY_TYPE)
    read, write = YML.replace("table: orders", "table: given").split("    destination:")
    to_result = f"{write.replace(DATABASE, database)}      partitioning: {{column: id, type: range}}\n"
    project.write("project.yml", f"{read}    destination:{to_result}")
    nothing = "NULL" if database == DATABASE else "CAST(NULL AS string)"
    project.step(
        "one",
        f"""
        def run(df):
            return df.selectExpr("*", "id + 0.5D AS rounded", "date'-0043-03-15' AS ides",
                                 "timestamp'+12345-01-01 00:00:00.5Z' AS late", "{nothing} AS nothing")
        """,
    )
    done(project, "1-4")
    columns = (
        "id, small, whole, single, double, exact, money, yes, day, at, local, words, short, key, notes, bytes, names"
    )
    columns += ", numbers, prices, moments"
    for one, other in (("given", "result"), ("result", "given")):
        assert shop.sql(f"SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}") == []
    assert shop.sql("SELECT rounded, ides::text, late::text FROM result WHERE id = 1") == [
        (2, "0044-03-15 BC", "12345-01-01 00:00:00.5+00")
    ]


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("id bigint, day date", "line 12: the table result has no column customer, amount, data_id; it has id, day"),
        (
            "id bigint, day date, customer text, amount int CHECK (amount > 9), data_id text",
            "violates check constraint",
        ),
        (
            "id bigint, day date, customer int, amount numeric, data_id text",
            'line 12: ERROR: invalid input syntax for type integer: "c0" (column customer)',
        ),
    ],
)
def test_a_table_that_does_not_take_the_rows_stays_as_it_was(
    project: Project, shop: Shop, table: str, sentence: str
) -> None:
    shop.sql(f"CREATE TABLE result ({table})")
    answer = project.ask("run", "p", "--data-id", "0-9")
    assert answer.code == ExitCode.FAILED
    assert sentence in answer.err
    assert shop.sql("SELECT count(*) FROM result") == [0]
    assert shop.left_over() == []


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (r"concat(customer, '\\0')", "Postgres does not take: remove it (column customer)\n"),
        ("struct(customer)", "the column customer is struct<customer:string>, which tables do not have: cast it, or "),
    ],
    ids=["NUL", "struct"],
)
def test_what_no_table_takes_is_reported_with_its_column(project: Project, made: str, sentence: str) -> None:
    project.step("one", f'def run(df):\n    return df.selectExpr("id", "{made} AS customer")\n')
    answer = project.ask("run", "p", "--data-id", "0-9")
    assert answer.code == ExitCode.FAILED
    assert sentence in answer.err


def test_rows_that_a_trigger_leaves_out_are_reported(project: Project, shop: Shop) -> None:
    shop.sql("CREATE TABLE result (id bigint, day date, customer text, amount numeric(10, 2), data_id text)")
    shop.sql("CREATE FUNCTION no_row() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    shop.sql(
        "CREATE TRIGGER leaves_out BEFORE INSERT ON result FOR EACH ROW WHEN (NEW.id = 3) EXECUTE FUNCTION no_row()"
    )
    answer = project.ask("run", "p", "--data-id", "0-9")
    assert "line 12: of 10 rows 9 were added, as a trigger or rule of the table left out others" in answer.err
    assert shop.sql("SELECT count(*) FROM result") == [0]


@pytest.mark.parametrize("mode", ["replace-chunk", "append"])
def test_a_table_that_hides_rows_is_appended_to_only(project: Project, shop: Shop, mode: str) -> None:
    shop.sql("CREATE TABLE result (id bigint, day date, customer text, amount numeric(10, 2), data_id text)")
    shop.sql("GRANT CREATE ON SCHEMA public TO pg_monitor; GRANT SELECT, INSERT, DELETE ON result TO pg_monitor")
    shop.sql("ALTER TABLE result ENABLE ROW LEVEL SECURITY; CREATE POLICY adds ON result FOR INSERT WITH CHECK (true)")
    user = f"SHOP_WORD, options: {{options: '-c role=pg_monitor'}}}}\n      mode: {mode}\n      table: result"
    project.write("project.yml", YML.replace("SHOP_WORD}\n      table: result", user))
    answer = project.ask("run", "p", "--data-id", "0-9")
    hides = "line 12: row level security may hide rows of result from the user pg_monitor, which would stay when"
    assert (hides in answer.err) == (mode == "replace-chunk")
    assert shop.sql("SELECT count(*) FROM result") == [10 if mode == "append" else 0]


def test_what_is_not_as_expected_does_not_reach_the_table(project: Project, shop: Shop) -> None:
    expected = "    expectations:\n      - {same: {source: orders, sums: [amount], checksum: [id, customer]}}\n"
    project.write("project.yml", f"{YML}{expected}      - {{unique: [id]}}\n")
    done(project, "0-9")
    shop.sql("INSERT INTO orders SELECT * FROM orders WHERE id < 2")
    answer = project.ask("run", "p", "--data-id", "0-9")
    assert answer.code == ExitCode.FAILED
    assert "unique: id: 2 values more than once" in answer.err
    assert shop.sql("SELECT count(*) FROM result") == [10]
    assert shop.left_over() == []
