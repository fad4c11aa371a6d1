"""The five questions, and one thing with all that is known of it."""

import json
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from opendataflow.names import ExitCode
from tests.e2e.conftest import Inside, Program
from tests.sql.conftest import Connection
from tests.sql.graph import apply, apply_allowing, ask, claim, dataset, end, job, open_lease, raw


def declare(db: Connection, **squares: Any) -> None:
    """Declare numbers -> square -> squares, with squares at a place."""
    place = {"hostname": "h1", "database": "dw", "tablename": "sq", "encryptedpass": "sealed", **squares}
    apply(db, [dataset("numbers", "1", "2"), dataset("squares") | place], [job("square", ["numbers"], ["squares"])])


@pytest.fixture
def made(db: Connection) -> dict[str, Any]:
    """The run that has made chunk 1 of squares."""
    declare(db)
    [run] = claim(db, open_lease(db), "square")
    end(db, run, "DONE")
    return run


def answers(inside: Inside, dataflow: Program, *arguments: str) -> dict[str, str]:
    """The five answers in words, by the first word that tells the questions apart."""
    shown = json.loads(inside.ask(dataflow, "inspect", *(arguments or ("square", "1")), "-o", "json").out)
    words = ("ready", "correct", "expected", "validated", "safe")
    texts = [": ".join(filter(None, (one["answer"], one["qualification"]))) for one in shown["answers"]]
    return dict(zip(words, texts, strict=True))


def evidence(inside: Inside, dataflow: Program) -> str:
    return inside.ask(dataflow, "inspect", "square", "1").out


def test_a_chunk_that_a_run_has_made_has_five_answers(dataflow: Program, inside: Inside, made: dict[str, Any]) -> None:
    found = answers(inside, dataflow)
    assert found.pop("correct").startswith("yes: made from the present versions")
    assert found == {
        "ready": "yes",
        "expected": "unknown: the place of squares was not looked at",
        "validated": "unknown: no expectation and no person",
        "safe": "yes",
    }
    shown = evidence(inside, dataflow)
    assert f"output chunk 1 of squares is READY in version {made['fence']} since" in shown
    assert f"run {made['run']}, attempt 1, at host: SUCCEEDED, exit code 0, from " in shown
    sentence = f"squares is declared at h1 dw.sq, as it was for run {made['run']} of job square; nobody looked there"
    assert sentence in shown
    assert "sealed" not in shown


@pytest.mark.usefixtures("made")
def test_the_command_has_the_name_of_the_old_framework_too(dataflow: Program, inside: Inside) -> None:
    assert inside.ask(dataflow, "five", "square", "1").out == evidence(inside, dataflow)
    listed = inside.ask(dataflow, "--help").out
    assert " inspect " in listed
    assert " five " not in listed.replace("five questions", "")


def test_what_has_not_run_yet_says_what_it_waits_for(dataflow: Program, db: Connection, inside: Inside) -> None:
    declare(db)
    ask(db, "hold_chunks", "numbers", "1")
    assert answers(inside, dataflow) == {
        "ready": "no: not yet",
        "correct": "no: not yet",
        "expected": "no: not yet",
        "validated": "no: not yet",
        "safe": "no: it is safe to change, but not to read",
    }
    assert "dataflow release --dataset numbers 1" in evidence(inside, dataflow)


def test_a_new_version_of_an_input_makes_it_stale(
    dataflow: Program, db: Connection, inside: Inside, made: dict[str, Any]
) -> None:
    assert made
    ask(db, "publish", "numbers", "1")
    assert answers(inside, dataflow)["correct"].startswith("no: it was made from data ")
    assert "dataflow resubmit square 1" in evidence(inside, dataflow)


