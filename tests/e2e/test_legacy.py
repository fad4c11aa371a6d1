"""Users of the framework that came before: their examples as they were published, their commands, and the import."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from opendataflow.spark.shared.jvm_start import spark_home
from opendataflow.store.embedded import installed_binaries
from tests.e2e.conftest import Inside, Program
from tests.sql.conftest import Connection, open_connection
from tests.sql.graph import problems, value
from tests.waiting import wait_for_file

RUNJOB = Path(sys.executable).parent / "RunJob"

OLD_TABLES = """
    CREATE TABLE job (jobid varchar, itemtype varchar, datasetid varchar, itemvalue varchar, modified timestamp);
    CREATE TABLE dataset (datasetid varchar, hostname varchar, database varchar, schemaname varchar,
                          tablename varchar, username varchar, encryptedpass varchar);
    CREATE TABLE datastatus (datasetid varchar, jobid varchar, dataid varchar, locktype varchar, status varchar,
                             modified timestamp, PRIMARY KEY (datasetid, jobid, dataid));
"""
OLD_ROWS = """
    INSERT INTO dataset (datasetid, hostname, tablename, encryptedpass) VALUES ('bobin', 'h1', 't1', 'lmibuCIPHERTEXT');
    INSERT INTO dataset (datasetid) VALUES ('bobout');
    INSERT INTO job (jobid, itemtype, datasetid, itemvalue) VALUES
        ('loadbob', 'IN', 'bobin', NULL), ('loadbob', 'OUT', 'bobout', NULL), ('loadbob', 'COLOUR', NULL, 'blue');
    INSERT INTO datastatus (dataid, datasetid, jobid, locktype, modified, status) VALUES
        ('1.0', 'bobin', 'fakejob', 'OUT', '2025-11-30 17:27:42', 'READY'),
        ('2.0', 'bobin', 'fakejob', 'OUT', '2025-11-30 17:27:42', 'READY'),
        ('3.0', 'bobin', 'fakejob', 'OUT', '2025-11-30 17:27:42', 'READY'),
        ('4.0', 'bobin', 'fakejob', 'OUT', '2025-11-30 17:27:42', 'READY'),
        ('5.0', 'bobin', 'fakejob', 'OUT', '2025-11-30 17:27:42', 'HOLD'),
        ('1.0', 'bobout', 'loadbob', 'OUT', '2025-11-30 18:00:00', 'READY'),
        ('2.0', 'bobout', 'loadbob', 'OUT', '2025-11-30 18:00:00', 'FAILED'),
        ('3.0', 'bobout', 'loadbob', 'OUT', '2025-11-30 18:00:00', 'RESUBMIT');
"""
OLD_RUN = """
    INSERT INTO datastatus (dataid, datasetid, jobid, locktype, modified, status) VALUES
        ('4.0', 'bobin', 'loadbob', 'IN', '2025-11-30 19:00:00', 'RUNNING'),
        ('4.0', 'bobout', 'loadbob', 'OUT', '2025-11-30 19:00:00', 'RUNNING');
"""
ROWS = "SELECT datasetid, jobid, dataid, locktype, status FROM {} ORDER BY 1, 2, 3"


PUBLISHED = """insert into datastatus (dataid,datasetid,jobid,locktype,modified,status)
               values ('1.0','bobin','fakejob', 'OUT',now(),'READY')"""


def make_old(db: Connection, schema: str = "dataflow", rows: str = OLD_ROWS) -> None:
    """The old framework's tables in a database, as its `createtables` makes them."""
    db.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    db.execute(f"SET search_path = {schema}")
    db.execute(OLD_TABLES + rows)
    db.execute("RESET search_path")


@pytest.fixture
def old(postgres_server: str) -> Iterator[str]:
    """The address of a database of the old framework."""
    with open_connection(postgres_server) as admin:
        admin.execute("DROP DATABASE IF EXISTS dataflow_test_old WITH (FORCE)")
        admin.execute("CREATE DATABASE dataflow_test_old")
        dsn = make_conninfo(postgres_server, dbname="dataflow_test_old")
        with open_connection(dsn) as connection:
            make_old(connection)
        yield dsn
        admin.execute("DROP DATABASE dataflow_test_old WITH (FORCE)")


