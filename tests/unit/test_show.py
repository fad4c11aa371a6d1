"""How answers look: tables for people, documents for programs, the lines of a job's status."""

import io
import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

import opendataflow.cli
from opendataflow.cli.output.printing import Output, echo, print_indented, print_rows
from opendataflow.cli.output.screen import Screen, Text, console
from opendataflow.cli.reports.status import print_status
from opendataflow.core.text.progress import status_lines
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.stdio import visible, write_line

COLUMNS = ("data_id", "reason")
ROW: dict[str, Any] = {"data_id": "2013", "reason": "late", "fence": 7, "at": datetime(2013, 2, 1, 12, tzinfo=UTC)}


def printed(capsys: pytest.CaptureFixture[str], found: list[dict[str, Any]], output: Output = Output.TABLE) -> str:
    print_rows(found, output, COLUMNS, "no chunks")
    return capsys.readouterr().out


def test_a_table_shows_the_columns_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    head, line = printed(capsys, [ROW]).splitlines()
    assert head.split() == ["DATA", "ID", "REASON"]
    assert line.split() == ["2013", "late"]


@pytest.mark.parametrize("nothing", [None, ""])
def test_a_cell_with_nothing_in_it_shows_a_dash(capsys: pytest.CaptureFixture[str], nothing: str | None) -> None:
    assert printed(capsys, [{**ROW, "reason": nothing}]).splitlines()[1].split() == ["2013", "-"]


def test_a_table_that_no_terminal_shows_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 3000
    assert long in printed(capsys, [{**ROW, "reason": long}])


