"""`dataflow run`: one run around a script, as RunJob does it, with the choices spelled out."""

from pathlib import Path
from typing import Annotated

import typer

from opendataflow.cli.app import Panel, actor, app
from opendataflow.core.runs.wrapped import job_of
from opendataflow.errors import InvalidInput
from opendataflow.opening.passkey import Passkey
from opendataflow.runjob import program
from opendataflow.runjob.wrap import Wrap


@app.command("run", rich_help_panel=Panel.WORK)
def run(
    command: Annotated[list[str], typer.Argument(metavar="CMD...", help="The program and its arguments, after `--`.")],
    job: Annotated[str | None, typer.Option("--job", help="The job; default: the program's name.")] = None,
    key_file: Annotated[
        Path | None, typer.Option("--key-file", help="A file with the passkey; default: PASSKEY, DATAFLOW_KEY_FILE.")
    ] = None,
    data_id: Annotated[str | None, typer.Option("--data-id", help="Only this chunk; default: the first.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Run it whatever its inputs and outputs are; goes into the history.")
    ] = False,
) -> int:
    """Run one ready chunk of a job around a program, in the foreground; the program's exit code is passed on."""
    if force and data_id is None:
        raise InvalidInput("--force needs the chunk that is meant: --data-id")
    wrap = Wrap(job or job_of(command[0]), tuple(command), data_id, actor() if force else None)
    return program.run(wrap, Passkey(key_file))
