"""Projects in our own form: tested and run for a chunk by a real Spark, started once for all tests of this module."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from opendataflow.core.chunks.chunk_parts import Chunk
from opendataflow.model.projects.project import Source, parse_project
from opendataflow.names import SPARK_ARCHIVE, ExitCode, StepStatus
from opendataflow.spark.pipeline.io.reading_sources import read_source
from opendataflow.spark.pipeline.project.project_folder import OpenProject
from tests.e2e.conftest import SPARK_DEFAULTS, Answer, Inside, Program
from tests.e2e.projects import Project
from tests.share import in_share

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


YML = """\
version: 2
name: tests
pipelines:
  - slug: p
    sources:
      - {name: a, schema: "id INT, t STRING", partitioning: {column: id, type: range}}
    transformations: [one, two]
    destination: out
"""
ONE = """
from pyspark.sql import functions as F

def run(df):
    print("planning one")
    return df.withColumn("n", F.col("id") * 2)
"""
TWO = """
def run(df):
    return df.where("n > 2")
"""


@pytest.fixture
def project(spark: "SparkSession", inside: Inside, tmp_path: Path) -> Project:  # noqa: ARG001 # it runs
    """A project with one pipeline of one source and two transformations, whose chunks are ranges of `id`."""
    made = Project(tmp_path, inside)
    made.write("project.yml", YML)
    made.write("sources/a.csv", 'id,t\n0,x\n1,"a\nb"\n2,"c""d"\n3,\n12,z\n')
    made.step("one", ONE)
    made.step("two", TWO)
    return made


def result(spark: "SparkSession", project: Project) -> list[dict[str, Any]]:
    """All that is in the destination."""
    read = spark.read.parquet(str(project.folder / "output" / "out"))
    return [row.asDict() for row in read.orderBy("id").collect()]


def steps(answer: Answer) -> dict[str, Any]:
    """The steps of a run by their names."""
    (run,) = json.loads(answer.out)
    return {step["name"]: step for step in run["steps"]}


def test_a_chunk_is_read_alone_and_done_twice_equals_once(spark: "SparkSession", project: Project) -> None:
    done = [project.ask("run", "p", "--data-id", "0-9", "-o", "json") for _ in range(2)]
    assert project.ask("run", "p", "--data-id", "10-19").code == ExitCode.OK
    for answer in done:
        assert answer.code == ExitCode.OK, answer.err
        assert [(it["status"], it["rows"]) for it in steps(answer).values()] == [
            (StepStatus.DONE, rows) for rows in (4, 4, 2, 2)
        ]
    assert steps(done[0])["one"]["stdout"] == "planning one\n"
    assert result(spark, project) == [
        {"id": 2, "t": 'c"d', "n": 4, "data_id": "0-9"},
        {"id": 3, "t": None, "n": 6, "data_id": "0-9"},
        {"id": 12, "t": "z", "n": 24, "data_id": "10-19"},
    ]


def test_rows_of_which_a_step_has_looked_at_a_part_are_not_known(project: Project) -> None:
    project.step("two", "def run(df):\n    df.limit(1).collect()\n    return df\n")
    answer = project.ask("run", "p", "--data-id", "0-9", "-o", "json")
    assert [step["rows"] for step in steps(answer).values()] == [None, None, 4, 4]


@pytest.mark.parametrize(
    ("measure", "rows", "has_checksum"),
    [("steps", [4, 4, 2, 2], True), ("result", [None, None, 2, 2], True), ("rows", [None, None, 2, 2], False)],
)
def test_what_is_measured_is_for_the_pipeline_to_say(
    project: Project, measure: str, rows: list[int | None], has_checksum: bool
) -> None:
    project.write("project.yml", f"{YML}    measure: {measure}\n")
    answer = project.ask("run", "p", "--data-id", "0-9", "-o", "json")
    assert answer.code == ExitCode.OK, answer.err
    assert [step["rows"] for step in steps(answer).values()] == rows
    (run,) = json.loads(answer.out)
    assert (run["checksum"] is not None) is has_checksum


@pytest.mark.parametrize(("measure", "reaches"), [("steps", False), ("result", True), ("rows", True)])
def test_a_filter_of_a_step_reaches_the_source_where_steps_are_not_measured(
    project: Project, measure: str, reaches: bool
) -> None:
    project.write("project.yml", f"{YML}    measure: {measure}\n")
    project.step("two", "def run(df):\n    df = df.where(\"t = 'z'\")\n    df.explain()\n    return df\n")
    answer = project.ask("run", "p", "--data-id", "0-99", "-o", "json")
    assert ("EqualTo(t,z)" in steps(answer)["two"]["stdout"]) is reaches


def test_an_item_is_a_chunk_and_done_twice_equals_once(spark: "SparkSession", project: Project) -> None:
    project.write("project.yml", YML.replace(", partitioning: {column: id, type: range}", ""))
    project.step("one", "def run(df, stream):\n    return df.where(df.id == int(stream['id']))\n")
    project.step("two", "def run(df, stream=None):\n    return df.selectExpr('id', 't', 'id * 2 AS n')\n")
    project.write("sources/items.csv", "id,data_id\n2,\n12,twelve\n")
    for _ in range(2):
        assert project.ask("run", "p", "--stream", "items.csv").code == ExitCode.OK
    found = result(spark, project)
    assert [(row["id"], row["n"]) for row in found] == [(2, 4), (12, 24)]
    assert found[0]["data_id"].startswith("item-")
    assert found[1]["data_id"] == "twelve"


def test_an_item_and_a_data_id_together_are_refused(project: Project) -> None:
    answer = project.ask("run", "p", "--stream", "items.csv", "--data-id", "0-9")
    assert answer.code == ExitCode.USAGE
    assert answer.err == "error: an item is a chunk of its own: write --stream or --data-id, and not both\n"


def test_the_buckets_of_a_hash_are_all_rows_and_each_row_once(spark: "SparkSession", project: Project) -> None:
    project.write("project.yml", YML.replace("type: range", "type: hash"))
    project.step("two", "def run(df):\n    return df\n")
    project.write("sources/a.csv", "id,t\n" + "".join(f"{number},x\n" for number in range(20)) + ",nothing\n")
    for bucket in range(3):
        assert project.ask("run", "p", "--data-id", f"{bucket}-of-3").code == ExitCode.OK
    found = result(spark, project)
    assert len({row["data_id"] for row in found}) == 3
    assert [row["id"] for row in found] == [None, *range(20)]


def test_the_ranges_of_a_plan_are_all_rows_and_each_row_once(spark: "SparkSession", project: Project) -> None:
    project.step("two", "def run(df):\n    return df\n")
    project.write("sources/a.csv", "id,t\n" + "".join(f"{number},x\n" for number in range(20)) + ",nothing\n")
    for data_id in ("..4", "5-9", "10..", "null"):
        assert project.ask("run", "p", "--data-id", data_id).code == ExitCode.OK
    assert [row["id"] for row in result(spark, project)] == [None, *range(20)]


def test_spark_is_asked_for_the_days_of_the_chunk_only(spark: "SparkSession", tmp_path: Path) -> None:
    days = spark.sql("SELECT make_date(2013, 1, int(id) + 1) AS day FROM range(31)")
    days.write.parquet(str(tmp_path / "sources/days.parquet"))
    source = Source.model_validate(
        {"name": "days", "format": "parquet", "partitioning": {"column": "day", "type": "date"}}
    )
    opened = OpenProject(tmp_path, parse_project(YML, "project.yml"))
    frame = read_source(spark, opened, source, Chunk("2013-01-31"), "project.yml, line 6")
    assert [str(row["day"]) for row in frame.collect()] == ["2013-01-31"]
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "GreaterThanOrEqual(day,2013-01-31), LessThan(day,2013-02-01)" in plan


def test_the_data_id_names_the_file_and_a_run_may_replace_the_whole_destination(project: Project) -> None:
    source = '{name: a, path: "sources/{data_id}.csv", schema: "id INT, t STRING"}'
    yml = YML.replace(YML[YML.index("{name: a") : YML.index("\n    trans")], source)
    project.write(
        "project.yml", yml.replace("destination: out", "destination: {name: out, format: csv, mode: replace}")
    )
    for data_id in ("5", "6"):
        project.write(f"sources/{data_id}.csv", f"id,t\n{data_id},x\n")
        answer = project.ask("run", "p", "--data-id", data_id)
        assert answer.code == ExitCode.OK, answer.err
    (chunk,) = (path for path in (project.folder / "output/out").iterdir() if path.name[0] not in "._")
    assert chunk.name == "data_id=6"
    assert [path.read_text() for path in chunk.glob("*.csv")] == ["id,t,n\n6,x,12\n"]


def test_wildcards_are_those_of_the_project_and_never_of_the_data_id(spark: "SparkSession", project: Project) -> None:
    source = '{name: a, path: "sources/?_{data_id}.csv", schema: "id INT, t STRING"}'
    project.write("project.yml", YML.replace(YML[YML.index("{name: a") : YML.index("\n    trans")], source))
    for name, number in (("a_[56]", 7), ("b_[56]", 8), ("._[56]", 9), ("a_5", 5)):
        project.write(f"sources/{name}.csv", f"id,t\n{number},x\n")
    answer = project.ask("run", "p", "--data-id", "[56]")
    assert answer.code == ExitCode.OK, answer.err
    assert [row["id"] for row in result(spark, project)] == [7, 8]
    assert "there is no sources/?_*.csv" in project.ask("run", "p", "--data-id", "*").err


def test_paths_of_this_machine_are_of_it_also_where_hadoop_is_configured_for_another_file_system(
    spark: "SparkSession", project: Project
) -> None:
    jvm_context: Any = spark.sparkContext._jsc
    settings = jvm_context.hadoopConfiguration()
    before = settings.get("fs.defaultFS")
    settings.set("fs.defaultFS", "hdfs://127.0.0.1:1/")
    try:
        answer = project.ask("run", "p", "--data-id", "0-9")
    finally:
        settings.set("fs.defaultFS", before)
    assert answer.code == ExitCode.OK, answer.err
    assert len(result(spark, project)) == 2


def test_a_cell_that_does_not_fit_is_found_however_its_file_is_written(project: Project) -> None:
    source = '{name: a, path: a.gz, format: csv, schema: "id INT, t STRING", options: {sep: ";", encoding: ISO-8859-1}}'
    project.write("project.yml", YML.replace(YML[YML.index("{name: a") : YML.index("\n    trans")], source))
    project.write("a.gz", gzip.compress("id;t\n1;é\nx;y\n".encode("latin-1")))
    assert 'a.gz, line 3: "x" does not fit the type of the column id' in project.ask("run", "p", "--data-id", "1").err


def test_a_bad_file_of_another_chunk_does_not_matter(project: Project) -> None:
    source = '{name: a, path: in, format: csv, schema: "id INT, t STRING", partitioning: {column: day, type: date}}'
    project.write("project.yml", YML.replace(YML[YML.index("{name: a") : YML.index("\n    trans")], source))
    project.write("in/day=2013-01-01/a.csv", "id,t\n5,x\n")
    project.write("in/day=2013-01-02/a.csv", b"id,t\n5,caf\xe9\n")
    assert project.ask("run", "p", "--data-id", "2013-01-01").code == ExitCode.OK
    bad = "error: read a has failed: in/day=2013-01-02/a.csv, line 2: it is not UTF-8 text; "
    assert project.ask("run", "p", "--data-id", "2013-01-02").err.startswith(bad)
    assert project.ask("run", "p", "--data-id", "null").code == ExitCode.OK


def test_json_of_several_lines_is_reported_with_the_option_that_reads_it(project: Project) -> None:
    source = '{name: a, path: a.json, format: json, schema: "id INT, t STRING"}'
    project.write("project.yml", YML.replace(YML[YML.index("{name: a") : YML.index("\n    trans")], source))
    project.write("a.json", '[\n  {"id": 1,\n   "t": "x"}\n]\n')
    answer = project.ask("run", "p", "--data-id", "1")
    assert answer.err.startswith(
        "error: read a has failed: a.json: a row does not fit its types: Unexpected end-of-input"
    )
    assert answer.err.endswith('; where it is not one object a line, write options: {multiLine: "true"}\n')


def test_a_quoted_newline_stays_in_its_cell(spark: "SparkSession", project: Project) -> None:
    project.step("two", "def run(df):\n    return df\n")
    project.ask("run", "p", "--data-id", "1-1")
    assert [row["t"] for row in result(spark, project)] == ["a\nb"]


def test_a_chunk_without_rows_is_done(project: Project) -> None:
    answer = project.ask("run", "p", "--data-id", "100-199", "-o", "json")
    assert answer.code == ExitCode.OK, answer.err
    assert steps(answer)["write out"]["status"] == StepStatus.DONE


BAD_UDF = """
from pyspark.sql import functions as F

