"""The three tables of the framework that came before, as views: its users' SQL does what it did, or is refused.

The statuses that can be set are written down as data; what can't be honoured is refused with one sentence.
"""

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from opendataflow.store.connections.connection import connect
from opendataflow.store.migrations.schema import migrate
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import (
    apply,
    ask,
    chunk,
    chunks,
    claim,
    dataset,
    end,
    job,
    of_namespace,
    open_lease,
    problems,
    task,
    tasks,
    transitions,
    value,
)
from tests.waiting import wait_until

ROW = "SELECT locktype, status FROM dataflow.datastatus WHERE datasetid = %s AND dataid = %s ORDER BY locktype, status"


def statuses(db: Connection) -> set[tuple[str, str, str, str, str]]:
    """All of datastatus but its times."""
    rows = db.execute("SELECT datasetid, jobid, dataid, locktype, status FROM dataflow.datastatus").fetchall()
    return {tuple(row.values()) for row in rows}


def set_status(db: Connection, to: str, **where: str) -> int:
    """UPDATE the status of the rows with these columns; return how many they were."""
    condition = " AND ".join(f"{column} = %s" for column in where)
    query = f"UPDATE dataflow.datastatus SET status = %s, modified = now() WHERE {condition}"
    return db.execute(query, (to, *where.values())).rowcount


def insert_status(db: Connection, dataset_id: str, data_id: str, status: str, job_id: str = "fakejob") -> None:
    db.execute(
        "INSERT INTO dataflow.datastatus (dataid, datasetid, jobid, locktype, modified, status) "
        "VALUES (%s, %s, %s, 'OUT', now(), %s)",
        (data_id, dataset_id, job_id, status),
    )


def refused(db: Connection, statement: str, *values: object) -> str:
    """The one sentence that a statement is refused with; nothing has changed then."""
    before = statuses(db), tasks(db)
    with pytest.raises(psycopg.DatabaseError) as caught, db.transaction():
        db.execute(statement, values)
    assert caught.value.sqlstate in ("DF001", "DF002")
    assert (statuses(db), tasks(db)) == before
    assert db.execute("SELECT FROM opendataflow.view_row").fetchall() == []
    sentence = caught.value.diag.message_primary
    assert sentence is not None
    assert "\n" not in sentence
    return sentence


@pytest.fixture
def db(rolled_back: Connection) -> Connection:
    return rolled_back


@pytest.fixture
def own(dsn: str) -> Iterator[Connection]:
    """A connection to a database of the test's own; commits by itself."""
    with open_connection(dsn) as connection:
        yield connection


def declare_bob(db: Connection) -> str:
    """The old framework's own example: loadbob reads bobin and makes bobout. Returns a lease."""
    for statement in (
        "INSERT INTO dataflow.dataset (datasetid) VALUES ('bobin')",
        "INSERT INTO dataflow.dataset (datasetid) VALUES ('bobout')",
        "INSERT INTO dataflow.job (datasetid, itemtype, jobid) VALUES ('bobout', 'OUT', 'loadbob')",
        "INSERT INTO dataflow.job (datasetid, itemtype, jobid) VALUES ('bobin', 'IN', 'loadbob')",
    ):
        db.execute(statement)
    return open_lease(db)


@pytest.fixture
def bob(db: Connection) -> str:
    """The old framework's own example, declared; a lease."""
    return declare_bob(db)


# -- the states of a chunk, and every status that can be set ----------------------------------------------------


def _ready(db: Connection, lease: str) -> None:
    end(db, claim(db, lease, "loadbob")[0], "DONE")


def _running(db: Connection, lease: str) -> None:
    claim(db, lease, "loadbob")


def _failed(db: Connection, lease: str) -> None:
    end(db, claim(db, lease, "loadbob")[0], "FAILED")


def _resubmit(db: Connection, lease: str) -> None:
    _ready(db, lease)
    ask(db, "resubmit", "loadbob", "1.0")


def _pending(db: Connection, lease: str) -> None:
    _ready(db, lease)
    set_status(db, "PENDING", datasetid="bobout")


def _held(db: Connection, lease: str) -> None:
    _ready(db, lease)
    ask(db, "hold_chunks", "bobout", "1.0")


