"""The live display of `dataflow local`: a line for each event and, on a terminal, a progress bar for each job.

It only prints. The engine reports events to it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import count
from textwrap import wrap

import rich.text
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from opendataflow.cli.output.printing import coloured
from opendataflow.cli.output.screen import Text, silence_stdout
from opendataflow.core.text.explain import duration
from opendataflow.engine.ports import Step
from opendataflow.errors import DataflowError, NotStarted
from opendataflow.model.records import claim
from opendataflow.names import RunState, TaskState
from opendataflow.stdio import visible
from opendataflow.store.store import Store

_REFRESH_SECONDS = 0.5
_PROBLEMS_EVERY = 4
"""Refreshes of the bars for each refresh of the lines below them."""
_UNLIMITED_WIDTH = 10_000
"""Columns of an output that is no terminal, so that nothing is cut."""


class _LiveConsole(Console):
    """A console that stops printing if its reader closes the pipe, as `head` does. The command continues."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        silence_stdout()


def live_console(*, stderr: bool = False) -> Console:
    """Return a console for a display that is updated. It cuts no text if its output is no terminal."""
    made = _LiveConsole(stderr=stderr, highlight=False, soft_wrap=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = _UNLIMITED_WIDTH
    return made


class Display:
    """An engine Observer. It prints no lines for successful runs on a terminal, because a bar counts them."""

    def __init__(self, console: Console, jobs: Sequence[str]) -> None:
        self._console = console
        self._width = max((len(job) for job in jobs), default=0)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
        )
        self._problems: Sequence[str] = ()
        self._live = Live(console=console, get_renderable=self._shown, refresh_per_second=4)
        self._lines: dict[str, TaskID] = {
            job: self._bars.add_task(visible(job).ljust(self._width), total=None, state="") for job in jobs
        }

    def claimed(self, run: claim.ClaimedRun) -> None:
        """Report a run that is about to start."""
        if not self._console.is_terminal or run.attempt > 1:
            self._line(run, "started", f"run {run.run}, attempt {run.attempt}")

    def completed(self, completion: claim.Completion, run: claim.ClaimedRun, result: claim.Completed) -> None:
        """Report a run whose outcome is committed."""
        if result.already and result.run_state != completion.state:
            self._line(run, result.run_state, f"run {run.run} was ended by somebody else")
        elif completion.state is RunState.SUCCEEDED:
            if not self._console.is_terminal:
                self._line(run, result.task_state, "")
        elif result.spared:
            self._line(run, completion.state, f"{completion.message}; it costs no attempt, the breaker is open")
        else:
            follows = _follows(completion) if result.task_state is TaskState.RETRYING else ""
            detail = completion.message if follows else completion.reason or completion.message
            self._line(run, completion.shown, f"{detail}{follows}")

    def starts_blocked(self, job: str, reason: NotStarted | None) -> None:
        """Report that runs of a job can't be started for now. `reason` is None: they can start again."""
        self.note(f"{job}: runs start again" if reason is None else f"{job}: {reason}")

    def observe_duration(self, step: Step, seconds: float) -> None:
        """Ignore the duration of an engine step."""

    def heartbeat(self, loop: str) -> None:
        """Ignore the heartbeat of an engine loop."""

    def outdated(self, job: str) -> None:
        """Report a job that somebody applied with other data sets."""
        self.note(
            f"{job} was applied with other data sets than this engine's file has: nothing new of it starts here; "
            "start the engine again with the new file"
        )

    def note(self, text: str) -> None:
        """Print a note."""
        self._print(Text(text, style="yellow"))

    async def follow(self, store: Store, problems: Callable[[], Awaitable[Sequence[str]]]) -> None:
        """Update the bars from Postgres, until cancelled.

        `problems`: returns what to show below the bars: failures, an open breaker, and what tasks wait for.
        """
        with self._live:
            try:
                await self._follow(store, problems)
            finally:
                self._problems = ()  # the caller prints the final status

    async def _follow(self, store: Store, problems: Callable[[], Awaitable[Sequence[str]]]) -> None:
        for number in count():
            with suppress(DataflowError):  # the engine reports it
                self.show(await store.progress(list(self._lines)))
                if number % _PROBLEMS_EVERY == 0:
                    self.show_problems(await problems())
            await asyncio.sleep(_REFRESH_SECONDS)

    def show_problems(self, problems: Sequence[str]) -> None:
        """Set the lines below the bars."""
        self._problems = problems

    def _shown(self) -> RenderableType:
        """Return the bars, and below them the problems in at most two lines each."""
        width = max(self._console.width - 1, 1)
        lines = [
            line
            for problem in self._problems
            for line in wrap(
                visible(problem),
                width,
                max_lines=2,
                placeholder=" …",
                initial_indent="  ",
                subsequent_indent="    ",
                break_on_hyphens=False,
            )
        ]
        return Group(self._bars.get_renderable(), *(rich.text.Text(line, "yellow") for line in lines))

    def show(self, progress: Sequence[claim.Progress]) -> None:
        """Set the bars."""
        for job in progress:
            parts = [
                f"{job.of(state)} {state.lower()}"
                for state in (TaskState.RUNNING, TaskState.RETRYING, TaskState.FAILED, TaskState.WAITING)
                if job.of(state)
            ]
            parts += [f"{job.stale} stale"] if job.stale else []
            parts += ["declaring more chunks"] if job.declaring else []
            self._bars.update(
                self._lines[job.job], completed=job.of(TaskState.DONE), total=job.total, state=", ".join(parts)
            )

    def _line(self, run: claim.ClaimedRun, state: str, detail: str) -> None:
        line = Text(f"{run.job.ljust(self._width)}  {run.data_id}  ")
        line.append(coloured(state)).append(f"  {detail}" if detail else "")
        self._print(line)

    def _print(self, line: Text) -> None:
        stamped = Text(datetime.now().astimezone().strftime("%H:%M:%S  "), "dim").append(line)
        with suppress(OSError):  # the output is closed; the runs continue
            self._console.print(rich.text.Text.from_ansi(stamped.coded(colours=True)))


def _follows(completion: claim.Completion) -> str:
    """Return what follows a run whose task is tried again. The database chooses the pause before another look."""
    if completion.shown is RunState.GIVEN_BACK:
        return "; it is looked at again, which consumes no retry"
    return f"; tried again in {duration(completion.delay)}"