def test_where_a_run_has_written_is_reported_also_when_the_data_set_has_moved_since(
    dataflow: Program, db: Connection, inside: Inside, made: dict[str, Any]
) -> None:
    assert made
    declare(db, hostname="h2")
    assert answers(inside, dataflow)["expected"].startswith("no")
    assert "the run got squares at h1 dw.sq; now it is declared at h2 dw.sq" in evidence(inside, dataflow)
    # What runs from now on sees the new place, and says so.
    [run] = claim(db, open_lease(db), "square")
    end(db, run, "DONE")
    assert answers(inside, dataflow, "square", "2")["expected"].startswith("unknown")
    assert answers(inside, dataflow)["expected"].startswith("no")


def test_who_published_a_chunk_stands_for_it(dataflow: Program, db: Connection, inside: Inside) -> None:
    declare(db)
    inside.ask(dataflow, "publish", "squares", "1", "--reason", "loaded by hand")
    shown = answers(inside, dataflow)
    assert shown["correct"].startswith("yes: as ")
    assert shown["validated"] == "yes: by a person"
    assert "chunk 1 of squares was published by " in evidence(inside, dataflow)
    assert ": loaded by hand" in evidence(inside, dataflow)


def test_a_chunk_that_waits_for_a_word_says_with_which_commands(
    dataflow: Program, db: Connection, inside: Inside, made: dict[str, Any]
) -> None:
    assert made
    raw(db, "UPDATE opendataflow.chunk SET status = 'PENDING' WHERE dataset = 'squares' AND data_id = '1'")
    assert answers(inside, dataflow)["validated"] == "no: not yet: it waits for somebody to accept or reject it"
    assert "dataflow accept squares 1" in evidence(inside, dataflow)
    inside.ask(dataflow, "accept", "squares", "1", "--reason", "totals agree")
    assert answers(inside, dataflow)["validated"] == "yes: by a person"
    assert ": totals agree" in evidence(inside, dataflow)


@pytest.mark.usefixtures("made")
def test_the_release_of_a_hold_validates_nothing(dataflow: Program, db: Connection, inside: Inside) -> None:
    ask(db, "hold_chunks", "squares", "1")
    ask(db, "release_chunks", "squares", "1")
    assert answers(inside, dataflow)["validated"] == "unknown: no expectation and no person"


def test_a_failed_run_is_reported_with_its_exit_code(dataflow: Program, db: Connection, inside: Inside) -> None:
    declare(db)
    [run] = claim(db, open_lease(db), "square")
    end(db, run, "FAILED", exit_code=7, message="exit code 7: oops")
    shown = answers(inside, dataflow)
    assert shown["ready"] == "no: its task is FAILED"
    assert shown["correct"] == f"no: run {run['run']} ended as FAILED"
    assert "FAILED, exit code 7" in evidence(inside, dataflow)


def test_a_chunk_that_is_being_read_is_not_safe_to_change(
    dataflow: Program, db: Connection, inside: Inside, made: dict[str, Any]
) -> None:
    assert made
    apply(db, [dataset("sums")], [job("sum", ["squares"], ["sums"])])
    [run] = claim(db, open_lease(db), "sum")
    assert answers(inside, dataflow)["safe"].startswith("no: it is safe to read, ")
    assert f"run {run['run']} of sum" in evidence(inside, dataflow)


def force_without_input(db: Connection) -> dict[str, Any]:
    """Make chunk 1 of squares by force while its input is held, and chunk 1 of sums from it. Return the forced run."""
    declare(db)
    apply(db, [dataset("sums")], [job("sum", ["squares"], ["sums"])])
    ask(db, "hold_chunks", "numbers", "1")
    ask(db, "force", "square", "1")
    lease = open_lease(db)
    [forced] = claim(db, lease, "square")
    end(db, forced, "DONE")
    [after] = claim(db, lease, "sum")
    end(db, after, "DONE")
    return forced


def test_a_forced_run_without_its_input_made_no_correct_data(dataflow: Program, db: Connection, inside: Inside) -> None:
    force_without_input(db)
    assert answers(inside, dataflow)["correct"].startswith("unknown: made by force ")
    assert "no version of chunk 1 of numbers: " in evidence(inside, dataflow)