def _held_unmade(db: Connection, _lease: str) -> None:
    ask(db, "hold_chunks", "bobout", "1.0")


STATES: dict[str, Callable[[Connection, str], None]] = {
    "READY": _ready,
    "RUNNING": _running,
    "FAILED": _failed,
    "RESUBMIT": _resubmit,
    "PENDING": _pending,
    "HOLD of READY": _held,
    "HOLD of DECLARED": _held_unmade,
}


@dataclass(frozen=True)
class Becomes:
    """What an UPDATE does: the chunk's status and its task's state, or the sentence that refuses it.

    `version`: same, new or none; none where nothing is there.
    """

    chunk: str = ""
    task: str = ""
    version: str = "same"
    refused: str = ""


NO_RUN = Becomes(refused="nothing is set to RUNNING")
SET = {
    ("READY", "READY"): Becomes("READY", "DONE", "new"),
    ("READY", "RUNNING"): NO_RUN,
    ("READY", "FAILED"): Becomes("FAILED", "FAILED"),
    ("READY", "RESUBMIT"): Becomes("RESUBMIT", "QUEUED"),
    ("READY", "PENDING"): Becomes("PENDING", "DONE"),
    ("READY", "HOLD"): Becomes("HOLD", "DONE"),
    ("RUNNING", "READY"): Becomes(refused="chunk 1.0 of bobout is being written by run N: publish it when"),
    ("RUNNING", "RUNNING"): Becomes("RUNNING", "RUNNING"),
    ("RUNNING", "FAILED"): Becomes(refused="chunk 1.0 of bobout is being written by run N: set it when"),
    ("RUNNING", "RESUBMIT"): Becomes("RUNNING", "RUNNING"),
    ("RUNNING", "PENDING"): Becomes(refused="chunk 1.0 of bobout is being written by run N: set it when"),
    ("RUNNING", "HOLD"): Becomes(refused="chunk 1.0 of bobout is being written by run N: hold it when"),
    ("FAILED", "READY"): Becomes("READY", "DONE", "new"),
    ("FAILED", "RUNNING"): NO_RUN,
    ("FAILED", "FAILED"): Becomes("FAILED", "FAILED"),
    ("FAILED", "RESUBMIT"): Becomes("RESUBMIT", "QUEUED"),
    ("FAILED", "PENDING"): Becomes("PENDING", "FAILED", "none"),
    ("FAILED", "HOLD"): Becomes("HOLD", "FAILED"),
    ("RESUBMIT", "READY"): Becomes("READY", "DONE", "new"),
    ("RESUBMIT", "RUNNING"): NO_RUN,
    ("RESUBMIT", "FAILED"): Becomes("FAILED", "FAILED", "none"),
    ("RESUBMIT", "RESUBMIT"): Becomes("RESUBMIT", "QUEUED"),
    ("RESUBMIT", "PENDING"): Becomes("PENDING", "WAITING", "none"),
    ("RESUBMIT", "HOLD"): Becomes("HOLD", "WAITING"),
    ("PENDING", "READY"): Becomes("READY", "DONE"),
    ("PENDING", "RUNNING"): NO_RUN,
    ("PENDING", "FAILED"): Becomes("FAILED", "FAILED"),
    ("PENDING", "RESUBMIT"): Becomes("RESUBMIT", "QUEUED"),
    ("PENDING", "PENDING"): Becomes("PENDING", "DONE"),
    ("PENDING", "HOLD"): Becomes("HOLD", "DONE"),
    ("HOLD of READY", "READY"): Becomes("READY", "DONE"),
    ("HOLD of READY", "RUNNING"): NO_RUN,
    ("HOLD of READY", "FAILED"): Becomes("FAILED", "FAILED"),
    ("HOLD of READY", "RESUBMIT"): Becomes("RESUBMIT", "QUEUED"),
    ("HOLD of READY", "PENDING"): Becomes("PENDING", "DONE"),
    ("HOLD of READY", "HOLD"): Becomes("HOLD", "DONE"),
    ("HOLD of DECLARED", "READY"): Becomes("READY", "DONE", "new"),
    ("HOLD of DECLARED", "RUNNING"): NO_RUN,
    ("HOLD of DECLARED", "FAILED"): Becomes("FAILED", "FAILED", "none"),
    ("HOLD of DECLARED", "RESUBMIT"): Becomes("RESUBMIT", "QUEUED", "none"),
    ("HOLD of DECLARED", "PENDING"): Becomes("PENDING", "WAITING", "none"),
    ("HOLD of DECLARED", "HOLD"): Becomes("HOLD", "WAITING", "none"),
}


