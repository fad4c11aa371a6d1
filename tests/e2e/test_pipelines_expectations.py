"""Expectations of pipelines: measured by a real Spark in the pass that writes, and judged before anything is there."""

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from opendataflow.names import ExitCode
from tests.e2e.conftest import Answer, Inside
from tests.e2e.projects import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

YML = """\
version: 2
name: tests
pipelines:
  - slug: p
    sources:
      - {name: a, schema: "id INT, t STRING, day DATE", partitioning: {column: id, type: range}}
    transformations: [one]
    destination: {name: out, format: FORMAT}
    expectations:
"""


TWO = """\
version: 2
name: tests
pipelines:
  - slug: p
    sources:
      - {name: a, schema: "id INT, t STRING, day DATE"}
      - {name: b, path: sources/a.csv, schema: "id INT, t STRING, day DATE"}
    transformations: [STEPS]
    destination: {name: out}
"""


@pytest.fixture
def project(spark: "SparkSession", inside: Inside, tmp_path: Path) -> Project:  # noqa: ARG001 # it runs
    made = Project(tmp_path / "a [b] {c,d}*", inside)  # which Spark would take for a pattern
    made.write("sources/a.csv", "id,t,day\n0,x,2013-01-01\n1,y,2013-01-02\n2,,2013-01-03\n3,x,2013-01-04\n")
    made.step("one", "def run(df):\n    return df.where('id > 0')\n")
    return made


def expect(project: Project, *expectations: str, format: str = "parquet") -> Answer:  # noqa: A002 # as in the file
    lines = "".join(f"      - {it}\n" for it in expectations)
    project.write("project.yml", YML.replace("FORMAT", format) + lines)
    return project.ask("run", "p", "--data-id", "0-9", "-o", "json")


def held(answer: Answer) -> dict[str, Any]:
    (run,) = json.loads(answer.out)
    return {it["name"]: it["held"] for it in run["expectations"]}


def rows(project: Project, steps: str) -> list[int | None]:
    project.write("project.yml", TWO.replace("STEPS", steps))
    answer = project.ask("run", "p", "--data-id", "x", "-o", "json")
    assert answer.code == ExitCode.OK, answer.err
    (run,) = json.loads(answer.out)
    return [step["rows"] for step in run["steps"]]


def test_all_kinds_are_found_out_in_one_run(project: Project) -> None:
    answer = expect(
        project,
        "{notNull: [id, day]}",
        "{notNull: [t], severity: warn}",
        "{unique: [id]}",
        "{unique: [t, day], name: pairs}",
        "{range: {column: day, min: 2013-01-02, max: '2013-01-04'}}".replace("2013-01-02", "'2013-01-02'"),
        "{range: {column: id, max: 2}, severity: warn}",
        "{values: {column: t, in: [x, y]}}",
        "{fresh: {column: day, within: 24h}, severity: warn}",
        "{sql: sum(id) = 6}",
        "{same: {source: a}, severity: warn}",
        "{name: sums, same: {source: a, rows: false, sums: [id]}}",
        "{name: values, same: {source: a, rows: false, checksum: [id]}, severity: warn}",
    )
    assert answer.code == ExitCode.OK, answer.err
    assert held(answer) == {
        "not null: id, day": True,
        "not null: t": False,
        "unique: id": True,
        "pairs": True,
        "range of day: 2013-01-02 to 2013-01-04": True,
        "range of id: any to 2": False,
        "values of t": True,
        "day within 24h": False,
        "sum(id) = 6": True,
        "same as a": False,
        "sums": True,
        "values": False,
    }


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_what_is_not_as_expected_is_not_written(project: Project, format: str) -> None:  # noqa: A002
    assert expect(project, "{sql: count(*) > 0}", format=format).code == ExitCode.OK
    before = sorted((project.folder / "output/out/data_id=0-9").iterdir())
    project.write("sources/a.csv", "id,t,day\n5,z,\n5,z,\n")
    answer = expect(project, "{unique: [id]}", "{notNull: [t]}", "{values: {column: t, in: [x]}}", format=format)
    assert answer.code == ExitCode.FAILED
    assert answer.err == (
        "error: write out has failed: what is expected is not so, and nothing was written: "
        "project.yml, line 10: unique: id: 1 value more than once; "
        "project.yml, line 12: values of t: 2 rows with others\n"
    )
    assert held(answer) == {"unique: id": False, "not null: t": True, "values of t": False}
    assert sorted((project.folder / "output/out/data_id=0-9").iterdir()) == before


@pytest.mark.parametrize("format", ["parquet", "json", "csv, options: {header: 'false'}"])
def test_an_empty_chunk_is_measured_too(project: Project, format: str) -> None:  # noqa: A002
    project.write("sources/a.csv", "id,t,day\n")
    same, some = "{same: {source: a, sums: [id]}}", "{sql: count(*) > 0, severity: warn}"
    answer = expect(project, same, "{notNull: [t]}", some, "{unique: [id, t]}", format=format)
    assert answer.code == ExitCode.OK, answer.err
    assert list(held(answer).values()) == [True, True, False, True]


