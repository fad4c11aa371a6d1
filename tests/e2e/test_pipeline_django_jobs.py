"""Projects of the Django tool as jobs, and with sources that its server had: tables and files in buckets. No Spark."""

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from opendataflow.names import ExitCode
from tests.e2e.conftest import Inside, Program
from tests.e2e.projects import DATABASE, Project, shop_variables
from tests.sql.conftest import Connection
from tests.sql.graph import value

EXAMPLE = Path(__file__).parents[2] / "examples" / "django-project"
ONE = """
expected_inputs = [[{"id": 1, "text": "a"}]]
expected_output = [{"id": 1, "text": "a", "kinds": "int64 object"}]

def run(df):
    df["kinds"] = " ".join(str(kind) for kind in df.dtypes)
    return df
"""
YML = "name: p\npipelines: [{slug: p, sources: [a], transformations: [one], destination: o}]\n"


@pytest.fixture
def project(tmp_path: Path, inside: Inside) -> Project:
    """A project with one source and one step, which writes down the types that it sees."""
    made = Project(tmp_path / "project", inside)
    made.write("project.yml", YML)
    made.write("sources/a.csv", "id,text\n1,a\n")
    made.step("one", ONE)
    return made


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which Spark can't start."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")


def job(folder: Path, *ids: str, slug: str = "p", output: str = "o", **more: Any) -> str:
    """Write a job file beside a project; return its path."""
    spec = {
        "inputs": ["a"],
        "outputs": [output],
        "retry": {"limit": 0},
        "runtime": {"pipeline": {"project": {"path": str(folder)}, "pipeline": slug, **more}},
    }
    documents = [
        ("DataSet", "a", {"chunkSource": {"list": list(ids)}} if ids else {}),
        ("DataSet", output, {}),
        ("DataFlowJob", "j", spec),
    ]
    path = folder.parent / "job.yaml"
    path.write_text(
        "\n---\n".join(
            json.dumps(
                {"apiVersion": "opendataflow.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": content}
            )
            for kind, name, content in documents
        )
    )
    return str(path)


def runs(dataflow: Program) -> list[dict[str, Any]]:
    """All runs, the first one first."""
    found: list[dict[str, Any]] = json.loads(dataflow.run("get", "runs", "j", "-o", "json"))
    return found[::-1]


@pytest.mark.usefixtures("no_java")
def test_an_unchanged_project_runs_as_a_job_for_each_chunk_and_has_a_history(dataflow: Program, tmp_path: Path) -> None:
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("output", "__pycache__"))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    path = job(folder, "1", "2", slug="greetings", output="greeted", requireTests=True)
    dataflow.run("local", "-f", path, "--until-caught-up")
    by_hand = Project(folder, None)
    Program(tmp_path / "hand").run("pipeline", "run", "greetings", "--project", str(folder))
    (once,) = (by_hand.folder / "output").glob("greetings*.csv")
    for data_id in ("1", "2"):
        written = folder / "output" / "greetings" / f"data_id={data_id}"
        assert (written / "greetings.csv").read_bytes() == once.read_bytes()
        assert json.loads((written / "_opendataflow.json").read_text())["dataId"] == data_id
    assert {path: path.read_bytes() for path in before} == before

    rows = once.read_text().count("@")
    assert [run["metrics"]["rows"] for run in runs(dataflow)] == [rows, rows]
    history = json.loads(dataflow.run("pipeline", "history", "greetings", "-o", "json"))
    assert [one["data_id"] for one in history] == ["2", "1"]
    steps = [step["name"] for step in json.loads(dataflow.run("describe", "run", "1", "-o", "json"))["steps"]]
    assert steps == ["read entries", "read salutations", "full_name", "greeting", "write greeted"]
    answers = dataflow.run("inspect", "j", "1")
    assert f"has written {rows} rows to {folder}/output/greetings/data_id=1" in answers


@pytest.mark.usefixtures("no_java")
def test_a_chunk_that_is_processed_again_replaces_its_file_and_an_older_attempt_is_refused(
    dataflow: Program, project: Project
) -> None:
    path = job(project.folder, "1")
    dataflow.run("local", "-f", path, "--until-caught-up")
    project.write("sources/a.csv", "id,text\n7,b\n")
    dataflow.run("resubmit", "j", "1")
    dataflow.run("local", "-f", path, "--until-caught-up")
    written = project.folder / "output" / "p" / "data_id=1"
    assert (written / "p.csv").read_text() == "id,text,kinds\n7,b,int64 object\n"
    assert sorted(file.name for file in written.iterdir()) == ["_opendataflow.json", "p.csv"]

    marker = json.loads((written / "_opendataflow.json").read_text())
    (written / "_opendataflow.json").write_text(json.dumps(marker | {"fence": 2**62}))
    dataflow.run("resubmit", "j", "1")
    dataflow.run("local", "-f", path, "--until-caught-up", code=ExitCode.UNFINISHED)
    assert "knows a newer attempt of the chunk 1" in runs(dataflow)[-1]["message"]