def test_the_table_says_what_every_status_does_to_every_state() -> None:
    settable = ("READY", "RUNNING", "FAILED", "RESUBMIT", "PENDING", "HOLD")
    assert set(SET) == {(state, status) for state in STATES for status in settable}


@pytest.mark.parametrize(("state", "status"), SET, ids=lambda given: str(given).replace(" ", "-"))
def test_setting_a_status_is_the_request_that_it_stands_for(db: Connection, bob: str, state: str, status: str) -> None:
    insert_status(db, "bobin", "1.0", "READY")
    STATES[state](db, bob)
    fence, becomes = chunk(db, "bobout", "1.0")["fence"], SET[state, status]
    if becomes.refused:
        query = "UPDATE dataflow.datastatus SET status = %s WHERE datasetid = 'bobout'"
        assert re.sub(r"run \d+", "run N", refused(db, query, status)).startswith(becomes.refused)
    else:
        assert set_status(db, status, datasetid="bobout") == 1
        now = chunk(db, "bobout", "1.0")
        assert (now["status"], task(db, "loadbob", "1.0")["state"]) == (becomes.chunk, becomes.task)
        version = "none" if now["fence"] is None else "same" if now["fence"] == fence else "new"
        assert version == becomes.version
    assert problems(db) == []


INSERTED = {
    "READY": ("READY", "QUEUED"),
    "FAILED": ("FAILED", "WAITING"),
    "PENDING": ("PENDING", "WAITING"),
    "HOLD": ("HOLD", "WAITING"),
    "RESUBMIT": (None, "WAITING"),
}
"""Status of an inserted row -> what the row shows then (None: no row), and the state of the task that reads it."""


@pytest.mark.usefixtures("bob")
@pytest.mark.parametrize("status", INSERTED)
def test_a_row_can_be_inserted_with_a_status(db: Connection, status: str) -> None:
    insert_status(db, "bobin", "1.0", status)
    shown = {(s, j) for d, j, _, _, s in statuses(db) if d == "bobin"}
    expected, reader = INSERTED[status]
    assert shown == ({(expected, "fakejob")} if expected else set())
    assert tasks(db) == {"loadbob/1.0": reader}
    assert problems(db) == []


@pytest.mark.usefixtures("bob")
def test_the_same_status_without_a_new_time_changes_nothing(db: Connection) -> None:
    insert_status(db, "bobin", "1.0", "READY")
    fence = chunk(db, "bobin", "1.0")["fence"]
    assert db.execute("UPDATE dataflow.datastatus SET status = 'READY' WHERE datasetid = 'bobin'").rowcount == 1
    assert chunk(db, "bobin", "1.0")["fence"] == fence


def test_ready_inserted_again_is_a_new_version_and_makes_consumers_stale(db: Connection, bob: str) -> None:
    insert_status(db, "bobin", "1.0", "READY")
    _ready(db, bob)
    insert_status(db, "bobin", "1.0", "READY", "otherjob")
    assert task(db, "loadbob", "1.0")["stale"]
    assert ("bobin", "otherjob", "1.0", "OUT", "READY") in statuses(db)


# -- what datastatus shows ---------------------------------------------------------------------------------------


def test_the_views_have_the_columns_of_the_old_tables_in_their_order(db: Connection) -> None:
    columns = """SELECT table_name, string_agg(column_name, ' ' ORDER BY ordinal_position) AS columns
                 FROM information_schema.columns WHERE table_schema = 'dataflow' GROUP BY table_name"""
    assert {row["table_name"]: row["columns"] for row in db.execute(columns)} == {
        "job": "jobid itemtype datasetid itemvalue modified",
        "dataset": "datasetid hostname database schemaname tablename username encryptedpass",
        "datastatus": "datasetid jobid dataid locktype status modified",
    }