def rows_of(db: Connection, relation: str = "dataflow.datastatus") -> set[tuple[str, ...]]:
    """All rows of datastatus but their times."""
    return {tuple(row.values()) for row in db.execute(ROWS.format(relation))}


def run_job(program: Program, folder: Path) -> tuple[int, list[str]]:
    """RunJob ./loadbob.sh; return the exit code and the lines of stdout without their dates."""
    done = subprocess.run(
        [RUNJOB, "./loadbob.sh"],
        cwd=folder,
        env=program.environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, [
        re.sub(r"^\w{3} \w{3} \d\d [\d:]{8} \S* ?\d{4}: ", "", n) for n in done.stdout.splitlines()
    ]


def script(folder: Path, text: str) -> None:
    (folder / "loadbob.sh").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "loadbob.sh").chmod(0o755)


# -- the published examples --------------------------------------------------------------------------------------


def test_the_old_quick_start_ends_with_the_same_rows(dataflow: Program, db: Connection, tmp_path: Path) -> None:
    for statement in (
        "insert into dataset (datasetid) values  ('bobin')",
        "insert into dataset (datasetid) values  ('bobout')",
        "insert into job (datasetid,itemtype,jobid) values ('bobout','OUT','loadbob')",
        "insert into job (datasetid,itemtype,jobid) values ('bobin' ,'IN', 'loadbob')",
        PUBLISHED,
    ):
        assert dataflow.run("dml", statement) == "1 rows affected\n"
    script(tmp_path, 'echo "running loadbob with dataid $dataid partition of input  $bobin_datasetid"')
    assert run_job(dataflow, tmp_path) == (
        0,
        [
            "Launching ./loadbob.sh with dataid 1.0",
            "running loadbob with dataid 1.0 partition of input  bobin",
            "Job ./loadbob.sh is complete. Updating status",
            "1 rows updated to READY for loadbob and 1.0 1 IN file-local locks released",
        ],
    )
    published = ("bobin", "fakejob", "1.0", "OUT", "READY")
    assert rows_of(db) == {published, ("bobout", "loadbob", "1.0", "OUT", "READY")}
    shown = dataflow.run("runs").split("\n")
    assert shown[0].split() == ["DATAID", "DATASETID", "JOBID", "LOCKTYPE", "MODIFIED", "STATUS"]
    assert set(shown[1]) == {"-", " "}
    assert [line.split()[:4] for line in shown[2:4]] == [
        ["1.0", "bobout", "loadbob", "OUT"],
        ["1.0", "bobin", "fakejob", "OUT"],
    ]

    assert run_job(dataflow, tmp_path) == (75, ["no suitable data available for job. Not running it"])
    assert dataflow.run("endjob", "loadbob", "1.0", "RESUBMIT") == (
        "1 rows updated to RESUBMIT for loadbob and 1.0 0 IN file-local locks released\n"
    )
    script(tmp_path, "exit 3")
    code, lines = run_job(dataflow, tmp_path)
    assert (code, lines[-1]) == (3, "1 rows updated to FAILED for loadbob and 1.0 1 IN file-local locks released")
    assert rows_of(db) == {published, ("bobout", "loadbob", "1.0", "OUT", "FAILED")}
    assert run_job(dataflow, tmp_path)[0] == 75
    dataflow.run("sql", "select 1")
    dataflow.run("dml", "update datastatus set status='RESUBMIT' where jobid='loadbob' and dataid='1.0'")
    script(tmp_path, "exit 0")
    assert run_job(dataflow, tmp_path)[0] == 0
    assert rows_of(db) == {published, ("bobout", "loadbob", "1.0", "OUT", "READY")}
    assert problems(db) == []


def test_while_a_script_runs_its_rows_are_running_and_it_sees_the_environment_items(
    dataflow: Program, db: Connection, tmp_path: Path
) -> None:
    dataflow.run(
        "dml",
        "insert into job (datasetid, itemtype, jobid) values ('bobout', 'OUT', 'loadbob'), ('bobin', 'IN', 'loadbob')",
        "insert into job (jobid, itemtype, itemvalue) values ('loadbob', 'COLOUR', 'blue')",
        "insert into datastatus values ('bobin', 'fakejob', '1.0', 'OUT', 'READY', now())",
    )
    script(tmp_path, 'echo "$COLOUR" > started; while [ ! -e go ]; do sleep 0.05; done')
    with subprocess.Popen(
        [RUNJOB, "./loadbob.sh"], cwd=tmp_path, env=dataflow.environ, stdout=subprocess.PIPE
    ) as process:
        wait_for_file(tmp_path / "started", process)
        seen = rows_of(db)
        (tmp_path / "go").touch()
    assert seen == {
        ("bobin", "fakejob", "1.0", "OUT", "READY"),
        ("bobin", "loadbob", "1.0", "IN", "RUNNING"),
        ("bobout", "loadbob", "1.0", "OUT", "RUNNING"),
    }
    assert (tmp_path / "started").read_text() == "blue\n"


