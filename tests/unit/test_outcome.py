"""How a run ended decides which budget a failure consumes, and what people read."""

import signal
from typing import Any

import pytest

from opendataflow.core.runs.outcome import judge
from opendataflow.model.records.run import Ended, Report
from opendataflow.names import OutcomeClass


@pytest.mark.parametrize(
    ("seen", "kind", "message"),
    [
        ({"exit_code": 0}, OutcomeClass.SUCCESS, "exit code 0"),
        ({"exit_code": 0, "cancelled": True}, OutcomeClass.CANCELLED, "cancelled"),
        ({"exit_code": 0, "deadline_exceeded": True}, OutcomeClass.DEADLINE, "stopped at its deadline"),
        ({"signal": 15, "cancelled": True}, OutcomeClass.CANCELLED, "cancelled"),
        ({"lost": "host gone", "cancelled": True}, OutcomeClass.CANCELLED, "cancelled"),
        ({"deadline_exceeded": True, "cancelled": True}, OutcomeClass.CANCELLED, "cancelled"),
        ({"lost": "host gone"}, OutcomeClass.INFRASTRUCTURE, "lost: host gone"),
        ({"lost": "host gone", "signal": 9}, OutcomeClass.INFRASTRUCTURE, "lost: host gone"),
        ({"lost": "host gone", "deadline_exceeded": True}, OutcomeClass.INFRASTRUCTURE, "lost: host gone"),
        ({"signal": 9, "deadline_exceeded": True}, OutcomeClass.DEADLINE, "stopped at its deadline"),
        ({"exit_code": 3, "deadline_exceeded": True}, OutcomeClass.DEADLINE, "stopped at its deadline"),
        ({"signal": 9}, OutcomeClass.APPLICATION, "killed by SIGKILL (out of memory?)"),
        ({"signal": 11}, OutcomeClass.APPLICATION, "killed by SIGSEGV"),
        (
            {"signal": signal.SIGRTMIN + 2},
            OutcomeClass.APPLICATION,
            f"killed by signal {signal.SIGRTMIN + 2}",
        ),
        ({"exit_code": 3}, OutcomeClass.APPLICATION, "exit code 3"),
        ({"exit_code": 3, "log_tail": "bye\n"}, OutcomeClass.APPLICATION, "exit code 3: bye"),
        (
            {"exit_code": 3, "log_tail": "bye\n", "report": Report({"failure": f"{'so ' * 100}do this"})},
            OutcomeClass.APPLICATION,
            f"exit code 3: {'so ' * 100}do this",
        ),
        ({}, OutcomeClass.INFRASTRUCTURE, "lost: it ended with neither an exit code nor a signal"),
    ],
)
def test_the_first_line_of_the_table_that_applies_counts(
    seen: dict[str, Any], kind: OutcomeClass, message: str
) -> None:
    outcome = judge(Ended(run=1, **seen))
    assert (outcome.kind, outcome.message, outcome.exit_code) == (kind, message, seen.get("exit_code"))


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("starting\nno such table\n\n  \n", "no such table"),
        ("\x1b[31mno such\0 table\x1b[0m\n\x1b[0m\n", "no such  table"),
        ("10 %\r20 %\r", "20 %"),
        ("x" * 300, "x" * 200),
        ("größe\u2028Ende", "Ende"),
        (
            'relation "x" does not exist\nLINE 1: SELECT * FROM x\n                      ^\n',
            'relation "x" does not exist',
        ),
        ("    x = 1 / 0\n        ~~^~~\nZeroDivisionError: division by zero\n", "ZeroDivisionError: division by zero"),
        (
            "Caused by: java.io.IOException: full\n\tat a.B.c(D.java:5)\n\t... 12 more\n",
            "Caused by: java.io.IOException: full",
        ),
        ("^\n", "^"),
    ],
)
def test_a_failure_shows_the_last_line_that_can_be_read(log: str, line: str) -> None:
    assert judge(Ended(run=1, exit_code=3, log_tail=log)).message == f"exit code 3: {line}"


def test_a_log_of_blanks_adds_nothing() -> None:
    assert judge(Ended(run=1, exit_code=1, log_tail="\n \n")).message == "exit code 1"
