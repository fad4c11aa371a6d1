"""What the dashboard reads, and the role that may read nothing else."""

import os
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from opendataflow.store.migrations.schema import require_current
from tests.sql import graph
from tests.sql.conftest import Connection, open_connection

ROLE, USER = "opendataflow_dashboard", f"reader_{os.getpid()}"


@pytest.fixture
def reader(db: Connection, dsn: str) -> Iterator[Connection]:
    """A connection of a user who is a member of the dashboard's role, and nothing more."""
    with suppress(psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
        db.execute(f"CREATE ROLE {ROLE} NOLOGIN")
    db.execute("SELECT opendataflow.grant_dashboard()")
    db.execute(f"CREATE ROLE {USER} LOGIN PASSWORD 'hush' IN ROLE {ROLE}")
    with open_connection(make_conninfo(dsn, user=USER, password="hush")) as connection:
        yield connection
    db.execute(f"DROP ROLE {USER}")
    db.execute(f"DROP OWNED BY {ROLE}")
    with suppress(psycopg.errors.DependentObjectsStillExist):  # of other tests' databases
        db.execute(f"DROP ROLE {ROLE}")


def owned(db: Connection, role: str) -> set[str]:
    """The functions that run with the owner's rights and that a role may execute."""
    query = """SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'opendataflow'::regnamespace AND p.prosecdef
                 AND has_function_privilege(%s, p.oid, 'EXECUTE')"""
    return {row["proname"] for row in db.execute(query, (role,))}


def test_the_role_reads_what_the_dashboard_shows_and_no_table_of_users(db: Connection, reader: Connection) -> None:
    graph.apply(db, [graph.source("a", "1")], [graph.job("j", ["a"], [])])
    assert [row["job"] for row in reader.execute("SELECT * FROM opendataflow.dashboard_jobs(0, 10)")] == ["j"]
    tables = db.execute("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'opendataflow'").fetchall()
    may = "SELECT has_table_privilege(%s, 'opendataflow.' || %s, 'SELECT, INSERT, UPDATE, DELETE')"
    readable = {row["name"] for row in tables if graph.value(db, may, USER, row["name"])}
    assert readable == {"migration", "installed"}


def test_of_the_functions_with_the_rights_of_the_owner_the_role_gets_only_those_of_the_dashboard(
    db: Connection, reader: Connection
) -> None:
    assert not reader.closed
    # next_fence() skips a number, and neither reads nor writes a row.
    assert {name for name in owned(db, USER) if not name.startswith("dashboard_")} == {"next_fence"}
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute("SELECT opendataflow.scale_job('j', 1, 'me', NULL)")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        reader.execute("SELECT * FROM opendataflow.list_jobs()")


def test_nobody_else_may_execute_the_functions_of_the_dashboard(db: Connection) -> None:
    stranger = f"stranger_{os.getpid()}"
    db.execute(f"CREATE ROLE {stranger}")
    assert {name for name in owned(db, stranger) if name.startswith("dashboard_")} == set()
    db.execute(f"DROP ROLE {stranger}")


def test_every_function_of_the_dashboard_has_a_fixed_search_path(db: Connection) -> None:
    query = """SELECT p.proname, p.proconfig, p.prosecdef FROM pg_proc p
               WHERE p.pronamespace = 'opendataflow'::regnamespace AND starts_with(p.proname, 'dashboard_')"""
    for row in db.execute(query):
        assert row["prosecdef"], row
        assert "search_path=opendataflow, pg_temp" in row["proconfig"], row


async def test_a_program_of_the_role_can_check_the_version_of_the_schema(reader: Connection) -> None:
    info = reader.info
    async with await psycopg.AsyncConnection.connect(
        make_conninfo(info.dsn, password="hush"), row_factory=psycopg.rows.dict_row
    ) as connection:
        await require_current(connection)


def test_the_version_changes_with_every_change_and_with_nothing_else(db: Connection, dsn: str) -> None:
    version = "SELECT opendataflow.dashboard_version()"
    graph.apply(db, [graph.source("a", "1")], [])
    before = graph.value(db, version)
    with open_connection(dsn) as other, other.transaction():
        other.execute("SELECT * FROM opendataflow.publish('a', ARRAY['1'], 'me', NULL)")
        during = graph.value(db, version)
        assert during == graph.value(db, version)
    assert before.partition(":")[0] == during.partition(":")[0]
    assert graph.value(db, version).partition(":")[0] != before.partition(":")[0]


def test_jobs_that_fail_come_first_with_the_time_since_when(db: Connection, lease: str) -> None:
    graph.apply(
        db,
        [graph.source("a", "1", "2")],
        [graph.job("fine", ["a"], []), graph.job("last", ["a"], [], retry_limit=0), graph.job("gone", ["a"], [])],
    )
    graph.ask(db, "publish", "a", "1", "2")
    first, second = graph.claim(db, lease, "last", 2)
    graph.end(db, first, "FAILED")
    graph.end(db, second, "FAILED")
    db.execute("SELECT opendataflow.delete_job('gone', 'me', NULL)")
    rows = db.execute("SELECT * FROM opendataflow.dashboard_jobs(0, 10)").fetchall()
    assert [(row["job"], row["jobs"]) for row in rows] == [("last", 2), ("fine", 2)]
    assert rows[0]["failing_since"] == graph.value(db, "SELECT min(finished_at) FROM opendataflow.run")
    assert rows[1]["failing_since"] is None
    assert [row["job"] for row in db.execute("SELECT * FROM opendataflow.dashboard_jobs(1, 1)")] == ["fine"]


def declare(db: Connection, *ids: str) -> None:
    """Declare chunks of the data set a, which are not made yet."""
    query = "SELECT opendataflow.declare_chunks('a', %s, %s::jsonb[], 'test')"
    db.execute(query, (list(ids), [None] * len(ids)))


def tasks(db: Connection, *values: object) -> list[str]:
    query = "SELECT data_id FROM opendataflow.dashboard_tasks('j', %s, %s, %s, %s, %s, %s, %s)"
    return [row["data_id"] for row in db.execute(query, values)]


def test_a_grid_has_one_letter_for_each_task_in_the_order_of_the_job(db: Connection, lease: str) -> None:
    ids = [str(number) for number in range(1, 13)]
    graph.apply(db, [graph.dataset("a"), graph.dataset("b")], [graph.job("j", ["a"], ["b"], retry_limit=0)])
    declare(db, *ids)
    assert graph.value(db, "SELECT cells FROM opendataflow.dashboard_cells('j', NULL, NULL, NULL)") == "W" * 12
    graph.ask(db, "publish", "a", *ids[:9])
    runs = graph.claim(db, lease, "j", 5)
    for run, verdict in zip(runs, ("DONE", "DONE", "FAILED", "RETRYING"), strict=False):
        graph.end(db, run, verdict, delay=3600)
    graph.ask(db, "publish", "a", "2")
    graph.ask(db, "hold", "j", "7")
    graph.ask(db, "skip", "j", "8")
    row = db.execute("SELECT * FROM opendataflow.dashboard_cells('j', NULL, NULL, NULL)").fetchone()
    assert row is not None
    assert row["cells"] == "DSFTRQHKQWWW"
    assert row["version"] == graph.value(db, "SELECT opendataflow.dashboard_version()")
    part = "SELECT cells FROM opendataflow.dashboard_cells('j', %s, %s, %s)"
    assert graph.value(db, part, "2", "4", None) == "SFT"
    assert graph.value(db, part, "9", None, "1") == "WWW"
    whole = "SELECT opendataflow.dashboard_ids('j', NULL, NULL, NULL, 8, 2)"
    assert graph.value(db, whole) == ["9", "10"]
    assert graph.value(db, "SELECT opendataflow.dashboard_ids('j', '9', NULL, '1', 0, 9)") == ["10", "11", "12"]
    assert graph.value(db, "SELECT cells FROM opendataflow.dashboard_cells('nowhere', NULL, NULL, NULL)") == ""


def test_the_table_of_a_job_is_filtered_by_state_staleness_range_and_id(db: Connection, lease: str) -> None:
    graph.apply(db, [graph.dataset("a"), graph.dataset("b")], [graph.job("j", ["a"], ["b"])])
    declare(db, "x1", "X2", "y1", "y2")
    graph.ask(db, "publish", "a", "x1", "X2")
    for run in graph.claim(db, lease, "j", 2):
        graph.end(db, run, "DONE")
    graph.ask(db, "publish", "a", "x1")
    everything = tasks(db, None, None, None, None, None, 0, 10)
    assert sorted(everything) == ["X2", "x1", "y1", "y2"]
    assert tasks(db, "DONE", False, None, None, None, 0, 10) == ["X2"]
    assert tasks(db, "DONE", True, None, None, None, 0, 10) == ["x1"]
    assert tasks(db, "WAITING", None, None, None, None, 0, 10) == ["y1", "y2"]
    assert sorted(tasks(db, None, None, None, None, "x", 0, 10)) == ["X2", "x1"]
    assert tasks(db, None, None, None, None, "%", 0, 10) == []
    assert tasks(db, None, None, "x1", "y1", None, 0, 10) == ["x1", "y1"]
    assert tasks(db, None, None, None, None, None, 1, 2) == everything[1:3]


def test_a_range_of_a_descending_job_is_in_its_order(db: Connection) -> None:
    ids = [str(number) for number in range(8, 13)]
    graph.apply(db, [graph.dataset("a")], [graph.job("j", ["a"], [], descending=True)])
    declare(db, *ids)
    for first, last, expected in (("9", "11", ["11", "10", "9"]), ("11", None, ["12", "11"]), (None, "9", ["9", "8"])):
        assert tasks(db, None, None, first, last, None, 0, 9) == expected
        whole = "SELECT opendataflow.dashboard_ids('j', %s, %s, NULL, 0, 9)"
        assert graph.value(db, whole, first, last) == expected


def test_the_page_of_a_job_has_the_answers_of_describe_and_of_the_list(db: Connection) -> None:
    graph.apply(db, [graph.source("a", "1")], [graph.job("j", ["a"], [])])
    found = graph.value(db, "SELECT opendataflow.dashboard_job('j')")
    assert found["state"] == graph.value(db, "SELECT state FROM opendataflow.list_jobs()")
    described = graph.value(db, "SELECT opendataflow.describe_job('j')")
    assert {**found, "state": None, "failing_since": None} == {**described, "state": None, "failing_since": None}
    assert graph.value(db, "SELECT opendataflow.dashboard_job('nowhere')") is None


def test_the_graph_has_every_job_and_data_set_with_its_counts(db: Connection) -> None:
    graph.apply(
        db,
        [graph.dataset("a"), graph.dataset("b")],
        [graph.job("j", ["a"], ["b"]), graph.job("gone", ["a"], [])],
    )
    declare(db, "1", "2")
    graph.ask(db, "publish", "a", "1")
    db.execute("SELECT opendataflow.delete_job('gone', 'me', NULL)")
    found = graph.value(db, "SELECT opendataflow.dashboard_graph()")
    [job] = found["jobs"]
    assert (job["job"], job["inputs"], job["outputs"]) == ("j", ["a"], ["b"])
    assert job["counts"] == {"QUEUED": 1, "WAITING": 1}
    assert found["datasets"] == [
        {"dataset": "a", "more": False, "counts": {"READY": 1, "DECLARED": 1}},
        {"dataset": "b", "more": False, "counts": {"DECLARED": 2}},
    ]


def test_the_graph_counts_no_more_than_a_thousand_chunks_of_a_data_set(db: Connection) -> None:
    graph.apply(db, [graph.source("a", *map(str, range(1001)))], [])
    [found] = graph.value(db, "SELECT opendataflow.dashboard_graph()")["datasets"]
    assert (found["more"], found["counts"]) == (True, {"READY": 1001})


def test_a_pipeline_has_its_tests_and_the_steps_of_its_newest_run_that_has_some(db: Connection, lease: str) -> None:
    graph.apply(db, [graph.source("a", "1", "2")], [graph.job("j", ["a"], [], pipeline="clean", tests="subject")])
    graph.ask(db, "publish", "a", "1", "2")
    first, second = graph.claim(db, lease, "j", 2)
    steps = [{"ordinal": 1, "name": "read a", "status": "DONE", "rows": 5, "seconds": 0.5}]
    graph.end(db, first, "DONE", metrics={"commit": "4f0c"}, steps=steps)
    graph.end(db, second, "DONE")
    [row] = db.execute("SELECT * FROM opendataflow.dashboard_pipelines()").fetchall()
    assert (row["pipeline"], row["job"], row["run"], row["data_id"]) == ("clean", "j", first["run"], first["data_id"])
    assert (row["metrics"]["commit"], row["tests"]["subject"]) == ("4f0c", "subject")
    assert [(step["name"], step["rows"]) for step in row["steps"]] == [("read a", 5)]


def search(db: Connection, part: str, limit: int = 20) -> set[tuple[str, str, str | None]]:
    rows = db.execute("SELECT * FROM opendataflow.dashboard_search(%s, %s)", (part, limit)).fetchall()
    return {(row["kind"], row["owner"], row["data_id"]) for row in rows}


def test_a_search_finds_jobs_data_sets_pipelines_chunks_and_runs_by_id(db: Connection, lease: str) -> None:
    graph.apply(
        db,
        [graph.source("flights", "2013-01", "2013-02"), graph.dataset("delays")],
        [graph.job("delay", ["flights"], ["delays"], pipeline="Late")],
    )
    graph.ask(db, "publish", "flights", "2013-01")
    [run] = graph.claim(db, lease, "delay", 1)
    assert search(db, "DELAY") == {("job", "delay", None), ("dataset", "delays", None)}
    assert search(db, "late") == {("job", "delay", None)}
    assert search(db, "2013-02") == {("chunk", "delay", "2013-02"), ("published", "flights", "2013-02")}
    assert search(db, "13-0") == {("chunk", "delay", "2013-01"), ("chunk", "delay", "2013-02")}
    assert len(search(db, "13-0", 1)) == 1
    assert ("run", "delay", "2013-01") in search(db, str(run["run"]))
    assert search(db, "%") == search(db, "9" * 19) == set()


def test_the_pages_of_chunks_runs_and_data_sets_have_the_answers_of_the_commands(db: Connection, lease: str) -> None:
    graph.apply(db, [graph.source("a", "1", "2"), graph.dataset("b")], [graph.job("j", ["a"], ["b"])])
    graph.ask(db, "publish", "a", "1")
    [run] = graph.claim(db, lease, "j", 1)
    graph.end(db, run, "DONE", log_tail="fine\n")
    chunk = graph.value(db, "SELECT opendataflow.dashboard_chunk('j', '1')")
    assert chunk["why"]["state"] == "DONE"
    assert {it["dataset"] for it in chunk["inspection"]["datasets"]} == {"a", "b"}
    assert chunk["events"][-1]["event"] == "complete"
    found = graph.value(db, "SELECT opendataflow.dashboard_run(%s)", run["run"])
    assert (found["run"]["state"], found["log"]["log_tail"]) == ("SUCCEEDED", "fine\n")
    [newest] = db.execute("SELECT * FROM opendataflow.dashboard_runs('j', '1', 9)").fetchall()
    assert newest["dashboard_runs"]["run"] == run["run"]
    assert graph.value(db, "SELECT opendataflow.dashboard_dataset('b')")["producer"] == "j"
    chunks = db.execute("SELECT * FROM opendataflow.dashboard_chunks('a', NULL, '2', 0, 9)").fetchall()
    assert [(row["data_id"], row["status"]) for row in chunks] == [("2", "READY")]
    for missing in ("chunk('j', '9')", "run(0)", "dataset('nowhere')"):
        assert graph.value(db, f"SELECT opendataflow.dashboard_{missing}") is None