def test_a_run_shows_what_it_reads_and_what_it_writes_until_it_ends(db: Connection, bob: str) -> None:
    insert_status(db, "bobin", "1.0", "READY")
    published = ("bobin", "fakejob", "1.0", "OUT", "READY")
    assert statuses(db) == {published}
    run = claim(db, bob, "loadbob")[0]
    assert statuses(db) == {
        published,
        ("bobin", "loadbob", "1.0", "IN", "RUNNING"),
        ("bobout", "loadbob", "1.0", "OUT", "RUNNING"),
    }
    end(db, run, "DONE")
    assert statuses(db) == {published, ("bobout", "loadbob", "1.0", "OUT", "READY")}


def test_after_a_failure_the_output_is_failed_and_keeps_the_job_off_until_a_resubmit(db: Connection, bob: str) -> None:
    insert_status(db, "bobin", "1.0", "READY")
    end(db, claim(db, bob, "loadbob")[0], "FAILED")
    assert ("bobout", "loadbob", "1.0", "OUT", "FAILED") in statuses(db)
    assert len(statuses(db)) == 2
    assert claim(db, bob, "loadbob") == []
    assert set_status(db, "RESUBMIT", jobid="loadbob", dataid="1.0") == 1
    assert ("bobout", "loadbob", "1.0", "OUT", "RESUBMIT") in statuses(db)
    assert [run["data_id"] for run in claim(db, bob, "loadbob")] == ["1.0"]


def test_one_chunk_is_resubmitted_by_sql_and_what_has_happened_is_kept(db: Connection, bob: str) -> None:
    """Elsewhere one partition can't be retried alone, or a retry erases the history of the attempt before."""
    insert_status(db, "bobin", "1.0", "READY")
    insert_status(db, "bobin", "2.0", "READY")
    for run in claim(db, bob, "loadbob", 2):
        end(db, run, "FAILED")
    set_status(db, "RESUBMIT", datasetid="bobout", dataid="1.0")
    end(db, claim(db, bob, "loadbob", 2)[0], "DONE")
    assert tasks(db) == {"loadbob/1.0": "DONE", "loadbob/2.0": "FAILED"}
    states = ["DECLARED", "RUNNING", "FAILED", "RESUBMIT", "RUNNING", "READY"]
    assert transitions(db, "chunk", "bobout", "1.0") == states
    assert value(db, "SELECT count(*) FROM opendataflow.run WHERE data_id = '1.0'") == 2


@pytest.mark.usefixtures("bob")
def test_the_time_of_a_row_is_that_of_its_last_change(db: Connection) -> None:
    modified = "SELECT modified FROM dataflow.datastatus WHERE datasetid = 'bobin'"
    insert_status(db, "bobin", "1.0", "READY")
    published = value(db, modified)
    assert set_status(db, "HOLD", datasetid="bobin") == 1
    assert value(db, modified) > published


def test_resubmit_of_a_running_job_is_remembered_whichever_of_its_rows_are_set(db: Connection, bob: str) -> None:
    insert_status(db, "bobin", "1.0", "READY")
    run = claim(db, bob, "loadbob")[0]
    assert set_status(db, "RESUBMIT", jobid="loadbob", dataid="1.0") == 2
    assert ("bobout", "loadbob", "1.0", "OUT", "RUNNING") in statuses(db)
    end(db, run, "DONE")
    assert ("bobout", "loadbob", "1.0", "OUT", "RESUBMIT") in statuses(db)
    assert problems(db) == []


def test_all_that_failed_is_asked_for_again_by_one_statement(db: Connection, bob: str) -> None:
    for number in range(5):
        insert_status(db, "bobin", str(number), "READY")
    runs = claim(db, bob, "loadbob", 5)
    for run in runs:
        end(db, run, "FAILED" if run["data_id"] != "3" else "DONE")
    assert set_status(db, "RESUBMIT", status="FAILED") == 4
    assert sorted(run["data_id"] for run in claim(db, bob, "loadbob", 5)) == ["0", "1", "2", "4"]
    assert problems(db) == []


