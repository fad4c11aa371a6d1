"""Lines about steps in the log of a run: write them, and filter a log by step. Pure.

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
WriteLine = Callable[[str], None]


class StepLines:
    """Writes lines about changes of a run's steps. `write_line`: writes one line of the log."""

    def __init__(self, write_line: WriteLine) -> None:
        self._write_line = write_line
        self._status: dict[int, StepStatus] = {}
        self._rows: dict[int, int | None] = {}
        self._printed: dict[int, str] = {}

    def show(self, steps: Sequence[Step]) -> None:
        """Write lines about all changes since the last call."""
        for index, step in enumerate(steps):
            name = f"step {index + 1}/{len(steps)} {step.name}"
            if self._status.get(index, StepStatus.WAITING) is not step.status:
                self._status[index] = step.status
                self._show_status(name, index, step)
            elif step.status is StepStatus.DONE:
                self._show_late_facts(name, index, step)

    def _show_status(self, name: str, index: int, step: Step) -> None:
        if step.status is StepStatus.RUNNING:
            self._write_line(f"{name}: begins")
            return
        took = "" if step.seconds is None else f"{step.seconds:.2f} s"
        if step.status is StepStatus.DONE:
            rows = "" if step.rows is None else f", {counted(step.rows, 'row')}"
            self._write_line(f"{name}: DONE{rows}, {took}")
            self._rows[index], self._printed[index] = step.rows, step.stdout
        elif step.status is StepStatus.FAILED:
            first, _, rest = (step.error or "").partition("\n")
            self._write_line(f"{name}: FAILED after {took}: {first}")
            self._write_indented(rest)

    def _show_late_facts(self, name: str, index: int, step: Step) -> None:
        """Write what is known only after the write: row counts, and output of workers."""
        if step.rows != self._rows[index]:
            self._rows[index] = step.rows
            self._write_line(f"{name}: its rows: {step.rows}")
        before = self._printed[index]
        if step.stdout != before:
            self._printed[index] = step.stdout
            self._write_line(f"{name}: printed on workers:")
            self._write_indented(step.stdout.removeprefix(before))

    def _write_indented(self, text: str) -> None:
        for line in text.splitlines():
            self._write_line(f"    {line}")


def filter_step_lines(log: Iterable[str], wanted: str) -> Iterator[str]:
    """Yield the lines of a log about one step: from each line that names the step to the next line of another one."""
    inside = False
    for line in log:
        found = _LINE.match(line)
        if found is not None:
            inside = found[2] == wanted
        if inside:
            yield line


def list_logged_steps(log: Iterable[str]) -> list[str]:
    """Return the names of the steps in a log, in order."""
    return list(dict.fromkeys(found[2] for found in map(_LINE.match, log) if found is not None))
