"""Checks of local source files: each problem is reported with its file and line."""

import gzip
import os
from contextlib import nullcontext
from pathlib import Path

import pyarrow
import pytest
from pyarrow import orc, parquet

from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.io.file_checks import check_encoding, check_file_names, check_headers, list_files
from opendataflow.spark.pipeline.io.row_checks import check_columns, check_json_values


def written(folder: Path, text: bytes, name: str = "a.csv") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return path


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (b"caf\xe9.csv", r"^in/caf\?\.csv: its name is not UTF-8"),
        (b"a.csv", r"^in/a\.csv: it is a link to what is not"),
    ],
)
def test_files_that_readers_skip_silently_are_reported(tmp_path: Path, name: bytes, sentence: str) -> None:
    os.symlink("nowhere", os.fsencode(tmp_path) + b"/" + name)
    with pytest.raises(StepFailed, match=sentence):
        check_file_names({"in": tmp_path})


def looked_through(paths: dict[str, Path]) -> None:
    check_encoding(list_files(paths), '"')
    check_headers(list_files(paths), {}, None)


@pytest.mark.parametrize(
    ("text", "options", "double"),
    [
        (b"id,t,id\n1,x,2\n", {}, "id"),
        (b"\xef\xbb\xbfid,ID\n", {}, "ID"),
        (b'"a;b";"a;b"\n', {"sep": ";"}, "a;b"),
        (b"id,t\n", {}, None),
        (b"id,,\n1,2,3\n", {}, None),
        (b"id,id\n", {"header": "false"}, None),
        (b'"never closed,' + b"x" * 200_000, {"multiLine": "true"}, None),
    ],
    ids=["same", "in another case", "quoted", "none", "without a name", "no header", "no end"],
)
def test_duplicate_columns_are_reported(
    tmp_path: Path, text: bytes, options: dict[str, str], double: str | None
) -> None:
    path = written(tmp_path, text)
    if double is None:
        check_headers(list_files({"a.csv": path}), options, None)
        return
    with pytest.raises(StepFailed, match=rf"^a\.csv, line 1: there are two columns {double}; rename one of them$"):
        check_headers(list_files({"a.csv": path}), options, None)


def test_each_data_file_of_a_folder_is_checked(tmp_path: Path) -> None:
    paths = {"in": tmp_path / "in"}
    written(tmp_path, b"id\n", "in/a.csv")
    written(tmp_path, b"id,id\n\xff", "in/_b.csv")
    check_encoding(list_files(paths))
    check_headers(list_files(paths), {}, None)
    written(tmp_path, b"id,id\n", "in/b.csv")
    with pytest.raises(StepFailed, match=r"^in/b\.csv, line 1: there are two columns id"):
        check_headers(list_files(paths), {}, None)


@pytest.mark.parametrize(
    ("header", "columns", "sentence"),
    [
        (b"\nID,t\n", None, None),
        (b"t,id\n", None, r"in/day=2/b\.csv, line 1: its columns are t, id, and those of in/day=1/a\.csv are id, t;"),
        (b"id,t\n", ["id", "t", "day"], None),
        (b"id, t\n", ["id", "t"], r'in/day=2/b\.csv, line 1: its columns are id, " t", and those of schema are id, t;'),
    ],
    ids=["the same", "in another order", "one is in the path", "with a space"],
)
def test_all_files_of_a_folder_have_the_same_columns(
    tmp_path: Path, header: bytes, columns: list[str] | None, sentence: str | None
) -> None:
    for name, text in (("in/day=1/a.csv", b"id,t\n"), ("in/day=2/b.csv", header)):
        written(tmp_path, text, name)
    with nullcontext() if sentence is None else pytest.raises(StepFailed, match=sentence):
        check_headers(list_files({"in": tmp_path / "in"}), {}, columns)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (gzip.compress(b"id,id\n"), "line 1: there are two columns id"),
        (gzip.compress(b"id,t\n1,\xe9\n"), "line 2: it is not UTF-8 text; save it as UTF-8"),
        (gzip.compress(b"id,t\n")[:-9], "it can't be unpacked: Compressed file ended before .*; is the file whole"),
        (b"id,t\n", "it can't be unpacked: Not a gzipped file .*; is the file whole"),
    ],
    ids=["double", "no UTF-8", "cut off", "not packed"],
)
def test_compressed_files_are_checked_after_unpacking(tmp_path: Path, text: bytes, sentence: str) -> None:
    paths = {"a.csv.gz": written(tmp_path, text, "a.csv.gz")}
    with pytest.raises(StepFailed, match=rf"^a\.csv\.gz(: |, ){sentence}"):
        looked_through(paths)


