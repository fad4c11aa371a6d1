"""Chunks of a destination belong to the database whose run has written them: another database's run writes nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from opendataflow.core.pipelines.pipeline_order import FolderProject, PipelineOrder
from opendataflow.names import PIPELINE_FILE, ExitCode
from opendataflow.spark.pipeline import job
from tests.e2e.conftest import Inside
from tests.e2e.projects import DATABASE, Project, shop_variables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST, SECOND = "aaaaaaaaaaaa", "bbbbbbbbbbbb"
TABLE = f"{{name: out, database: {DATABASE}, table: result}}"
FOLDER = "{name: out, path: HERE/out, format: json}"
ADDRESS = "{name: out, path: 'file://HERE/out', format: json}"
YML = """\
version: 2
name: tests
pipelines:
  - slug: p
    sources: [{name: a, path: HERE/a.csv, schema: "id INT"}]
    transformations: [one]
    destination: DESTINATION
"""

Run = Callable[[str | None, int | None], str]


@pytest.fixture
def project(inside: Inside, tmp_path: Path) -> Project:
    """A project with one row in its source. Its destination is still to be written."""
    made = Project(tmp_path, inside)
    made.step("one", "def run(df):\n    return df\n")
    made.write("a.csv", "id\n1\n")
    return made


def write_to(project: Project, destination: str) -> None:
    """Write the project with a destination."""
    project.write("project.yml", YML.replace("DESTINATION", destination).replace("HERE", str(project.folder)))


@pytest.fixture
def run(
    spark: "SparkSession",  # noqa: ARG001 # they run
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run the chunk `1` as a job's run of an owner does, with a fencing token. Return its failure, or an empty text."""
    monkeypatch.chdir(project.folder)
    (project.folder / "run").mkdir()

    def run(owner: str | None, fence: int | None) -> str:
        order = PipelineOrder("p", False, None, FolderProject(project.folder), None, owner)  # no name
        (project.folder / "run" / PIPELINE_FILE).write_text(order.to_json())
        (project.folder / "run" / "context.json").write_text(json.dumps({"datasets": {}}))
        environ = {"DATAFLOW_CONTEXT": f"{project.folder}/run/context.json", "DATAFLOW_DATA_ID": "1"}
        code = job.main(environ | ({} if fence is None else {"DATAFLOW_FENCE": str(fence)}))
        lines = capsys.readouterr().err.splitlines()
        return "" if code == ExitCode.OK else lines[-1]

    return run


def sentence(place: str, known: str, own: str) -> str:
    """The refusal, up to its remedy."""
    return (
        f"write out has failed: {place}: the chunk 1 of out belongs to another OpenDataFlow database or namespace "
        f"({known}; this run is of {own}): nothing was written; "
    )


@pytest.fixture
def sql(bare_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[tuple[object, ...]]]:
    """The database of the destination: runs SQL and returns its rows."""
    for name, value in shop_variables(bare_dsn).items():
        monkeypatch.setenv(name, value)

    def ask(text: str) -> list[tuple[object, ...]]:
        with psycopg.connect(bare_dsn, autocommit=True) as connection:
            cursor = connection.execute(text)
            return cursor.fetchall() if cursor.description else []

    return ask


Sql = Callable[[str], list[tuple[object, ...]]]


def test_a_table_s_chunk_is_not_written_by_another_database_until_it_is_handed_over(
    project: Project, run: Run, sql: Sql
) -> None:
    write_to(project, TABLE)
    assert run(FIRST, 7) == ""
    for fence in (3, 900):  # tokens of two databases are not comparable
        error = run(SECOND, fence)
        assert error.startswith(sentence("project.yml, line 7", FIRST, SECOND)), error
    give = f"UPDATE opendataflow_chunk SET owner = NULL, fence = 0 WHERE dataset = 'out' AND owner = '{FIRST}'"
    assert error.endswith(f"write to another table, or, if nothing else writes these chunks any more, run `{give}`")
    assert sql("SELECT owner, fence FROM opendataflow_chunk") == [(FIRST, 7)]
    sql(give)
    assert run(SECOND, 3) == ""
    assert sql("SELECT owner, fence, written_fence FROM opendataflow_chunk") == [(SECOND, 3, 3)]
    assert run(FIRST, 8) != ""


