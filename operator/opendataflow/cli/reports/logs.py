"""`dataflow logs`: prints the log of a run, of a run that is still active, or of one step.

A program that reads the output gets the bytes of the log. A terminal gets text, with its control characters visible.
"""

import asyncio
import codecs
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Annotated, Any

import typer

from opendataflow.cli.app import OutputOption, app, with_store
from opendataflow.cli.complete import complete_data_id, complete_job
from opendataflow.cli.output.printing import Output, echo, print_document
from opendataflow.cli.reports.status import task_status
from opendataflow.core.runs.logs import is_in_pod, log_file, pod_of
from opendataflow.core.text.explain import shell_command
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import InvalidInput, UnknownThing
from opendataflow.names import RunState
from opendataflow.stdio import visible
from opendataflow.store.store import Store

Row = dict[str, Any]
_POLL_SECONDS = 0.5
_READ_BYTES = 64 * 1024


@app.command("logs")
def logs(
    job: Annotated[str | None, typer.Argument(help="A job.", autocompletion=complete_job)] = None,
    data_id: Annotated[
        str | None, typer.Argument(help="A data id. Its last run is meant.", autocompletion=complete_data_id)
    ] = None,
    run: Annotated[int | None, typer.Option("--run", help="A run, as `dataflow get runs` shows it.")] = None,
    step: Annotated[str | None, typer.Option("--step", help="Only this step of a pipeline.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until the run ends.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print the log of a run: the whole log if its file is on this machine, else the stored last part.

    On a terminal, control characters of the log are printed as text. Another program gets the log as it is.
    """
    if run is None and (job is None or data_id is None):
        raise InvalidInput("logs needs a job and a data id, or --run RUN")
    if follow and (step is not None or output.is_document):
        raise InvalidInput("--follow shows all steps as they come, as text: leave --step and -o out")

    async def ask(store: Store) -> Row:
        found = await store.run_log(job, data_id, run)
        if found is None and run is not None:
            raise UnknownThing(f"there is no run {run}: see `dataflow get runs`")
        if found is None:
            waiting = await task_status(store, str(job), str(data_id))
            see = shell_command("why", waiting["job"], waiting["data_id"])
            raise UnknownThing(f"{data_id} of job {job} has not run yet: see `{see}`")
        name = f"run {found['run']} of {found['job']} {found['data_id']}, attempt {found['attempt']}"
        if not output.is_document:
            echo(f"{name}: {found['state']}", err=True)
        if follow and found["state"] == RunState.RUNNING:
            return await _follow(store, found)
        return found

    found = with_store(ask)
    if follow and "printed" in found:
        return
    if output.is_document:
        print_document(_document(found, step), output)
    else:
        _print(found, step)


def _document(run: Row, step: str | None) -> Row:
    """Return the log of a run for a program. `whole`: whether it is more than the stored end."""
    path = log_file(run)
    whole = path.is_file()
    text = path.read_text("utf-8", "replace") if whole else run["log_tail"] or ""
    if step is not None:
        text = "".join(f"{line}\n" for line in _lines_of_step(text, step))
    same = {name: run[name] for name in ("run", "job", "data_id", "attempt", "state", "message")}
    return {**same, "step": step, "whole": whole, "log": text}


async def _follow(store: Store, run: Row) -> Row:
    """Print the log of a run until the run ends. Return the run, with `printed` if its file is on this machine."""
    if is_in_pod(run):
        raise InvalidInput(f"it runs in a pod: kubectl logs --follow {pod_of(run)}")
    path, printed, write = log_file(run), 0, _writer()
    while True:
        found = await store.run_log(None, None, run["run"])
        assert found is not None
        ended = found["state"] != RunState.RUNNING
        with suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(printed)
            while piece := file.read(_READ_BYTES):
                write(piece)
                printed += len(piece)
        if ended:
            echo(f"run {run['run']}: {found['state']}", err=True)
            return {**found, "printed": printed} if path.exists() else found
        await asyncio.sleep(_POLL_SECONDS)


def _writer() -> Callable[[bytes], None]:
    """Return a function that prints the next piece of a log: as it is, or on a terminal as text."""
    to = sys.stdout
    text = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def write(piece: bytes) -> None:
        if to.isatty():
            to.write(visible(text.decode(piece)))
        else:
            to.buffer.write(piece)
        to.flush()

    return write


def _print(run: Row, step: str | None) -> None:
    """Print the log of a run on stdout. If only a part is available, say so on stderr."""
    path, write = log_file(run), _writer()
    try:
        with path.open("rb") as file:
            if step is None:
                while piece := file.read(_READ_BYTES):
                    write(piece)
            else:
                _print_step(file.read().decode("utf-8", "replace"), step)
    except FileNotFoundError:
        if run["state"] == RunState.GIVEN_BACK and not run["log_tail"]:
            echo(f"it did not start: {run['message']}", err=True)
            return
        kept = "the end that is kept follows" if run["log_tail"] else "nothing else is kept"
        whole = f"its log file {path} is not on this machine"
        if is_in_pod(run):
            whole = f"its whole log, while its pod is there: kubectl logs {pod_of(run)}"
        echo(f"{whole}; {kept}", err=True)
        tail = run["log_tail"] or ""
        if step is None:
            write(tail.encode())
        else:
            _print_step(tail, step)


def _print_step(log: str, step: str) -> None:
    write = _writer()
    for line in _lines_of_step(log, step):
        write(f"{line}\n".encode())


def _lines_of_step(log: str, step: str) -> Iterable[str]:
    from opendataflow.core.pipelines.step_lines import (  # with the models of projects
        filter_step_lines,
        list_logged_steps,
    )

    lines = log.splitlines()
    if step not in (steps := list_logged_steps(lines)):
        existing = f"; it has {', '.join(steps)}" if steps else ""
        raise UnknownThing(f"the log says nothing of a step {step}{did_you_mean(step, steps)}{existing}")
    return filter_step_lines(lines, step)
