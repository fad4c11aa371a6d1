"""Judges how a run ended. Pure: it sees what the launcher saw and never asks anybody.

The first line that applies counts, where the launcher has not judged it itself (core/kubernetes/pod_outcome.py):

    what was seen                                       outcome
    --------------------------------------------------  -----------------------------------------------
    exit code 0, neither cancelled nor past its deadline  Success
    cancelled by a person                               Cancelled
    lost: nobody can tell how it ended                  Infrastructure, with the reason
    stopped at its deadline (also with exit code 0)     DeadlineExceeded
    its report says that its project's tests fail       NotStarted, with the sentence
    signal 9 that was not ours                          Application, "killed by SIGKILL (out of memory?)"
    another signal                                      Application, with the signal's name
    another exit code                                   Application, with the failure that its report tells, else
                                                        the last line of its output
    nothing at all                                      Infrastructure
"""

import re
import signal

from opendataflow.model.records.run import Ended, Outcome
from opendataflow.names import OutcomeClass

_LONGEST_LINE = 200
_LONGEST_SENTENCE = 600
_TERMINAL_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_JAVA_FRAME = re.compile(r"at \S+\(.*\)|\.\.\. \d+ (more|common frames omitted)")
_MARKS = set("^~ ")


def judge(ended: Ended) -> Outcome:
    """Return the verdict on an ended run, with one line for people and the exit code where there was one."""
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
    if ended.report.untested is not None:
        return OutcomeClass.NOT_STARTED, ended.report.untested
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
    """Return the sentence that a run's report says why it has failed with. It is longer than a line of a log may be: it
    was meant to be read, and says at its end what to do."""
    return last_line(sentence, _LONGEST_SENTENCE)


def last_line(log: str, longest: int = _LONGEST_LINE) -> str:
    """Return the last line that says something, without colours and control characters.

    Nothing is said by a frame of a Java stack, nor by the marks that some databases put below a statement, with it.
    """
    lines = [_readable(line) for line in _TERMINAL_SEQUENCE.sub("", log).splitlines()]
    lines = [line for line in lines if line and not _JAVA_FRAME.fullmatch(line)]
    for position, line in reversed(list(enumerate(lines))):
        marked = position + 1 < len(lines) and not set(lines[position + 1]) - _MARKS
        if set(line) - _MARKS and not marked:
            return line[:longest]
    return lines[-1][:longest] if lines else ""


def _readable(line: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in line).strip()
