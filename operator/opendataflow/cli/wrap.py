"""`dataflow run`: one run around a script, as RunJob does it, with the choices spelled out."""

import os
from pathlib import Path
from typing import Annotated

import typer

from opendataflow.cli.app import app
from opendataflow.cli.passkey import read_key_file
from opendataflow.core.wrapped import job_of
from opendataflow.runjob import main as runjob
from opendataflow.runjob.wrap import Wrap


@app.command("run")
def run(
    command: Annotated[list[str], typer.Argument(metavar="CMD...", help="The program and its arguments, after `--`.")],
    job: Annotated[str | None, typer.Option("--job", help="The job; default: the program's name.")] = None,
    key_file: Annotated[
        Path | None, typer.Option("--key-file", help="A file with the passkey; default: PASSKEY.")
    ] = None,
    data_id: Annotated[str | None, typer.Option("--data-id", help="Only this chunk; default: the first.")] = None,
) -> int:
    """Run one ready chunk of a job around a program, in the foreground; the program's exit code is passed on."""
    wrap = Wrap(job or job_of(command[0]), tuple(command), data_id)
    return runjob.run(wrap, read_key_file(key_file) if key_file else os.environ.get("PASSKEY"))
