"""A value of a file or table is read exactly, or its chunk fails with a sentence that names file, column and value."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from opendataflow.names import ExitCode
from tests.e2e.conftest import Inside
from tests.e2e.projects import DATABASE, Project, shop_variables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = """\
version: 2
name: tests
pipelines:
  - slug: p
    sources: [{{name: a, path: {path}, format: {format}, schema: "{schema}"{more}}}]
    transformations: [one]
    destination: {{name: out, format: {to}}}
"""
INFERRED = """\
version: 2
name: tests
pipelines:
  - slug: p
    sources: [{{name: a, path: {path}, format: {format}}}]
    transformations: [one]
    destination: {{name: out, format: json}}
"""
MIDNIGHT = "2013-01-05T00:00:00.000000Z"
KEEP = "def run(df):\n    return df\n"


@pytest.fixture
def project(spark: "SparkSession", inside: Inside, tmp_path: Path) -> Project:  # noqa: ARG001 # it runs
    """A project whose only step keeps all rows."""
    made = Project(tmp_path, inside)
    made.step("one", KEEP)
    return made


def describe(project: Project, path: str, schema: str, more: str = "", to: str = "json") -> None:
    """Write the file of the project: one source, whose format is the suffix of its path."""
    text = FILE.format(path=path, format=path.rpartition(".")[2], schema=schema, more=more, to=to)
    project.write("project.yml", text)


def written(project: Project) -> list[dict[str, Any]]:
    """The rows of the chunk x, from JSON."""
    files = sorted((project.folder / "output" / "out").glob("*/part-*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def refused(project: Project) -> str:
    """The sentence with which the chunk x fails."""
    answer = project.ask("run", "p", "--data-id", "x")
    assert (answer.code, answer.err.count("\n")) == (ExitCode.FAILED, 1), answer.err
    assert not list(project.folder.glob("output/out/*/part-*"))
    return answer.err


UNFIT_CELLS = [
    ("DATE", "201301"),
    ("DATE", "41279"),
    ("DATE", "12013-01-05"),
    ("DATE", "2013-02-30"),
    ("DATE", "2013-01-05 cancelled"),
    ("DATE", "2013-01-05T23:30:00-05:00"),
    ("TIMESTAMP", "201301"),
    ("TIMESTAMP", "12:30"),
    ("TIMESTAMP", "1357000000000"),
    ("TIMESTAMP", "2013-01-05T12:30:00.1234567"),
    ("TIMESTAMP_NTZ", "2013-01-05T12:30:00Z"),
    ("DECIMAL(5,2)", "1.239"),
    ("DECIMAL(5,2)", "0.004"),
    ("DECIMAL(5,2)", "1e-3"),
    ("DECIMAL(5,2)", "12345.6"),
    ("DECIMAL(5,2)", "12e3"),
    ("DOUBLE", "1e400"),
    ("DOUBLE", "-1e400"),
    ("FLOAT", "1e39"),
    ("DOUBLE", "12d"),
    ("FLOAT", "1f"),
    ("DOUBLE", "0x1p3"),
]


@pytest.mark.parametrize(("kind", "text"), UNFIT_CELLS)
def test_a_csv_cell_that_is_not_exactly_of_its_type_is_refused_with_line_and_column(
    project: Project, kind: str, text: str
) -> None:
    describe(project, "a.csv", f"k INT, d {kind}")
    project.write("a.csv", f"k,d\n1,\n2,{text}\n")
    assert f'a.csv, line 3: "{text}" does not fit the type' in refused(project)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("DATE", '"20130105"'),
        ("TIMESTAMP", "1357000000000"),
        ("TIMESTAMP", "1357000000"),
        ("TIMESTAMP", '"12:30"'),
        ("DECIMAL(5,2)", "1.239"),
        ("DECIMAL(5,2)", '"1,234.5"'),
        ("DECIMAL(5,2)", "123456"),
        ("DOUBLE", "1e400"),
        ("FLOAT", "1e39"),
        ("DOUBLE", "true"),
        ("DOUBLE", '""'),
        ("ARRAY<DOUBLE>", "[1.5, -1e400]"),
        ("STRUCT<x: DECIMAL(5,2)>", '{"x": 1.239}'),
        ("ARRAY<DECIMAL(5,2)>", "[1.2, 1.239]"),
        ("MAP<STRING, DECIMAL(5,2)>", '{"x": 1.239}'),
    ],
)
def test_a_value_of_json_that_is_not_exactly_of_its_type_is_refused(project: Project, kind: str, value: str) -> None:
    describe(project, "a.json", f"k INT, d {kind}")
    project.write("a.json", f'{{"k": 1}}\n{{"k": 2, "d": {value}}}\n')
    assert "a.json" in refused(project)


@pytest.mark.parametrize("text", ["1e400", "12d"])
def test_a_number_that_only_java_reads_is_refused_also_without_a_schema(project: Project, text: str) -> None:
    project.write("project.yml", INFERRED.format(path="a.csv", format="csv"))
    project.write("a.csv", f"k,d\n1,2.5\n2,{text}\n")
    assert f'a.csv, line 3: "{text}" does not fit the type' in refused(project)


def test_a_number_of_json_beyond_its_type_is_refused_also_without_a_schema(project: Project) -> None:
    project.write("project.yml", INFERRED.format(path="a.json", format="json"))
    project.write("a.json", '{"k": 1}\n{"k": 2, "s": {"d": 1e400}}\n')
    assert 'a.json, line 2: "1e400" does not fit the type double of the column s.d' in refused(project)


def test_floating_numbers_that_fit_are_read_as_they_are(project: Project) -> None:
    describe(project, "a.csv", "d DOUBLE, f FLOAT", to="parquet")
    cells = ["1.5,1.5", "-1e-300,-1E5", "NaN,Inf", "-Inf,NaN", "Infinity,-Infinity", "0.1,.25", ","]
    project.write("a.csv", "\n".join(["d,f", *cells, ""]))
    assert project.ask("run", "p", "--data-id", "x").code == ExitCode.OK
    expected = [
        (1.5, 1.5), (-1e-300, -1e5), (math.nan, math.inf), (-math.inf, math.nan), (math.inf, -math.inf), (0.1, 0.25),
        (None, None),
    ]  # fmt: skip
    assert repr(parquet_rows(project)) == repr(expected)


def parquet_rows(project: Project) -> list[tuple[Any, ...]]:
    """The rows of the chunk x, from Parquet."""
    import pyarrow.parquet  # slow to import

    files = sorted((project.folder / "output" / "out").glob("*/*.parquet"))
    return [tuple(row.values()) for file in files for row in pyarrow.parquet.read_table(file).to_pylist()]


TEXTS = [(1, None), (2, ""), (3, "two\r\nlines"), (4, "\n"), (5, "\r"), (6, " x "), (7, 'a "b"'), (8, "NULL")]


def csv_file(rows: list[tuple[Any, ...]], end: str) -> bytes:
    """Return a file with these rows. NULL is empty, and texts are quoted."""

    def cell(it: Any) -> str:
        return "" if it is None else '"' + it.replace('"', '""') + '"' if isinstance(it, str) else str(it)

    return "".join(",".join(map(cell, row)) + end for row in [("k", "t"), *rows]).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("more", [', schema: "k INT, t STRING"', ""], ids=["schema", "inferred"])
def test_texts_null_and_line_ends_of_csv_stay_as_they_are_through_two_pipelines(
    project: Project, end: str, more: str
) -> None:
    project.write("a.csv", "")
    (project.folder / "a.csv").write_bytes(csv_file(TEXTS, end))
    for path, to in (("a.csv", "csv"), ("b.csv", "parquet")):
        text = INFERRED.format(path=path, format="csv").replace("format: csv}", f"format: csv{more}}}")
        project.write("project.yml", text.replace("format: json", f"format: {to}"))
        assert project.ask("run", "p", "--data-id", "x").code == ExitCode.OK
        for written in (project.folder / "output" / "out").glob("*/part-*.csv"):
            written.rename(project.folder / "b.csv")
    assert parquet_rows(project) == TEXTS


def test_a_line_end_in_a_cell_is_refused_if_the_files_have_different_ones(project: Project) -> None:
    describe(project, "in.csv", "k INT, t STRING")
    for name, end in (("1", "\n"), ("2", "\r\n")):
        project.write(f"in.csv/{name}.csv", "")
        (project.folder / "in.csv" / f"{name}.csv").write_bytes(csv_file([(1, "x"), (2, "two\r\nlines")], end))
    assert "in.csv/2.csv, line 3: a cell has the line end of the rows inside" in refused(project)


@pytest.mark.parametrize("kind", ["INT", "DATE", "DECIMAL(5,2)", "DOUBLE"])
def test_an_empty_cell_in_quotes_is_a_text_and_fits_no_other_type(project: Project, kind: str) -> None:
    describe(project, "a.csv", f"k INT, d {kind}")
    project.write("a.csv", 'k,d\n1,\n2,""\n')
    assert 'if it means NULL, write options: {nullValue: ""}' in refused(project)
    describe(project, "a.csv", f"k INT, d {kind}", ', options: {nullValue: ""}')
    assert project.ask("run", "p", "--data-id", "x").code == ExitCode.OK
    assert written(project) == [{"k": 1}, {"k": 2}]


def test_a_row_that_would_be_an_empty_line_of_csv_is_refused(project: Project) -> None:
    """Readers of CSV skip empty lines: the row would be lost."""
    describe(project, "a.json", "t STRING", to="csv")
    project.write("a.json", '{"t": "x"}\n{"t": null}\n{"t": ""}\n')
    assert "a row has NULL in its only column t" in refused(project)
    project.write(
        "project.yml", (project.folder / "project.yml").read_text().replace("csv}", 'csv, options: {nullValue: "-"}}')
    )
    assert project.ask("run", "p", "--data-id", "x").code == ExitCode.OK
    (file,) = (project.folder / "output" / "out").glob("*/part-*.csv")
    assert file.read_text() == 't\nx\n-\n""\n'


@pytest.mark.parametrize(
    ("schema", "rows", "sentence"),
    [
        ("id INT", ['{"id": 1}', '{"ID": 2}'], "a.json, line 2: the key ID is id in the schema"),
        ("s STRUCT<id: INT>", ['{"s": {"Id": 2}}'], "a.json, line 1: the key Id is id in the schema"),
        (
            "l ARRAY<STRUCT<id: INT>>",
            ['[{"l": [{"id": 1}, {"ID": 2}]}]'],
            "a.json, line 1: the key ID is id in the schema",
        ),
        ("k INT, amout INT", ['{"k": 1, "amount": 2}'], "a.json: no object has the key amout, but some have amount"),
    ],
)
def test_a_key_of_json_that_is_written_in_another_way_than_in_the_schema_is_refused(
    project: Project, schema: str, rows: list[str], sentence: str
) -> None:
    """Spark reads NULL for the column."""
    describe(project, "a.json", schema)
    project.write("a.json", "\n".join(rows))
    assert sentence in refused(project)


def test_keys_of_json_that_are_missing_or_in_other_places_are_no_error(project: Project) -> None:
    describe(project, "a.json", "id INT, t STRING, rare INT")
    rows = ['{"id": 1, "ID": 5, "t": "ID"}', '{"id": 2, "x": {"ID": 3}}', '{"t": "\\"ID\\": 4"}']
    project.write("a.json", "\n".join(rows))
    assert project.ask("run", "p", "--data-id", "x").code == ExitCode.OK
    assert written(project) == [{"id": 1, "t": "ID"}, {"id": 2}, {"t": '"ID": 4'}]


def test_numbers_and_times_that_fit_are_read_as_they_are(project: Project) -> None:
    kinds = "d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, x DECIMAL(20,4)"
    describe(project, "a.csv", kinds)
    project.write(
        "a.csv",
        "d,t,n,x\n"
        "2013-01-05,2013-01-05T12:30:01.123456+01:00,2013-01-05 12:30,1234567890123456.1200000\n"
        "9999-12-31,2013-01-05,2013-01-05,-.5\n"
        "0001-01-01,2013-01-05 12:30:00Z,2013-01-05T12:30:00.1,1.5e3\n"
        ",,,\n",
    )
    assert project.ask("run", "p", "--data-id", "x").code == ExitCode.OK
    from_csv = written(project)
    assert [row.get("x") for row in from_csv] == [1234567890123456.12, -0.5, 1500, None]
    assert [row.get("t") for row in from_csv] == [
        "2013-01-05T11:30:01.123456Z", "2013-01-05T00:00:00.000000Z", "2013-01-05T12:30:00.000000Z", None,
    ]  # fmt: skip
    describe(project, "b.json", f"{kinds}, s STRUCT<x: DECIMAL(5,2), y: INT>, l ARRAY<DECIMAL(5,2)>")
    rows = [{**row, "s": {"x": 1.5, "y": 7}, "l": [1, 2.25, None]} for row in from_csv[:3]]
    project.write("b.json", "\n".join(map(json.dumps, rows)))
    assert project.ask("run", "p", "--data-id", "x").code == ExitCode.OK
    assert written(project) == rows


@pytest.mark.parametrize(
    ("path", "schema", "options", "content", "row"),
    [
        ("a.csv", "d DATE", "dateFormat: dd.MM.yyyy", "d\n05.01.2013\n", {"d": "2013-01-05"}),
        ("a.json", "t TIMESTAMP", "timestampformat: dd.MM.yyyy", '{"t": "05.01.2013"}', {"t": MIDNIGHT}),
        ("a.csv", "k INT, x DECIMAL(5,2)", "mode: PERMISSIVE", "k,x\n1,many\n", {"k": 1}),
    ],
)
def test_formats_and_modes_of_the_users_own_are_used(
    project: Project, path: str, schema: str, options: str, content: str, row: dict[str, Any]
) -> None:
    describe(project, path, schema, f", options: {{{options}}}")
    project.write(path, content)
    assert project.ask("run", "p", "--data-id", "x").code == ExitCode.OK
    assert written(project) == [row]


def test_times_in_parquet_are_those_that_other_readers_see(project: Project) -> None:
    import pyarrow.parquet  # slow to import

    describe(project, "a.json", "t TIMESTAMP", to="parquet")
    project.write("a.json", '{"t": "9999-12-31 00:00:00"}\n')
    assert project.ask("run", "p", "--data-id", "x").code == ExitCode.OK
    (file,) = (project.folder / "output" / "out").glob("*/*.parquet")
    assert str(pyarrow.parquet.read_table(file)["t"].to_pylist()[0]).startswith("9999-12-31 00:00:00")


TABLE = f"""\
version: 2
name: tests
pipelines:
  - slug: p
    sources: [{{name: a, table: amounts, database: {DATABASE}}}]
    transformations: [one]
    destination: {{name: out, format: json}}