@pytest.mark.usefixtures("bob")
def test_the_history_knows_who_wrote_a_row(db: Connection) -> None:
    insert_status(db, "bobin", "1.0", "READY")
    assert transitions(db, "chunk", "bobin", "1.0") == ["DECLARED", "READY"]
    who = value(db, "SELECT actor FROM opendataflow.history WHERE kind = 'chunk' AND owner = 'bobin'")
    assert who == value(db, "SELECT session_user")


def test_a_row_that_changed_since_the_statement_saw_it_is_not_overwritten(own: Connection, dsn: str) -> None:
    lease = declare_bob(own)
    insert_status(own, "bobin", "1.0", "READY")
    run = claim(own, lease, "loadbob")[0]
    raised: list[psycopg.Error] = []

    def resubmit() -> None:
        with open_connection(dsn) as other:
            try:
                set_status(other, "FAILED", datasetid="bobout")
            except psycopg.Error as error:
                raised.append(error)

    with open_connection(dsn) as holder, holder.transaction():
        holder.execute("SELECT opendataflow.lock_datasets(ARRAY['bobout'], true)")
        waiter = threading.Thread(target=resubmit)
        waiter.start()
        waiting = """SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                     WHERE NOT l.granted AND d.datname = current_database()"""
        wait_until(lambda: value(own, waiting), "the statement waits for the locks", every=0.01)
        # The statement has seen RUNNING; the run ends before it gets its locks.
        end(holder, run, "DONE")
    waiter.join(300)
    assert [error.sqlstate for error in raised] == ["40001"]
    assert chunks(own)["bobout/1.0"] == "READY"


# -- what is declared by SQL ---------------------------------------------------------------------------------------

JOB_ROWS = "SELECT jobid, itemtype, datasetid, itemvalue FROM dataflow.job ORDER BY jobid, itemtype, datasetid"


def test_a_job_is_what_its_rows_say_in_whatever_order_they_come(db: Connection) -> None:
    for row in (
        ("loadbob", "COLOUR", None, "blue"),
        ("loadbob", "OUT", "bobout", None),
        ("loadbob", "IN", "bobin", None),
        ("loadbob", "IN", "other", None),
    ):
        db.execute("INSERT INTO dataflow.job (jobid, itemtype, datasetid, itemvalue) VALUES (%s, %s, %s, %s)", row)
    db.execute("INSERT INTO dataflow.dataset (datasetid, hostname, tablename) VALUES ('bobin', 'h1', 't1')")
    assert [tuple(row.values()) for row in db.execute(JOB_ROWS)] == [
        ("loadbob", "COLOUR", None, "blue"),
        ("loadbob", "IN", "bobin", None),
        ("loadbob", "IN", "other", None),
        ("loadbob", "OUT", "bobout", None),
    ]
    assert value(db, "SELECT hostname FROM dataflow.dataset WHERE datasetid = 'bobin'") == "h1"
    assert value(db, "SELECT count(*) FROM dataflow.dataset") == 3


def test_half_a_job_does_not_run(db: Connection) -> None:
    lease = open_lease(db)
    db.execute("INSERT INTO dataflow.dataset (datasetid) VALUES ('a'), ('b')")
    insert_status(db, "a", "1", "READY")
    for itemtype, dataset_id, runs in (("IN", "a", 0), ("OUT", "b", 1)):
        db.execute("INSERT INTO dataflow.job (jobid, itemtype, datasetid) VALUES ('j', %s, %s)", (itemtype, dataset_id))
        assert len(claim(db, lease, "j", 5)) == runs
    assert problems(db) == []


def test_a_job_of_the_old_framework_runs_beside_itself_and_fails_for_good(db: Connection, bob: str) -> None:
    for number in range(3):
        insert_status(db, "bobin", str(number), "READY")
    assert len(claim(db, bob, "loadbob", 10)) == 3
    assert value(db, "SELECT retry_limit FROM opendataflow.job") == 0


