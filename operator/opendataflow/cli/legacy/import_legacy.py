"""`dataflow import-legacy`: imports the jobs, data sets and statuses of the old framework."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from opendataflow.cli.app import actor, app, with_store
from opendataflow.cli.output.printing import echo
from opendataflow.core.status.legacy_import import OldChunk, OldState, Running, old_state
from opendataflow.errors import InvalidInput
from opendataflow.store.connections.connection import has_password
from opendataflow.store.legacy.legacy_tables import SCHEMA, read_old
from opendataflow.store.legacy.legacy_users import import_old
from opendataflow.store.store import Store

_SHOWN = 20
"""Maximum number of running chunks that are listed one by one."""


@app.command("import-legacy")
def import_legacy(
    dsn: Annotated[
        str,
        typer.Argument(
            metavar="DSN", help="The address of the old database, such as postgresql://user@host:5432/database."
        ),
    ],
    schema: Annotated[str, typer.Option("--schema", help="The schema of the old tables.")] = SCHEMA,
    running: Annotated[
        Running | None,
        typer.Option("--running", help="What to do with chunks that are RUNNING there. Default: a prompt."),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Rename the old tables to *_old and create the views, in the same database."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what would be imported, and change nothing.")
    ] = False,
) -> None:
    """Import job, dataset and datastatus of the Java framework, all or nothing. Existing rows stay unchanged."""
    if has_password(dsn):
        echo(
            "the address has a password, which other users of this machine can read: use PGPASSWORD or ~/.pgpass",
            err=True,
        )
    if take_over and schema != SCHEMA:
        raise InvalidInput(
            f"--take-over is about the tables of schema {SCHEMA}: those of {schema} do not conflict with the views"
        )
    rows = asyncio.run(read_old(dsn, schema))
    state = old_state(rows)
    chunks = state.decided(_decision(state.running, running))

    async def ask(store: Store) -> dict[str, dict[str, int]]:
        replacing = (dsn, rows) if take_over else None
        return await import_old(store, state, chunks, actor(), replacing, dry_run=dry_run)

    counts = with_store(ask)
    _report(state, counts, dry_run=dry_run)
    if take_over and not dry_run:
        echo(f"the old tables are {SCHEMA}.job_old, dataset_old and datastatus_old; the views have their names")


def _decision(running: Sequence[OldChunk], given: Running | None) -> Running:
    """Return what to do with running chunks. Prompt for it if it was not given. Never guess."""
    if not running:
        return Running.SKIP
    for chunk in running[:_SHOWN]:
        echo(
            f"RUNNING: {chunk.data_id} of {chunk.dataset}, by {chunk.maker}, since {chunk.modified or 'unknown'}",
            err=True,
        )
    if len(running) > _SHOWN:
        echo(f"RUNNING: and {len(running) - _SHOWN} more", err=True)
    if given is not None:
        return given
    choices = ", ".join(Running)
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"{len(running)} chunks are RUNNING in the old database: say by --running what becomes of them "
            f"({choices}); nothing was imported"
        )
    while True:
        answer = typer.prompt(f"What becomes of them ({choices})?", err=True)
        if answer in list(Running):
            return Running(answer)


def _report(state: OldState, counts: dict[str, dict[str, int]], *, dry_run: bool) -> None:
    made = "would be made" if dry_run else "made"
    for name, word in (("datasets", "data sets"), ("jobs", "jobs"), ("chunks", "chunks")):
        of = counts[name]
        echo(f"{word}: {of['made']} {made}, {of['same']} were the same, {of['other']} are other here and stay so")
    for sentence in state.left:
        echo(f"left out: {sentence}")
    for sentence in counts["conflicts"]:
        echo(f"stays: {sentence}")
    if dry_run:
        echo("nothing was changed")
