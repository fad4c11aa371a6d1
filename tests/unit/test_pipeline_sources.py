"""Text that is read: what would be altered in silence is refused with its file and line."""

import gzip
from pathlib import Path

import pytest

from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.sources import check_header, check_names, check_text


def written(folder: Path, text: bytes, name: str = "a.csv") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text)
    return path


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
def test_two_columns_of_one_name_are_told(
    tmp_path: Path, text: bytes, options: dict[str, str], double: str | None
) -> None:
    path = written(tmp_path, text)
    if double is None:
        check_names(path, "a.csv", options)
        return
    with pytest.raises(StepFailed, match=rf"^a\.csv, line 1: there are two columns {double}; rename one of them$"):
        check_names(path, "a.csv", options)


def test_each_file_of_a_folder_is_looked_at_but_not_what_readers_pass_by(tmp_path: Path) -> None:
    written(tmp_path, b"id\n", "in/a.csv")
    written(tmp_path, b"id,id\n\xff", "in/_b.csv")
    check_text(tmp_path / "in", "in")
    check_names(tmp_path / "in", "in", {})
    written(tmp_path, b"id,id\n", "in/b.csv")
    with pytest.raises(StepFailed, match=r"^in/b\.csv, line 1: there are two columns id"):
        check_names(tmp_path / "in", "in", {})


def test_of_compressed_files_nothing_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, gzip.compress(b"id,id\n"), "a.csv.gz")
    check_text(path, "a.csv.gz", '"')
    check_names(path, "a.csv.gz", {})
    check_header(path, "a.csv.gz", ["other"], {})