# -- the commands ------------------------------------------------------------------------------------------------


@pytest.fixture
def bob(dataflow: Program, db: Connection) -> Program:
    """The program with the old example declared and one chunk published."""
    db.execute(
        "INSERT INTO dataflow.dataset (datasetid, hostname, encryptedpass) VALUES ('bobin', 'h1', 'lmibuCIPHERTEXT')"
    )
    db.execute("INSERT INTO dataflow.job VALUES ('loadbob', 'IN', 'bobin'), ('loadbob', 'OUT', 'bobout')")
    db.execute("INSERT INTO dataflow.datastatus VALUES ('bobin', 'fakejob', '1.0', 'OUT', 'READY', now())")
    return dataflow


def test_sql_prints_a_table_or_json_and_says_where_there_is_nothing(bob: Program, inside: Inside) -> None:
    answer = inside.ask(bob, "sql", "select dataid, status from datastatus where status like 'R%'")
    assert [line.split() for line in answer.out.splitlines()] == [
        ["DATAID", "STATUS"],
        ["------", "------"],
        ["1.0", "READY"],
    ]
    answer = inside.ask(bob, "sql", "select count(*) as n from job", "-o", "json")
    assert json.loads(answer.out) == [{"n": 2}]
    assert inside.ask(bob, "sql", "select * from job where false").err == "no rows returned by the query\n"


def test_tables_have_the_old_shape_so_that_scripts_cut_the_same_lines(bob: Program, inside: Inside) -> None:
    query = "select 'x' as a, null as b, timestamp '2025-11-30 17:27:42' as modified, true as yes, 'a  b' as c"
    assert inside.ask(bob, "sql", query).out == (
        "A  B  MODIFIED                    YES   C\n"
        "-  -  --------------------------  ----  ----\n"
        "x     2025-11-30 17:27:42.000000  true  a  b\n"
    )
    nothing = inside.ask(bob, "sql", "select dataid from datastatus where false")
    assert nothing.out.splitlines() == ["DATAID", "------"]


def test_getjob_prints_what_would_run_next_and_nothing_where_nothing_is_ready(
    bob: Program, inside: Inside, db: Connection
) -> None:
    for name in ("getjob", "GetJobData"):
        assert json.loads(inside.ask(bob, name, "loadbob").out) == [
            {"dataid": "1.0"},
            {
                "bobin_datasetid": "bobin",
                "bobin_hostname": "h1",
                "bobin_encryptedpass": "lmibuCIPHERTEXT",
                "bobin_itemtype": "IN",
            },
            {"bobout_datasetid": "bobout", "bobout_itemtype": "OUT"},
        ]
    db.execute("UPDATE dataflow.datastatus SET status = 'HOLD'")
    assert json.loads(inside.ask(bob, "getjob", "loadbob").out) == []
    answer = inside.ask(bob, "getjob", "lodbob")
    assert (answer.code, answer.err) == (2, "error: there is no job lodbob (did you mean loadbob?)\n")


def test_the_lists_show_the_old_tables_and_cut_ciphertexts(bob: Program, inside: Inside) -> None:
    assert "lmibuCIPHE..." in inside.ask(bob, "datasets").out
    assert [line.split()[:2] for line in inside.ask(bob, "jobs").out.splitlines()] == [
        ["DATASETID", "ITEMTYPE"],
        ["---------", "--------"],
        ["bobin", "IN"],
        ["bobout", "OUT"],
    ]


