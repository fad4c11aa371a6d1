"""The command line as people use it: what it prints, what it changes, and the code that it ends with."""

import json
import os
import pty
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from opendataflow.names import ExitCode
from tests.e2e.conftest import DATAFLOW, Answer, Inside, Program
from tests.e2e.jobs import squares
from tests.sql.conftest import Connection
from tests.sql.graph import apply, ask, chunks, claim, dataset, end, job, open_lease, raw, tasks, transitions, value

FILE = squares('{list: ["1", "2", "10"]}')


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A job file whose runs do what is written to work.sh beside it."""
    (tmp_path / "work.sh").write_text("true")
    path = tmp_path / "job.yaml"
    path.write_text(FILE)
    return path


def chain(db: Connection, *ids: str) -> None:
    """Declare numbers -> square -> squares -> sum -> sums."""
    datasets = [dataset("numbers", *(ids or ("1", "2", "10"))), dataset("squares"), dataset("sums")]
    apply(db, datasets, [job("square", ["numbers"], ["squares"]), job("sum", ["squares"], ["sums"])])


def run_once(db: Connection, job_id: str, verdict: str = "DONE", **changes: Any) -> dict[str, Any]:
    """Claim the next task of a job and end its run; return the run."""
    [run] = claim(db, open_lease(db), job_id)
    end(db, run, verdict, **changes)
    return run


# apply and get -------------------------------------------------------------------------------------------


def test_apply_shows_what_it_has_declared(dataflow: Program, db: Connection, inside: Inside, file: Path) -> None:
    for _ in range(2):  # also the second time, when nothing changes
        answer = inside.ask(dataflow, "apply", "-f", str(file))
        assert answer.out.splitlines() == [
            "data set numbers applied",
            "data set squares applied",
            "job square applied",
        ]
        assert tasks(db) == {"square/1": "QUEUED", "square/2": "QUEUED", "square/10": "QUEUED"}


def test_several_files_are_applied_together(dataflow: Program, db: Connection, inside: Inside, file: Path) -> None:
    first, second = file.with_name("a.yaml"), file.with_name("b.yaml")
    datasets, jobs = FILE.split("---\n", 2)[:2], FILE.split("---\n", 2)[2]
    first.write_text(jobs)  # names data sets of the file after it
    second.write_text("---\n".join(datasets))
    assert inside.ask(dataflow, "apply", "-f", str(first), "-f", str(second)).code == ExitCode.OK
    assert len(tasks(db)) == 3


def test_jobs_are_listed(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    run_once(db, "square")
    head, square, total = inside.ask(dataflow, "get", "jobs").out.splitlines()
    assert " ".join(head.split()) == "JOB STATE DONE TOTAL PARALLELISM INPUTS OUTPUTS"
    assert " ".join(square.split()) == "square Queued 1 3 100 numbers squares"
    assert " ".join(total.split()) == "sum Queued 0 3 100 squares sums"


def test_a_list_of_jobs_has_a_column_for_failed_tasks_if_there_are_any(
    dataflow: Program, db: Connection, inside: Inside
) -> None:
    chain(db)
    [run] = claim(db, open_lease(db), "square", 1)
    end(db, run, "FAILED")
    head, square, total = inside.ask(dataflow, "get", "jobs").out.splitlines()
    assert " ".join(head.split()) == "JOB STATE DONE TOTAL FAILED PARALLELISM INPUTS OUTPUTS"
    assert " ".join(square.split()) == "square Failed 0 3 1 100 numbers squares"
    assert " ".join(total.split()) == "sum Waiting 0 3 0 100 squares sums"
    [found, _] = json.loads(inside.ask(dataflow, "get", "jobs", "-o", "json").out)
    assert (found["stale"], found["running"], found["retrying"], found["failed"]) == (0, 0, 0, 1)


def test_data_sets_are_listed(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    _, numbers, squares, _ = inside.ask(dataflow, "get", "datasets").out.splitlines()
    assert " ".join(numbers.split()) == "numbers - - - square 3 0 3"
    assert " ".join(squares.split()) == "squares - - square sum 0 0 3"


def test_chunks_are_listed_in_their_natural_order(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    rows = inside.ask(dataflow, "get", "chunks", "squares").out.splitlines()[1:]
    assert [row.split()[:3] for row in rows] == [
        ["squares", "1", "DECLARED"],
        ["squares", "2", "DECLARED"],
        ["squares", "10", "DECLARED"],
    ]


def test_chunks_are_listed_by_status_and_up_to_a_limit(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    ready = json.loads(inside.ask(dataflow, "get", "chunks", "--status", "READY", "--limit", "2", "-o", "json").out)
    assert [(row["dataset"], row["data_id"]) for row in ready] == [("numbers", "1"), ("numbers", "2")]


def test_tasks_are_listed_by_state_in_the_order_of_their_job(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    run_once(db, "square")
    rows = inside.ask(dataflow, "get", "tasks", "square").out.splitlines()[1:]
    assert [row.split()[:4] for row in rows] == [
        ["square", "1", "DONE", "-"],
        ["square", "2", "QUEUED", "-"],
        ["square", "10", "QUEUED", "-"],
    ]
    waiting = json.loads(inside.ask(dataflow, "get", "tasks", "--state", "WAITING", "-o", "json").out)
    assert [(row["job"], row["data_id"]) for row in waiting] == [("sum", "2"), ("sum", "10")]
    assert inside.ask(dataflow, "get", "tasks", "sqare").err == (
        "error: there is no job sqare (did you mean square?)\n"
    )


def test_what_is_stale_is_counted_listed_and_rebuilt_by_one_command(
    dataflow: Program, db: Connection, inside: Inside
) -> None:
    chain(db, "1", "2")
    for _ in range(2):
        run_once(db, "square")
        run_once(db, "sum")
    ask(db, "publish", "numbers", "2")
    (square, total) = json.loads(inside.ask(dataflow, "get", "jobs", "-o", "json").out)
    assert [(job["state"], job["done"], job["total"], job["stale"]) for job in (square, total)] == [
        ("Stale", 2, 2, 1),
        ("Done", 2, 2, 0),
    ]
    lines = inside.ask(dataflow, "status", "square").out.splitlines()
    assert lines[0] == "square   2 of 2 done, 1 stale   parallelism 100"
    (stale,) = (line for line in lines if line.endswith("dataflow resubmit square --stale"))
    assert stale.startswith("  stale      1 chunk (2) ")
    assert "Tasks:           2 DONE, 1 of them stale" in inside.ask(dataflow, "describe", "job", "square").out
    assert "square: DONE, run 3, stale" in inside.ask(dataflow, "describe", "chunk", "squares", "2").out
    for command, expected in (("tasks", ["square", "2", "DONE", "yes"]), ("chunks", ["squares", "2", "READY", "yes"])):
        _, *rows = inside.ask(dataflow, "get", command, "--stale").out.splitlines()
        assert [row.split()[:4] for row in rows] == [expected]

    answer = inside.ask(dataflow, "resubmit", "square", "--stale", "--cascade")

    assert (answer.code, answer.out) == (ExitCode.OK, "square 2: QUEUED\nsum 2: WAITING\n")
    assert inside.ask(dataflow, "resubmit", "squares", "--dataset", "--stale").err.startswith(
        "error: no chunk of data set squares is stale: "
    )


def test_only_resubmit_chooses_what_is_stale(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    assert inside.ask(dataflow, "hold", "square", "--stale").code == ExitCode.USAGE
    answer = inside.ask(dataflow, "resubmit", "square", "1", "--stale")
    assert (answer.code, "do one of the two" in answer.err) == (ExitCode.USAGE, True)


def test_runs_are_listed_newest_first(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    run_once(db, "square")
    run_once(db, "square", "FAILED", message="exit code 1: oops")
    rows = json.loads(inside.ask(dataflow, "get", "runs", "square", "-o", "json").out)
    assert [(row["data_id"], row["state"]) for row in rows] == [("2", "FAILED"), ("1", "SUCCEEDED")]
    assert inside.ask(dataflow, "get", "runs", "square", "2").out.splitlines()[1].endswith("exit code 1: oops")


@pytest.mark.parametrize("what", ["jobs", "tasks", "datasets", "chunks", "runs"])
def test_json_and_yaml_say_the_same(dataflow: Program, db: Connection, inside: Inside, what: str) -> None:
    chain(db)
    run_once(db, "square")
    as_json = json.loads(inside.ask(dataflow, "get", what, "-o", "json").out)
    assert as_json
    assert yaml.safe_load(inside.ask(dataflow, "get", what, "-o", "yaml").out) == as_json


def test_where_there_is_nothing_stdout_is_empty_and_stderr_says_how_to_begin(dataflow: Program, inside: Inside) -> None:
    for arguments in (("get", "jobs"), ("status",)):
        answer = inside.ask(dataflow, *arguments)
        assert (answer.code, answer.out) == (ExitCode.OK, "")
        assert re.fullmatch("no jobs: dataflow apply .*\n", answer.err)


def test_status_shows_what_failed_what_waits_and_the_commands_that_help(
    dataflow: Program, db: Connection, inside: Inside
) -> None:
    chain(db)
    run_once(db, "square", "FAILED", reason="no retries left: exit code 1: oops")
    run_once(db, "square")
    lines = [line.strip() for line in inside.ask(dataflow, "status").out.splitlines()]
    assert lines[0] == "square   1 of 3 done, 1 QUEUED, 1 FAILED   parallelism 100"
    assert "gaps       1 gap: 1" in lines
    assert "failed     1 chunk (1): no retries left: exit code 1: oops" in lines
    assert any(line.endswith("dataflow resubmit square 1") for line in lines)
    assert "waiting    1 chunk (1): input squares is FAILED (not usable)" in lines
    assert "see: dataflow why sum 1" in lines


def test_status_of_one_job_is_a_document_too(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    [status] = json.loads(inside.ask(dataflow, "status", "sum", "-o", "json").out)
    assert (status["job"], status["counts"]) == ("sum", {"WAITING": 3})


# why -----------------------------------------------------------------------------------------------------


def _input_not_published(db: Connection) -> None:
    chain(db, "1")
    ask(db, "resubmit_chunks", "numbers", "1")


def _input_under_hold(db: Connection) -> None:
    chain(db, "1")
    ask(db, "hold_chunks", "numbers", "1")


def _input_failed(db: Connection) -> None:
    chain(db, "1")
    run_once(db, "square", "FAILED")


def _output_under_hold(db: Connection) -> None:
    chain(db, "1")
    ask(db, "hold_chunks", "squares", "1")


def _failed(db: Connection) -> None:
    chain(db, "1")
    run_once(db, "square", "FAILED")


def _held(db: Connection) -> None:
    chain(db, "1")
    ask(db, "hold", "square", "1")


def _stale(db: Connection) -> None:
    chain(db, "1")
    run_once(db, "square")
    raw(db, "UPDATE opendataflow.task SET stale = true WHERE job = 'square'")


REMEDIES: dict[str, tuple[Callable[[Connection], None], str, str, str, str]] = {
    "an input that nobody has published": (
        _input_not_published,
        "square",
        "waits for input chunk 1 of numbers, which is RESUBMIT",
        "dataflow publish numbers 1",
        "QUEUED",
    ),
    "an input under hold": (
        _input_under_hold,
        "square",
        "waits for input chunk 1 of numbers, which is HOLD (held by a person",
        "dataflow release --dataset numbers 1",
        "QUEUED",
    ),
    "an output under hold": (
        _output_under_hold,
        "square",
        "output chunk 1 of squares, which is HOLD",
        "dataflow release --dataset squares 1",
        "QUEUED",
    ),
    "failed": (_failed, "square", "1 of job square is FAILED: exit code 1", "dataflow resubmit square 1", "QUEUED"),
    "held": (_held, "square", "1 of job square is HELD by a person", "dataflow release square 1", "QUEUED"),
    "stale": (_stale, "square", "made from data that has", "dataflow resubmit square 1", "QUEUED"),
}


@pytest.mark.parametrize("case", REMEDIES)
def test_why_names_the_reason_and_the_command_that_helps(
    dataflow: Program, db: Connection, inside: Inside, case: str
) -> None:
    seed, job_id, words, remedy, state = REMEDIES[case]
    seed(db)
    answer = inside.ask(dataflow, "why", job_id, "1")
    assert words in answer.out
    assert remedy in answer.out
    assert inside.ask(dataflow, *shlex.split(remedy)[1:]).code == ExitCode.OK
    assert tasks(db)[f"{job_id}/1"] == state


def test_why_follows_a_failed_input_to_the_job_that_makes_it(dataflow: Program, db: Connection, inside: Inside) -> None:
    _input_failed(db)
    first, second = inside.ask(dataflow, "why", "sum", "1").out.splitlines()
    assert first == "1 of job sum is WAITING"
    assert second.startswith("waits for input chunk 1 of squares, which is FAILED ")
    assert "which makes it, is FAILED (exit code 1); " in second
    assert second.endswith("dataflow resubmit square 1")


def test_why_follows_an_input_that_is_not_made_yet(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db, "1")
    _, second = inside.ask(dataflow, "why", "sum", "1").out.splitlines()
    assert "which is DECLARED (not made yet)" in second
    assert second.endswith("which makes it, is QUEUED; see: dataflow why square 1")


def test_why_shows_what_is_before_a_queued_task_and_that_nothing_runs(
    dataflow: Program, db: Connection, inside: Inside
) -> None:
    chain(db)
    *before, last = inside.ask(dataflow, "why", "square", "10").out.splitlines()
    assert before == ["10 of job square is QUEUED", "before it: 2 queued tasks of the job"]
    assert re.fullmatch("no engine is running; .*: dataflow local .*", last)


def test_why_shows_that_a_job_is_full(dataflow: Program, db: Connection, inside: Inside) -> None:
    apply(db, [dataset("numbers", "1", "2")], [job("square", ["numbers"], [], parallelism=1)])
    claim(db, open_lease(db), "square")
    assert "runs 1 at a time (its parallelism)" in inside.ask(dataflow, "why", "square", "2").out


def test_why_shows_where_a_running_task_runs(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db, "1")
    [run] = claim(db, open_lease(db), "square")
    first, second = inside.ask(dataflow, "why", "square", "1").out.splitlines()
    assert re.fullmatch(rf"1 of job square is RUNNING: run {run['run']}, attempt 1, for [\d.]+ s at host", first)
    assert second == f"its log: dataflow logs --run {run['run']}"


def test_why_shows_who_reads_an_output(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db, "1")
    run_once(db, "square")
    claim(db, open_lease(db), "sum")
    ask(db, "resubmit", "square", "1")
    why = inside.ask(dataflow, "why", "square", "1").out
    assert re.search("waits for 1 running run .* output chunk 1 of squares", why)


def test_why_shows_when_the_next_attempt_is_due(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db, "1")
    run_once(db, "square", "RETRYING", delay=3000)
    assert "the next one is due in 50 min; 0 more may fail after it" in (inside.ask(dataflow, "why", "square", "1").out)


def test_why_is_a_document_too(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db, "1")
    why = json.loads(inside.ask(dataflow, "why", "sum", "1", "-o", "json").out)
    assert (why["state"], why["blockers"][0]["producer"]) == ("WAITING", "square")


# logs ----------------------------------------------------------------------------------------------------


def test_logs_print_the_whole_file_byte_for_byte(dataflow: Program, db: Connection, tmp_path: Path) -> None:
    chain(db, "1")
    log = tmp_path / "output.log"
    log.write_bytes(b"first\n" + b"\xff\r\0" * 50_000 + b"no line end")
    run_once(db, "square", log_path=str(log), log_tail="no line end")
    done = subprocess.run([DATAFLOW, "logs", "square", "1"], env=dataflow.environ, capture_output=True, check=True)
    assert done.stdout == log.read_bytes()


def test_logs_print_the_end_that_is_kept_where_the_file_is_gone(
    dataflow: Program, db: Connection, inside: Inside
) -> None:
    chain(db, "1")
    run = run_once(db, "square", log_path="/elsewhere/output.log", log_tail="the end\n")
    answer = inside.ask(dataflow, "logs", "--run", str(run["run"]))
    assert answer.out == "the end\n"
    assert answer.err.splitlines() == [
        f"run {run['run']} of square 1, attempt 1: SUCCEEDED",
        "its log file /elsewhere/output.log is not on this machine; the end that is kept follows",
    ]


def test_logs_of_a_task_are_those_of_its_last_run(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db, "1")
    run_once(db, "square", "FAILED", log_tail="first attempt\n")
    ask(db, "resubmit", "square", "1")
    run_once(db, "square", log_tail="second attempt\n")
    assert inside.ask(dataflow, "logs", "square", "1").out == "second attempt\n"


# Verbs ---------------------------------------------------------------------------------------------------


def test_resubmit_asks_for_a_task_again(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    run_once(db, "square")
    assert inside.ask(dataflow, "resubmit", "square", "1").out == "square 1: QUEUED\n"
    assert chunks(db)["squares/1"] == "RESUBMIT"


def test_resubmit_of_a_chunk_asks_its_producer(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    run_once(db, "square")
    assert inside.ask(dataflow, "resubmit", "--dataset", "squares", "1").out == "squares 1: QUEUED\n"
    assert tasks(db)["square/1"] == "QUEUED"


def test_resubmit_with_cascade_lists_all_that_is_made_again(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db, "1")
    run_once(db, "square")
    run_once(db, "sum")
    for arguments in (("square",), ("--dataset", "squares")):
        answer = inside.ask(dataflow, "resubmit", "--cascade", *arguments, "1")
        assert answer.out == f"{arguments[-1]} 1: QUEUED\nsum 1: WAITING\n"
        run_once(db, "square")
        run_once(db, "sum")
    assert tasks(db) == {"square/1": "DONE", "sum/1": "DONE"}


def test_resubmit_of_a_running_task_is_remembered(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    claim(db, open_lease(db), "square")
    assert inside.ask(dataflow, "resubmit", "square", "1").out.startswith("square 1: RUNNING (it is running: ")


def test_hold_and_release_of_a_task(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    assert inside.ask(dataflow, "hold", "square", "1", "2").out == "square 1: HELD\nsquare 2: HELD\n"
    assert inside.ask(dataflow, "release", "square", "1").out == "square 1: QUEUED\n"
    assert (tasks(db)["square/1"], tasks(db)["square/2"]) == ("QUEUED", "HELD")


def test_hold_and_release_of_chunks(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    assert inside.ask(dataflow, "hold", "--dataset", "numbers", "1").out == "numbers 1: HOLD\n"
    assert tasks(db)["square/1"] == "WAITING"
    assert inside.ask(dataflow, "release", "--dataset", "numbers", "1").out == "numbers 1: READY\n"
    assert tasks(db)["square/1"] == "QUEUED"


def test_skip_says_that_a_task_will_not_be_done_until_its_release(
    dataflow: Program, db: Connection, inside: Inside
) -> None:
    chain(db)
    assert inside.ask(dataflow, "skip", "square", "1", "--reason", "no such number").out == "square 1: SKIPPED\n"
    assert inside.ask(dataflow, "why", "square", "1").out == (
        "1 of job square is SKIPPED by a person (it was QUEUED): no such number; "
        "to release it: dataflow release square 1\n"
    )
    answer = inside.ask(dataflow, "resubmit", "square", "1")
    assert (answer.code, answer.err) == (ExitCode.FAILED, "error: 1 of job square is skipped: release it first\n")
    assert inside.ask(dataflow, "release", "square", "1").out == "square 1: QUEUED\n"


def test_force_runs_a_task_without_its_inputs(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    assert inside.ask(dataflow, "force", "sum", "2").out == "sum 2: QUEUED\n"
    assert "it is forced" in inside.ask(dataflow, "why", "sum", "2").out.splitlines()[1]
    run_once(db, "sum")
    assert (tasks(db)["sum/2"], chunks(db)["sums/2"]) == ("DONE", "READY")


def test_publish_brings_chunks_that_nobody_knew(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db, "1")
    assert inside.ask(dataflow, "publish", "numbers", "7", "-5").code == ExitCode.USAGE  # an option?
    assert inside.ask(dataflow, "publish", "--", "numbers", "7", "-5").out == "numbers -5: READY\nnumbers 7: READY\n"
    assert (tasks(db)["square/7"], tasks(db)["square/-5"]) == ("QUEUED", "QUEUED")


def _pending(db: Connection) -> None:
    chain(db, "1", "2")
    run_once(db, "square")
    run_once(db, "square")
    ask(db, "hold_chunks", "squares", "1", "2")
    raw(db, "UPDATE opendataflow.chunk SET held_status = 'PENDING' WHERE dataset = 'squares'")
    ask(db, "release_chunks", "squares", "1", "2")


def test_accept_and_reject_say_what_a_person_thinks_of_chunks(
    dataflow: Program, db: Connection, inside: Inside
) -> None:
    _pending(db)
    why = inside.ask(dataflow, "why", "sum", "1").out
    assert "dataflow accept squares 1; " in why
    assert "dataflow reject squares 1" in why
    assert inside.ask(dataflow, "accept", "squares", "1").out == "squares 1: READY\n"
    assert inside.ask(dataflow, "reject", "squares", "2", "--reason", "empty").out == "squares 2: FAILED\n"
    assert tasks(db) == {"square/1": "DONE", "square/2": "FAILED", "sum/1": "QUEUED", "sum/2": "WAITING"}
    answer = inside.ask(dataflow, "accept", "squares", "2")
    assert answer.code == ExitCode.FAILED
    assert answer.err.startswith("error: chunk 2 of squares is FAILED: only PENDING ones ")


def test_cancel_asks_for_the_end_of_a_run(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    [run] = claim(db, open_lease(db), "square")
    assert inside.ask(dataflow, "cancel", "square", "1").out == (
        f"square 1: RUNNING (run {run['run']} is cancelled in a moment)\n"
    )
    answer = inside.ask(dataflow, "cancel", "square", "2")
    assert answer.code == ExitCode.FAILED
    assert answer.err.startswith("error: 2 of job square is QUEUED: only a running task ")


# Choosing without naming each id


def test_verbs_take_a_range_in_natural_order(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    assert inside.ask(dataflow, "hold", "square", "--from", "2", "--to", "10").out == (
        "square 2: HELD\nsquare 10: HELD\n"
    )
    assert inside.ask(dataflow, "skip", "square", "--to", "1").out == "square 1: SKIPPED\n"
    assert inside.ask(dataflow, "publish", "numbers", "--from", "10").out == "numbers 10: READY\n"


def test_verbs_take_all_that_is_in_a_state(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    run_once(db, "square", "FAILED")
    run_once(db, "square", "FAILED")
    assert inside.ask(dataflow, "resubmit", "square", "--failed").out == "square 1: QUEUED\nsquare 2: QUEUED\n"
    answer = inside.ask(
        dataflow, "hold", "--dataset", "numbers", "--status", "READY", "--status", "FAILED", "--to", "1"
    )
    assert answer.out == "numbers 1: HOLD\n"


def test_a_dry_run_only_says_what_would_be_touched(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    run_once(db, "square")
    answer = inside.ask(dataflow, "resubmit", "square", "--from", "1", "--to", "2", "--dry-run")
    first, second, last = answer.out.splitlines()
    assert (first, last) == ("square 1: would be QUEUED", "1 would be touched; nothing was changed")
    assert second.startswith("square 2: stays QUEUED (it has not run yet: ")
    assert tasks(db)["square/1"] == "DONE"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("resubmit", "square", "--failed"), "no task of job square is FAILED: "),
        (
            ("accept", "squares", "--status", "PENDING", "--from", "1", "--to", "2"),
            "no chunk of data set squares is PENDING from 1 to 2: ",
        ),
        (("hold", "square", "--from", "11"), "no task of job square is there from 11: "),
    ],
)
def test_what_touches_nothing_is_refused(
    dataflow: Program, db: Connection, inside: Inside, arguments: tuple[str, ...], sentence: str
) -> None:
    chain(db)
    answer = inside.ask(dataflow, *arguments)
    assert (answer.code, answer.out) == (ExitCode.FAILED, "")
    assert re.fullmatch(f"error: {sentence}there is nothing to {arguments[0]}\n", answer.err)


def test_of_many_refusals_the_first_are_reported(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db, *map(str, range(1, 10)))
    claim(db, open_lease(db), "square", 8)
    answer = inside.ask(dataflow, "hold", "square", "--from", "1")
    assert answer.err.count(" is running: hold it ") == 5
    assert answer.err.endswith("; and 3 more; nothing was changed\n")
    assert tasks(db)["square/9"] == "QUEUED"


def test_what_the_state_does_not_allow_is_refused_for_all_ids(
    dataflow: Program, db: Connection, inside: Inside
) -> None:
    chain(db)
    claim(db, open_lease(db), "square")
    answer = inside.ask(dataflow, "hold", "square", "1", "2")
    assert (answer.code, answer.out) == (ExitCode.FAILED, "")
    assert re.fullmatch("error: 1 of job square is running: .*; nothing was changed\n", answer.err)
    assert tasks(db)["square/2"] == "QUEUED"


def test_a_verb_records_who_asked_and_why(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db)
    inside.ask(dataflow, "hold", "square", "1", "--reason", "audit of 2013")
    assert transitions(db, "task", "square", "1")[-1] == "HELD"
    query = "SELECT actor || ': ' || reason FROM opendataflow.history WHERE event = 'hold'"
    assert re.fullmatch(r"\S+@\S+: audit of 2013", value(db, query))


# lost ----------------------------------------------------------------------------------------------------


def ask_at_terminal(program: Program, typed: str, *arguments: str) -> Answer:
    """Run a command whose stdin is a terminal, at which a person types an answer."""
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    done = subprocess.run(
        [DATAFLOW, *arguments], env=program.environ, stdin=theirs, capture_output=True, text=True, check=False
    )
    os.close(ours)
    os.close(theirs)
    return Answer(done.returncode, done.stdout, done.stderr)


def test_lost_asks_first_and_takes_only_yes(dataflow: Program, db: Connection) -> None:
    chain(db, "1")
    [run] = claim(db, open_lease(db), "square")
    for typed in ("n\n", "\n", "\x04"):
        answer = ask_at_terminal(dataflow, typed, "lost", str(run["run"]))
        assert (answer.code, answer.out.strip()) == (ExitCode.INTERRUPTED, "")
        assert answer.err.startswith(f"Is it certain that nothing of run {run['run']} is alive?")
        assert answer.err.endswith("error: nothing was confirmed, so nothing was changed\n")
        assert tasks(db) == {"square/1": "RUNNING", "sum/1": "WAITING"}
    answer = ask_at_terminal(dataflow, "y\n", "lost", str(run["run"]))
    assert answer.out.strip() == f"run {run['run']} is lost; 1 of job square is RETRYING"
    assert tasks(db)["square/1"] == "RETRYING"


def test_without_a_terminal_lost_names_the_option_and_an_unknown_run_is_reported_before_any_question(
    dataflow: Program, db: Connection
) -> None:
    chain(db, "1")
    [run] = claim(db, open_lease(db), "square")
    answer = dataflow.ask("lost", str(run["run"]), typed="y\n")
    assert (answer.code, answer.out) == (ExitCode.USAGE, "")
    assert "--yes" in answer.err
    assert tasks(db)["square/1"] == "RUNNING"
    answer = ask_at_terminal(dataflow, "", "lost", "999")
    assert (answer.code, answer.err) == (ExitCode.USAGE, "error: there is no run 999: see `dataflow get runs`\n")


def test_force_warns_where_a_task_is_done_already(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db, "1")
    run_once(db, "square")
    assert "a warning: it was DONE" in inside.ask(dataflow, "force", "square", "1").out


def test_lost_does_not_ask_those_who_are_certain(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db, "1")
    [run] = claim(db, open_lease(db), "square")
    answer = inside.ask(dataflow, "lost", str(run["run"]), "--yes")
    assert (answer.code, answer.err) == (ExitCode.OK, "")
    assert value(db, "SELECT state FROM opendataflow.run") == "LOST"


def test_a_run_that_has_ended_can_not_be_lost(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db, "1")
    run = run_once(db, "square")
    answer = inside.ask(dataflow, "lost", str(run["run"]), "--yes")
    assert answer.code == ExitCode.FAILED
    assert answer.err == f"error: run {run['run']} has ended already: it is SUCCEEDED\n"


# db ------------------------------------------------------------------------------------------------------


def test_migrate_makes_the_schema_and_then_has_nothing_to_do(dataflow: Program, db: Connection, inside: Inside) -> None:
    db.execute("DROP SCHEMA opendataflow CASCADE")
    first = inside.ask(dataflow, "db", "migrate")
    assert first.out.splitlines() == ["tables created", "functions, views and triggers replaced"]
    assert inside.ask(dataflow, "db", "migrate").out == "the schema is up to date\n"
    assert inside.ask(dataflow, "db", "verify").out == "all is consistent\n"


def test_db_status_shows_the_place_and_the_schema(dataflow: Program, db: Connection, inside: Inside) -> None:
    answer = inside.ask(dataflow, "db", "status")
    assert re.match(rf"database  \S+/{db.info.dbname}, Postgres \d+\.\d+\n", answer.out)
    assert "0001_base  applied" in answer.out
    assert answer.out.rstrip().endswith("current")
    assert (answer.code, answer.err) == (ExitCode.OK, "")
    assert not db.info.password or db.info.password not in answer.out


def test_db_status_of_an_older_database_names_the_command_that_helps(
    dataflow: Program, db: Connection, inside: Inside
) -> None:
    db.execute("UPDATE opendataflow.installed SET functions = 'of an older program'")
    answer = inside.ask(dataflow, "db", "status")
    assert answer.code == ExitCode.SCHEMA
    assert answer.out.rstrip().endswith("of another version")
    assert answer.err == "error: the database is not up to date: run `dataflow db migrate`\n"


def test_verify_shows_what_does_not_hold(dataflow: Program, db: Connection, inside: Inside) -> None:
    chain(db, "1")
    raw(db, "UPDATE opendataflow.chunk SET readers = 3 WHERE dataset = 'numbers'")
    answer = inside.ask(dataflow, "db", "verify")
    assert answer.code == ExitCode.FAILED
    assert re.fullmatch("chunk numbers/1 has 3 readers, .*\n", answer.out)


# Pipes ---------------------------------------------------------------------------------------------------


def test_a_reader_that_has_seen_enough_is_no_error(dataflow: Program, db: Connection, tmp_path: Path) -> None:
    chain(db, *(f"{number:0200}" for number in range(300)))  # more than a pipe holds
    (tmp_path / "long.log").write_text("line\n" * 100_000)
    run = run_once(db, "square", log_path=str(tmp_path / "long.log"))
    for command in ("get chunks", "get chunks -o json", "get chunks -o yaml", f"logs --run {run['run']}"):
        script = f"{DATAFLOW} {command} | head -n 1; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", script], env=dataflow.environ, capture_output=True, text=True, check=False)
        assert done.returncode == ExitCode.OK
        assert len(done.stdout.splitlines()) == 1
        assert [line for line in done.stderr.splitlines() if not line.startswith("run ")] == []


def test_what_is_piped_is_not_cut(dataflow: Program, db: Connection) -> None:
    long = "a very long data id " * 12
    chain(db, long.strip())
    assert long.strip() in dataflow.ask("get", "chunks", "numbers").out


# local ---------------------------------------------------------------------------------------------------


def test_local_runs_all_there_is_and_reports_it_line_by_line(dataflow: Program, file: Path) -> None:
    (file.parent / "work.sh").write_text('echo "to stdout: $dataid"; echo "to stderr" >&2')
    answer = dataflow.ask("local", "-f", str(file), "--until-caught-up", "--parallelism", "1")
    assert (answer.code, answer.err) == (ExitCode.OK, "")
    live, _, status = answer.out.partition("\n\n")
    limit, *events = live.splitlines()
    assert "at most 1 run at a time here, of the 8 that its jobs allow" in limit
    assert [re.sub(r"^\d\d:\d\d:\d\d  |run \d+", "", line) for line in events] == [
        line
        for data_id in ("1", "2", "10")
        for line in (f"square  {data_id}  started  , attempt 1", f"square  {data_id}  DONE")
    ]
    assert status.startswith("square   3 of 3 done   parallelism 8\n")
    assert dataflow.ask("logs", "square", "10").out == "to stdout: 10\nto stderr\n"


def test_local_ends_with_3_where_something_failed_and_names_the_way_on(dataflow: Program, file: Path) -> None:
    (file.parent / "work.sh").write_text('test "$dataid" != 2 || { echo no such table >&2; exit 9; }')
    answer = dataflow.ask("local", "-f", str(file), "--until-caught-up")
    assert answer.code == ExitCode.UNFINISHED
    assert re.search(r"square  2  FAILED  no retries left \(0 allowed\): exit code 9: no such table\n", answer.out)
    assert ": dataflow resubmit square 2\n" in answer.out


def test_local_ends_with_3_where_something_waits(dataflow: Program, db: Connection, file: Path) -> None:
    waiting = FILE.replace("inputs: [numbers]", "inputs: [numbers, prices]")
    file.write_text(f"{waiting}---{FILE.split('---')[1].replace('squares', 'prices')}")
    answer = dataflow.ask("local", "-f", str(file), "--until-caught-up")
    assert answer.code == ExitCode.UNFINISHED
    assert "waiting    3 chunks (1, 2, 10): input prices is DECLARED (not made yet)" in answer.out
    assert value(db, "SELECT count(*) FROM opendataflow.run") == 0


def test_a_local_engine_with_nothing_left_but_a_held_task_is_not_done(
    dataflow: Program, inside: Inside, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(squares("{list: ['1']}"))
    dataflow.run("apply", "-f", str(file))
    dataflow.run("hold", "square", "1")
    assert inside.ask(dataflow, "local", "-f", str(file), "--until-caught-up").code == ExitCode.UNFINISHED
    dataflow.run("skip", "square", "1")
    assert inside.ask(dataflow, "local", "-f", str(file), "--until-caught-up").code == ExitCode.OK


def test_local_ends_with_6_where_all_is_done_and_some_of_it_is_stale(
    dataflow: Program, db: Connection, file: Path
) -> None:
    assert dataflow.ask("local", "-f", str(file), "--until-caught-up").code == ExitCode.OK
    ask(db, "publish", "numbers", "2")
    answer = dataflow.ask("local", "-f", str(file), "--until-caught-up")
    assert answer.code == ExitCode.STALE
    assert "square   3 of 3 done, 1 stale   parallelism 8\n" in answer.out
    assert re.fullmatch("all is done, but stale: 1 chunk .*: dataflow resubmit square --stale\n", answer.err)
    assert dataflow.ask("resubmit", "square", "--stale").code == ExitCode.OK
    assert dataflow.ask("local", "-f", str(file), "--until-caught-up").code == ExitCode.OK


def test_parallelism_limits_all_jobs_of_an_engine_together(dataflow: Program, file: Path) -> None:
    (file.parent / "work.sh").write_text("echo + >> seen; sleep 0.3; echo - >> seen")
    file.write_text(FILE.replace('["1", "2", "10"]', "[a, b, c, d, e, f]"))
    assert dataflow.ask("local", "-f", str(file), "--until-caught-up", "--parallelism", "2").code == ExitCode.OK
    running = [0]
    for sign in (file.parent / "seen").read_text().split():
        running.append(running[-1] + (1 if sign == "+" else -1))
    assert max(running) == 2
    assert running[-1] == 0


def test_local_goes_on_where_nobody_reads_its_output_any_more(dataflow: Program, db: Connection, file: Path) -> None:
    (file.parent / "work.sh").write_text("sleep 0.1")
    script = f"{DATAFLOW} local -f {file} --parallelism 1 --until-caught-up | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], env=dataflow.environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (ExitCode.OK, "")
    assert set(tasks(db).values()) == {"DONE"}


def test_help_shows_every_command(inside: Inside, tmp_path: Path) -> None:
    answer = inside.ask(Program(tmp_path), "--help")
    assert answer.code == ExitCode.OK
    verbs = ("resubmit", "hold", "release", "publish", "lost")
    for command in ("apply", "get", "status", "why", "logs", "local", "db", *verbs):
        assert f" {command} " in answer.out


def test_without_a_command_the_help_is_shown(inside: Inside, tmp_path: Path) -> None:
    answer = inside.ask(Program(tmp_path))
    assert (answer.code, answer.err) == (ExitCode.USAGE, "")
    assert "Usage: dataflow" in answer.out
