"""The demo of the flights example, but for its runs: what it needs, where its state is, what it declares."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import demo
import prepare
from opendataflow.model.resources.jobfile import parse_job_file


def fake_java(folder: Path, version: str) -> Path:
    """Make a folder like JAVA_HOME whose java prints this version."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{version}' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    return java


def test_without_java_the_demo_ends_with_one_sentence(tmp_path: Path) -> None:
    environ = {**os.environ, "JAVA_HOME": str(tmp_path), "DATAFLOW_HOME": str(tmp_path / "home")}
    ended = subprocess.run(
        [sys.executable, "-c", "import demo, sys; demo.DATAFLOW = demo.JOB_FILE; sys.exit(demo.main())"],
        cwd=demo.JOB_FILE.parent,
        env=environ,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert ended.stderr.startswith("Java 17 or later is needed by Spark and was not found in JAVA_HOME")
    assert ended.stderr.endswith("run make demo again\n")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("printed", "release"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("no runtime present, requesting install", None),
    ],
)
def test_the_release_of_java_is_read_from_its_output(tmp_path: Path, printed: str, release: int | None) -> None:
    assert demo.java_version(str(fake_java(tmp_path, printed))) == release


def test_an_old_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(demo.DemoError, match="needed by Spark and Java 11 was found"):
        demo.require_java()


def test_the_next_command_comes_from_the_output() -> None:
    output = "2013-09 has failed.\nNext: repair it, then run `dataflow resubmit delays 2013-09`.\n"
    assert demo.named_command(output, "delays", "2013-09") == ["resubmit", "delays", "2013-09"]


@pytest.mark.parametrize("output", ["nothing to do", "dataflow resubmit delays 2013-09-01"])
def test_an_output_that_names_no_command_is_an_error(output: str) -> None:
    with pytest.raises(demo.DemoError, match="names no command"):
        demo.named_command(output, "delays", "2013-09")


def test_the_state_of_an_earlier_demo_is_gone_and_this_ones_stays(tmp_path: Path) -> None:
    home = tmp_path / "opendataflow-demo"
    for _ in range(2):
        with demo.fresh_home(home):
            assert [path.name for path in home.iterdir()] == [demo.MARKER]
            (home / "runs").mkdir()
            (home / "notes").touch()
    assert (home / "runs").is_dir()


def test_a_folder_that_is_not_a_demos_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with (
        pytest.raises(demo.DemoError, match="not the folder of an earlier demo"),
        demo.fresh_home(tmp_path / "mine"),
    ):
        pass
    assert (tmp_path / "mine" / "file").exists()


def test_two_demos_at_a_time_are_refused(tmp_path: Path) -> None:
    with (
        demo.fresh_home(tmp_path / "home"),
        pytest.raises(demo.DemoError, match="another `make demo` is running"),
        demo.fresh_home(tmp_path / "home"),
    ):
        pass


def test_the_demo_never_uses_a_database_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATAFLOW_DSN", "postgresql://somewhere/production")
    tour = demo.Tour(tmp_path, {}, tmp_path / "airlines.csv")
    assert "DATAFLOW_DSN" not in tour.environ
    assert tour.environ["DATAFLOW_HOME"] == str(tmp_path)


def test_the_job_file_declares_the_months_that_are_prepared_and_two_jobs_in_a_row() -> None:
    declared = parse_job_file(demo.JOB_FILE.read_text(encoding="utf-8"), "job.yaml")
    chunks = {dataset.id: [data_id for data_id, _ in dataset.chunks()] for dataset in declared.datasets}
    assert chunks == {"flights": list(prepare.MONTHS), "carrier_delays": [], "delay_report": []}
    assert [(job.id, job.spec.inputs, job.spec.outputs) for job in declared.jobs] == [
        ("delays", ("flights",), ("carrier_delays",)),
        ("report", ("carrier_delays",), ("delay_report",)),
    ]
    assert declared.jobs[0].spec.retry.limit == 1
    assert declared.jobs[0].spec.retry.backoff.initial_seconds == 5