def test_rows_for_a_job_of_a_file_leave_the_rest_of_it_alone(db: Connection) -> None:
    apply(db, [dataset("a"), dataset("b"), dataset("c")], [job("j", ["a"], ["b"], parallelism=7, suspended=True)])
    db.execute("INSERT INTO dataflow.job (jobid, itemtype, datasetid) VALUES ('j', 'IN', 'c')")
    db.execute("INSERT INTO dataflow.job (jobid, itemtype, itemvalue) VALUES ('j', 'COLOUR', 'red')")
    db.execute("UPDATE dataflow.job SET itemvalue = 'blue' WHERE jobid = 'j' AND itemtype = 'COLOUR'")
    row = db.execute("SELECT parallelism, suspended FROM opendataflow.job").fetchone()
    assert row == {"parallelism": 7, "suspended": True}
    assert len(db.execute(JOB_ROWS).fetchall()) == 4
    assert value(db, "SELECT itemvalue FROM dataflow.job WHERE itemtype = 'COLOUR'") == "blue"


def test_a_data_set_is_changed_by_update_and_keeps_what_the_view_does_not_show(db: Connection) -> None:
    apply(db, [{**dataset("a"), "url": "file:///a", "hostname": "old"}], [])
    db.execute("UPDATE dataflow.dataset SET hostname = 'new', encryptedpass = 'abc' WHERE datasetid = 'a'")
    row = db.execute("SELECT hostname, url, encryptedpass FROM opendataflow.dataset").fetchone()
    assert row == {"hostname": "new", "url": "file:///a", "encryptedpass": "abc"}


def test_a_job_can_read_the_data_set_that_is_built_in(db: Connection) -> None:
    db.execute("INSERT INTO dataflow.job (datasetid, itemtype, jobid) VALUES ('today', 'IN', 'validate_datastatus')")
    db.execute(
        "INSERT INTO dataflow.job (datasetid, itemtype, jobid) VALUES ('datastatus', 'OUT', 'validate_datastatus')"
    )
    assert value(db, "SELECT kind FROM opendataflow.dataset WHERE id = 'today'") == "calendar"
    assert problems(db) == []


def test_ids_of_namespaces_are_shown_and_written_with_the_namespace(db: Connection) -> None:
    own = [of_namespace("team", dataset("raw", "1")), of_namespace("team", dataset("out"))]
    apply(db, [*own, dataset("raw", "1")], [of_namespace("team", job("load", ["raw"], ["out"]))])
    found = db.execute("SELECT jobid, datasetid FROM dataflow.job ORDER BY datasetid").fetchall()
    assert [tuple(row.values()) for row in found] == [("team/load", "team/out"), ("team/load", "team/raw")]
    assert {row[0] for row in statuses(db)} == {"raw", "team/raw"}
    assert set_status(db, "RESUBMIT", datasetid="team/raw") == 1
    assert (chunk(db, "team/raw", "1")["status"], chunk(db, "raw", "1")["status"]) == ("RESUBMIT", "READY")
    db.execute("INSERT INTO dataflow.dataset (datasetid, hostname) VALUES ('team/more', 'h')")
    assert value(db, "SELECT id FROM opendataflow.dataset WHERE hostname = 'h'") == "team/more"
    sentence = refused(db, "INSERT INTO dataflow.dataset (datasetid) VALUES ('a/b/c')")
    assert sentence == '"a/b/c" is neither an id, which has no /, nor namespace/id'


def test_many_jobs_are_inserted_by_one_statement(db: Connection) -> None:
    db.execute(
        "INSERT INTO dataflow.job (jobid, itemtype, datasetid) "
        "SELECT 'j' || n, t.itemtype, 'd' || n + t.step FROM generate_series(1, 50) AS n, "
        "(VALUES ('IN', 0), ('OUT', 1)) AS t(itemtype, step)"
    )
    insert_status(db, "d1", "x", "READY")
    assert tasks(db)["j1/x"] == "QUEUED"
    assert tasks(db)["j50/x"] == "WAITING"
    assert problems(db) == []


# -- what is refused -----------------------------------------------------------------------------------------------