def test_set_data_status_makes_a_row_or_sets_it_and_the_history_knows_who(
    bob: Program, inside: Inside, db: Connection
) -> None:
    for status in ("READY", "HOLD", "READY"):
        assert inside.ask(bob, "SetDataStatus", status, "2.0", "bobin", "otherjob", "OUT").out == "1 rows affected\n"
    assert ("bobin", "otherjob", "2.0", "OUT", "READY") in rows_of(db)
    actors = db.execute(
        "SELECT DISTINCT actor FROM opendataflow.history WHERE data_id = '2.0' AND kind = 'chunk'"
    ).fetchall()
    assert ["@" in row["actor"] for row in actors] == [True]


SENTENCES = {
    ("sql", "delete from job"): "this statement would change something: use `dataflow dml`",
    ("sql", "select * from nosuch"): 'Postgres does not take the statement: relation "nosuch" does not exist',
    ("sql", "select 1 as n, 2 as n"): "two columns of the query are named n: name them by AS",
    ("sql", "select 1; select 2"): "cannot insert multiple commands into a prepared statement",
    ("dml", "select 1"): "only INSERT, UPDATE, DELETE and MERGE are done here, not SELECT",
    ("dml", "drop view dataflow.job"): "not DROP; nothing was changed",
    ("dml", "with one as (select 1) select * from one"): "not SELECT; nothing was changed",
    ("dml", "insert into job values ('loadbob', 'COLOUR', null, 'x')", "commit", "nonsense"): "not COMMIT; nothing was",
    ("dml", ""): "not nothing; nothing was changed",
    ("dml", "update datastatus set status = 'DONE'"): "there is no status DONE",
    ("dml", "delete from datastatus"): "dataflow resubmit",
    ("dml", "insert into dataset values ('x') on conflict (datasetid) do nothing"): "ON CONFLICT",
    ("endjob", "loadbob", "9.0", "READY"): "datastatus has no OUT row of job loadbob for 9.0",
    ("endjob", "loadbob", "1.0"): "missing argument 'STATUS'",
    ("SetDataStatus", "READY", "1.0", "nosuch", "j", "OUT"): "there is no data set nosuch",
    ("SetDataStatus", "RUNNING", "1.0", "bobin", "j", "OUT"): "nothing is set to RUNNING",
    ("SetDataStatus", "READY", "1.0", "bobin", "j", "IN"): "an IN row can't be inserted",
    ("ddl", "create table x (y int)"): "tables are made and changed by `dataflow db migrate` only",
    ("startjob", "loadbob"): "start the job with RunJob",
    ("deleterun", "loadbob", "1.0"): "`dataflow resubmit JOB DATAID`",
    ("forcejob", "loadbob"): "`dataflow force JOB DATAID`",
    ("crypt", "-e", "topsecret", "text"): "is `dataflow crypt new` here",
    ("crypt", "-d", "topsecret", "text"): "is `dataflow crypt open`",
}


@pytest.mark.parametrize("arguments", SENTENCES, ids=" ".join)
def test_what_is_not_done_is_one_sentence_with_what_does_it(
    bob: Program, inside: Inside, db: Connection, arguments: tuple[str, ...]
) -> None:
    before = rows_of(db)
    answer = inside.ask(bob, *arguments)
    assert answer.code in (1, 2)
    assert SENTENCES[arguments] in answer.err
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert "topsecret" not in answer.err + answer.out
    assert rows_of(db) == before
    assert value(db, "SELECT count(*) FROM dataflow.job") == 2


def test_statements_of_one_dml_are_all_done_or_none(bob: Program, inside: Inside, db: Connection) -> None:
    insert = "insert into datastatus values ('bobin', 'x', '7.0', 'OUT', 'READY', now())"
    assert inside.ask(bob, "dml", insert, "update datastatus set status = 'nosuch'").code == 1
    assert value(db, "SELECT count(*) FROM dataflow.datastatus WHERE dataid = '7.0'") == 0
    assert inside.ask(bob, "dml", insert, insert.replace("7.0", "8.0")).out == "1 rows affected\n" * 2


def test_createtables_brings_the_database_to_its_schema(bob: Program, inside: Inside) -> None:
    assert inside.ask(bob, "createtables").out == "the schema is up to date\n"


# -- the import ----------------------------------------------------------------------------------------------------


