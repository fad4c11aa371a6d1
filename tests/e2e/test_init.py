"""`dataflow init`: the job that it writes runs as it is, and it overwrites nothing."""

import shlex
from pathlib import Path

import pytest

from opendataflow.cli.jobs.job_files import read_files
from opendataflow.names import ExitCode
from tests.e2e.conftest import Inside, Program
from tests.sql.conftest import Connection
from tests.sql.graph import tasks


def test_the_commands_that_it_prints_work_as_they_are(
    dataflow: Program, db: Connection, inside: Inside, tmp_path: Path
) -> None:
    folder = tmp_path / "My first job"
    output = inside.ask(dataflow, "init", str(folder)).out
    first, second = (shlex.split(line)[1:] for line in output.splitlines()[1:])
    dataflow.run(*first)
    dataflow.run(*second)
    assert set(tasks(db).values()) == {"DONE", "QUEUED"}
    dataflow.run(*first)
    assert sorted(tasks(db).values()) == ["DONE"] * 6
    assert sorted(path.name for path in (folder / "out").iterdir()) == [f"2013-0{month}.txt" for month in range(1, 7)]


@pytest.mark.parametrize("name", ["etl", "2013", "Übung!", "a" * 80])
def test_the_name_of_any_folder_makes_a_job_that_is_valid(
    dataflow: Program, inside: Inside, tmp_path: Path, name: str
) -> None:
    assert inside.ask(dataflow, "init", str(tmp_path / name)).code == ExitCode.OK
    [job] = read_files([tmp_path / name / "job.yaml"]).jobs
    assert job.id


def test_a_file_that_is_there_is_never_overwritten(dataflow: Program, inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("mine")
    answer = inside.ask(dataflow, "init", cwd=tmp_path)
    assert answer.code == ExitCode.FAILED
    assert answer.err == "error: more.csv is there already: nothing was written; take another folder\n"
    assert [path.name for path in tmp_path.iterdir()] == ["more.csv"]


def test_a_folder_that_can_not_be_made_is_named(dataflow: Program, inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = inside.ask(dataflow, "init", str(tmp_path / "file" / "below"))
    assert answer.code == ExitCode.USAGE
    assert answer.err.endswith("can't be written: Not a directory\n")
