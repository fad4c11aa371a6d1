"""Writes what a pipeline's run tells of its work, so that it fits into a termination message of 4 KiB, or a file. Pure.

What is said is in core/pipelines/report.py. What does not fit is left out, the least important first, and what is
left is valid at every size: what steps have printed, the words of expectations that hold, the ends of long sentences,
steps far from the one that matters, and expectations.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from opendataflow.core.pipelines.expectations import Checked
from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.pipelines.report import LONGEST_NAME, MOST_EXPECTATIONS, MOST_STEPS
from opendataflow.names import StepStatus

_SIZES = (16 * 1024, 4 * 1024, 1024, 256, 0)
"""How much of what a step has printed, and of its traceback, is told: as much as fits."""
_SENTENCES = (2000, 500, 120)
Told = Mapping[str, Any]


def report_text(told: Told, steps: Sequence[Step], checked: Sequence[Checked], largest: int) -> str:
    """Return the report as JSON of at most `largest` bytes, 2000 or more. `told`: everything but the steps and what was
    expected; what is None is not told."""
    known = {name: value for name, value in told.items() if value is not None}
    stored = b""
    for poorer in _poorer(known, steps, checked):
        stored = json.dumps(poorer, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        if len(stored) <= largest:
            break
    return stored.decode()


def _poorer(told: Told, steps: Sequence[Step], checked: Sequence[Checked]) -> Iterator[Told]:
    """All forms of a report, each smaller than the one before."""
    most, of_held, of_unmet, sentence = min(len(steps), MOST_STEPS), MOST_EXPECTATIONS, MOST_EXPECTATIONS, _SENTENCES[0]
    for output in _SIZES:
        yield _told(told, _steps(steps, most, output, sentence), _expectations(checked, of_held, of_unmet, sentence))
    for sentence in _SENTENCES:
        brief = _expectations(checked, of_held, of_unmet, sentence, words=False)
        yield _told(told, _steps(steps, most, 0, sentence), brief, sentence)
    while most > 1:
        most = max(most * 3 // 4, 1)
        yield _told(told, _steps(steps, most, 0, sentence), brief, sentence)
    while of_held or of_unmet > 1:
        of_held, of_unmet = of_held // 2, max(of_unmet // 2, 1)
        brief = _expectations(checked, of_held, of_unmet, sentence, words=False)
        yield _told(told, _steps(steps, most, 0, sentence), brief, sentence)
    yield _told(told, [], {}, sentence)


def _told(told: Told, steps: list[Any], expectations: Told, sentence: int = _SENTENCES[0]) -> Told:
    cut = {"failure": str(told["failure"]).strip()[:sentence]} if "failure" in told else {}
    beside = {"steps": steps, "expectations": expectations}
    return {**told, **cut, **{name: value for name, value in beside.items() if value}}


def _steps(steps: Sequence[Step], most: int, output: int, sentence: int) -> list[Any]:
    """At most so many steps, nearest to the one that matters: that which has failed, or runs, else the last one."""
    open_ones = (index for index, step in enumerate(steps) if step.status is not StepStatus.DONE)
    centre = next(open_ones, len(steps) - 1)
    kept = sorted(sorted(range(len(steps)), key=lambda index: abs(index - centre))[:most])
    told: list[Any] = []
    for before, index in pairwise([-1, *kept]):
        if index - before > 1:
            told.append(index - before - 1)
        told.append(_step(steps[index], output, sentence))
    return told


def _step(step: Step, output: int, sentence: int) -> list[Any]:
    first, _, rest = (step.error or "").partition("\n")
    error = f"{first[:sentence]}\n{_end(rest, output)}" if rest and output else first[:sentence]
    seconds = None if step.seconds is None else round(step.seconds, 2)
    stdout = _end(step.stdout, output)
    told = [step.name[:LONGEST_NAME], str(step.status), step.rows, seconds, error or None, stdout or None]
    while told[-1] is None:
        told.pop()
    return told


def _end(text: str, letters: int) -> str:
    """The end of a text, of whole lines: in half of one nobody could find a secret. An endless line is cut."""
    if len(text) <= letters:
        return text
    end = text[-letters:] if letters else ""
    return end.partition("\n")[2] or end


def _expectations(
    checked: Sequence[Checked], of_held: int, of_unmet: int, sentence: int, *, words: bool = True
) -> dict[str, Any]:
    """The expectations by name; of two with one name the one that does not hold. `words`: with what was found, also for
    those that hold."""
    held = [it for it in checked if it.held][:of_held]
    unmet = sorted((it for it in checked if not it.held), key=lambda it: not it.fails)[:of_unmet]
    told: dict[str, Any] = {}
    for it in (*held, *reversed(unmet)):
        severity = {} if it.severity == "fail" else {"severity": it.severity}
        if not it.held:
            told[it.name[:LONGEST_NAME]] = {"held": False, **severity, "found": it.found[:sentence]}
        else:
            found = {"found": it.found[:sentence]} if words else {}
            told[it.name[:LONGEST_NAME]] = {**severity, **found} or True
    return told
