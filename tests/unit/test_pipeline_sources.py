"""Checks of local source files: each problem is reported with its file and line."""

import gzip
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.io.file_checks import check_encoding, check_file_names, check_headers, list_text_files


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
    check_encoding(list_text_files(paths), '"')
    check_headers(list_text_files(paths), {}, None)


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
        check_headers(list_text_files({"a.csv": path}), options, None)
        return
    with pytest.raises(StepFailed, match=rf"^a\.csv, line 1: there are two columns {double}; rename one of them$"):
        check_headers(list_text_files({"a.csv": path}), options, None)


def test_each_data_file_of_a_folder_is_checked(tmp_path: Path) -> None:
    paths = {"in": tmp_path / "in"}
    written(tmp_path, b"id\n", "in/a.csv")
    written(tmp_path, b"id,id\n\xff", "in/_b.csv")
    check_encoding(list_text_files(paths))
    check_headers(list_text_files(paths), {}, None)
    written(tmp_path, b"id,id\n", "in/b.csv")
    with pytest.raises(StepFailed, match=r"^in/b\.csv, line 1: there are two columns id"):
        check_headers(list_text_files(paths), {}, None)


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
        check_headers(list_text_files({"in": tmp_path / "in"}), {}, columns)


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