def test_what_was_made_from_the_data_of_a_forced_run_says_so(dataflow: Program, db: Connection, inside: Inside) -> None:
    run = force_without_input(db)["run"]
    shown = answers(inside, dataflow, "sum", "1")
    assert (
        shown["correct"]
        == f"unknown: made from chunk 1 of squares, which run {run} wrote by force without its input numbers"
    )
    assert [shown[word].endswith("a forced run is behind it") for word in ("ready", "validated", "safe")] == [True] * 3
    marked = f"Forced:          made from chunk 1 of squares, which run {run} of job square wrote by force, without its"
    assert marked in inside.ask(dataflow, "describe", "chunk", "sums", "1").out
    assert f"Forced:          run {run} was forced, without" in inside.ask(dataflow, "describe", "run", str(run)).out
    listed = json.loads(inside.ask(dataflow, "get", "chunks", "-o", "json").out)
    assert [one["dataset"] for one in listed if one["forced"]] == ["squares"]


@pytest.mark.usefixtures("made")
def test_programs_get_each_answer_with_who_looked_and_when(dataflow: Program, inside: Inside) -> None:
    shown = json.loads(inside.ask(dataflow, "inspect", "square", "1", "-o", "json").out)
    assert [list(one) for one in shown["answers"]] == [["question", "answer", "qualification", "evidence"]] * 5
    assert {one["answer"] for one in shown["answers"]} == {"yes", "unknown"}
    assert {tuple(it) for one in shown["answers"] for it in one["evidence"]} == {("sentence", "who", "when", "what")}


def place_of(dsn: str, **changes: Any) -> dict[str, Any]:
    """The location of a table in the server of the tests."""
    at = conninfo_to_dict(dsn)
    address = f"{at['host']}:{at['port']}" if "port" in at else at["host"]
    return {"hostname": address, "database": at["dbname"], "username": at.get("user"), "tablename": "sq", **changes}


def with_password(dataflow: Program, dsn: str) -> Program:
    """The program with the password for the location of squares."""
    return replace(dataflow, more={"squares_password": str(conninfo_to_dict(dsn).get("password", ""))})


def test_a_check_looks_for_tables_and_paths_and_answers_with_time_and_host(
    dataflow: Program, db: Connection, inside: Inside, dsn: str, tmp_path: Path
) -> None:
    dataflow = with_password(dataflow, dsn)
    (tmp_path / "numbers").mkdir()
    (tmp_path / "numbers" / "1.csv").write_text("1")
    numbers = dataset("numbers", "1", "2") | {"url": str(tmp_path / "numbers")}
    apply(db, [numbers, dataset("squares") | place_of(dsn)], [job("square", ["numbers"], ["squares"])])
    [run] = claim(db, open_lease(db), "square")
    end(db, run, "DONE")
    answer = inside.ask(dataflow, "inspect", "square", "1", "--check")
    assert answer.code == ExitCode.FAILED
    assert "expected? No: the place of squares was not found.\n" in answer.out
    db.execute("CREATE TABLE sq (n integer)")
    answer = inside.ask(dataflow, "inspect", "square", "1", "--check")
    assert answer.code == ExitCode.OK
    assert "expected? Yes: its location exists" in answer.out
    assert f"`dataflow inspect --check` at {gethostname()}: {tmp_path}/numbers exists\n" in answer.out
    document = json.loads(inside.ask(dataflow, "inspect", "square", "1", "--check", "-o", "json").out)
    assert [(look["dataset"], look["found"]) for look in document["looks"]] == [("numbers", "yes"), ("squares", "yes")]


def test_a_check_of_a_chunk_that_is_not_made_yet_looks_at_the_connection_only(
    dataflow: Program, db: Connection, inside: Inside, dsn: str
) -> None:
    declare(db, **place_of(dsn, encryptedpass=None))
    answer = inside.ask(with_password(dataflow, dsn), "inspect", "square", "1", "--check")
    assert "answers; nothing is written yet, so only the connection was looked at" in answer.out


