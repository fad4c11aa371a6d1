"""Reports fit a terminal of 80 columns, and are not cut for programs."""

from io import StringIO

import pytest
from rich.console import Console

from opendataflow.cli.output.live import Display
from opendataflow.cli.output.printing import Output, print_indented, print_rows
from opendataflow.cli.output.screen import Screen, console
from opendataflow.model.records.claim import ClaimedRun, Completed, Completion
from opendataflow.model.records.run import Host
from opendataflow.names import OutcomeClass, RunState, TaskState
from tests.pods import NONCE

JOB = {"job": "load", "done": 3, "stale": 0, "failed": 0}


def test_an_indented_sentence_is_wrapped_at_the_width_of_the_terminal_and_stays_indented() -> None:
    file = StringIO()
    sentence = " ".join(["run 28, attempt 1, from 2026-11-29 19:39:30 +00:00"] * 3)
    print_indented(Screen(lambda: file, 80), sentence)
    lines = file.getvalue().splitlines()
    assert len(lines) == 3
    assert all(line.startswith("    ") and len(line) <= 80 for line in lines)
    assert " ".join(line.strip() for line in lines) == sentence


def test_a_sentence_for_a_program_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_indented(console(), "word " * 100)
    assert capsys.readouterr().out.count("\n") == 1


def test_a_table_leaves_out_optional_columns_without_values(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([JOB, {**JOB, "failed": 2}], Output.TABLE, list(JOB), "none", optional=("stale", "failed"))
    assert capsys.readouterr().out.splitlines()[0].split() == ["JOB", "DONE", "FAILED"]


def test_json_has_all_fields(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([JOB], Output.JSON, ["job"], "none", optional=("stale",))
    assert '"stale": 0' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (OutcomeClass.NOT_STARTED, "GIVEN_BACK  no file; it is looked at again, which consumes no retry"),
        (OutcomeClass.INFRASTRUCTURE, "LOST  no file; tried again in 10 s"),
    ],
)
def test_a_run_whose_location_is_missing_is_looked_at_again_and_has_no_known_pause(
    kind: OutcomeClass, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ClaimedRun(1, "load", "a", 7, 1, 0, 0, {}, "lease", Host("h", "boot"), "/runs", NONCE)
    delay = 0.0 if kind is OutcomeClass.NOT_STARTED else 10.0
    ended = Completion(1, 7, TaskState.RETRYING, RunState.LOST, kind, "no file", delay=delay)
    result = Completed(1, RunState.LOST, TaskState.RETRYING, already=False, spared=False, breaker=None)
    Display(Console(width=200), ["load"]).completed(ended, run, result)
    assert words in capsys.readouterr().out