"""


@pytest.fixture
def shop(project: Project, dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[psycopg.Connection[Any]]:
    """A database that the project reads."""
    for name, value in shop_variables(dsn).items():
        monkeypatch.setenv(name, value)
    project.write("project.yml", TABLE)
    with psycopg.connect(dsn, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("numeric(78,18)", "1.55"),
        ("numeric(40,4)", "12345678901234567890123456789012345.1234"),
        ("numeric", "1e-19"),
        ("numeric", "NaN"),
    ],
)
def test_a_number_of_a_table_that_spark_would_round_is_refused_with_its_column(
    project: Project, shop: psycopg.Connection[Any], kind: str, value: str
) -> None:
    shop.execute(f"CREATE TABLE amounts AS SELECT 1 AS id, CAST('{value}' AS {kind}) AS amount")
    assert "of the column amount" in refused(project)


def test_long_numbers_and_times_of_a_table_are_read_as_they_are(
    project: Project, shop: psycopg.Connection[Any]
) -> None:
    shop.execute(
        "CREATE TABLE amounts AS SELECT 15::numeric(78,18) AS a, 1.000000000000000001::numeric AS b, "
        "time '12:34:56.789012' AS c, time '24:00:00' AS d, NULL::numeric AS e"
    )
    assert project.ask("run", "p", "--data-id", "x").code == ExitCode.OK
    (file,) = (project.folder / "output" / "out").glob("*/part-*.json")
    assert json.loads(file.read_text(), parse_float=str) == {
        "a": 15, "b": "1.000000000000000001", "c": "12:34:56.789012", "d": "24:00:00",
    }  # fmt: skip