REFUSED = {
    "DELETE FROM dataflow.datastatus": "set status = 'RESUBMIT' (dataflow resubmit) to have it done again",
    "DELETE FROM dataflow.job WHERE itemtype = 'IN'": "dataflow apply -f FILE",
    "DELETE FROM dataflow.dataset": "data sets stay",
    "UPDATE dataflow.datastatus SET dataid = '2.0'": "only the status is updated",
    "UPDATE dataflow.datastatus SET jobid = 'x'": "only the status is updated",
    "UPDATE dataflow.datastatus SET locktype = 'IN'": "only the status is updated",
    "UPDATE dataflow.datastatus SET status = 'DONE'": "there is no status DONE",
    "UPDATE dataflow.datastatus SET status = NULL": "there is no status NULL",
    "UPDATE dataflow.dataset SET datasetid = 'x' WHERE datasetid = 'bobin'": "data set bobin keeps its id",
    "UPDATE dataflow.job SET datasetid = 'x' WHERE itemtype = 'IN'": "only the itemvalue is updated",
    "UPDATE dataflow.job SET jobid = 'x'": "only the itemvalue is updated",
    "INSERT INTO dataflow.datastatus VALUES ('nosuch', 'f', '1', 'OUT', 'READY', now())": "there is no data set nosuch",
    "INSERT INTO dataflow.datastatus VALUES ('bobin', 'f', '1', 'IN', 'RUNNING', now())": "an IN row can't be inserted",
    "INSERT INTO dataflow.datastatus VALUES ('bobin', 'f', '1', 'out', 'READY', now())": "is OUT, not out",
    "INSERT INTO dataflow.datastatus VALUES ('bobin', 'f', '1', 'OUT', 'ready', now())": "there is no status ready",
    "INSERT INTO dataflow.datastatus VALUES ('bobin', 'f', '1', 'OUT', 'RUNNING', now())": "nothing is set to RUNNING",
    "INSERT INTO dataflow.datastatus VALUES ('bobin', NULL, '1', 'OUT', 'READY', now())": "needs its dataid",
    "INSERT INTO dataflow.datastatus VALUES ('bobin', 'f', '1', 'OUT', 'READY'), ('bobin', 'f', '1', 'OUT', 'HOLD')": (
        "chunk 1 of bobin can't be set to two statuses at once"
    ),
    "INSERT INTO dataflow.dataset (hostname) VALUES ('h')": "needs its datasetid",
    "INSERT INTO dataflow.job VALUES ('j', 'IN')": "an IN row needs its datasetid",
    "INSERT INTO dataflow.job VALUES ('j', 'IN', 'bobin', 'value')": "an IN row has no itemvalue",
    "INSERT INTO dataflow.job VALUES ('j', 'COLOUR', 'bobin', 'value')": "has no data set",
    "INSERT INTO dataflow.job VALUES ('j', 'COLOUR')": "needs its itemvalue",
    "INSERT INTO dataflow.job VALUES ('j', 'A B', NULL, 'v')": "no shell can have it",
    "INSERT INTO dataflow.job VALUES ('j', 'dataid', NULL, 'v')": "the framework's own",
    "INSERT INTO dataflow.job VALUES (NULL, 'IN', 'bobin')": "needs its jobid",
    "INSERT INTO dataflow.job VALUES ('second', 'OUT', 'bobout')": "bobout is made by the job loadbob already",
    "INSERT INTO dataflow.job VALUES ('a', 'OUT', 'new'), ('b', 'OUT', 'new')": "can't be made by both a and b",
    "INSERT INTO dataflow.job VALUES ('loadbob', 'IN', 'bobout')": "wait for each other: loadbob -> loadbob",
}


@pytest.mark.usefixtures("bob")
@pytest.mark.parametrize("statement", REFUSED)
def test_what_cannot_be_honoured_is_refused_with_one_sentence(db: Connection, statement: str) -> None:
    insert_status(db, "bobin", "1.0", "READY")
    assert REFUSED[statement] in refused(db, statement)


def test_a_cycle_over_several_jobs_is_refused_with_its_way(db: Connection) -> None:
    apply(db, [dataset(d) for d in "abc"], [job("x", ["a"], ["b"]), job("y", ["b"], ["c"])])
    sentence = refused(db, "INSERT INTO dataflow.job VALUES ('x', 'IN', 'c')")
    assert "x -> y -> x" in sentence
    assert tasks(db) == {}


def test_a_data_set_that_is_there_is_not_overwritten_by_an_insert(db: Connection) -> None:
    insert = "INSERT INTO dataflow.dataset (datasetid, hostname) VALUES ('a', %s)"
    db.execute(insert, ("h1",))
    db.execute(insert, ("h1",))
    assert "change it by UPDATE" in refused(db, insert, "h2")