def test_files_with_an_unknown_compression_are_not_checked(tmp_path: Path) -> None:
    paths = {"a.csv.zst": written(tmp_path, b"id,id\n\xff", "a.csv.zst")}
    looked_through(paths)


def checked_json(folder: Path, content: str, **options: str) -> None:
    (folder / "a.json").write_text(content)
    check_json_values(list_files({"a.json": folder / "a.json"}), options)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ('{"id":1}\n{"id":2}{"id":3}\n', 2),
        ('{"id":1} {"id":2}', 1),
        ('[{"id":1}][{"id":2}]', 1),
        ('{"id":1}x', 1),
        ('\ufeff{"t":"é"}{"id":2}', 1),
    ],
)
def test_a_second_value_on_a_line_of_json_is_refused(tmp_path: Path, content: str, line: int) -> None:
    with pytest.raises(StepFailed, match=rf"a\.json, line {line}: there is more than one value"):
        checked_json(tmp_path, content)


@pytest.mark.parametrize(
    "content",
    ['{"id":1}\n\n {"t":"a}{b"} \r\n[{"id":1}, {"id":[2] }]\n', '{"id":1}', "", '{"t":"}x', '{"a":{"b":{}}}\n'],
)
def test_one_value_on_each_line_of_json_is_read(tmp_path: Path, content: str) -> None:
    checked_json(tmp_path, content)


def test_a_second_value_in_a_file_of_json_that_is_read_as_a_whole_is_refused(tmp_path: Path) -> None:
    checked_json(tmp_path, '[\n {"id":1},\n {"t":"}\\n{"}\n]\n', multiLine="true")
    with pytest.raises(StepFailed, match=r"a\.json, line 4: another value begins"):
        checked_json(tmp_path, '{\n "id":1\n}\n{"id":2}', multiLine="true")


@pytest.mark.parametrize("kind", ["parquet", "orc"])
def test_files_of_columns_have_those_of_the_schema_or_of_the_first_file(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "in"
    for name, column in (("1", "amount"), ("2", "amount_eur")):
        (folder / f"day=2013-01-0{name}").mkdir(parents=True)
        write_columns(folder / f"day=2013-01-0{name}" / f"a.{kind}", {"id": [1], column: [1.5]})
    files = list(list_files({"in": folder}))

    check_columns(files, kind, {}, ["ID", "day"])
    check_columns(files, kind, {"mergeSchema": "true"}, None)
    with pytest.raises(StepFailed, match=rf"day=2013-01-01/a\.{kind}: it has no column amout.*did you mean amount\?"):
        check_columns(files, kind, {}, ["id", "amout"])
    with pytest.raises(StepFailed, match=rf"day=2013-01-02/a\.{kind}: its columns are id, amount_eur"):
        check_columns(files, kind, {}, None)


def write_columns(file: Path, columns: dict[str, list[float]]) -> None:
    table = pyarrow.table(columns)
    if file.suffix == ".parquet":
        parquet.write_table(table, file)
    else:
        orc.write_table(table, file)


def test_a_file_of_columns_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1...")
    with pytest.raises(StepFailed, match=r"^a\.parquet: it is no parquet file that can be read: "):
        check_columns(list_files({"a.parquet": tmp_path / "a.parquet"}), "parquet", {}, None)