def tenth(x):
    print(f"tenth of {x}")
    return 10 // (x - 2)

def run(df):
    return df.withColumn("n", F.udf(tenth, "int")("id"))
"""


@pytest.mark.parametrize(
    ("one", "two", "sentence"),
    [
        (BAD_UDF, TWO, "one.py, line 5: ZeroDivisionError: integer division or modulo by zero"),
        (
            BAD_UDF.replace("return 10 // (x - 2)", 'raise ValueError("first line\\nsecond line")'),
            TWO,
            "one.py, line 5: ValueError: first line\n",
        ),
        (
            BAD_UDF,
            "def run(df):\n    df.collect()\n    return df\n",
            "one.py, line 5: ZeroDivisionError: integer division",
        ),
        (ONE.replace('F.col("id") * 2', '1 / F.col("id")'), TWO, "one.py, line 5: [DIVIDE_BY_ZERO] Division by zero."),
        ("def run(df):\n    return df.selectExpr('id', 'int(t) AS n')\n", TWO, "one.py, line 1: [CAST_INVALID_INPUT] "),
        (ONE, "def run(df):\n    return df.selectExpr('*', 'int(t) AS z')\n", "two.py, line 1: [CAST_INVALID_INPUT] "),
        ("def run(df):\n    return df.select('z')\n", TWO, "one.py, line 2: AnalysisException: [UNRESOLVED_COLUMN"),
        (
            "import _thread\nL = _thread.RLock()\n\ndef run(df):\n    return df.mapInPandas(lambda _: L, 'n INT')\n",
            TWO,
            "one.py, line 5: PicklingError: Could not serialize object: TypeError: cannot pickle '_thread.RLock'",
        ),
        ("def run(df):\n    df.show()\n", TWO, "one.py, line 1: run() returns nothing; a DataFrame of Spark is wanted"),
    ],
    ids=[
        "function",
        "lines",
        "function, seen by an action",
        "expression",
        "SQL",
        "SQL of the second",
        "plan",
        "what can't be sent",
        "nothing",
    ],
)
def test_an_error_is_of_the_step_that_made_it_though_spark_is_lazy(
    project: Project, one: str, two: str, sentence: str
) -> None:
    project.step("one", one)
    project.step("two", two)
    answer = project.ask("run", "p", "--data-id", "0-9")
    assert answer.code == ExitCode.FAILED
    step = sentence.partition(".")[0]
    assert answer.err.startswith(f"error: {step} has failed: pipelines/p/{sentence}")
    assert answer.err.count("\n") == 1
    assert not (project.folder / "output/out/data_id=0-9").exists()


PRINTS = """
from pyspark.sql import functions as F
from shared import twice

