"""Completion in a shell: the right ids, and never a word of trouble in the line that somebody types."""

import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import DATAFLOW, Program
from tests.sql.conftest import Connection
from tests.sql.graph import apply, dataset, job


def completed(program: Program, line: str, cwd: Path | None = None) -> list[str]:
    """What bash offers after TAB at the end of a line."""
    environ = {
        "_DATAFLOW_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    done = subprocess.run(
        [DATAFLOW], env=program.environ | environ, capture_output=True, text=True, check=False, timeout=300, cwd=cwd
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("dataflow status ", ["clean", "load"]),
        ("dataflow why l", ["load"]),
        ("dataflow why load 2013-0", ["2013-01", "2013-02"]),
        ("dataflow resubmit load 2013-01 2013-0", ["2013-01", "2013-02"]),
        ("dataflow publish or", ["orders"]),
        ("dataflow hold --dataset o", ["orders"]),
        ("dataflow hold --dataset orders 2013-02", ["2013-02"]),
        ("dataflow describe chunk orders 2", ["2013-01", "2013-02"]),
        ("dataflow chunks load list --dataset or", ["orders"]),
        ("dataflow scale c", ["clean"]),
        ("dataflow susp", ["suspend"]),
    ],
)
def test_ids_are_offered(dataflow: Program, db: Connection, line: str, offered: list[str]) -> None:
    datasets = [dataset("orders", "2013-01", "2013-02"), dataset("rows"), dataset("tidy")]
    apply(db, datasets, [job("load", ["orders"], ["rows"]), job("clean", ["rows"], ["tidy"])])
    assert completed(dataflow, line) == offered


@pytest.mark.parametrize("dsn", ["postgresql://nobody@localhost:1/gone", "no address at all", None])
def test_without_a_database_nothing_is_offered_and_none_is_started(tmp_path: Path, dsn: str | None) -> None:
    assert completed(Program(tmp_path / "home", dsn), "dataflow status ") == []
    assert not (tmp_path / "home").exists()


def test_ids_of_a_database_that_a_properties_file_names_are_offered_and_nobody_is_asked_for_its_passkey(
    named: Program, db: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply(db, [dataset("orders"), dataset("rows")], [job("load", ["orders"], ["rows"])])
    assert completed(named, "dataflow why l", tmp_path) == ["load"]
    monkeypatch.delenv("PASSKEY")
    assert completed(named, "dataflow why l", tmp_path) == []
