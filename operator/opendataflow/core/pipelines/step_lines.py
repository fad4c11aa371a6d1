"""The lines about steps in the log of a run, and finding the part of a log that is about one of them. Pure.

step 2/4 arrived: begins
    what it prints
step 2/4 arrived: DONE, 118 rows, 0.31 s
step 3/4 by_carrier: FAILED after 0.02 s: pipelines/delays/by_carrier.py, line 9: KeyError: 'day'
    its traceback
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.text.explain import counted
from opendataflow.names import StepStatus

_LINE = re.compile(r"step (\d+)/\d+ (.*?): (begins|DONE|FAILED|its rows|printed)")
Say = Callable[[str], None]


class StepLines:
    """Says what has changed since the last look at the steps of a run. `say`: prints a line."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._status: dict[int, StepStatus] = {}
        self._rows: dict[int, int | None] = {}
        self._printed: dict[int, str] = {}

    def show(self, steps: Sequence[Step]) -> None:
        """Say it."""
        for index, step in enumerate(steps):
            name = f"step {index + 1}/{len(steps)} {step.name}"
            if self._status.get(index, StepStatus.WAITING) is not step.status:
                self._status[index] = step.status
                self._turned(name, index, step)
            elif step.status is StepStatus.DONE:
                self._later(name, index, step)

    def _turned(self, name: str, index: int, step: Step) -> None:
        if step.status is StepStatus.RUNNING:
            self._say(f"{name}: begins")
            return
        took = "" if step.seconds is None else f"{step.seconds:.2f} s"
        if step.status is StepStatus.DONE:
            rows = "" if step.rows is None else f", {counted(step.rows, 'row')}"
            self._say(f"{name}: DONE{rows}, {took}")
            self._rows[index], self._printed[index] = step.rows, step.stdout
        elif step.status is StepStatus.FAILED:
            first, _, rest = (step.error or "").partition("\n")
            self._say(f"{name}: FAILED after {took}: {first}")
            self._indented(rest)

    def _later(self, name: str, index: int, step: Step) -> None:
        """What is known only when all is done: rows that have passed at the write, and what was printed elsewhere."""
        if step.rows != self._rows[index]:
            self._rows[index] = step.rows
            self._say(f"{name}: its rows: {step.rows}")
        before = self._printed[index]
        if step.stdout != before:
            self._printed[index] = step.stdout
            self._say(f"{name}: printed on workers:")
            self._indented(step.stdout.removeprefix(before))

    def _indented(self, text: str) -> None:
        for line in text.splitlines():
            self._say(f"    {line}")


def lines_of_step(log: Iterable[str], wanted: str) -> Iterator[str]:
    """Return the lines of a log that are about one step, by its name: from each line that names it to the next that
    names another one."""
    inside = False
    for line in log:
        found = _LINE.match(line)
        if found is not None:
            inside = found[2] == wanted
        if inside:
            yield line


def steps_in(log: Iterable[str]) -> list[str]:
    """Return the names of the steps that a log knows, in their order."""
    return list(dict.fromkeys(found[2] for found in map(_LINE.match, log) if found is not None))
