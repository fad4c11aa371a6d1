"""`dataflow chunks plan`: what it shows and writes, and what runs make of it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from opendataflow.crypto.sealed import NONCE_BYTES, SALT_BYTES, seal
from opendataflow.names import API_VERSION, ExitCode
from tests.e2e.conftest import DATAFLOW, Inside, Program
from tests.sql.conftest import Connection
from tests.sql.graph import apply, chunk, chunks, dataset, job, problems, tasks

PASSKEY = "plugh"

COUNT = """
import json, os, pathlib, psycopg
orders = json.load(open(os.environ["DATAFLOW_CONTEXT"]))["datasets"]["orders"]
host, port = orders["hostname"].split(":")
with psycopg.connect(
    host=host, port=port, dbname=orders["database"], user=orders["username"], password=os.environ["orders_password"]
) as connection:
    query = f"SELECT count(*) FROM shop.orders WHERE {orders['bounds']['predicate']}"
    rows = connection.execute(query).fetchone()[0]
pathlib.Path("counts", os.environ["dataid"]).write_text(str(rows))
"""


@pytest.fixture
def location(db: Connection, dsn: str) -> dict[str, Any]:
    """A table of 2000 rows, and the columns of a data set that say where it is."""
    db.execute("CREATE SCHEMA shop")
    db.execute(
        """CREATE TABLE shop.orders WITH (autovacuum_enabled = false) AS
            SELECT i AS id, CASE WHEN i % 5 > 0 THEN 'it''s ' || i % 3 END AS word,
                  date '2013-01-01' + i % 60 AS day FROM generate_series(1, 2000) i"""
    )
    parts = conninfo_to_dict(dsn)
    sealed = seal(str(parts.get("password") or "none"), PASSKEY, salt=b"s" * SALT_BYTES, nonce=b"n" * NONCE_BYTES)
    return {
        "hostname": f"{parts['host']}:{parts.get('port', 5432)}",
        "database": parts["dbname"],
        "schemaname": "shop",
        "tablename": "orders",
        "username": parts["user"],
        "encryptedpass": sealed,
    }


@pytest.fixture
def declared(db: Connection, location: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Connection:
    """orders -> count -> counts; the passkey is in the environment."""
    monkeypatch.setenv("PASSKEY", PASSKEY)
    monkeypatch.delenv("PGPASSWORD", raising=False)
    apply(db, [{**dataset("orders"), **location}, dataset("counts")], [job("count", ["orders"], ["counts"])])
    return db


def test_a_plan_is_shown_and_nothing_is_written(dataflow: Program, declared: Connection, inside: Inside) -> None:
    answer = inside.ask(dataflow, "chunks", "plan", "orders", "--by", "range", "id", "--chunks", "2")
    assert answer.code == ExitCode.OK
    assert [line.split() for line in answer.out.splitlines()[:4]] == [
        ["CHUNK", "FROM", "TO", "ROWS", "SHARE", "PREDICATE"],
        ["..1000", "-", "1001", "1000", "50.0%", "#" * 20, '"id"', "<", "1001"],
        ["1001..", "1001", "-", "1000", "50.0%", "#" * 20, '"id"', ">=", "1001"],
        ["null", "-", "-", "0", "0.0%", '"id"', "IS", "NULL"],
    ]
    assert answer.out.splitlines()[4] == (
        '3 chunks of "shop"."orders" by range of id, 2000 rows (counted), skew 1.00; NULLs have the chunk null (0); '
        "no row outside; values that come later have a chunk"
    )
    assert "ANALYZE" in answer.err
    assert chunks(declared) == {}


def test_programs_get_all_of_it(dataflow: Program, declared: Connection, inside: Inside) -> None:
    assert declared
    options = ("chunks", "plan", "orders", "--by", "list", "word", "--nulls", "first", "-o")
    answer = json.loads(inside.ask(dataflow, *options, "json").out)
    assert answer == yaml.safe_load(inside.ask(dataflow, *options, "yaml").out)
    assert (answer["rows"], answer["counted"], answer["covers_later_values"]) == (2000, "exact", False)
    assert [(one["data_id"], one["bounds"]["value"], one["rows"]) for one in answer["chunks"]] == [
        ("it's 0", "it's 0", 933),
        ("it's 1", "it's 1", 534),
        ("it's 2", "it's 2", 533),
    ]
    assert answer["chunks"][0]["bounds"]["predicate"] == "(\"word\" = 'it''s 0' OR \"word\" IS NULL)"


def test_the_partitioning_of_the_data_set_is_the_default(
    dataflow: Program, declared: Connection, inside: Inside
) -> None:
    declared.execute(
        """UPDATE opendataflow.dataset SET partitioning = '{"column": "day", "type": "date"}' WHERE id = 'orders'"""
    )
    answer = inside.ask(dataflow, "chunks", "plan", "orders", "--step", "month", "-o", "json")
    assert [one["data_id"] for one in json.loads(answer.out)["chunks"]] == ["2013-01", "2013-02", "2013-03", "null"]


def test_runs_count_with_the_predicates_that_were_written_and_miss_no_row(
    dataflow: Program, declared: Connection, tmp_path: Path
) -> None:
    (tmp_path / "count.py").write_text(COUNT)
    (tmp_path / "counts").mkdir()
    script = {"script": {"command": ["python", "count.py"]}}
    document = {"apiVersion": API_VERSION, "kind": "DataFlowJob", "metadata": {"name": "count"}}
    document["spec"] = {"inputs": ["orders"], "outputs": ["counts"], "parallelism": 4, "runtime": script}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))
    dataflow.run("chunks", "plan", "orders", "--by", "list", "word", "--write", "--publish")
    path = f"{DATAFLOW.parent}:/usr/bin:/bin"
    done = subprocess.run(
        [DATAFLOW, "local", "-f", tmp_path / "job.yaml", "--until-caught-up"],
        env={**dataflow.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    counts = {file.name: int(file.read_text()) for file in (tmp_path / "counts").iterdir()}
    assert counts == {"it's 0": 533, "it's 1": 534, "it's 2": 533, "null": 400}
    assert set(tasks(declared).values()) == {"DONE"}


def test_what_is_written_can_be_written_again_and_loaded_from_its_file(
    dataflow: Program, declared: Connection, inside: Inside, tmp_path: Path
) -> None:
    plan = ("chunks", "plan", "orders", "--by", "range", "id", "--rows", "700")
    answer = inside.ask(dataflow, *plan, "--write", "--file", str(tmp_path / "list"))
    assert answer.err.splitlines()[-1] == "data set orders: 4 chunks, 4 new"
    assert chunk(declared, "orders", "null")["bounds"] == {"column": "id", "nulls": True, "predicate": '"id" IS NULL'}
    before = chunks(declared)
    answer = inside.ask(dataflow, *plan, "--write")
    assert answer.err.splitlines()[-1] == "data set orders: 4 chunks, 0 new, 4 known"
    answer = inside.ask(dataflow, "chunks", "load", str(tmp_path / "list"), "--dataset", "orders", "--publish")
    assert answer.out == "data set orders: 4 chunks, 0 new, 4 known; 4 published\n"
    assert before.keys() == chunks(declared).keys()
    assert problems(declared) == []


def test_a_plan_that_would_not_only_add_is_refused(dataflow: Program, declared: Connection, inside: Inside) -> None:
    plan = ("chunks", "plan", "orders", "--write", "--by")
    assert inside.ask(dataflow, *plan, "range", "id", "--chunks", "2").code == ExitCode.OK
    before = chunks(declared)
    answer = inside.ask(dataflow, *plan, "range", "id", "--chunks", "3")
    assert answer.code == ExitCode.FAILED
    assert answer.err.splitlines()[-1].startswith("error: orders has chunk ..1000 (and 1 more), ")
    assert chunks(declared) == before


def test_a_new_day_is_added(dataflow: Program, declared: Connection, inside: Inside) -> None:
    plan = ("chunks", "plan", "orders", "--write", "--by", "date", "day")
    assert inside.ask(dataflow, *plan).err.splitlines()[-1] == "data set orders: 61 chunks, 61 new"
    declared.execute(
        "DELETE FROM shop.orders WHERE day < '2013-01-03'; INSERT INTO shop.orders (day) VALUES ('2013-03-02')"
    )
    assert inside.ask(dataflow, *plan).err.splitlines()[-1] == "data set orders: 60 chunks, 1 new, 59 known"


def test_rows_outside_of_all_chunks_are_shown_and_not_written(
    dataflow: Program, declared: Connection, inside: Inside, tmp_path: Path
) -> None:
    declared.execute("INSERT INTO shop.orders (day) VALUES ('infinity')")
    plan = ("chunks", "plan", "orders", "--by", "date", "day", "--step", "month")
    answer = inside.ask(dataflow, *plan, "--write")
    assert answer.code == ExitCode.FAILED
    assert "1 row outside of all chunks" in answer.out
    assert answer.err == (
        'error: 1 row of "shop"."orders" would be in no chunk: give --rest, which makes one for them; '
        "nothing was changed\n"
    )
    answer = inside.ask(dataflow, *plan, "--file", str(tmp_path / "list"))
    assert (answer.code, (tmp_path / "list").exists()) == (ExitCode.FAILED, False)
    assert chunks(declared) == {}
    assert inside.ask(dataflow, *plan, "--write", "--rest").err == "data set orders: 5 chunks, 5 new\n"


def test_what_is_not_as_planned_is_reported_by_chunk_with_exit_code_1(
    dataflow: Program, declared: Connection, inside: Inside, location: dict[str, Any]
) -> None:
    target = {**dataset("new_orders"), **location, "schemaname": None, "tablename": "new_orders"}
    apply(declared, [target], [])
    declared.execute("CREATE TABLE public.new_orders AS SELECT * FROM shop.orders")
    assert inside.ask(dataflow, "chunks", "plan", "orders", *BY_ID, "--write").code == ExitCode.OK
    check = ("chunks", "check", "orders", "new_orders", "--sum", "id", "--checksum", "id", "--checksum", "word")
    answer = inside.ask(dataflow, *check)
    assert (answer.code, answer.err) == (ExitCode.OK, "")
    assert answer.out == (
        "orders has 2000 rows, each in one chunk; new_orders has 2000 rows, each in one chunk; all 3 chunks are the "
        "same (rows, sum of id, checksum of id, word)\n"
    )
    declared.execute(
        "DELETE FROM public.new_orders WHERE id = 7; UPDATE public.new_orders SET word = 'x' WHERE id = 1005"
    )
    declared.execute("INSERT INTO public.new_orders VALUES (NULL)")
    declared.execute("DELETE FROM opendataflow.chunk WHERE dataset = 'orders' AND data_id = 'null'")
    answer = inside.ask(dataflow, *check)
    assert answer.code == ExitCode.FAILED
    *found, summary = (" ".join(line.split()) for line in answer.out.splitlines())
    assert found == [
        "CHUNK STATUS FOUND",
        "..1000 - rows 1000 and 999; sum of id 500500 and 500493; checksum of id, word",
        "1001.. - checksum of id, word",
        "no chunk - 1 row of new_orders: id is NULL",
    ]
    assert summary == (
        "orders has 2000 rows, each in one chunk; new_orders has 2000 rows, 1 in no chunk; 2 of 2 chunks differ "
        "(rows, sum of id, checksum of id, word)"
    )
    report = json.loads(inside.ask(dataflow, *check, "-o", "json").out)
    assert [one["different"] is None for one in report["chunks"]] == [False, False]
    assert report["datasets"]["new_orders"]["strays"] == [{"rows": 1, "what": "id is NULL", "chunks": []}]
    for column, sentence in (
        ("wrd", "has no column wrd (did you mean word?)"),
        ("word", "has the type text, which has"),
    ):
        answer = inside.ask(dataflow, *check, "--sum", column)
        assert (answer.code, sentence in answer.err) == (ExitCode.USAGE, True), answer.err
    answer = inside.ask(dataflow, "chunks", "check", "new_orders")
    assert answer.code == ExitCode.USAGE
    assert "new_orders has no chunks" in answer.err


BY_ID = ("--by", "range", "id", "--chunks", "2")


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("order", *BY_ID), ExitCode.USAGE, "there is no data set order (did you mean orders?)"),
        (
            ("orders",),
            ExitCode.USAGE,
            "data set orders has no partitioning: say how it is to be divided, such as --by range id",
        ),
        (
            ("orders", "--by", "luck", "id"),
            ExitCode.USAGE,
            "--by luck: it is range, date, list or hash, and then the column",
        ),
        (
            ("orders", *BY_ID, "--rows", "5"),
            ExitCode.USAGE,
            "--chunks and --rows say the same in two ways: give one of them",
        ),
        (("orders", *BY_ID, "--step", "month"), ExitCode.USAGE, "--step means nothing by range: it is for date"),
        (
            ("orders", "--by", "list", "word", "--chunks", "2"),
            ExitCode.USAGE,
            "--chunks means nothing by list: it is for range and hash",
        ),
        (
            ("orders", *BY_ID, "--publish"),
            ExitCode.USAGE,
            "--publish is for the chunks that --write declares: give both",
        ),
        (("counts", *BY_ID), ExitCode.USAGE, "data set counts has no table: write location.tablename"),
        (
            ("orders", *BY_ID, "--file", "/no/list"),
            ExitCode.USAGE,
            "/no/list: can't be written: ",
        ),
        (
            ("orders", *BY_ID, "--dsn", "host"),
            ExitCode.USAGE,
            "the source's address is none of Postgres: one looks like",
        ),
        (
            ("orders", *BY_ID, "--dsn", "postgresql://u:open-sesame@h/d"),
            ExitCode.USAGE,
            "the address has a password, and every user",
        ),
        (
            ("orders", *BY_ID, "--dsn", "postgresql://u@127.0.0.1:1/d"),
            ExitCode.UNREACHABLE,
            "the source database at 127.0.0.1:1/d",
        ),
    ],
)
def test_what_is_wrong_with_the_command_is_reported(
    dataflow: Program, declared: Connection, inside: Inside, arguments: tuple[str, ...], code: ExitCode, sentence: str
) -> None:
    answer = inside.ask(dataflow, "chunks", "plan", *arguments)
    assert answer.code == code
    assert answer.err.splitlines()[-1].startswith(f"error: {sentence}")
    assert "sesame" not in answer.err
    assert chunks(declared) == {}


@pytest.mark.parametrize(
    ("changes", "passkey", "code", "sentence"),
    [
        ({}, "xyzzy", ExitCode.FAILED, "the password of data set orders can't be opened: "),
        ({}, None, ExitCode.USAGE, "the password of data set orders is encrypted: set PASSKEY"),
        ({"hostname": None, "database": None}, PASSKEY, ExitCode.USAGE, "data set orders does not say where it is"),
        (
            {"url": "jdbc:mysql://h/d"},
            PASSKEY,
            ExitCode.USAGE,
            "data set orders: only Postgres can be looked at",
        ),
    ],
)
def test_what_is_wrong_with_the_way_to_the_table_is_reported(
    dataflow: Program,
    declared: Connection,
    inside: Inside,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    passkey: str | None,
    code: ExitCode,
    sentence: str,
) -> None:
    for column, value in changes.items():
        declared.execute(f"UPDATE opendataflow.dataset SET {column} = %s WHERE id = 'orders'".encode(), (value,))
    if passkey is None:
        monkeypatch.delenv("PASSKEY")
    else:
        monkeypatch.setenv("PASSKEY", passkey)
    answer = inside.ask(dataflow, "chunks", "plan", "orders", *BY_ID)
    assert answer.code == code
    assert answer.err.startswith(f"error: {sentence}")


def test_a_password_in_a_secret_is_reported_where_one_is_needed(
    dataflow: Program, declared: Connection, inside: Inside
) -> None:
    declared.execute(
        """UPDATE opendataflow.dataset SET encryptedpass = NULL, secret_ref = '{"name": "db", "key": "password"}'
           WHERE id = 'orders'"""
    )
    declared.execute("CREATE ROLE locked_of_plans LOGIN PASSWORD 'sesame'")
    try:
        declared.execute("UPDATE opendataflow.dataset SET username = 'locked_of_plans' WHERE id = 'orders'")
        answer = inside.ask(dataflow, "chunks", "plan", "orders", *BY_ID)
    finally:
        declared.execute("DROP ROLE locked_of_plans")
    assert answer.code == ExitCode.UNREACHABLE
    assert (
        "wants a password, and none is given; the password of orders is in a Secret, which only run pods" in answer.err
    )


def test_an_address_of_the_environment_goes_before_the_location(
    dataflow: Program, declared: Connection, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared.execute("UPDATE opendataflow.dataset SET hostname = 'nowhere.invalid' WHERE id = 'orders'")
    monkeypatch.setenv("DATAFLOW_SOURCE_DSN", dataflow.dsn or "")

    class Kept(Program):
        @property
        def environ(self) -> dict[str, str]:
            return {**super().environ, "DATAFLOW_SOURCE_DSN": self.dsn or ""}

    answer = inside.ask(Kept(dataflow.home, dataflow.dsn), "chunks", "plan", "orders", *BY_ID)
    assert answer.code == ExitCode.OK