@pytest.mark.parametrize("text", ["[red]7[/red]", "[/]", ":smile:", "[bold"])
def test_data_is_shown_as_it_is(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert text in printed(capsys, [{**ROW, "data_id": text}])


def test_an_empty_table_is_a_word_on_stderr_and_nothing_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([], Output.TABLE, COLUMNS, "no jobs: dataflow apply -f FILE")
    assert capsys.readouterr() == ("", "no jobs: dataflow apply -f FILE\n")


def test_json_has_all_fields_and_times_in_iso_format(capsys: pytest.CaptureFixture[str]) -> None:
    [row] = json.loads(printed(capsys, [ROW], Output.JSON))
    assert row == {"data_id": "2013", "reason": "late", "fence": 7, "at": "2013-02-01T12:00:00+00:00"}


def test_yaml_says_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    as_yaml = yaml.safe_load(printed(capsys, [ROW], Output.YAML))
    assert as_yaml == json.loads(printed(capsys, [ROW], Output.JSON))


@pytest.mark.parametrize("output", [Output.JSON, Output.YAML])
def test_documents_keep_letters_readable(capsys: pytest.CaptureFixture[str], output: Output) -> None:
    assert "flüge 日本" in printed(capsys, [{"data_id": "flüge 日本"}], output)


@pytest.mark.parametrize("output", [Output.JSON, Output.YAML])
def test_nothing_found_is_an_empty_list(capsys: pytest.CaptureFixture[str], output: Output) -> None:
    assert printed(capsys, [], output) == "[]\n"


def test_the_closest_name_is_proposed() -> None:
    assert did_you_mean("2013-2", ["2013-01", "2013-02"]) in (" (did you mean 2013-02?)", " (did you mean 2013-01?)")
    assert did_you_mean("raw", ["rawx", "a/raw", "b/raw"]) == " (did you mean a/raw or b/raw?)"
    assert did_you_mean("sqare", ["sum", "square"]) == " (did you mean square?)"


def test_without_a_close_name_some_are_listed() -> None:
    assert did_you_mean("x", ["aa", "bb", "cc", "dd"]) == " (known: aa, bb, cc …)"
    assert did_you_mean("x", ["aa", "bb"]) == " (known: aa, bb)"


def test_where_nothing_is_known_nothing_is_proposed() -> None:
    assert did_you_mean("x", []) == ""


# Status --------------------------------------------------------------------------------------------------


def job_status(**changes: Any) -> dict[str, Any]:
    """The answer of opendataflow.job_status() for a job that has not begun."""
    return {
        "job": "load",
        "parallelism": 2,
        "suspended": False,
        "breaker": None,
        "tests": None,
        "preflight": None,
        "missing": None,
        "unmanaged_namespaces": [],
        "limits": [],
        "deleted": False,
        "counts": {"QUEUED": 4},
        "stale": 0,
        "stale_examples": [],
        "next_due": None,
        "running": [],
        "failed": [],
        "waiting": [],
        "gaps": 0,
        "sample": 1000,
        "gap_examples": [],
        "incomplete": [],
        "watermark": None,
        "per_minute": None,
        "eta_seconds": None,
        **changes,
    }


def shown(status: dict[str, Any]) -> list[str]:
    file = io.StringIO()
    print_status(Screen(lambda: file), status)
    return file.getvalue().splitlines()


def test_the_first_line_counts_what_is_there() -> None:
    counts = {"DONE": 2, "FAILED": 1, "RETRYING": 0, "WAITING": 5}
    assert shown(job_status(counts=counts)) == ["load   2 of 8 done, 5 WAITING, 1 FAILED   parallelism 2"]


def test_a_limit_of_the_engine_is_named_below_the_parallelism_of_the_job() -> None:
    limit = {"host": "laptop", "slots": 2, "parallelism": 4, "jobs": 1}
    assert shown(job_status(limits=[limit]))[1] == (
        "  limit      at most 2 runs at a time at laptop, of the 4 that its jobs allow: "
        "dataflow local --parallelism changes that"
    )


def test_done_is_never_reported_without_what_is_stale() -> None:
    stale = job_status(counts={"DONE": 8}, stale=4, stale_examples=["1", "2", "5"], watermark="9")
    assert shown(stale) == [
        "load   8 of 8 done, 4 stale   parallelism 2",
        "  watermark  all done up to 9, stale ones included",
        (
            "  stale      4 chunks (1, 2, 5 …) were made from an older version of an input or of the job; to rebuild: "
            "dataflow resubmit load --stale"
        ),
    ]


def test_a_suspended_job_says_so() -> None:
    assert shown(job_status(suspended=True))[0].endswith("parallelism 2, suspended")


def test_a_job_without_chunks_has_a_status_too() -> None:
    assert shown(job_status(counts={})) == ["load   0 of 0 done   parallelism 2"]


def test_a_job_that_has_not_begun_has_one_line() -> None:
    assert status_lines(job_status()) == []


def test_the_rate_comes_with_the_time_that_is_left() -> None:
    assert status_lines(job_status(per_minute=0.5, eta_seconds=2_419_200)) == [
        "rate       30 an hour, about 28 days left"
    ]


def test_where_all_that_is_left_waits_for_others_no_time_is_reported() -> None:
    stuck = job_status(counts={"DONE": 3, "WAITING": 1}, per_minute=30, eta_seconds=2)
    assert status_lines(stuck) == ["rate       30 a minute"]


def test_the_watermark_comes_with_the_gaps_after_it() -> None:
    assert status_lines(job_status(watermark="2013-05")) == ["watermark  all done up to 2013-05"]
    assert status_lines(job_status(watermark="2013-05", gaps=1, gap_examples=["2013-06"])) == [
        "watermark  all done up to 2013-05; after it 1 gap: 2013-06"
    ]


def test_gaps_at_the_very_start_have_no_watermark() -> None:
    assert status_lines(job_status(gaps=12, gap_examples=["1", "2"])) == ["gaps       12 gaps: 1, 2 …"]


def test_what_runs_is_reported_with_its_time() -> None:
    run = {"run": 3, "data_id": "2013", "attempt": 2, "seconds": 754}
    assert status_lines(job_status(running=[run])) == ["running    2013, attempt 2, for 13 min"]


def test_the_next_retry_is_reported() -> None:
    assert status_lines(job_status(next_due=7.26)) == ["retry      the next in 7.3 s"]
    assert status_lines(job_status(next_due=0)) == ["retry      the next now"]


def test_failures_come_by_reason_with_the_command_that_helps() -> None:
    group = {"reason": "no retries left (2 allowed): exit code 1: oops", "chunks": 2, "examples": ["a b", "c"]}
    other = {"reason": "killed", "chunks": 1, "examples": ["d"]}
    assert status_lines(job_status(failed=[group, other], counts={"FAILED": 3})) == [
        "failed     2 chunks (a b, c): no retries left (2 allowed): exit code 1: oops",
        "failed     1 chunk (d): killed",
        "           when the cause is fixed: dataflow resubmit load 'a b' c d",
    ]


def test_where_failures_are_too_many_to_name_the_command_is_for_all_that_failed() -> None:
    group = {"reason": "oops", "chunks": 6, "examples": ["a", "b", "c"]}
    assert status_lines(job_status(failed=[group], counts={"FAILED": 6})) == [
        "failed     6 chunks (a, b, c …): oops",
        "           when the cause is fixed: dataflow resubmit load --failed",
    ]


def test_of_big_jobs_only_the_first_failures_and_gaps_are_looked_at() -> None:
    group = {"reason": "oops", "chunks": 793, "examples": ["1", "2", "3"]}
    big = job_status(counts={"FAILED": 70_000}, failed=[group], gaps=1000, gap_examples=["1", "2"])
    assert status_lines(big)[:2] == [
        "gaps       at least 1000 gaps: 1, 2 …",
        "failed     at least 793 chunks (1, 2, 3 …): oops",
    ]


def test_what_waits_is_reported_with_where_to_look_on() -> None:
    group = {"dataset": "orders", "itemtype": "IN", "status": "FAILED", "chunks": 1, "examples": ["2013"]}
    assert status_lines(job_status(waiting=[group])) == [
        "waiting    1 chunk (2013): input orders is FAILED (not usable)",
        "           see: dataflow why load 2013",
    ]


def test_what_is_being_made_needs_no_look() -> None:
    group = {"dataset": "orders", "itemtype": "IN", "status": "RUNNING", "chunks": 2, "examples": ["1", "2"]}
    assert status_lines(job_status(waiting=[group])) == [
        "waiting    2 chunks (1, 2): input orders is RUNNING (being written)"
    ]


def test_names_in_a_status_are_shown_as_they_are() -> None:
    assert shown(job_status(job="[red]:smile:", watermark="[/]"))[1:] == ["  watermark  all done up to [/]"]


def test_an_open_breaker_comes_first() -> None:
    breaker = {
        "opened_at": "2013-02-01T03:00:00+00:00",
        "chunks": 5,
        "message": "exit code 1: no answer",
        "probes": 2,
        "probe": 17,
        "next_in_seconds": 0,
    }
    line, *others = status_lines(job_status(breaker=breaker, watermark="2013-05", next_due=0))
    assert not any(other.startswith("retry") for other in others), "the breaker names the next probe"
    assert line.startswith("breaker    open since 2013-0")
    assert line.endswith("the last with: exit code 1: no answer; 2 probes failed since then; run 17 is its probe")


def test_missing_locations_are_reported_with_the_first_chunks_that_wait_for_them() -> None:
    missing = {"chunks": 4, "lasting": 0, "examples": ["1", "2", "3"], "reason": "there is no in/1.csv"}
    gate, chunks = status_lines(job_status(missing=missing, preflight={"failure": "there is no table t"}))[:2]
    assert gate.startswith("location   there is no table t; no run of the job starts until this location is there")
    assert chunks == (
        "missing    4 chunks wait for their locations (1, 2, 3 …), which consumes no retry: there is no in/1.csv"
    )


# Control characters and bidirectional overrides

ESCAPED = ("\x1b]0;x\x07\x7f\x9b\u202e", r"\x1b]0;x\x07\x7f\x9b\u202e")
"""What a text contains, and what a person sees."""


def test_a_table_shows_escapes_of_a_terminal_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    raw, seen = ESCAPED
    line = printed(capsys, [{**ROW, "data_id": f"a{raw}", "reason": f"b{raw}"}]).splitlines()[1]
    assert line.split() == [f"a{seen}", f"b{seen}"]


@pytest.mark.parametrize("output", [Output.JSON, Output.YAML])
def test_documents_escape_what_a_terminal_would_obey(capsys: pytest.CaptureFixture[str], output: Output) -> None:
    raw, _ = ESCAPED
    text = printed(capsys, [{"data_id": raw, raw: "a"}], output)
    assert [sign for sign in raw if not sign.isprintable() and sign in text] == []
    assert yaml.safe_load(text) == [{"data_id": raw, raw: "a"}]


def test_lines_texts_and_parts_of_texts_show_escapes_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    raw, seen = ESCAPED
    echo(f"a{raw}")
    console().print(f"b{raw}")
    console().print(Text(f"c{raw}").append(f"d{raw}", "bold"))
    print_indented(console(), f"e{raw}")
    assert capsys.readouterr().out == f"a{seen}\nb{seen}\nc{seen}d{seen}\n    e{seen}\n"


def test_errors_show_escapes_as_text() -> None:
    raw, seen = ESCAPED
    write_line(stream := io.StringIO(), f"error: {raw}")
    assert stream.getvalue() == f"error: {seen}\n"


@pytest.mark.parametrize(("text", "seen"), [("a\n\tb\r\nc", "a\n\tb\r\nc"), ("50%\r60%\r\n", "50%\\x0d60%\r\n")])
def test_ends_of_lines_and_tabs_stay_but_no_text_overwrites_another(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_only_one_folder_prints_what_comes_from_others() -> None:
    printing = re.compile(r"typer\.echo|(?<![.\w])print\(|sys\.stdout\.write")
    cli = Path(opendataflow.cli.__file__).parent
    files = [file for file in cli.rglob("*.py") if printing.search(file.read_text("utf-8"))]
    assert {str(file.relative_to(cli)) for file in files} == {
        "administration/crypt.py",  # a decrypted password, as it is
        "output/printing.py",
        "output/screen.py",
    }
