"""Classify the end of a run from the observations of its launcher. Pure.

The first line of the table that applies counts. A launcher may have set the outcome itself, as for pods
(core/kubernetes/pod_outcome.py); then this outcome is used.

    observation                                         outcome
    --------------------------------------------------  -----------------------------------------------
    exit code 0, neither cancelled nor past its deadline  Success
    cancelled by a person                               Cancelled
    lost: its end is unknown                            Infrastructure, with the reason
    stopped at its deadline (also with exit code 0)     DeadlineExceeded
    report: a location is missing, or unit tests fail   NotStarted, with the sentence
    signal 9, not sent by the launcher                  Application, "killed by SIGKILL (out of memory?)"
    another signal                                      Application, with the signal's name
    another exit code                                   Application, with the failure from its report, else with the
                                                        last line of its output
    none of these                                       Infrastructure
"""

import re
import signal

from opendataflow.model.records.run import Ended, Outcome
from opendataflow.names import OutcomeClass

_LONGEST_LINE = 200
_LONGEST_SENTENCE = 600
_LONGEST_READ = 2048
"""The part of a line that is read: a program may write a megabyte without a line break."""
_TERMINAL_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_JAVA_FRAME = re.compile(r"at [^\s(]+\(.*\)|\.\.\. \d+ (more|common frames omitted)")
_MARKS = set("^~ ")
"""Characters of lines with which databases mark a place in the statement above."""


def judge(ended: Ended) -> Outcome:
    """Return the outcome of an ended run: its class, one line for people, and the exit code if there was one."""
    if ended.outcome is not None:
        return ended.outcome
    kind, message = _verdict(ended)
    return Outcome(kind=kind, message=message, exit_code=ended.exit_code)


def _verdict(ended: Ended) -> tuple[OutcomeClass, str]:
    if ended.exit_code == 0 and not ended.cancelled and not ended.deadline_exceeded:
        return OutcomeClass.SUCCESS, "exit code 0"
    if ended.cancelled:
        return OutcomeClass.CANCELLED, "cancelled"
    if ended.lost is not None:
        return OutcomeClass.INFRASTRUCTURE, f"lost: {ended.lost}"
    if ended.deadline_exceeded:
        return OutcomeClass.DEADLINE, "stopped at its deadline"
    if ended.report.not_started is not None:
        return OutcomeClass.NOT_STARTED, ended.report.not_started
    if ended.signal is not None:
        return OutcomeClass.APPLICATION, f"killed by {_signal_name(ended.signal)}"
    if ended.exit_code is not None:
        line = failure_line(ended.report.failure) if ended.report.failure else last_line(ended.log_tail)
        return OutcomeClass.APPLICATION, f"exit code {ended.exit_code}" + (f": {line}" if line else "")
    return OutcomeClass.INFRASTRUCTURE, "lost: it ended with neither an exit code nor a signal"


def _signal_name(number: int) -> str:
    if number == signal.SIGKILL:
        return "SIGKILL (out of memory?)"
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def failure_line(sentence: str) -> str:
    """Return the failure of a run's report as one line.

    It may be longer than a line of a log: it is written for people, and the remedy is at its end.
    """
    return last_line(sentence, _LONGEST_SENTENCE)


def last_line(log: str, longest: int = _LONGEST_LINE) -> str:
    """Return the last meaningful line, without colours and control characters.

    Frames of a Java stack are skipped. So are the marks that some databases print below a statement, together with the
    statement.
    """
    lines = [_readable(line[:_LONGEST_READ]) for line in _TERMINAL_SEQUENCE.sub("", log).splitlines()]
    lines = [line for line in lines if line and not _JAVA_FRAME.fullmatch(line)]
    for position, line in reversed(list(enumerate(lines))):
        marked = position + 1 < len(lines) and not set(lines[position + 1]) - _MARKS
        if set(line) - _MARKS and not marked:
            return line[:longest]
    return lines[-1][:longest] if lines else ""


def _readable(line: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in line).strip()
