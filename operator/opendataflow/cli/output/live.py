"""What a person sees while the engine works: a line for each thing that happens and, on a terminal, a bar for each job.

It only shows; the engine tells it.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from opendataflow.cli.output.printing import coloured
from opendataflow.core.text.explain import duration
from opendataflow.engine.ports import Step
from opendataflow.errors import DataflowError, NotStarted
from opendataflow.model.records import claim
from opendataflow.names import RunState, TaskState
from opendataflow.store.store import Store

_REFRESH_SECONDS = 0.5


class Display:
    """Implements the engine's Observer. Successful runs get lines only where no bar shows them."""

    def __init__(self, console: Console, jobs: Sequence[str]) -> None:
        self._console = console
        self._width = max((len(job) for job in jobs), default=0)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._lines: dict[str, TaskID] = {
            job: self._bars.add_task(job.ljust(self._width), total=None, state="") for job in jobs
        }

    def claimed(self, run: claim.ClaimedRun) -> None:
        """A run is about to start."""
        if not self._console.is_terminal or run.attempt > 1:
            self._line(run, "started", f"run {run.run}, attempt {run.attempt}")

    def completed(self, completion: claim.Completion, run: claim.ClaimedRun, result: claim.Completed) -> None:
        """A run's outcome is committed."""
        if result.already and result.run_state != completion.state:
            self._line(run, result.run_state, f"run {run.run} was ended by somebody else")
        elif completion.state is RunState.SUCCEEDED:
            if not self._console.is_terminal:
                self._line(run, result.task_state, "")
        elif result.spared:
            self._line(run, completion.state, f"{completion.message}; it costs no attempt, the breaker is open")
        else:
            follows = (
                f"; tried again in {duration(completion.delay)}" if result.task_state is TaskState.RETRYING else ""
            )
            detail = completion.message if follows else completion.reason or completion.message
            self._line(run, completion.shown, f"{detail}{follows}")

    def held_back(self, job: str, reason: NotStarted | None) -> None:
        """Runs can't be started for now, or can again."""
        self.note(f"{job}: runs start again" if reason is None else f"{job}: {reason}")

    def took(self, step: Step, seconds: float) -> None:
        """How long a step took: nothing that a person wants to see."""

    def turned(self, loop: str) -> None:
        """A loop goes on: nothing that a person wants to see."""

    def unfit(self, job: str) -> None:
        """A job was applied from elsewhere."""
        self.note(
            f"{job} was applied with other data sets than this engine's file has: nothing new of it starts here; "
            "start the engine again with the new file"
        )

    def note(self, text: str) -> None:
        """Something else to know."""
        self._print(Text(text, style="yellow"))

    async def follow(self, store: Store) -> None:
        """Keep the bars at what Postgres says, until cancelled."""
        with self._bars:
            while True:
                with suppress(DataflowError):  # the engine tells of it
                    self.show(await store.progress(list(self._lines)))
                await asyncio.sleep(_REFRESH_SECONDS)

    def show(self, progress: Sequence[claim.Progress]) -> None:
        """Set the bars."""
        for job in progress:
            parts = [
                f"{job.of(state)} {state.lower()}"
                for state in (TaskState.RUNNING, TaskState.RETRYING, TaskState.FAILED, TaskState.WAITING)
                if job.of(state)
            ]
            self._bars.update(
                self._lines[job.job], completed=job.of(TaskState.DONE), total=job.total, state=", ".join(parts)
            )

    def _line(self, run: claim.ClaimedRun, state: str, detail: str) -> None:
        line = Text(f"{run.job.ljust(self._width)}  {run.data_id}  ")
        line.append_text(coloured(state)).append(f"  {detail}" if detail else "")
        self._print(line)

    def _print(self, line: Text) -> None:
        stamped = Text(datetime.now().astimezone().strftime("%H:%M:%S  "), style="dim")
        with suppress(OSError):  # nobody can read it; the runs go on
            self._console.print(
                stamped.append_text(line.copy()) if line.style == "" else stamped.append(line.plain, line.style)
            )
