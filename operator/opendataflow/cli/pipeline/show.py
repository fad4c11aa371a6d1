"""Prints runs and tests of pipelines on a terminal. It computes nothing itself."""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import shorten
from types import MappingProxyType, TracebackType
from typing import Any

import rich.text
from rich.console import Console
from rich.live import Live

from opendataflow.cli.output.printing import coloured, echo, print_table
from opendataflow.cli.output.screen import Screen, Text, console
from opendataflow.cli.output.tables import lay_out
from opendataflow.core.databases.attempts import Result
from opendataflow.core.pipelines.expectations import ExpectationResult
from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.text.explain import counted
from opendataflow.names import StepStatus
from opendataflow.spark.pipeline.testing.unit_tests import UnitTestResult

_LONGEST_ITEM = 60
_COLUMNS = ("step", "status", "rows", "seconds")
_NUMBERS = ("rows", "seconds")


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a status line on a terminal while the body runs. `what`: its text."""
    if not console(stderr=True).is_terminal:
        yield
        return
    # Another file descriptor: while Spark starts, this program's own stderr is redirected.
    with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8") as terminal, Console(file=terminal).status(what):
        yield


class LiveSteps:
    """A table of the steps that is updated while they run. Shown on a terminal only."""

    def __init__(self, where: Console) -> None:
        self._steps: Sequence[Step] = ()
        self._began: dict[int, float] = {}
        self._live = Live(
            console=where,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            refresh_per_second=8,
            get_renderable=self._current_table,
        )
        self._shown = where.is_terminal

    def __enter__(self) -> "LiveSteps":
        if self._shown:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._shown:
            self._live.stop()

    def show(self, steps: Sequence[Step]) -> None:
        """Update the table."""
        self._steps = steps
        for index, step in enumerate(steps):
            if step.status is StepStatus.RUNNING:
                self._began.setdefault(index, time.monotonic())

    def _current_table(self) -> rich.text.Text:
        """Return the table at this moment, with the elapsed seconds of the running step."""
        cells = _cells(self._steps, {index: time.monotonic() - began for index, began in self._began.items()})
        table = lay_out(_COLUMNS, cells, None, _NUMBERS)
        return rich.text.Text.from_ansi("\n".join(line.coded(colours=True) for line in table.lines))


def show_steps(steps: Sequence[Step]) -> None:
    """Print the steps of a run, and their output."""
    out = console()
    print_table(_COLUMNS, _cells(steps), right=_NUMBERS)
    for step in steps:
        _indented(out, f"{step.name} printed:", step.stdout.splitlines())
        if step.error is not None and "\n" in step.error:  # an error of one line is printed by the caller
            _indented(out, f"{step.name} failed:", step.error.splitlines(), "red")


def show_item(number: int, many: int, item: Mapping[str, Any]) -> None:
    """Print the item of a stream that the next table belongs to."""
    cells = ", ".join(f"{name}={value}" for name, value in item.items() if value is not None)
    console().print(Text(f"item {number + 1} of {many}: {shorten(cells, _LONGEST_ITEM, placeholder=' ...')}", "bold"))


def show_run(steps: Sequence[Step], result: Result | None) -> None:
    """Print the steps of a run, their output, and the place of the result."""
    out = console()
    show_steps(steps)
    if result is not None:
        where = result.where
        out.print(f"{where} has the chunk already, so that nothing was added" if result.kept else f"wrote {where}")


def show_expectations(checked: Sequence[ExpectationResult]) -> None:
    """Print the results of the expectations."""
    if not checked:
        return
    print_table(("expectation", "holds", "found"), [_expectation(it) for it in checked])


def _expectation(it: ExpectationResult) -> dict[str, Text]:
    word = Text("yes", "green") if it.held else Text("no", "red") if it.fails else Text("no, a warning", "yellow")
    return {"expectation": Text(it.name).on_one_line(), "holds": word, "found": Text(it.found).on_one_line()}


def show_test(result: UnitTestResult) -> None:
    """Print the result of one test."""
    out = console()
    word = Text("passed", "green") if result.sentence is None else Text("FAILED", "red")
    out.print(word.append(f"  {result.pipeline}/{result.transformation}  {result.seconds:.2f} s"))
    if result.sentence is not None:
        out.print(f"  {result.sentence}")
        for detail in result.details:
            out.print(f"    {detail}")
    if result.warning is not None:
        out.print(Text(f"  warning: {result.warning}", "yellow"))
    _indented(out, "  it printed:", result.stdout.splitlines())


def show_tests(results: Sequence[UnitTestResult]) -> None:
    """Print how many tests have passed and failed."""
    failed = sum(result.sentence is not None for result in results)
    took = sum(result.seconds for result in results)
    echo(f"{counted(len(results) - failed, 'test')} passed, {failed} failed, {took:.2f} s")


def _cells(steps: Sequence[Step], so_far: Mapping[int, float] = MappingProxyType({})) -> list[dict[str, Text]]:
    cells = []
    for index, step in enumerate(steps):
        seconds = so_far.get(index) if step.seconds is None else step.seconds
        cells.append(
            {
                "step": Text(step.name).on_one_line(),
                "status": _coloured(step.status),
                "rows": Text("-" if step.rows is None else str(step.rows)),
                "seconds": Text("-" if seconds is None else f"{seconds:.2f}"),
            }
        )
    return cells


def _coloured(status: StepStatus) -> Text:
    return Text(status, "dim") if status in (StepStatus.WAITING, StepStatus.SKIPPED) else coloured(status)


def _indented(out: Screen, title: str, lines: Sequence[str], style: str = "") -> None:
    if lines:
        out.print(Text(title, style))
        for line in lines:
            out.print(f"    {line}")
