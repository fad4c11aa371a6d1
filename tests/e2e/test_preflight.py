"""Scripts that ask for a look at the locations of their data sets before they start."""

import json
from pathlib import Path
from typing import Any

import pytest

from opendataflow.names import ExitCode
from tests.e2e.conftest import Inside, Program
from tests.sql.conftest import Connection
from tests.sql.graph import value


def job_file(folder: Path, source: dict[str, Any], *, preflight: bool = True) -> str:
    """Write the file of a job that only says that it ran; return its name."""
    script = {"command": ["sh", "-c", "echo ran"], "preflight": preflight}
    documents: list[dict[str, Any]] = [
        {
            "kind": "DataSet",
            "metadata": {"name": "a"},
            "spec": {"location": source, "chunkSource": {"list": ["1", "2"]}},
        },
        {"kind": "DataSet", "metadata": {"name": "b"}, "spec": {"location": {"url": "results/b"}}},
        {
            "kind": "DataFlowJob",
            "metadata": {"name": "j"},
            "spec": {"inputs": ["a"], "outputs": ["b"], "retry": {"limit": 0}, "runtime": {"script": script}},
        },
    ]
    text = "\n---\n".join(json.dumps({"apiVersion": "opendataflow.io/v1alpha1", **it}) for it in documents)
    (folder / "results").mkdir(exist_ok=True)
    (folder / "job.yaml").write_text(text)
    return str(folder / "job.yaml")


def runs(dataflow: Program) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dataflow.run("get", "runs", "j", "-o", "json"))
    return found[::-1]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ({"url": "data"}, "input a: data does not exist"),
        ({"hostname": "127.0.0.1:1", "database": "d", "tablename": "t"}, "does not answer"),
    ],
)
def test_a_script_whose_input_is_missing_does_not_start_and_consumes_no_retry(
    dataflow: Program, inside: Inside, db: Connection, tmp_path: Path, source: dict[str, Any], sentence: str
) -> None:
    job = job_file(tmp_path, source)
    dataflow.run("local", "-f", job, "--until-caught-up", code=ExitCode.UNFINISHED)
    assert {(run["state"], run["failure_class"]) for run in runs(dataflow)} == {("GIVEN_BACK", "NotStarted")}
    first = runs(dataflow)[0]
    assert sentence in first["message"]
    assert {look["dataset"]: look["found"] for look in first["metrics"]["looks"]} == {"a": "no", "b": "unknown"}
    assert value(db, "SELECT sum(attempts + infrastructure_attempts)::int FROM opendataflow.task") == 0
    assert "no run of the job starts" in dataflow.run("why", "j", "2")
    log = inside.ask(dataflow, "logs", "--run", str(first["run"])).err
    assert ": GIVEN_BACK\nit did not start: " in log
    assert sentence in log


def test_a_script_starts_once_its_input_is_there_and_the_look_is_stored_with_its_run(
    dataflow: Program, tmp_path: Path
) -> None:
    job = job_file(tmp_path, {"url": "data"})
    dataflow.run("local", "-f", job, "--until-caught-up", code=ExitCode.UNFINISHED)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").touch()
    dataflow.run("local", "-f", job, "--until-caught-up")
    last = runs(dataflow)[-1]
    assert last["state"] == "SUCCEEDED"
    assert {look["dataset"]: look["found"] for look in last["metrics"]["looks"]} == {"a": "yes", "b": "unknown"}
    assert "Looked at" in dataflow.run("describe", "run", str(last["run"]))


def test_a_script_that_does_not_ask_for_it_starts_without_a_look(dataflow: Program, tmp_path: Path) -> None:
    dataflow.run("local", "-f", job_file(tmp_path, {"url": "data"}, preflight=False), "--until-caught-up")
    assert [(run["state"], run["metrics"]) for run in runs(dataflow)] == [("SUCCEEDED", None)] * 2
