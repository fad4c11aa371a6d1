"""Bad input of a pipeline that runs as a job: each chunk ends with its step and a sentence, and the others go on."""

import json
from pathlib import Path
from typing import Any

import pytest

from opendataflow.names import ExitCode
from tests.e2e.conftest import Program
from tests.e2e.projects import DATABASE, Project, shop_variables
from tests.share import in_share
from tests.sql.conftest import Connection
from tests.sql.graph import task, value

YML = f"""\
version: 2
name: tests
pipelines:
  - slug: p
    sources:
      - {{name: a, path: "sources/{{data_id}}.csv", schema: "id INT, n INT"}}
      - {{name: b, path: "sources/{{data_id}}.json", format: json}}
      - {{name: c, database: {DATABASE}, query: SELECT 1 AS k, predicate: "public.may_read({{data_id}})"}}
    transformations: [one]
    destination: out
"""
ONE = """
def run(a, b, c):
    return a.join(b, "id", "left").crossJoin(c)
"""
MAY_READ = """
CREATE FUNCTION public.may_read(id text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    IF id LIKE '%refused' THEN RAISE insufficient_privilege USING MESSAGE = 'this is not for you'; END IF;
    RETURN true;
END $$
"""

GOOD = b"id,n\n1,1\n"
CHUNKS = {
    "1_column": b"id\n1\n",
    "2_type": b"id,n\n1,many\n",
    "3_nulls": b"id,n\n,\n,\n",
    "4_latin1": b"id,n\n1,caf\xe9\n",
    "5_missing": None,
    "6_empty": b"id,n\n",
    "7_refused": GOOD,
    "8_drift": GOOD,
}
"""The files of source a. Never five in a row fail, which would open the breaker."""

EXPECTED = {
    "1_column": (
        "read a",
        "sources/1_column.csv, line 1: its columns are id, and those of schema are id, n; write them",
    ),
    "2_type": ("read a", 'sources/2_type.csv, line 2: "many" does not fit the type of the column n'),
    "4_latin1": ("read a", "sources/4_latin1.csv, line 2: it is not UTF-8 text; "),
    "7_refused": ("read c", "project.yml, line 8: ERROR: this is not for you"),
    "8_drift": ("write out", "project.yml, line 10: the column m is string, and bigint in the chunk "),
}
"""The step that fails, and how its sentence begins."""
MISSING = "project.yml, line 6: there is no sources/5_missing.csv"