def test_numbers_are_compared_as_their_columns_have_them_and_a_null_has_its_column(project: Project) -> None:
    project.step(
        "one",
        """
        def run(df):
            return df.selectExpr(
                "id", "n", "nullif(t, 'x') AS t", "t AS day", "double('NaN') AS nan", "float(0.1) AS short",
                "CAST(9.5 AS DECIMAL(38, 10)) AS exact", "t AS `a ``name```"
            )
        """,
    )
    project.write("sources/a.csv", f"id,t,day,n\n1,x,,{2**63 - 1}\n2,x,,{2**63 - 1}\n")
    yml = YML.replace("day DATE", "day STRING, n LONG").replace("FORMAT", "parquet")
    expectations = [
        "{range: {column: nan, min: 0}, severity: warn}",
        "{range: {column: short, min: 0.1, max: 0.1}}",
        "{values: {column: short, in: [0.1, 7]}}",
        "{range: {column: exact, min: 9.5, max: 9.5}}",
        "{name: swapped, same: {source: a, checksum: [t, day]}, severity: warn}",
        "{unique: [nan], severity: warn}",
        "{unique: ['a `name`'], severity: warn}",
        "{name: large, same: {source: a, sums: [n]}}",
    ]
    project.write("project.yml", yml + "".join(f"      - {it}\n" for it in expectations))
    answer = project.ask("run", "p", "--data-id", "0-9", "-o", "json")
    assert answer.code == ExitCode.OK, answer.err
    assert list(held(answer).values()) == [False, True, True, True, False, False, False, True]


def test_a_checksum_that_differs_says_of_which_types_the_columns_are(project: Project) -> None:
    project.step("one", "def run(df):\n    return df.withColumn('id', df.id.cast('bigint'))\n")
    answer = expect(project, "{same: {source: a, checksum: [id, t]}}")
    assert "same as a: different: checksum; id is bigint, of a int\n" in answer.err


def test_a_null_inside_of_a_value_has_its_place_and_a_number_may_be_larger_than_those_of_java(project: Project) -> None:
    project.write("sources/a.csv", '{"id": 1, "t": [1, null], "day": 18446744073709551615}')
    project.step("one", "def run(df):\n    return df.selectExpr('id', 'reverse(t) AS t', 'day')\n")
    kinds = 'format: json, schema: "id INT, t ARRAY<INT>, day DECIMAL(20, 0)"'
    expectations = [
        "{name: moved, same: {source: a, checksum: [t]}, severity: warn}",
        "{range: {column: day, max: 18446744073709551615}}",
        "{range: {column: day, max: 18446744073709551614}, severity: warn}",
    ]
    yml = YML.replace('schema: "id INT, t STRING, day DATE"', kinds + ", path: sources/a.csv").replace("FORMAT", "json")
    project.write("project.yml", yml + "".join(f"      - {it}\n" for it in expectations))
    answer = project.ask("run", "p", "--data-id", "0-9", "-o", "json")
    assert answer.code == ExitCode.OK, answer.err
    assert list(held(answer).values()) == [False, True, False]


def test_what_can_not_be_compared_does_not_hold_where_spark_makes_no_error_of_it(
    project: Project, spark: "SparkSession"
) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        late, other = (
            "{range: {column: day, min: 1.1.2013}, severity: warn}",
            "{values: {column: id, in: [one]}, severity: warn}",
        )
        answer = expect(project, late, other)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert list(held(answer).values()) == [False, False]


def test_values_in_csv_are_those_that_were_measured(project: Project) -> None:
    project.write("sources/a.csv", 'id,t,day\n1,a,\n2,a ,\n3," a",\n4,"a ""b""\n\\""c",\n')
    project.step("one", "def run(df):\n    return df.selectExpr('t', 'timestamp_micros(id) AS at')\n")
    answer = expect(project, "{unique: [t]}", "{unique: [at]}", "{same: {source: a, checksum: [t]}}", format="csv")
    assert answer.code == ExitCode.OK, answer.err
    (part,) = (project.folder / "output/out/data_id=0-9").glob("part-*")
    with part.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [row["t"] for row in rows] == ["a", "a ", " a", 'a "b"\n\\"c']
    assert rows[0]["at"] == "1970-01-01T00:00:00.000001Z"


def test_a_source_that_a_step_has_looked_at_is_measured_again(project: Project) -> None:
    project.step("one", "def run(df):\n    df.limit(1).collect()\n    return df\n")
    answer = expect(project, "{same: {source: a, sums: [id], checksum: [id, t]}}")
    assert answer.code == ExitCode.OK, answer.err