def test_an_import_makes_the_same_rows_and_its_tasks_go_on(
    dataflow: Program, db: Connection, old: str, tmp_path: Path
) -> None:
    answer = dataflow.ask("import-legacy", old)
    assert answer.out.splitlines() == [
        "data sets: 2 made, 0 were the same, 0 are other here and stay so",
        "jobs: 1 made, 0 were the same, 0 are other here and stay so",
        "chunks: 8 made, 0 were the same, 0 are other here and stay so",
    ]
    with open_connection(old) as source:
        assert rows_of(db) == rows_of(source)
        for table in ("job", "dataset"):
            columns = "jobid, itemtype, datasetid, itemvalue" if table == "job" else "*"
            query = f"SELECT {columns} FROM dataflow.{table} ORDER BY 1, 2"
            assert db.execute(query).fetchall() == source.execute(query).fetchall()
    tasks = {r["data_id"]: (r["state"], r["rank"]) for r in db.execute("SELECT * FROM opendataflow.task")}
    assert tasks == {
        "1.0": ("DONE", 2),
        "2.0": ("FAILED", 2),
        "3.0": ("QUEUED", 1),
        "4.0": ("QUEUED", 2),
        "5.0": ("WAITING", 2),
    }
    assert problems(db) == []
    script(tmp_path, "exit 0")
    assert run_job(dataflow, tmp_path)[1][0] == "Launching ./loadbob.sh with dataid 3.0"
    dataflow.run("resubmit", "loadbob", "--failed")
    assert run_job(dataflow, tmp_path)[1][0] == "Launching ./loadbob.sh with dataid 2.0"
    assert problems(db) == []


def test_a_second_import_makes_nothing_and_reports_what_has_gone_on_here(
    dataflow: Program, inside: Inside, db: Connection, old: str
) -> None:
    inside.ask(dataflow, "import-legacy", old)
    before = db.execute("SELECT * FROM opendataflow.chunk ORDER BY dataset, data_id").fetchall()
    again = inside.ask(dataflow, "import-legacy", old).out.splitlines()
    assert [re.findall(r"\d+", line) for line in again] == [["0", "2", "0"], ["0", "1", "0"], ["0", "8", "0"]]
    assert db.execute("SELECT * FROM opendataflow.chunk ORDER BY dataset, data_id").fetchall() == before

    db.execute("UPDATE dataflow.datastatus SET status = 'HOLD' WHERE datasetid = 'bobout' AND dataid = '1.0'")
    db.execute("UPDATE dataflow.dataset SET hostname = 'moved' WHERE datasetid = 'bobin'")
    db.execute("UPDATE dataflow.job SET itemvalue = 'red' WHERE itemtype = 'COLOUR'")
    before = db.execute("SELECT * FROM opendataflow.chunk ORDER BY dataset, data_id").fetchall()
    assert inside.ask(dataflow, "import-legacy", old).out.splitlines()[3:] == [
        "stays: data set bobin has other columns here",
        "stays: job loadbob has other items here",
        "stays: chunk 1.0 of bobout was READY and is HOLD here",
    ]
    assert db.execute("SELECT * FROM opendataflow.chunk ORDER BY dataset, data_id").fetchall() == before


def test_a_dry_run_reports_the_same_and_changes_nothing(
    dataflow: Program, inside: Inside, db: Connection, old: str
) -> None:
    answer = inside.ask(dataflow, "import-legacy", old, "--dry-run")
    assert "chunks: 8 would be made" in answer.out
    assert answer.out.endswith("nothing was changed\n")
    assert value(db, "SELECT count(*) FROM opendataflow.dataset") == 0


def test_running_rows_are_listed_and_nothing_is_imported_until_somebody_decides_what_becomes_of_them(
    dataflow: Program, inside: Inside, db: Connection, old: str
) -> None:
    with open_connection(old) as source:
        source.execute("SET search_path = dataflow")
        source.execute(OLD_RUN)
    answer = dataflow.ask("import-legacy", old)
    assert answer.code == 2
    assert "RUNNING: 4.0 of bobout, by loadbob, since 2025-11-30 19:00:00" in answer.err
    assert "say by --running what becomes of them (failed, resubmit, skip); nothing was imported" in answer.err
    assert value(db, "SELECT count(*) FROM opendataflow.dataset") == 0
    for decision, status in (("skip", "DECLARED"), ("resubmit", "RESUBMIT")):
        answer = inside.ask(dataflow, "import-legacy", old, "--running", decision)
        assert answer.code == 0, answer.err
        assert "left out: rows of datastatus that are not OUT, as read locks of runs: 1" in answer.out
        query = "SELECT status FROM opendataflow.chunk WHERE dataset = 'bobout' AND data_id = '4.0'"
        assert value(db, query) == status
    assert problems(db) == []