STEP = __name__.rpartition(".")[2]

def seen(x):
    print(STEP, "sees", twice(x))
    return x

def run(df):
    made = [F.udf(seen, "int")("id"), F.udf(lambda x: print(STEP) or x, "int")("id"), F.udf(twice, "int")("id")]
    return df.withColumns({f"{STEP}{number}": it for number, it in enumerate(made)})
"""


def test_what_functions_print_on_workers_is_shown_with_their_step_whatever_is_done_with_the_rows(
    project: Project,
) -> None:
    project.write("shared.py", 'def twice(x):\n    print("twice", x)\n    return 2 * x\n')
    project.step("one", PRINTS)
    collects = "    return df.sparkSession.createDataFrame(df.collect(), df.schema)\n"
    project.step("two", PRINTS + "\nrun_one = run\n\ndef run(df):\n    df = run_one(df)\n" + collects)
    answer = project.ask("run", "p", "--data-id", "3-3", "-o", "json")
    assert answer.code == ExitCode.OK, answer.err
    printed = {name: sorted(step["stdout"].splitlines()) for name, step in steps(answer).items()}
    assert printed["one"] == ["one", "one sees 6", "twice 3", "twice 3"]
    assert printed["two"] == ["twice 3", "twice 3", "two", "two sees 6"]


def test_a_function_may_print_as_much_as_it_likes(project: Project) -> None:
    project.step("one", BAD_UDF.replace('print(f"tenth of {x}")', "[print(line) for line in range(20_000)]"))
    project.step("two", "def run(df):\n    return df\n")
    answer = project.ask("run", "p", "--data-id", "3-3", "-o", "json")
    assert answer.code == ExitCode.OK, answer.err
    assert steps(answer)["one"]["stdout"].splitlines()[-2:] == ["19998", "19999"]


def test_a_failed_run_leaves_the_chunk_as_it_was(spark: "SparkSession", project: Project) -> None:
    project.ask("run", "p", "--data-id", "0-9")
    before = result(spark, project)
    project.step("one", BAD_UDF)
    assert project.ask("run", "p", "--data-id", "0-9").code == ExitCode.FAILED
    assert result(spark, project) == before


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"id,t\n0\n", "sources/a.csv, line 2: a row has more or fewer cells than there are columns: 0\n"),
        (b'id,t\n1,"a\nb"\nx,y\n', 'sources/a.csv, line 4: "x" does not fit the type of the column id\n'),
        (
            b"id,u\n0,x\n",
            "sources/a.csv, line 1: its columns are id, u, and those",
        ),
        (b"id,t,ID\n0,x,1\n", "sources/a.csv, line 1: there are two columns ID; rename one of them"),
        (b'id,t\n0,x\n1,"y\n2,z\n', "sources/a.csv, line 3: a cell begins with a quote that is never closed"),
        (b"id,t\n0,caf\xe9\n", "sources/a.csv, line 2: it is not UTF-8 text; "),
        (b"", "sources/a.csv: the file is empty; its first line names the columns"),
        (None, "project.yml, line 6: there is no sources/a.csv"),
    ],
    ids=["short row", "wrong type", "other column", "two of one name", "open quote", "not UTF-8", "empty", "missing"],
)
def test_a_source_that_does_not_fit_is_the_fault_of_the_read(
    project: Project, content: bytes | None, sentence: str
) -> None:
    if content is None:
        (project.folder / "sources/a.csv").unlink()
    else:
        project.write("sources/a.csv", content)
    answer = project.ask("run", "p", "--data-id", "0-9")
    assert answer.code == ExitCode.FAILED
    assert answer.err.startswith("error: read a has failed: ")
    assert sentence in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "data_id", "sentence"),
    [
        ("column: id", "column: day", "0-9", "read a has failed: project.yml, line 6: a has no column day; it has"),
        ("id INT, t", "id INTEGERS, t", "0-9", "read a has failed: project.yml, line 6: the schema is not Spark's DDL"),
        ("out", "out", "nine", 'read a has failed: project.yml, line 6: the data id "nine" contains no bounds'),
        ("destination: out", "destination: {name: out, partition: t}", "0-9",
         "write out has failed: project.yml, line 8: the result has a column t, which is the name of"),
        ("type: range", "type: list", "7" * 235,
         "write out has failed: project.yml, line 8: the folder of the chunk would have a name of 243 bytes, and 240 "),
        ("[one, two]", "[one, two, twice]", "0-9",
         "write out has failed: pipelines/p/twice.py, line 1: the result has two columns id; rename one"),
        ("[one, two]", "[one, two, none]", "0-9",
         "write out has failed: pipelines/p/none.py, line 1: the result has no columns; keep them, also where there "),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_data_is_reported_with_its_line(
    project: Project, old: str, new: str, data_id: str, sentence: str
) -> None:
    project.write("project.yml", YML.replace(old, new))
    project.step("twice", "def run(df):\n    return df.selectExpr('*', 'n AS id')\n")
    project.step("none", "def run(df):\n    return df.select()\n")
    assert f"error: {sentence}" in project.ask("run", "p", "--data-id", data_id).err


def test_a_chunk_whose_types_differ_from_those_of_the_others_is_not_written(project: Project) -> None:
    assert project.ask("run", "p", "--data-id", "0-9").code == ExitCode.OK
    project.step("two", "def run(df):\n    return df.selectExpr('id', 'string(n) AS n', '1 AS new')\n")
    answer = project.ask("run", "p", "--data-id", "10-19")
    assert "project.yml, line 8: the column n is string, and int in the chunk 0-9; say its type in" in answer.err
    assert project.ask("run", "p", "--data-id", "0-9").code == ExitCode.OK  # there is no other one


def test_a_chunk_of_csv_whose_columns_are_not_those_of_the_others_is_not_written(project: Project) -> None:
    project.write("project.yml", YML.replace("destination: out", "destination: {name: out, format: csv}"))
    assert project.ask("run", "p", "--data-id", "0-9").code == ExitCode.OK
    project.step("two", "def run(df):\n    return df.select('n', 'id', 't')\n")
    answer = project.ask("run", "p", "--data-id", "10-19")
    assert "project.yml, line 8: the columns are n, id, t, and id, t, n in the chunk 0-9; who reads CSV" in answer.err
    assert project.ask("run", "p", "--data-id", "0-9").code == ExitCode.OK  # there is no other one


def test_a_chunk_is_needed(project: Project) -> None:
    answer = project.ask("run", "p")
    assert answer.code == ExitCode.USAGE
    assert answer.err == "error: which chunk? write its data id, such as --data-id 2013-01-01\n"


@pytest.mark.parametrize("marked", [True, False], ids=["in the project", "by its type"])
def test_a_pandas_transformation_runs_between_those_of_spark(
    spark: "SparkSession", project: Project, marked: bool
) -> None:
    hint = "" if marked else ": pd.DataFrame"
    project.write("project.yml", YML.replace("[one", "[{name: one, engine: pandas}") if marked else YML)
    project.step("one", f"import pandas as pd\n\ndef run(df{hint}):\n    return df.assign(n=len(df))\n")
    answer = project.ask("run", "p", "--data-id", "0-9", "-o", "json")
    assert answer.code == ExitCode.OK, answer.err
    assert [row["n"] for row in result(spark, project)] == [4, 4, 4, 4]
    assert steps(answer)["one"]["rows"] == 4


def test_a_pandas_transformation_of_an_empty_chunk_keeps_the_types(spark: "SparkSession", project: Project) -> None:
    project.step(
        "one", "import pandas as pd\n\ndef run(df: pd.DataFrame):\n    return df.assign(n=df.id * 2, z=None)\n"
    )
    for data_id in ("0-9", "100-199"):
        answer = project.ask("run", "p", "--data-id", data_id)
        assert answer.code == ExitCode.OK, answer.err
    chunks = [spark.read.parquet(str(path)) for path in sorted((project.folder / "output/out").glob("data_id=*"))]
    assert [chunk.count() for chunk in chunks] == [2, 0]
    assert chunks[0].dtypes == chunks[1].dtypes


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ("df.groupby('t').sum()", "the result has t as its index, which Spark lacks; add .reset_index()"),
        ("df.assign(n=2**70)", "the column n of the result has no type of Spark: OverflowError: Python int too large"),
        ("df.assign(n=['x', 1, 2, 3])", "the column n of the result has no type of Spark: ArrowTypeError: "),
    ],
)
def test_what_pandas_has_and_spark_would_lose_is_refused(project: Project, made: str, sentence: str) -> None:
    project.step("one", f"import pandas as pd\n\ndef run(df: pd.DataFrame):\n    return {made}\n")
    error = project.ask("run", "p", "--data-id", "0-9").err
    assert error.startswith(f"error: one has failed: pipelines/p/one.py, line 3: {sentence}"), error
    assert error.count("\n") == 1


@pytest.mark.parametrize("number", [2**53 - 1, 2**53 + 1, -(2**60)])
def test_what_spark_has_and_pandas_would_round_is_refused(spark: "SparkSession", project: Project, number: int) -> None:
    project.step("one", f"def run(df):\n    return df.selectExpr('id', 'CASE WHEN id = 1 THEN {number}L END AS n')\n")
    project.step("two", "import pandas as pd\n\ndef run(df: pd.DataFrame):\n    return df\n")
    answer = project.ask("run", "p", "--data-id", "0-9")
    if abs(number) < 2**53:
        assert answer.code == ExitCode.OK, answer.err
        assert [row["n"] for row in result(spark, project) if row["n"] is not None] == [number]
    else:
        sentence = "n has NULLs and numbers of more than 15 digits, which pandas would round: cast it to a string or"
        assert answer.err.startswith(f"error: two has failed: pipelines/p/two.py, line 3: {sentence}"), answer.err


def test_a_source_that_two_steps_take_is_counted_once(project: Project) -> None:
    second = "      - {name: b, schema: 'id INT, m INT'}\n"
    project.write("project.yml", YML.replace("    transformations", f"{second}    transformations"))
    project.write("sources/b.csv", "id,m\n1,1\n2,2\n3,3\n77,4\n")
    project.step("one", "def run(df, b):\n    return df.join(b, 'id')\n")
    project.step("two", "def run(df, b):\n    return df.join(b.withColumnRenamed('m', 'm2'), 'id').where('m > 1')\n")
    answer = project.ask("run", "p", "--data-id", "0-9", "-o", "json")
    assert answer.code == ExitCode.OK, answer.err
    rows = {name: step["rows"] for name, step in steps(answer).items()}
    assert rows == {"read a": 4, "read b": 4, "one": 3, "two": 2, "write out": 2}


def test_unit_tests_compare_rows_in_any_order_and_report_cells(project: Project) -> None:
    inputs = 'expected_inputs = [[{"n": 1, "t": None}, {"n": 3, "t": "x"}, {"n": 4, "t": "y"}]]\n'
    project.step("one", f'{inputs}expected_output = [{{"n": 4, "t": "y"}}, {{"n": 3, "t": "x"}}]\n{TWO}')
    project.step("two", f'{inputs}expected_output = [{{"n": 3, "t": "x"}}, {{"n": 4, "t": "z"}}]\n{TWO}')
    answer = project.ask("test")
    assert answer.code == ExitCode.FAILED
    assert "passed  p/one" in answer.out
    assert "pipelines/p/two.py, line 4: what run() returns is not expected_output" in answer.out
    assert "    row 2: t: expected 'z', found 'y'" in answer.out


def test_a_unit_test_fails_where_the_result_has_two_columns_of_one_name(project: Project) -> None:
    example = 'expected_inputs = [[{"id": 2}]]\nexpected_output = [{"id": 2}]\n\n'
    project.step("one", f"{example}def run(df):\n    return df.selectExpr('id', 'id AS ID')\n")
    project.step(
        "two", f"{example}import pandas as pd\n\ndef run(df: pd.DataFrame):\n    return pd.concat([df, df], axis=1)\n"
    )
    out = project.ask("test").out
    assert "pipelines/p/one.py, line 4: the result has two columns ID; rename one of them, or drop it" in out
    assert "pipelines/p/two.py, line 6: the result has two columns id; rename one of them, or drop it" in out


def test_times_of_unit_tests_are_those_of_utc_wherever_the_machine_is(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.step(
        "one",
        """
        from datetime import datetime, timezone
        from pyspark.sql import functions as F

        noon = datetime(2020, 1, 1, 12)
        expected_inputs = [[{"at": noon}]]
        expected_output = [{"at": noon.replace(tzinfo=timezone.utc), "hour": 12, "read": noon}]

        def run(df):
            assert df.first()["at"] == noon
            return df.withColumn("hour", F.hour("at")).withColumn("read", F.to_timestamp(F.lit("2020-01-01 12:00:00")))
        """,
    )
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "America/New_York")
        time.tzset()
        answer = project.ask("test")
    time.tzset()
    assert "passed  p/one" in answer.out


def test_unit_tests_report_errors_of_spark_with_the_line_of_the_step(project: Project) -> None:
    example = 'expected_inputs = [[{"id": 2}]]\nexpected_output = []'
    project.step("one", f"{example}{BAD_UDF}")
    project.step("two", "expected_inputs = [[]]\nexpected_output = []\n\ndef run(df):\n    return df\n")
    answer = project.ask("test")
    assert "pipelines/p/one.py, line 7: ZeroDivisionError: integer division or modulo by zero" in answer.out
    assert "pipelines/p/two.py, line 4: a frame of expected_inputs has no values that show its types" in answer.out


def test_the_types_of_a_unit_test_may_be_declared(project: Project) -> None:
    project.step(
        "one",
        """
        input_schemas = ["id BIGINT, day DATE"]
        expected_inputs = [[]]
        expected_output = []

        def run(df):
            assert dict(df.dtypes) == {"id": "bigint", "day": "date"}
            return df
        """,
    )
    assert "passed  p/one" in project.ask("test").out


def test_the_first_project_passes_its_tests(
    spark: "SparkSession",  # noqa: ARG001 # it runs
    inside: Inside,
    tmp_path: Path,
) -> None:
    project = Project(tmp_path, inside)
    assert project.ask("init", str(tmp_path / "first")).code == ExitCode.OK
    answer = project.ask("test", "--project", str(tmp_path / "first"))
    assert answer.code == ExitCode.OK, answer.out
    assert "2 tests passed, 0 failed" in answer.out


def test_the_first_project_runs_in_a_process_of_its_own_without_a_word_of_spark(
    spark_conf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(spark_conf))
    program = Program(tmp_path / "home")
    program.ask("pipeline", "init", str(tmp_path / "first"))
    with (tmp_path / "first/pipelines/delays/arrived.py").open("a") as module:
        module.write(
            "\nfrom pyspark.sql.functions import udf\n\nasks_spark_when_it_is_loaded = udf(lambda x: x, 'int')\n"
        )
    answer = program.ask("pipeline", "run", "delays", "--data-id", "2013-01-01", cwd=tmp_path / "first")
    assert answer.code == ExitCode.OK, answer.err
    assert answer.err == ""
    assert "by_carrier    DONE       2" in answer.out
    assert (tmp_path / "first/output/delays/day=2013-01-01/_SUCCESS").is_file()


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (
            "df.sparkSession.stop()",
            "one has failed: pipelines/p/one.py, line 4: run() stops Spark, which all other steps",
        ),
        (
            "os.kill(SparkContext._gateway.proc.pid, 9); df.count()",
            "one has failed: pipelines/p/one.py, line 4: Spark's Java was killed, as where the machine has no memory",
        ),
    ],
    ids=["stopped", "killed"],
)
def test_a_spark_that_ends_in_a_step_is_reported_in_one_sentence(
    spark_conf: Path, project: Project, monkeypatch: pytest.MonkeyPatch, code: str, sentence: str
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(spark_conf))
    project.step("one", f"import os\nfrom pyspark import SparkContext\n\ndef run(df):\n    {code}\n    return df\n")
    project.step("two", "def run(df):\n    return df\n")
    program = Program(project.folder / ".home")
    answer = program.ask("pipeline", "run", "p", "--data-id", "0-9", cwd=project.folder)
    assert answer.code == ExitCode.FAILED
    assert answer.err.startswith(f"error: {sentence}")
    assert answer.err.count("\n") == 1


ASKS_FOR_SETTINGS = """
import json, os
from pyspark import SparkContext
from opendataflow.spark.pipeline.measure.session import local_session