@pytest.mark.usefixtures("no_java")
def test_faults_of_a_job_are_one_sentence_with_their_step(dataflow: Program, project: Project) -> None:
    project.step("one", "def run(df):\n    return df['nothing']\n")
    dataflow.run("local", "-f", job(project.folder, "1"), "--until-caught-up", code=ExitCode.UNFINISHED)
    assert "one has failed: project/pipelines/p/one.py, line 2" in runs(dataflow)[-1]["message"].replace(
        "pipelines", "project/pipelines", 1
    )
    project.step("one", "def run(df, stream):\n    return df\n")
    dataflow.run("resubmit", "j", "1")
    dataflow.run("local", "-f", job(project.folder, "1"), "--until-caught-up", code=ExitCode.UNFINISHED)
    assert "run() wants an item" in runs(dataflow)[-1]["message"]


@pytest.mark.usefixtures("no_java")
def test_a_failing_unit_test_gives_the_chunk_back(dataflow: Program, project: Project) -> None:
    project.step("one", ONE.replace('"int64 object"', '"other"'))
    path = job(project.folder, "1", requireTests=True)
    dataflow.run("local", "-f", path, "--until-caught-up", code=ExitCode.UNFINISHED)
    assert (runs(dataflow)[-1]["state"], not (project.folder / "output").exists()) == ("GIVEN_BACK", True)


@pytest.mark.usefixtures("no_java")
def test_the_chunks_of_a_plan_are_refused_because_whole_sources_are_read(dataflow: Program, project: Project) -> None:
    path = job(project.folder)
    dataflow.run("apply", "-f", path)
    chunk = {"id": "1", "bounds": {"column": "id", "kind": "number", "from": 1, "to": 2}}
    answer = dataflow.ask("chunks", "load", "-", "--dataset", "a", typed=json.dumps(chunk))
    assert answer.code == 0, answer
    dataflow.run("publish", "a", "1")
    dataflow.run("local", "-f", path, "--until-caught-up", code=ExitCode.UNFINISHED)
    assert "is a part of the rows of a, and the Django tool's form reads whole sources" in runs(dataflow)[-1]["message"]


# data-sources.yml ----------------------------------------------------------------------------------------


def table(text: str, query: str = "table: public.things") -> str:
    """Return a data-sources.yml whose source `a` is a table."""
    return f"sources:\n  - name: a\n    database: {text}\n    {query}\n"


