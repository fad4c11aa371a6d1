"""Prints runs and tests of pipelines on a terminal. It computes nothing itself."""

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from textwrap import shorten
from types import MappingProxyType, TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from opendataflow.cli.output.printing import Text, coloured, console
from opendataflow.core.databases.attempts import Result
from opendataflow.core.pipelines.expectations import ExpectationResult
from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.text.explain import counted
from opendataflow.names import StepStatus
from opendataflow.spark.pipeline.testing.unit_tests import UnitTestResult

_LONGEST_ITEM = 60


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

    def _current_table(self) -> Table:
        """Return the table at this moment, with the elapsed seconds of the running step."""
        return _table(self._steps, {index: time.monotonic() - began for index, began in self._began.items()})


def show_steps(steps: Sequence[Step]) -> None:
    """Print the steps of a run, and their output."""
    out = console()
    out.print(_table(steps))
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
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("EXPECTATION", "HOLDS", "FOUND"):
        table.add_column(name)
    for it in checked:
        word = Text("yes", "green") if it.held else Text("no", "red") if it.fails else Text("no, a warning", "yellow")
        table.add_row(Text(it.name), word, Text(it.found))
    console().print(table)


def show_test(result: UnitTestResult) -> None:
    """Print the result of one test."""
    out = console()
    word = Text("passed", "green") if result.sentence is None else Text("FAILED", "red")
    line = Text.assemble(word, f"  {result.pipeline}/{result.transformation}  {result.seconds:.2f} s")
    out.print(line)
    if result.sentence is not None:
        out.print(Text(f"  {result.sentence}"))
        for detail in result.details:
            out.print(Text(f"    {detail}"))
    _indented(out, "  it printed:", result.stdout.splitlines())


def show_tests(results: Sequence[UnitTestResult]) -> None:
    """Print how many tests have passed and failed."""
    failed = sum(result.sentence is not None for result in results)
    took = sum(result.seconds for result in results)
    console().print(f"{counted(len(results) - failed, 'test')} passed, {failed} failed, {took:.2f} s")


def _table(steps: Sequence[Step], so_far: Mapping[int, float] = MappingProxyType({})) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("STEP", "STATUS"):
        table.add_column(name, no_wrap=True)
    for name in ("ROWS", "SECONDS"):
        table.add_column(name, justify="right", no_wrap=True)
    for index, step in enumerate(steps):
        rows = "-" if step.rows is None else str(step.rows)
        seconds = so_far.get(index) if step.seconds is None else step.seconds
        table.add_row(step.name, _coloured(step.status), rows, "-" if seconds is None else f"{seconds:.2f}")
    return table


def _coloured(status: StepStatus) -> Text:
    return Text(status, style="dim") if status in (StepStatus.WAITING, StepStatus.SKIPPED) else coloured(status)


def _indented(out: Console, title: str, lines: Sequence[str], style: str = "") -> None:
    if lines:
        out.print(Text(title, style=style))
        for line in lines:
            out.print(Text(f"    {line}"))
