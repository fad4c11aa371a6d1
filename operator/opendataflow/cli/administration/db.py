"""`dataflow db`: the schema of the database, and whether its contents hold together."""

import asyncio
from contextlib import AbstractAsyncContextManager

import typer

from opendataflow.cli.app import Panel, app, with_store
from opendataflow.errors import SchemaMismatch
from opendataflow.names import ExitCode
from opendataflow.opening.database import dsn_source, named_dsn
from opendataflow.opening.passkey import Passkey
from opendataflow.settings import read_settings
from opendataflow.store.connections.connection import DsnSource, connect, place
from opendataflow.store.migrations import sql_files
from opendataflow.store.migrations.schema import SchemaState, in_the_way, migrate, read_state

db = typer.Typer(help="The database: its schema, and whether its contents hold together.", no_args_is_help=True)
app.add_typer(db, name="db", rich_help_panel=Panel.KEEP)


def _database() -> AbstractAsyncContextManager[DsnSource]:
    settings = read_settings()
    return dsn_source(settings, named_dsn(settings, Passkey()))


@db.command("migrate")
def migrate_database() -> None:
    """Bring the database to the schema of this program; does nothing where it has it."""

    async def ask() -> list[str]:
        async with _database() as source, await connect(source()) as connection:
            return await migrate(connection, note=lambda sentence: typer.echo(f"waiting: {sentence}", err=True))

    done = asyncio.run(ask())
    for line in done or ["the schema is up to date"]:
        typer.echo(line)


@db.command("status")
def database_status() -> None:
    """Show which schema the database has and which this program works with. Exit code 5 where they differ."""

    async def ask() -> tuple[str, int, SchemaState, str | None]:
        async with _database() as source:
            dsn = source()
            async with await connect(dsn) as connection:
                state = await read_state(connection)
                sentence = await in_the_way(connection) if state.current else None
                return place(dsn), connection.info.server_version, state, sentence

    where, version, state, sentence = asyncio.run(ask())
    typer.echo(f"database  {where}, Postgres {version // 10000}.{version % 10000}")
    for migration in sql_files.migrations():
        typer.echo(f"schema    {migration.name}  {'applied' if migration.number in state.applied else 'pending'}")
    for number in state.newer:
        typer.echo(f"schema    {number:04}  of a newer program")
    same = state.functions == sql_files.functions_digest()
    typer.echo(f"functions {state.functions or 'none'}  {'current' if same else 'of another version'}")
    if sentence is not None:
        typer.echo(f"views     {sentence}")
    if not state.current:
        raise SchemaMismatch(
            "the database is newer than this program can work with: install a newer one"
            if state.too_new
            else "the database is not up to date: run `dataflow db migrate`"
        )


@db.command("verify")
def verify() -> int:
    """Recompute everything that must hold from first principles. Exit code 1 where something does not."""
    problems = with_store(lambda store: store.verify())
    for problem in problems:
        typer.echo(problem)
    if problems:
        return ExitCode.FAILED
    typer.echo("all is consistent")
    return ExitCode.OK