@pytest.fixture
def shop(db: Connection, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """A database with a table, and the variables that its login needs."""
    for name, one in shop_variables(dsn).items():
        monkeypatch.setenv(name, one)
    db.execute("CREATE TABLE public.things (id bigint, text text)")
    db.execute("INSERT INTO public.things VALUES (1, '007'), (2, NULL)")
    return db


@pytest.mark.usefixtures("no_java")
@pytest.mark.parametrize("what", ["table: public.things", "query: SELECT * FROM public.things ORDER BY id;"])
def test_a_table_beside_the_unchanged_project_is_a_source_by_hand_and_as_a_job(
    dataflow: Program, project: Project, shop: Connection, what: str
) -> None:
    project.write("data-sources.yml", table(DATABASE, what))
    (project.folder / "sources" / "a.csv").unlink()
    assert project.ask("run", "p").code == 0
    (once,) = (project.folder / "output").glob("p*.csv")
    assert once.read_text() == "id,text,kinds\n1,007,int64 object\n2,,int64 object\n"
    dataflow.run("local", "-f", job(project.folder, "1"), "--until-caught-up")
    assert (project.folder / "output/p/data_id=1/p.csv").read_text() == once.read_text()
    assert project.ask("describe", "p").code == 0
    assert value(shop, "SELECT count(*)::int FROM public.things") == 2


VALUES = {
    "1::bigint, NULL": "float64",
    "9007199254740993::bigint, 1": "int64",
    "0.1::numeric, 2.5": "float64",
    "true, false": "bool",
    "'x', NULL": "object",
    "DATE '2013-01-01', NULL": "object",
    "TIMESTAMP '2013-01-01 00:00:00.000001', NULL": "datetime64[ns]",
    "'NaN'::numeric, 1": "float64",
}
INEXACT = ("9007199254740993::bigint, NULL", "0.12345678901234567891::numeric, 1")


@pytest.mark.usefixtures("no_java", "shop")
def test_values_of_tables_have_the_types_of_pandas_or_are_refused(project: Project) -> None:
    project.write("sources/a.csv", "id\n")
    for values, kind in VALUES.items():
        first, second = values.split(", ")
        project.write("data-sources.yml", table(DATABASE, f'query: "SELECT {first} AS v UNION ALL SELECT {second}"'))
        answer = project.ask("run", "p", "--replace")
        assert answer.code == 0, answer
        (once,) = (project.folder / "output").glob("p*.csv")
        assert once.read_text().splitlines()[1].endswith(f",{kind}"), values
    for values in INEXACT:
        first, second = values.split(", ")
        project.write("data-sources.yml", table(DATABASE, f'query: "SELECT {first} AS v UNION ALL SELECT {second}"'))
        answer = project.ask("run", "p")
        assert answer.code == ExitCode.FAILED
        assert "the column v has" in answer.err
        assert "which no float of pandas holds exactly" in answer.err


FAULTS = {
    "sources: []\n": "line 1: sources: 1 or more items are wanted",
    "- a\n": "a mapping with `sources` is wanted",
    "sources: [{name: a}]\n": "exactly one of",
    "sources: [{name: a, path: x.csv, table: t}]\n": "one of table and",
    "sources: [{name: a, path: 's3://b/{data_id}.csv'}]\n": "leave {data_id} out",
    "sources: [{name: a, path: x.csv}, {name: a.csv, path: y.csv}]\n": "the source a is written twice",
    "sources: [{name: a, path: x.csv, tabel: t}]\n": "no such field; did you mean table?",
    "sources: [{name: a, path: 'https://h/x.csv'}]\n": "addresses begin with s3:// or gs://",
    "sources: [{name: a, path: nowhere.csv}]\n": "there is no nowhere.csv",
    "sources: [{name: a, database: {url: 'jdbc:mysql://h/d'}, table: t}]\n": "without Spark only Postgres is read",
    "sources: [{name: a, database: {url: 'jdbc:postgresql://127.0.0.1:1/d', user: u}, table: t}]\n": "refused",
    "sources: [{name: a, database: {url: 'jdbc:postgresql://h/d', passwordVariable: NO_SUCH}, table: t}]\n": (
        "the variable NO_SUCH is not set"
    ),
}


@pytest.mark.parametrize("text", FAULTS)
def test_a_faulty_data_sources_file_is_one_sentence(project: Project, text: str) -> None:
    project.write("data-sources.yml", text)
    answer = project.ask("run", "p")
    assert answer.code in (ExitCode.USAGE, ExitCode.FAILED)
    assert FAULTS[text] in answer.err
    assert "Traceback" not in answer.err + answer.out


def test_a_data_sources_file_is_for_the_form_of_the_django_tool_and_notes_unknown_sources(project: Project) -> None:
    project.write("data-sources.yml", "sources: [{name: other, path: x.csv}]\n")
    assert "no pipeline has the source other" in project.ask("list").err
    project.write("project.yml", "version: 2\n" + YML)
    answer = project.ask("list")
    assert answer.code == ExitCode.USAGE
    assert "write the database or the path of a source into project.yml" in answer.err


class Bucket(BaseHTTPRequestHandler):
    """As much of S3 as a reader of one file needs."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        content = b"id,text\n1,b\n"
        if self.path.partition("?")[0] != "/bucket/folder/a.csv":
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        first, _, last = self.headers.get("Range", f"bytes=0-{len(content) - 1}").removeprefix("bytes=").partition("-")
        part = content[int(first) : int(last) + 1]
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("Content-Length", str(len(part)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Sat, 28 Nov 2026 12:00:00 GMT")
        self.send_header("Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}")
        self.end_headers()
        if body:
            self.wfile.write(part)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def bucket() -> Iterator[str]:
    """The address of a server with one file in one bucket."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("no_java")
def test_a_file_in_a_bucket_beside_the_unchanged_project_is_a_source(
    dataflow: Program, project: Project, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    (project.folder / "sources" / "a.csv").unlink()
    more = f"?endpoint_override={bucket}&scheme=http&region=eu-west-1"
    project.write("data-sources.yml", f"sources: [{{name: a, path: 's3://bucket/folder/a.csv{more}'}}]\n")
    dataflow.run("local", "-f", job(project.folder, "1"), "--until-caught-up")
    assert (project.folder / "output/p/data_id=1/p.csv").read_text() == "id,text,kinds\n1,b,int64 object\n"

    project.write("data-sources.yml", f"sources: [{{name: a, path: 's3://bucket/other.csv{more}'}}]\n")
    answer = Program(project.folder.parent / "other").ask("pipeline", "run", "p", cwd=project.folder)
    assert answer.code == ExitCode.FAILED
    assert "there is no s3://bucket/other.csv" in answer.err