def test_the_table_of_attempts_of_an_earlier_version_gets_the_column_and_its_chunks_get_an_owner(
    project: Project, run: Run, sql: Sql
) -> None:
    write_to(project, TABLE)
    assert run(None, 7) == ""
    sql("ALTER TABLE opendataflow_chunk DROP owner")
    assert run(FIRST, 8) == ""
    assert sql("SELECT owner, fence FROM opendataflow_chunk") == [(FIRST, 8)]


def test_a_column_that_the_user_may_not_add_is_reported_with_the_statement(
    project: Project, run: Run, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_to(project, TABLE)
    assert run(None, 7) == ""
    ((name,),) = sql("SELECT 'guest_' || oid FROM pg_database WHERE datname = current_database()")
    sql(f"ALTER TABLE opendataflow_chunk DROP owner; CREATE ROLE {name} LOGIN PASSWORD 'guest'")
    try:
        sql(f"GRANT ALL ON SCHEMA public TO {name}; GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}")
        monkeypatch.setenv("SHOP_USER", str(name))
        monkeypatch.setenv("SHOP_WORD", "guest")
        error = run(FIRST, 8)
    finally:
        sql(f"DROP OWNED BY {name}; DROP ROLE {name}")
    assert "must be owner of table opendataflow_chunk" in error
    assert error.endswith(
        "the table opendataflow_chunk is of an earlier version and has no column owner: let its owner run "
        "`ALTER TABLE opendataflow_chunk ADD COLUMN IF NOT EXISTS owner text`"
    )


@pytest.mark.parametrize("destination", [FOLDER, ADDRESS], ids=["folder", "address"])
def test_a_folder_s_chunk_is_not_written_by_another_database_until_it_is_handed_over(
    project: Project, run: Run, destination: str
) -> None:
    write_to(project, destination)
    assert run(FIRST, 7) == ""
    marker = "out/data_id=1/_opendataflow.json"
    file = project.folder / marker
    before = file.read_text()
    error = run(SECOND, 900)
    assert error.startswith(sentence("project.yml, line 7", FIRST, SECOND)), error
    assert error.endswith(
        "write to another path, or, if nothing else writes it any more, delete owner and fence in "
        f"{f'file://{file}' if destination == ADDRESS else marker}"
    )
    assert file.read_text() == before
    fields = json.loads(before)
    assert (fields["owner"], fields["fence"]) == (FIRST, 7)
    file.write_text(json.dumps({name: it for name, it in fields.items() if name not in ("owner", "fence")}))
    (file.parent / "._opendataflow.json.crc").unlink(missing_ok=True)  # of Hadoop, on this machine only
    assert run(SECOND, 3) == ""
    assert json.loads(file.read_text())["owner"] == SECOND


def test_an_attempt_of_another_database_that_is_writing_an_object_store_is_not_rejected(
    project: Project, run: Run
) -> None:
    write_to(project, ADDRESS)
    begun = project.folder / "out/.attempts/data_id=1/0123/begun.json"
    begun.parent.mkdir(parents=True)
    begun.write_text(json.dumps({"fence": 2, "owner": FIRST}))
    error = run(SECOND, 900)
    assert error.startswith(sentence("project.yml, line 7", FIRST, SECOND)), error
    assert error.endswith(f"if that attempt has ended, delete file://{begun.parent}")
    assert begun.exists()


@pytest.mark.parametrize("destination", [FOLDER, TABLE], ids=["folder", "table"])
def test_a_run_by_hand_writes_every_chunk_and_leaves_it_to_its_owner(
    project: Project, run: Run, sql: Sql, destination: str
) -> None:
    write_to(project, destination)
    assert run(FIRST, 7) == ""
    assert run(None, None) == ""
    assert run(SECOND, 8) != ""
    if destination == TABLE:
        assert sql("SELECT owner, fence FROM opendataflow_chunk") == [(FIRST, 7)]


def test_a_run_on_one_machine_and_one_on_a_cluster_of_the_same_database_write_the_same_chunk(
    project: Project, run: Run, sql: Sql
) -> None:
    write_to(project, TABLE)
    for fence, owner in enumerate((FIRST, f"{FIRST}/team", FIRST, f"{FIRST}/team")):
        assert run(owner, fence) == ""
        assert sql("SELECT owner FROM opendataflow_chunk") == [(owner,)]
    assert run(f"{FIRST}/others", 9) != ""