with local_session("first") as spark:
    first = dict(spark.sparkContext.getConf().getAll())
gateway = SparkContext._gateway.java_parameters
os.environ |= {"PYSPARK_GATEWAY_PORT": str(gateway.port), "PYSPARK_GATEWAY_SECRET": gateway.auth_token}
SparkContext._gateway = SparkContext._jvm = None  # as in a pod, where spark-submit has started the JVM
with local_session("second") as spark:
    second = dict(spark.sparkContext.getConf().getAll())
print(json.dumps([first, second]))
"""


def test_settings_of_the_user_count_and_ours_are_for_those_that_the_user_does_not_set(tmp_path: Path) -> None:
    """Also where spark-submit has started the JVM, as in a pod."""
    (tmp_path / "mine.jar").write_bytes(b"")
    own = {
        "spark.master": "local[1]",
        "spark.driver.memory": "512m",
        "spark.jars": str(tmp_path / "mine.jar"),
        "spark.sql.parquet.outputTimestampType": "INT96",
    }
    zone = "spark.sql.session.timeZone Asia/Kathmandu\n"
    (tmp_path / "spark-defaults.conf").write_text(zone + "".join(f"{key} {value}\n" for key, value in own.items()))
    environ = {**os.environ, "SPARK_CONF_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", ASKS_FOR_SETTINGS], env=environ, capture_output=True, text=True, check=True
    )
    for found in json.loads(done.stdout):
        assert {key: found[key].removeprefix("file://") for key in own} == own
        ours = ("spark.sql.execution.arrow.pyspark.enabled", "spark.sql.session.timeZone")
        assert [found[key] for key in ours] == ["true", "UTC"]


def test_a_late_older_attempt_is_refused(
    spark: "SparkSession", project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATAFLOW_DATA_ID", "0-9")
    monkeypatch.setenv("DATAFLOW_FENCE", "4")
    assert project.ask("run", "p", "--data-id", "0-9").code == ExitCode.OK
    before = result(spark, project)
    project.write("sources/a.csv", "id,t\n5,new\n")
    monkeypatch.setenv("DATAFLOW_FENCE", "3")
    answer = project.ask("run", "p", "--data-id", "0-9")
    assert answer.code == ExitCode.FAILED
    assert "out knows a newer attempt of the chunk 0-9 (fence 4) than this one (fence 3): nothing was" in answer.err
    assert result(spark, project) == before
    monkeypatch.delenv("DATAFLOW_FENCE")
    assert project.ask("run", "p", "--data-id", "0-9").code == ExitCode.OK  # by hand
    monkeypatch.setenv("DATAFLOW_FENCE", "3")
    assert project.ask("run", "p", "--data-id", "0-9").code == ExitCode.FAILED


def test_a_chunk_is_appended_once(spark: "SparkSession", project: Project) -> None:
    project.write("project.yml", YML.replace("destination: out", "destination: {name: out, mode: append}"))
    project.ask("run", "p", "--data-id", "0-9")
    before = result(spark, project)
    project.write("sources/a.csv", "id,t\n5,new\n15,new\n")
    answer = project.ask("run", "p", "--data-id", "0-9")
    assert "output/out/data_id=0-9 has the chunk already, so that nothing was added" in answer.out
    project.ask("run", "p", "--data-id", "10-19")
    assert result(spark, project) == [*before, {"id": 15, "t": "new", "n": 30, "data_id": "10-19"}]


def test_the_checksum_is_of_the_rows_in_any_order(project: Project) -> None:
    def checksum(text: str) -> object:
        project.write("sources/a.csv", f"id,t\n{text}")
        (run,) = json.loads(project.ask("run", "p", "--data-id", "0-9", "-o", "json").out)
        return run["checksum"]

    first = checksum("2,x\n3,y\n")
    assert checksum("3,y\n2,x\n") == first
    assert checksum("3,y\n2,y\n") != first


def test_a_predicate_says_which_rows_of_a_file_are_of_the_chunk(spark: "SparkSession", project: Project) -> None:
    project.write("project.yml", YML.replace("partitioning: {column: id, type: range}", 'predicate: "t = {data_id}"'))
    project.ask("run", "p", "--data-id", 'c"d')
    assert [row["t"] for row in result(spark, project)] == ['c"d']


def test_an_interrupt_while_spark_works_ends_the_run_without_a_word_and_writes_nothing(
    project: Project, caplog: pytest.LogCaptureFixture
) -> None:
    project.step(
        "two",
        f"""
        import os, signal, threading, time
        from pathlib import Path
        from pyspark.sql.functions import udf

        HERE = Path({str(project.folder)!r})

        @udf("int")
        def waits(n):
            (HERE / "begun").touch()
            while not (HERE / "go on").exists():
                time.sleep(0.05)
            return n

        def interrupt():
            while not (HERE / "begun").exists():
                time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGINT)

        def run(df):
            threading.Thread(target=interrupt).start()
            return df.withColumn("n", waits("n"))
        """,
    )
    try:
        answer = project.ask("run", "p", "--data-id", "0-9")
    finally:
        (project.folder / "go on").touch()
    assert (answer.code, answer.out, answer.err) == (ExitCode.INTERRUPTED, "", "")
    assert caplog.text == ""  # which by itself is on stderr
    assert not list((project.folder / "output/out").glob("[!.]*"))


@in_share(1)
def test_a_run_without_an_archive_leaves_one_for_the_next_run(project: Project, tmp_path: Path) -> None:
    """In processes of their own. A command that starts no Spark leaves nothing. Jars that the user's own settings bring
    before those of Spark stay before them, so such a run starts without the archive.

    The program that makes the archive has the lowest priority: on a busy machine it may get no time at all. So the test
    ends it and does its work in the foreground, from the variables that the run has given to it.
    """
    log, cache = tmp_path / "classes", tmp_path / "cache"
    settings = tmp_path / "conf" / "spark-defaults.conf"
    project.write(
        "conf/spark-defaults.conf", f"{SPARK_DEFAULTS}spark.driver.extraJavaOptions -Xlog:class+load:file={log}\n"
    )
    more = {"SPARK_CONF_DIR": str(settings.parent), "XDG_CACHE_HOME": str(cache), SPARK_ARCHIVE: ""}
    program = Program(tmp_path / ".home", more=more)

    def archived() -> int:
        done = program.ask("pipeline", "run", "p", "--data-id", "0-9", cwd=tmp_path)
        assert (done.code, done.err) == (ExitCode.OK, "")
        return sum("shared objects file (top)" in line for line in log.read_text().splitlines())

    assert program.ask("pipeline", "list", cwd=tmp_path).code == ExitCode.OK
    assert not cache.exists()
    assert archived() == 0
    for pid, arguments, environ in archiving(cache):
        with suppress(ProcessLookupError):  # it has just ended
            os.killpg(pid, signal.SIGKILL)
        subprocess.run([word for word in arguments if word != "unless-there"], env=environ, cwd="/", check=True)
    assert archived() > 5000
    settings.write_text(f"{settings.read_text()}spark.driver.extraClassPath /mine.jar\n")
    assert archived() == 0


def archiving(cache: Path) -> Iterator[tuple[int, list[str], dict[str, str]]]:
    """The background programs that make an archive in a cache, with their arguments and variables."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is somebody else's
            arguments = os.fsdecode((process / "cmdline").read_bytes()).split("\0")[:-1]
            variables = os.fsdecode((process / "environ").read_bytes()).split("\0")[:-1]
            if "opendataflow.spark.archiving" in arguments and f"XDG_CACHE_HOME={cache}" in variables:
                yield int(process.name), arguments, dict(line.split("=", 1) for line in variables)