@pytest.mark.parametrize(
    "step",
    [
        "return df.limit(2)",
        "return df.sparkSession.sql('SELECT 2 id FROM range(1) WHERE EXISTS (SELECT 1 FROM {a})', a=df)",
        "return df.union(df).crossJoin(df.selectExpr('1 AS n').hint('shuffle_replicate_nl'))",
        "return df.mapInArrow(lambda batches: iter([next(batches)]), df.schema)",
        "return df.cache().where('id > 1')",
    ],
    ids=["limit", "exists", "product", "iterator", "cache"],
)
def test_a_source_that_has_not_passed_once_and_as_a_whole_is_measured_by_itself(project: Project, step: str) -> None:
    project.step("one", f"def run(df):\n    {step}\n")
    answer = expect(project, "{same: {source: a, sums: [id]}, severity: warn}")
    (run,) = json.loads(answer.out)
    assert run["steps"][0]["rows"] is None
    (same,) = run["expectations"]
    assert same["held"] == ("batches" in step)
    assert same["held"] or ", of a 4; " in same["found"], same


def test_the_rows_of_a_step_are_not_known_where_a_join_ends_before_them(project: Project) -> None:
    project.step("one", "def run(df):\n    return df.groupBy('id').count()\n")
    project.step(
        "two",
        """
        def run(df, b):
            known = b.where("id = 0").groupBy("id").count().select("id")
            return known.hint("merge").join(df, "id")
        """,
    )
    assert rows(project, "one, two") == [4, 4, None, 1, 1]


def test_usual_steps_report_the_rows_of_all_of_them(project: Project) -> None:
    project.step(
        "one",
        """
        from pyspark.sql import Window, functions as F

        def run(df):
            newest = Window.partitionBy("t").orderBy(F.desc("day"))
            return df.withColumn("n", F.row_number().over(newest)).where("n = 1").orderBy("id")
        """,
    )
    project.step(
        "two",
        """
        from pyspark.sql import functions as F

        def run(df, b):
            double = F.udf(lambda number: 2 * number, "int")
            known = df.join(b.dropDuplicates(["t"]).selectExpr("t", "id AS other"), "t", "left")
            return known.union(known).select("t", F.explode(F.array("other", double("id"))).alias("id"))
        """,
    )
    project.step("three", "def run(df):\n    return df.groupBy('t').count().orderBy('t').limit(2)\n")
    assert rows(project, "one, two, three") == [4, 4, 3, 12, 2, 2]


@pytest.mark.parametrize(
    ("expectation", "sentence"),
    [
        ("{notNull: [z]}", "project.yml, line 10: not null: z: the result has no column z; it has id, t, day"),
        ("{same: {source: a, sums: [z]}}", "line 10: same as a: a has no column z; it has id, t, day"),
        ("{sql: sum(z) > 1}", "project.yml, line 10: sum(z) > 1: [UNRESOLVED_COLUMN"),
        ("{sql: count(distinct id) > 1}", "project.yml, line 10: count(distinct id) > 1: [INVALID_OBSERVED_METRICS"),
        ("{values: {column: t, in: [7]}}", "line 10: values of t: t has texts, and 7 is a number: write '7', or cast"),
        ("{fresh: {column: id, within: 1h}}", "line 10: id within 1h: id has the type int, which is no day or time"),
        ("{same: {source: a, sums: [day]}}", "line 10: same as a: day has the type date, which has no sum: cast it"),
        ("{same: {source: b}}", "the pipeline has no source b; same.source names one of its own"),
        ("{notNull: [id], unique: [id]}", "exactly one of notNull, unique, range"),
    ],
)
def test_an_expectation_that_can_not_be_is_reported_with_its_line(
    project: Project, expectation: str, sentence: str
) -> None:
    answer = expect(project, expectation)
    assert answer.code != ExitCode.OK
    assert sentence in answer.err
    assert answer.err.count("\n") == 1


def test_an_expectation_that_fails_itself_is_reported_with_its_line_and_not_with_that_of_the_destination(
    project: Project,
) -> None:
    answer = expect(project, "{notNull: [id]}", "{sql: sum(cast(t AS int)) > 0, severity: warn}")
    assert answer.code == ExitCode.FAILED
    assert "project.yml, line 11: sum(cast(t AS int)) > 0: [CAST_INVALID_INPUT] The value 'y'" in answer.err
    assert not list((project.folder / "output" / "out").glob("[!.]*"))


def test_a_run_shows_what_became_of_them(project: Project) -> None:
    expect(project, "{notNull: [id]}", "{notNull: [t], severity: warn}")
    out = project.ask("run", "p", "--data-id", "0-9").out
    assert "EXPECTATION   HOLDS          FOUND" in out
    assert "not null: t   no, a warning  NULL: t in 1 row" in out