def test_the_read_lock_of_a_run_goes_with_the_run(db: Connection, bob: str) -> None:
    insert_status(db, "bobin", "1.0", "READY")
    claim(db, bob, "loadbob")
    query = "UPDATE dataflow.datastatus SET status = 'FAILED' WHERE locktype = 'IN'"
    assert "dataflow cancel loadbob 1.0 ends it" in refused(db, query)
    assert "dataflow resubmit" in refused(db, "DELETE FROM dataflow.datastatus WHERE locktype = 'IN'")


def test_one_row_that_is_refused_takes_the_whole_statement_back(db: Connection, bob: str) -> None:
    insert_status(db, "bobin", "1.0", "READY")
    insert_status(db, "bobin", "2.0", "READY")
    claim(db, bob, "loadbob")
    assert "is being written" in refused(db, "UPDATE dataflow.datastatus SET status = 'HOLD' WHERE locktype = 'OUT'")


def test_a_statement_on_a_view_needs_read_committed(own: Connection) -> None:
    declare_bob(own)
    own.execute("SET default_transaction_isolation = serializable")
    with pytest.raises(psycopg.DatabaseError, match="READ COMMITTED"):
        insert_status(own, "bobin", "1.0", "READY")


# -- migrations ----------------------------------------------------------------------------------------------------


async def _migrate(dsn: str) -> list[str]:
    async with await connect(dsn) as connection:
        return await migrate(connection)


async def test_real_tables_are_left_alone_and_the_way_on_is_reported(postgres_server: str) -> None:
    with open_connection(postgres_server) as admin:
        admin.execute("DROP DATABASE IF EXISTS dataflow_test_old WITH (FORCE)")
        admin.execute("CREATE DATABASE dataflow_test_old")
    dsn = make_conninfo(postgres_server, dbname="dataflow_test_old")
    with open_connection(dsn) as db:
        db.execute("CREATE SCHEMA dataflow CREATE TABLE datastatus (dataid varchar) CREATE VIEW job AS SELECT 1 AS one")
        db.execute("INSERT INTO dataflow.datastatus VALUES ('mine')")
        done = await _migrate(dsn)
        assert done[:1] == ["tables created"]
        assert "since there are dataflow.datastatus and dataflow.job already" in done[-1]
        assert "`dataflow import-legacy" in done[-1]
        assert value(db, "SELECT dataid FROM dataflow.datastatus") == "mine"
        assert value(db, "SELECT to_regclass('dataflow.dataset')") is None
        assert await _migrate(dsn) == done[-1:]
        db.execute("ALTER TABLE dataflow.datastatus RENAME TO datastatus_old")
        db.execute("DROP VIEW dataflow.job")
        assert await _migrate(dsn) == ["views of schema dataflow made"]
        assert await _migrate(dsn) == []
        assert value(db, "SELECT count(*) FROM dataflow.datastatus") == 0
        assert value(db, "SELECT dataid FROM dataflow.datastatus_old") == "mine"
    with open_connection(postgres_server) as admin:
        admin.execute("DROP DATABASE dataflow_test_old WITH (FORCE)")


async def test_views_of_users_over_the_views_and_their_rights_last_through_a_migration(
    own: Connection, dsn: str
) -> None:
    own.execute("CREATE VIEW public.mine AS SELECT count(*) AS n FROM dataflow.datastatus")
    own.execute("GRANT SELECT ON dataflow.datastatus TO PUBLIC")
    own.execute("UPDATE opendataflow.installed SET functions = 'older'")
    await _migrate(dsn)
    assert value(own, "SELECT n FROM public.mine") == 0
    assert re.search(
        r"[,{]=r/", value(own, "SELECT relacl::text FROM pg_class WHERE oid = 'dataflow.datastatus'::regclass")
    )
    apply(own, [dataset("a")], [])
    assert "DELETE" in refused(own, "DELETE FROM dataflow.dataset")


def test_a_chunk_set_from_outside_by_a_function_must_be_pending_or_failed(db: Connection) -> None:
    with pytest.raises(psycopg.DatabaseError, match="to PENDING, FAILED or RESUBMIT from outside, not to READY"):
        db.execute("SELECT * FROM opendataflow.set_chunks('bobin', ARRAY['1'], 'READY', 'test')")
