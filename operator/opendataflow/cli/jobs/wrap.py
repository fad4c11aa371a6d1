"""`dataflow run`: runs one chunk around a program, like RunJob, with options."""

from pathlib import Path
from typing import Annotated

import typer

from opendataflow.cli.app import actor, app
from opendataflow.errors import InvalidInput
from opendataflow.opening.passkey import Passkey
from opendataflow.runjob import program
from opendataflow.runjob.arguments import job_of
from opendataflow.runjob.wrap import WrappedCommand


@app.command("run")
def run(
    command: Annotated[list[str], typer.Argument(metavar="CMD...", help="The program and its arguments, after `--`.")],
    job: Annotated[str | None, typer.Option("--job", help="The job. Default: the program's name.")] = None,
    key_file: Annotated[
        Path | None, typer.Option("--key-file", help="A file with the passkey. Default: PASSKEY, DATAFLOW_KEY_FILE.")
    ] = None,
    data_id: Annotated[str | None, typer.Option("--data-id", help="Run this chunk. Default: the first one.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Ignore the states of its inputs and outputs. The history records this.")
    ] = False,
) -> int:
    """Run a program for one ready chunk of a job, in the foreground. Exit with the program's exit code."""
    if force and data_id is None:
        raise InvalidInput("--force needs the chunk that is meant: --data-id")
    wrapped = WrappedCommand(job or job_of(command[0]), tuple(command), data_id, actor() if force else None)
    return program.run(wrapped, Passkey(key_file))