def test_running_rows_are_asked_about_on_a_terminal(
    dataflow: Program, inside: Inside, db: Connection, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_connection(old) as source:
        source.execute("SET search_path = dataflow")
        source.execute(OLD_RUN)
    answers = iter(["perhaps", "failed"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.prompt", lambda *_, **__: next(answers))
    assert inside.ask(dataflow, "import-legacy", old).code == 0
    query = "SELECT status FROM dataflow.datastatus WHERE datasetid = 'bobout' AND dataid = '4.0'"
    assert value(db, query) == "FAILED"
    assert value(db, "SELECT state FROM opendataflow.task WHERE data_id = '4.0'") == "FAILED"


FAULTS = {
    "UPDATE datastatus SET status = 'DONE' WHERE dataid = '2.0'": "chunk 2.0 of bobout is DONE: set it to one of READY",
    "INSERT INTO job VALUES ('second', 'OUT', 'bobout')": "bobout can't be made by both loadbob and second",
    "INSERT INTO job VALUES ('loadbob', 'IN', 'bobout')": "loadbob -> loadbob",
    "INSERT INTO job VALUES ('loadbob', 'IN')": "a row of job loadbob has no jobid, itemtype or datasetid",
    "INSERT INTO dataset VALUES ('bobin', 'other')": "bobin has two rows that differ",
    "INSERT INTO dataset VALUES (NULL, 'other')": "a row has no datasetid",
    "ALTER TABLE datastatus DROP COLUMN locktype": "has no column locktype",
    "DROP TABLE job": "has no table dataflow.job: name the schema of the old tables by --schema",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_import_with_a_fault_is_refused_as_a_whole(
    dataflow: Program, inside: Inside, db: Connection, old: str, fault: str
) -> None:
    with open_connection(old) as source:
        source.execute("SET search_path = dataflow")
        source.execute(fault)
    answer = inside.ask(dataflow, "import-legacy", old)
    assert answer.code in (1, 2)
    assert FAULTS[fault] in answer.err
    assert value(db, "SELECT count(*) FROM opendataflow.dataset") == 0


def test_what_is_left_out_of_an_import_is_reported(dataflow: Program, inside: Inside, db: Connection, old: str) -> None:
    with open_connection(old) as source:
        source.execute("SET search_path = dataflow")
        source.execute("INSERT INTO job VALUES ('loadbob', 'A B', NULL, 'x'), ('loadbob', 'IN', 'nowhere', NULL)")
        source.execute("INSERT INTO datastatus VALUES ('bobin', 'older', '1.0', 'OUT', 'FAILED', '2020-01-01')")
    output = inside.ask(dataflow, "import-legacy", old).out
    assert "left out: environment item A B of job loadbob" in output
    assert re.search("left out: older rows of chunks .*: 1$", output, re.MULTILINE)
    assert "without a row in dataset, made without columns: nowhere" in output
    assert ("bobin", "fakejob", "1.0", "OUT", "READY") in rows_of(db)


def test_the_address_of_an_old_database_should_have_no_password(dataflow: Program, inside: Inside) -> None:
    answer = inside.ask(dataflow, "import-legacy", "postgresql://nobody:topsecret@127.0.0.1:1/x")
    assert answer.code == 4
    assert "use PGPASSWORD or ~/.pgpass" in answer.err
    assert "topsecret" not in answer.err + answer.out
    assert "DSN is no Postgres address" in inside.ask(dataflow, "import-legacy", "nonsense").err


def test_old_tables_make_room_for_the_views_where_that_is_asked_for(
    tmp_path: Path, inside: Inside, old: str, dataflow: Program
) -> None:
    program = Program(tmp_path / "other", old)
    migrated = inside.ask(program, "db", "migrate").out
    assert "since there are dataflow.dataset and dataflow.datastatus and dataflow.job already" in migrated
    assert "views     schema dataflow has no views" in inside.ask(program, "db", "status").out
    with open_connection(old) as db:
        before = rows_of(db)
        update = "update datastatus set status = 'RESUBMIT'"
        assert "since there are dataflow.dataset and" in inside.ask(program, "dml", update).err
        assert "1.0" in inside.ask(program, "runs").out
        assert "it is another database" in inside.ask(dataflow, "import-legacy", old, "--take-over").err
        assert inside.ask(program, "import-legacy", old, "--take-over", "--dry-run").code == 0
        assert value(db, "SELECT relkind FROM pg_class WHERE oid = 'dataflow.job'::regclass") == "r"
        answer = inside.ask(program, "import-legacy", old, "--take-over")
        assert answer.code == 0, answer.err
        assert answer.out.endswith("the views have their names\n")
        assert rows_of(db) == before
        assert rows_of(db, "dataflow.datastatus_old") == before
        assert value(db, "SELECT relkind FROM pg_class WHERE oid = 'dataflow.job'::regclass") == "v"
        assert inside.ask(program, "db", "migrate").out == "the schema is up to date\n"
        assert "is a view of OpenDataFlow itself" in inside.ask(program, "import-legacy", old).err
        assert problems(db) == []


def test_old_tables_of_another_schema_are_imported_beside_the_views(
    dataflow: Program, inside: Inside, db: Connection
) -> None:
    make_old(db, "etl")
    dsn = dataflow.dsn
    assert dsn is not None
    assert inside.ask(dataflow, "import-legacy", dsn, "--schema", "etl").code == 0
    assert rows_of(db) == rows_of(db, "etl.datastatus")


def test_many_rows_are_imported_in_a_session_that_began_with_empty_tables(
    dataflow: Program, db: Connection, old: str
) -> None:
    with open_connection(old) as source:
        source.execute("TRUNCATE dataflow.datastatus")
        source.execute(
            "INSERT INTO dataflow.datastatus (dataid, datasetid, jobid, locktype, modified, status) "
            "SELECT n::text, d, 'j', 'OUT', now(), CASE WHEN d = 'bobout' AND n % 100 = 0 THEN 'FAILED' "
            "ELSE 'READY' END FROM generate_series(1, 10000) AS n, unnest(ARRAY['bobin', 'bobout']) AS d"
        )
    assert "chunks: 20000 made" in dataflow.run("import-legacy", old)
    states = db.execute("SELECT state, count(*) AS n FROM opendataflow.task GROUP BY 1").fetchall()
    assert {row["state"]: row["n"] for row in states} == {"DONE": 9900, "FAILED": 100}
    assert problems(db) == []


def _block(language: str) -> str:
    """Return the statements of the recipe for H2 in a language."""
    page = (Path(__file__).parents[2] / "docs/reference/coming-from-the-java-framework.md").read_text("utf-8")
    recipe = page.partition("### Copy an H2 database")[2]
    block = re.search(rf"```{language}\n(.*?)```", recipe, re.DOTALL)
    assert block is not None
    return re.sub("^   ", "", block[1], flags=re.MULTILINE)


def import_files(dataflow: Program, folder: Path) -> str:
    """Import the files of a folder as the recipe for H2 does; return what is printed."""
    (folder / "copy.sql").write_text(_block("sql"))
    psql = installed_binaries() / "psql"
    command = [str(psql), str(dataflow.dsn), "-v", "ON_ERROR_STOP=1", "-f", "copy.sql"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return dataflow.run("import-legacy", str(dataflow.dsn), "--schema", "h2")


def test_the_recipe_for_a_database_of_h2_copies_its_files_so_that_they_are_imported(
    dataflow: Program, db: Connection, tmp_path: Path
) -> None:
    # As CSVWRITE of H2 writes: capitals in the header, quotes around each text, and nothing for NULL.
    (tmp_path / "job.csv").write_text(
        '"JOBID","ITEMTYPE","DATASETID","ITEMVALUE","MODIFIED"\n"loadbob","IN","bobin",,"2025-11-30 17:27:42.123"\n'
        '"loadbob","OUT","bobout",,"2025-11-30 17:27:42.123"\n"loadbob","COLOUR",,"it\'s ""blue""",\n'
    )
    (tmp_path / "dataset.csv").write_text(
        '"DATASETID","HOSTNAME","DATABASE","SCHEMANAME","TABLENAME","USERNAME","ENCRYPTEDPASS"\n'
        '"bobin","h1","d1","s1","t1","u1","lmibuCIPHER"\n"bobout",,,,,,\n'
    )
    (tmp_path / "datastatus.csv").write_text(
        '"DATASETID","JOBID","DATAID","LOCKTYPE","STATUS","MODIFIED"\n'
        '"bobin","fakejob","1.0","OUT","READY","2025-11-30 17:27:42.123"\n'
    )
    assert "data sets: 2 made" in import_files(dataflow, tmp_path)
    assert rows_of(db) == {("bobin", "fakejob", "1.0", "OUT", "READY")}
    assert value(db, COLOUR) == 'it\'s "blue"'


COLOUR = "SELECT itemvalue FROM dataflow.job WHERE itemtype = 'COLOUR'"
H2_JAR, H2_DIGEST = "h2-2.2.224.jar", "b9d8f19358ada82a4f6eb5b174c6cfe320a375b5a9cb5a4fe456d623e6e55497"
"""The H2 of the old framework, and the SHA-256 of its file in Maven Central."""
H2_ROWS = """
INSERT INTO job VALUES ('loadbob', 'IN', 'bobin', NULL, now()), ('loadbob', 'OUT', 'bobout', NULL, now()),
    ('loadbob', 'COLOUR', NULL, 'it''s "blü"' || char(10) || 'ö', NULL);
INSERT INTO dataset (datasetid, hostname, encryptedpass) VALUES ('bobin', 'h1', 'lmibuCIPHER'), ('bobout', NULL, NULL);
INSERT INTO datastatus VALUES ('bobin', 'fakejob', '1.0', 'OUT', 'READY', now()),
    ('bobin', 'fakejob', 'ü', 'OUT', 'READY', now()), ('bobout', 'loadbob', '1.0', 'OUT', 'FAILED', now())
"""


@pytest.fixture(scope="module")
def h2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The jar of H2, from the file that DATAFLOW_TEST_H2 names or from Maven Central."""
    folder = tmp_path_factory.mktemp("h2")
    if "DATAFLOW_TEST_H2" in os.environ:
        shutil.copy(os.environ["DATAFLOW_TEST_H2"], folder / H2_JAR)
    else:
        (ivy,) = (Path(spark_home(), "jars")).glob("ivy-*.jar")
        fetch = ["java", "-jar", str(ivy), "-dependency", "com.h2database", "h2", "2.2.224", "-confs", "default"]
        fetch += ["-retrieve", str(folder / "[artifact]-[revision].[ext]"), "-warn"]
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(fetch, capture_output=True, check=False, timeout=60)
    if not (folder / H2_JAR).exists():
        pytest.skip("Maven Central has not given the jar of H2; DATAFLOW_TEST_H2 names a file")
    assert hashlib.sha256((folder / H2_JAR).read_bytes()).hexdigest() == H2_DIGEST
    return folder / H2_JAR


def test_a_real_database_of_h2_is_imported_by_the_commands_of_the_recipe(
    dataflow: Program, db: Connection, tmp_path: Path, h2: Path
) -> None:
    shutil.copy(h2, tmp_path)
    url = "jdbc:h2:file:./dataflow;INIT=CREATE SCHEMA IF NOT EXISTS DATAFLOW\\;set schema DATAFLOW"
    made = ["java", "-cp", H2_JAR, "org.h2.tools.Shell", "-url", url, "-user", "etl", "-password", "plugh"]
    (tmp_path / "tables.sql").write_text(OLD_TABLES + H2_ROWS, "utf-8")
    script = ["-sql", "RUNSCRIPT FROM 'tables.sql' CHARSET 'UTF-8'"]
    done = subprocess.run([*made, *script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (tmp_path / "dataflow.mv.db").exists(), done
    environ = os.environ | {"H2_PASSWORD": "plugh", "LC_ALL": "C"}  # the files have UTF-8 also where Java does not
    done = subprocess.run(
        ["bash", "-e", "-c", _block("sh")], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    printed = import_files(dataflow, tmp_path)
    assert "data sets: 2 made" in printed
    assert rows_of(db) == {
        ("bobin", "fakejob", "1.0", "OUT", "READY"),
        ("bobin", "fakejob", "ü", "OUT", "READY"),
        ("bobout", "loadbob", "1.0", "OUT", "FAILED"),
    }
    assert value(db, COLOUR) == 'it\'s "blü"\nö'
    assert value(db, "SELECT encryptedpass FROM dataflow.dataset WHERE datasetid = 'bobin'") == "lmibuCIPHER"