def job_file(folder: Path, *chunks: str) -> str:
    """Write the file of a job for some chunks; return its name."""
    pipeline = {"project": {"path": "."}, "pipeline": "p", "driver": {"cores": 1, "memory": "1g"}}
    conf = {"spark.sql.shuffle.partitions": "1", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
    spec = {
        "inputs": ["a"],
        "outputs": ["out"],
        "retry": {"limit": 0},
        "runtime": {"pipeline": {**pipeline, "sparkConf": conf}},
    }
    documents: list[dict[str, Any]] = [
        {"kind": "DataSet", "metadata": {"name": "a"}, "spec": {"chunkSource": {"list": list(chunks)}}},
        {"kind": "DataSet", "metadata": {"name": "out"}},
        {"kind": "DataFlowJob", "metadata": {"name": "j"}, "spec": spec},
    ]
    text = "\n---\n".join(json.dumps({"apiVersion": "opendataflow.io/v1alpha1", **it}) for it in documents)
    (folder / "job.yaml").write_text(text)
    return str(folder / "job.yaml")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project", None)
    made.write("project.yml", YML)
    made.step("one", ONE)
    return made


@in_share(0)
def test_each_chunk_with_bad_input_fails_with_its_step_and_a_sentence_and_the_others_are_ready(
    dataflow: Program, db: Connection, dsn: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for chunk, text in CHUNKS.items():
        if text is not None:
            project.write(f"sources/{chunk}.csv", text)
        project.write(f"sources/{chunk}.json", '{"id": 1, "m": %s}\n' % ('"x"' if chunk == "8_drift" else "1"))
    for variable, given in shop_variables(dsn).items():
        monkeypatch.setenv(variable, given)
    db.execute(MAY_READ)
    job = job_file(project.folder, *CHUNKS)
    dataflow.run("local", "-f", job, "--until-caught-up", "--parallelism", "2", code=ExitCode.UNFINISHED)

    chunks = {it["data_id"]: it["status"] for it in json.loads(dataflow.run("get", "chunks", "out", "-o", "json"))}
    assert chunks == {chunk: "FAILED" if chunk in (*EXPECTED, "5_missing") else "READY" for chunk in CHUNKS}
    found = {run["data_id"]: run for run in json.loads(dataflow.run("pipeline", "history", "p", "-o", "json"))}
    for chunk, (step, sentence) in EXPECTED.items():
        failed = [it for it in found[chunk]["steps"] if it["status"] == "FAILED"]
        assert [it["name"] for it in failed] == [step], failed
        assert failed[0]["error"].startswith(sentence)
        assert found[chunk]["message"].startswith(f"exit code 1: {step} has failed: {sentence[:60]}")
    assert found["1_column"]["message"].endswith("write them alike, in one order")
    assert {chunk: found[chunk]["metrics"]["rows"] for chunk in ("3_nulls", "6_empty")} == {
        "3_nulls": 2,
        "6_empty": 0,
    }
    assert (found["5_missing"]["message"], found["5_missing"]["steps"]) == (MISSING, [])
    row = task(db, "j", "5_missing")  # it waits for its file, beside those that have failed
    assert (row["state"], row["attempts"], row["looks"] > 0) == ("RETRYING", 0, True)
    assert MISSING in dataflow.run("why", "j", "5_missing")
    assert f"1 chunk waits for its location (5_missing), which consumes no retry: not started: {MISSING}" in " ".join(
        dataflow.run("status", "j").split()
    )
    assert "4_latin1.csv, line 2: it is not UTF-8" in dataflow.run("describe", "chunk", "out", "4_latin1")


def test_a_database_that_does_not_answer_stops_the_job_before_it_reads_and_the_next_look_continues_it(
    dataflow: Program, db: Connection, dsn: str, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for chunk in "12":
        project.write(f"sources/{chunk}.csv", GOOD)
        project.write(f"sources/{chunk}.json", '{"id": 1, "m": 1}\n')
    variables = shop_variables(dsn)
    for variable, given in variables.items():
        monkeypatch.setenv(variable, given)
    (url,) = (name for name, given in variables.items() if given.startswith("jdbc:"))
    monkeypatch.setenv(url, "jdbc:postgresql://127.0.0.1:1/shop")
    db.execute(MAY_READ)
    job = job_file(project.folder, *"12")
    dataflow.run("local", "-f", job, "--until-caught-up", code=ExitCode.UNFINISHED)

    (run,) = json.loads(dataflow.run("get", "runs", "j", "-o", "json"))
    assert (run["state"], run["failure_class"]) == ("GIVEN_BACK", "NotStarted")
    assert run["message"] == "project.yml, line 8: 127.0.0.1:1/shop a query: Connection refused"
    looks = {look["dataset"]: look["found"] for look in run["metrics"]["looks"]}
    assert looks == {"a": "yes", "b": "yes", "c": "unknown", "out": "unknown"}
    assert value(db, "SELECT sum(attempts + infrastructure_attempts)::int FROM opendataflow.task") == 0
    assert "no run of the job starts" in " ".join(dataflow.run("status", "j").split())

    monkeypatch.setenv(url, variables[url])
    dataflow.run("local", "-f", job, "--until-caught-up")
    assert value(db, "SELECT count(*) FROM opendataflow.task WHERE state = 'DONE'") == 2


@pytest.mark.parametrize(
    ("yml", "one", "sentence"),
    [
        (YML, "def run(df:\n", "project/pipelines/p/one.py, line 1: '(' was never closed"),
        (YML.replace("[one]", "[one, two]"), ONE, "project.yml, line 9: there is no file "),
        (YML.replace("[one]", "[one, one]"), ONE, "there are two steps with"),
    ],
    ids=["a syntax error", "a file that is missing", "two of one name"],
)  # fmt: skip
def test_a_project_that_can_not_be_run_is_refused_before_any_chunk_is(
    dataflow: Program, db: Connection, project: Project, yml: str, one: str, sentence: str
) -> None:
    project.write("project.yml", yml)
    project.step("one", one)
    answer = dataflow.ask("local", "-f", job_file(project.folder, "1"), "--until-caught-up")
    assert answer.code in (ExitCode.USAGE, ExitCode.FAILED)
    assert sentence in answer.err
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert value(db, "SELECT count(*) FROM opendataflow.run") == 0
