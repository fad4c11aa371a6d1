"""`dataflow apply`: declare data sets and jobs."""

from pathlib import Path
from typing import Annotated

import typer

from opendataflow.cli.app import Panel, actor, app, with_store
from opendataflow.cli.jobs.job_files import apply_files, read_files
from opendataflow.store.store import Store

FilesOption = Annotated[list[Path], typer.Option("--file", "-f", help="A job file. Can be repeated.")]


@app.command("apply", rich_help_panel=Panel.RUN)
def apply(files: FilesOption) -> None:
    """Declare the data sets and jobs of job files: all of them, or none if one is wrong."""
    declared = read_files(files)

    async def ask(store: Store) -> None:
        await apply_files(store, declared, actor())

    with_store(ask)
    for dataset in declared.datasets:
        typer.echo(f"data set {dataset.id} applied")
    for job in declared.jobs:
        typer.echo(f"job {job.id} applied")
