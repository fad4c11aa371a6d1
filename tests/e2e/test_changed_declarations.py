"""What people see when they apply a changed file to work that is done."""

import json
from pathlib import Path

import pytest

from opendataflow.names import ExitCode
from tests.e2e.conftest import Answer, Inside, Program
from tests.e2e.jobs import squares
from tests.sql.conftest import Connection
from tests.sql.graph import apply, ask, claim, dataset, end, job, open_lease, problems, tasks

MONTHS = squares("{dateRange: {from: 2013-01-01, to: 2013-03-01, step: month}}")
DAYS = squares("{dateRange: {from: 2013-01-01, to: 2013-03-01, step: day}}")
MORE_OUTPUTS = MONTHS.replace("outputs: [squares]", "outputs: [squares, cubes]") + (
    "---\napiVersion: opendataflow.io/v1alpha1\nkind: DataSet\nmetadata: {name: cubes}\n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "job.yaml"


@pytest.fixture
def finished(dataflow: Program, inside: Inside, file: Path, db: Connection) -> Connection:
    """Both months are done."""
    applied(inside, dataflow, file, MONTHS)
    finish(db)
    return db


def finish(db: Connection) -> None:
    for run in claim(db, open_lease(db), "square", 100):
        end(db, run, "DONE")


def applied(inside: Inside, dataflow: Program, file: Path, text: str, *options: str) -> Answer:
    file.write_text(text)
    return inside.ask(dataflow, "apply", "-f", str(file), *options)


def test_days_instead_of_finished_months_are_refused_with_a_plan_and_the_options(
    dataflow: Program, inside: Inside, file: Path, finished: Connection
) -> None:
    before = tasks(finished)
    answer = applied(inside, dataflow, file, DAYS)
    assert answer.code == ExitCode.FAILED
    assert "    - 2 chunks retired, 2 of them finished: 2013-01, 2013-02\n" in answer.out
    assert "    ! 59 chunks overlap others: 2013-01-01, 2013-01-02, 2013-01-03, …\n" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80
    assert "nothing was changed, because finished work is affected: " in answer.err
    assert answer.err.rstrip().endswith("(this plan only) or --allow-retire --allow-overlap")
    assert tasks(finished) == before


def test_a_dry_run_prints_the_same_plan_and_writes_nothing(
    dataflow: Program, inside: Inside, file: Path, finished: Connection
) -> None:
    before = tasks(finished)
    refused = applied(inside, dataflow, file, DAYS)
    dry = applied(inside, dataflow, file, DAYS, "--dry-run")
    assert (dry.code, dry.out) == (ExitCode.FAILED, refused.out)
    allowed = applied(inside, dataflow, file, DAYS, "--dry-run", "--allow-retire", "--allow-overlap")
    assert (allowed.code, allowed.out, allowed.err) == (ExitCode.OK, refused.out, "")
    assert tasks(finished) == before


def test_the_hash_of_a_plan_allows_it_and_another_hash_does_not(
    dataflow: Program, inside: Inside, file: Path, finished: Connection
) -> None:
    found = json.loads(applied(inside, dataflow, file, DAYS, "--dry-run", "-o", "json").out)
    assert (found["applied"], found["plan"]["needs"]) == (False, ["retire", "overlap"])
    stale = applied(inside, dataflow, file, DAYS, "--allow", "0123456789ab")
    assert (stale.code, "plan 0123456789ab is not this plan" in stale.err) == (ExitCode.FAILED, True)
    answer = applied(inside, dataflow, file, DAYS, "--allow", found["plan"]["hash"])
    assert (answer.code, answer.out.endswith("job square applied\n")) == (ExitCode.OK, True)
    assert (tasks(finished)["square/2013-01"], problems(finished)) == ("RETIRED", [])
    listed = inside.ask(dataflow, "get", "chunks", "squares", "--status", "RETIRED", "-o", "json")
    assert [row["data_id"] for row in json.loads(listed.out)] == ["2013-01", "2013-02"]


def test_a_file_that_only_adds_is_applied_without_a_plan(
    dataflow: Program, inside: Inside, file: Path, finished: Connection
) -> None:
    longer = MONTHS.replace("to: 2013-03-01", "to: 2013-04-01")
    answer = applied(inside, dataflow, file, longer)
    assert (answer.code, answer.out.splitlines()[0]) == (ExitCode.OK, "data set numbers applied")
    assert tasks(finished)["square/2013-03"] == "QUEUED"


def test_no_report_calls_a_new_output_done_until_it_is_made_or_excluded(
    dataflow: Program, inside: Inside, file: Path, finished: Connection
) -> None:
    refused = applied(inside, dataflow, file, MORE_OUTPUTS)
    assert refused.code == ExitCode.FAILED
    assert "2 finished tasks of job square never made the new output cubes (2013-01, 2013-02)" in refused.err
    assert "--backfill all (process them again) or --backfill none (leave them as they are)" in refused.err
    assert "Done" in inside.ask(dataflow, "get", "jobs").out  # the old declaration

    assert applied(inside, dataflow, file, MORE_OUTPUTS, "--backfill", "none").code == ExitCode.OK

    assert "Incomplete" in inside.ask(dataflow, "get", "jobs").out
    status = inside.ask(dataflow, "status", "square").out
    assert "2 of 2 done, but incomplete" in status
    assert "incomplete: output cubes of 2 chunks (2013-01, 2013-02) was never made; " in status
    assert "dataflow resubmit square 2013-01 2013-02; " in status
    assert "dataflow skip square 2013-01 2013-02" in status
    assert "all done up to" not in status
    why = inside.ask(dataflow, "why", "square", "2013-01").out
    assert "is DONE, but its output cubes was never made; " in why
    assert "dataflow resubmit square 2013-01;" in why
    [task, _] = json.loads(inside.ask(dataflow, "get", "tasks", "square", "-o", "json").out)
    assert (task["state"], task["incomplete"], task["reason"]) == ("DONE", True, "never made: cubes")
    inspected = inside.ask(dataflow, "inspect", "square", "2013-01").out
    assert "Is the data ready? No: output cubes was never made.\n" in inspected
    assert "Is it the correct data? No: output cubes was never made.\n" in inspected

    assert inside.ask(dataflow, "skip", "square", "2013-01").code == ExitCode.OK
    assert inside.ask(dataflow, "resubmit", "square", "--incomplete").out == "square 2013-02: QUEUED\n"
    finish(finished)
    assert "Done" in inside.ask(dataflow, "get", "jobs").out
    assert problems(finished) == []


def test_a_local_engine_refuses_and_allows_the_same_changes(
    dataflow: Program, inside: Inside, file: Path, finished: Connection
) -> None:
    file.write_text(MORE_OUTPUTS)
    local = ("local", "-f", str(file), "--until-caught-up")
    refused = inside.ask(dataflow, *local)
    assert (refused.code, "--backfill all" in refused.err) == (ExitCode.FAILED, True)
    incomplete = inside.ask(dataflow, *local, "--backfill", "none")
    assert (incomplete.code, "2 of 2 done, but incomplete" in incomplete.out) == (ExitCode.UNFINISHED, True)
    assert problems(finished) == []


def test_a_job_gets_another_name_by_the_command_that_the_refusal_names(
    dataflow: Program, inside: Inside, file: Path, finished: Connection
) -> None:
    renamed = MONTHS.replace("name: square}", "name: powers}")
    answer = applied(inside, dataflow, file, renamed)
    assert answer.code == ExitCode.USAGE
    assert "after a rename" in answer.err
    assert "dataflow delete JOB" in answer.err
    ask(finished, "publish", "numbers", "2013-01")
    deleted = inside.ask(dataflow, "delete", "square")
    assert deleted.err.startswith("1 finished task is stale, which another job with these outputs does not know")
    assert deleted.out == "job square is deleted; no run is under way; its outputs are free for another job\n"
    assert inside.ask(dataflow, "delete", "square").err == "error: job square is deleted already: nothing was changed\n"
    assert applied(inside, dataflow, file, renamed).code == ExitCode.OK
    made = {name: state for name, state in tasks(finished).items() if name.startswith("powers/")}
    assert made == {"powers/2013-01": "DONE", "powers/2013-02": "DONE"}
    assert problems(finished) == []


def test_the_job_of_a_resource_is_not_deleted_by_a_command(dataflow: Program, inside: Inside, db: Connection) -> None:
    apply(db, [dataset("team/a", "1")], [job("team/j", ["team/a"], [], owner="team/load")])
    answer = inside.ask(dataflow, "delete", "team/j")
    assert answer.code == ExitCode.FAILED
    assert answer.err.endswith("to delete it: kubectl delete dataflowjob --namespace team load\n")
    assert inside.ask(dataflow, "get", "jobs").out.startswith("JOB")
    assert "j " in inside.ask(dataflow, "get", "jobs").out
