"""Render the report of a pipeline's run within a size: a termination message of 4 KiB, or a file. Pure.

The content of a report: core/pipelines/report.py. Too long reports lose their least important parts first, and stay
valid: output of steps, details of expectations that hold, ends of long sentences, steps far from the failed one, and
expectations.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from opendataflow.core.pipelines.expectations import ExpectationResult
from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.pipelines.report import LONGEST_NAME, MOST_EXPECTATIONS, MOST_STEPS
from opendataflow.names import StepStatus

_SIZES = (16 * 1024, 4 * 1024, 1024, 256, 0)
"""Lengths for a step's output and traceback, tried in order."""
_SENTENCES = (2000, 500, 120)
Fields = Mapping[str, Any]


def render_report(fields: Fields, steps: Sequence[Step], results: Sequence[ExpectationResult], largest: int) -> str:
    """Return the report as JSON of at most `largest` bytes, which is 2000 or more.

    `fields`: all fields except steps and expectations. A field with the value None is left out.
    """
    known = {name: value for name, value in fields.items() if value is not None}
    stored = b""
    for form in _shrink(known, steps, results):
        stored = json.dumps(form, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        if len(stored) <= largest:
            break
    return stored.decode()


def _shrink(fields: Fields, steps: Sequence[Step], results: Sequence[ExpectationResult]) -> Iterator[Fields]:
    """Yield forms of a report, each one smaller than the previous one."""
    most, of_held, of_unmet, sentence = min(len(steps), MOST_STEPS), MOST_EXPECTATIONS, MOST_EXPECTATIONS, _SENTENCES[0]
    for output in _SIZES:
        expectations = _render_expectations(results, of_held, of_unmet, sentence)
        yield _join(fields, _render_steps(steps, most, output, sentence), expectations)
    for sentence in _SENTENCES:
        brief = _render_expectations(results, of_held, of_unmet, sentence, words=False)
        yield _join(fields, _render_steps(steps, most, 0, sentence), brief, sentence)
    while most > 1:
        most = max(most * 3 // 4, 1)
        yield _join(fields, _render_steps(steps, most, 0, sentence), brief, sentence)
    while of_held or of_unmet > 1:
        of_held, of_unmet = of_held // 2, max(of_unmet // 2, 1)
        brief = _render_expectations(results, of_held, of_unmet, sentence, words=False)
        yield _join(fields, _render_steps(steps, most, 0, sentence), brief, sentence)
    yield _join(fields, [], {}, sentence)


def _join(fields: Fields, steps: list[Any], expectations: Fields, sentence: int = _SENTENCES[0]) -> Fields:
    cut = {"failure": str(fields["failure"]).strip()[:sentence]} if "failure" in fields else {}
    lists = {"steps": steps, "expectations": expectations}
    return {**fields, **cut, **{name: value for name, value in lists.items() if value}}


def _render_steps(steps: Sequence[Step], most: int, output: int, sentence: int) -> list[Any]:
    """Return at most `most` steps around the failed or running one, else around the last one."""
    open_ones = (index for index, step in enumerate(steps) if step.status is not StepStatus.DONE)
    centre = next(open_ones, len(steps) - 1)
    kept = sorted(sorted(range(len(steps)), key=lambda index: abs(index - centre))[:most])
    rendered: list[Any] = []
    for before, index in pairwise([-1, *kept]):
        if index - before > 1:
            rendered.append(index - before - 1)
        rendered.append(_render_step(steps[index], output, sentence))
    return rendered


def _render_step(step: Step, output: int, sentence: int) -> list[Any]:
    first, _, rest = (step.error or "").partition("\n")
    error = f"{first[:sentence]}\n{_last_lines(rest, output)}" if rest and output else first[:sentence]
    seconds = None if step.seconds is None else round(step.seconds, 2)
    stdout = _last_lines(step.stdout, output)
    fields = [step.name[:LONGEST_NAME], str(step.status), step.rows, seconds, error or None, stdout or None]
    while fields[-1] is None:
        fields.pop()
    return fields


def _last_lines(text: str, letters: int) -> str:
    """Return the last complete lines of a text. Redaction could miss a secret in half a line. A long line is cut."""
    if len(text) <= letters:
        return text
    end = text[-letters:] if letters else ""
    return end.partition("\n")[2] or end


def _render_expectations(
    results: Sequence[ExpectationResult], of_held: int, of_unmet: int, sentence: int, *, words: bool = True
) -> dict[str, Any]:
    """Return the expectations by name. Of two with one name, one that does not hold is kept.

    `words`: include the findings of expectations that hold.
    """
    held = [it for it in results if it.held][:of_held]
    unmet = sorted((it for it in results if not it.held), key=lambda it: not it.fails)[:of_unmet]
    rendered: dict[str, Any] = {}
    for it in (*held, *reversed(unmet)):
        severity = {} if it.severity == "fail" else {"severity": it.severity}
        if not it.held:
            rendered[it.name[:LONGEST_NAME]] = {"held": False, **severity, "found": it.found[:sentence]}
        else:
            found = {"found": it.found[:sentence]} if words else {}
            rendered[it.name[:LONGEST_NAME]] = {**severity, **found} or True
    return rendered