def test_a_check_of_a_host_that_does_not_exist_does_not_print_the_password(
    dataflow: Program, db: Connection, inside: Inside
) -> None:
    declare(db, hostname="nohost.invalid", encryptedpass=None)
    program = replace(dataflow, more={"squares_password": "s3cret"})
    answer = inside.ask(program, "inspect", "square", "1", "--check")
    assert answer.code == ExitCode.FAILED
    assert "nohost.invalid dw.sq does not answer" in answer.out
    assert "s3cret" not in answer.out + answer.err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("inspect", "square", "11"), "error: job square has no task for 11 (did you mean 1?)\n"),
        (("inspect", "squre", "1"), "error: there is no job squre (did you mean square?)\n"),
        (("describe", "job", "squre"), "error: there is no job squre (did you mean square?)\n"),
        (("describe", "dataset", "square"), "error: there is no data set square (did you mean squares?)\n"),
        (("describe", "chunk", "squares", "11"), "error: data set squares has no chunk 11 (did you mean 1?)\n"),
        (("describe", "chunk", "square", "1"), "error: there is no data set square (did you mean squares?)\n"),
        (("describe", "run", "99"), "error: there is no run 99: see `dataflow get runs`\n"),
    ],
)
def test_what_is_not_there_is_named(
    dataflow: Program, db: Connection, inside: Inside, arguments: tuple[str, ...], sentence: str
) -> None:
    declare(db)
    answer = inside.ask(dataflow, *arguments)
    assert (answer.code, answer.err) == (ExitCode.USAGE, sentence)


def test_a_data_set_is_described_with_what_people_did(dataflow: Program, inside: Inside, made: dict[str, Any]) -> None:
    assert made
    inside.ask(dataflow, "hold", "--dataset", "numbers", "2", "--reason", "audit")
    shown = inside.ask(dataflow, "describe", "dataset", "numbers").out
    assert "Read by:         square" in shown
    assert "Chunks:          1 HOLD, 1 READY" in shown
    assert "2  hold: READY -> HOLD" in shown
    assert ": audit" in shown


def test_a_chunk_is_described_with_its_maker_and_its_history(
    dataflow: Program, inside: Inside, made: dict[str, Any]
) -> None:
    shown = inside.ask(dataflow, "describe", "chunk", "squares", "1").out
    assert f"Made by:         square: DONE, run {made['run']}" in shown
    assert "complete: RUNNING -> READY" in shown
    assert "see: dataflow inspect square 1" in shown


def test_a_run_is_described_with_what_it_read_and_wrote(
    dataflow: Program, inside: Inside, made: dict[str, Any]
) -> None:
    shown = inside.ask(dataflow, "describe", "run", str(made["run"])).out
    assert f"Wrote:           squares version {made['fence']}  h1 dw.sq" in shown
    assert "Read:            numbers version" in shown
    assert "claim: QUEUED -> RUNNING" in shown


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_programs_get_all_of_it_and_no_ciphertext(
    dataflow: Program, inside: Inside, made: dict[str, Any], form: str
) -> None:
    for what in (("job", "square"), ("dataset", "squares"), ("chunk", "squares", "1"), ("run", str(made["run"]))):
        answer = inside.ask(dataflow, "describe", *what, "-o", form)
        assert answer.code == ExitCode.OK
        assert "events" in answer.out
        assert "sealed" not in answer.out


def test_a_job_that_is_given_other_data_sets_reports_where_its_new_ones_are(
    dataflow: Program, db: Connection, inside: Inside, made: dict[str, Any]
) -> None:
    assert made
    cubes = dataset("cubes") | {"hostname": "h3"}
    apply_allowing(db, [cubes], [job("square", ["numbers"], ["cubes"])], backfill="none")
    [run] = claim(db, open_lease(db), "square")
    end(db, run, "DONE")
    shown = inside.ask(dataflow, "inspect", "square", run["data_id"]).out
    assert "cubes is declared at h3, as it was for run" in shown
