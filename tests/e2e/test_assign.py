"""`dataflow db assign`: a job that ran on one machine moves to a namespace, with its data sets, history and logs."""

from pathlib import Path

from opendataflow.names import ExitCode
from tests.e2e.conftest import Answer, Program
from tests.e2e.jobs import squares


def test_a_job_of_a_file_moves_into_a_namespace_with_its_history_and_logs(dataflow: Program, open_folder: Path) -> None:
    (open_folder / "work.sh").write_text('echo "this is number $dataid"')
    file = open_folder / "job.yaml"
    file.write_text(squares('{list: ["1", "2"]}'))
    dataflow.run("local", "-f", str(file), "--until-caught-up")
    names = [line.split()[0] for line in dataflow.run("get", "datasets").splitlines()[1:]]

    assert dataflow.run("db", "assign", "square", "team-a").startswith("square is team-a/square now: 1 job, 2 tasks")
    for name in names:
        assert dataflow.run("db", "assign", name, "team-a") == f"{name} is team-a/{name} now: 1 data set, 2 chunks\n"
    assert "this is number 1" in dataflow.run("logs", "team-a/square", "1")
    assert "DONE" in dataflow.run("why", "team-a/square", "2")
    assert dataflow.run("db", "verify") == "all is consistent\n"
    unknown = "error: there is no job square (did you mean team-a/square?)\n"
    assert dataflow.ask("status", "square") == Answer(ExitCode.USAGE, "", unknown)
    assert dataflow.ask("db", "assign", "team-a/square", "team-b").err == (
        "error: square belongs to the namespace team-a already\n"
    )
