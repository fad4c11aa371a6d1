"""`dataflow db`: migrates the schema of the database, checks the data, and moves them to another database."""

import asyncio
import shlex
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Annotated, Any

import typer

from opendataflow.cli.app import OutputOption, actor, app, with_store
from opendataflow.cli.cluster.choice import require_postgres
from opendataflow.cli.output.printing import Output, echo, print_document
from opendataflow.core.text.explain import counted
from opendataflow.errors import InvalidInput, Refused, SchemaMismatch
from opendataflow.names import ExitCode
from opendataflow.opening.database import dsn_source, embedded_folders, named_source
from opendataflow.opening.passkey import Passkey
from opendataflow.settings import read_settings
from opendataflow.store.connections.connection import DsnSource, connect, has_password, place
from opendataflow.store.connections.peek import embedded_exists
from opendataflow.store.migrations import sql_files
from opendataflow.store.migrations.schema import SchemaState, migrate, moved, read_state, unreleased, view_conflict
from opendataflow.store.moving import Moved, is_moved_to, move

db = typer.Typer(help="Migrate the schema of the database, check the data, or move them.", no_args_is_help=True)
app.add_typer(db, name="db")

_COUNTED = {"job": "job", "dataset": "data set", "chunk": "chunk", "task": "task", "run": "run"}
"""The tables whose rows are counted in the answer of a move."""

_ASSIGNED = {"datasets": "data set", "jobs": "job", "chunks": "chunk", "tasks": "task"}


def _database() -> tuple[AbstractAsyncContextManager[DsnSource], list[Path]]:
    """Return the database's address, and the folders of an embedded one."""
    settings = read_settings()
    named = named_source(settings, Passkey())
    return dsn_source(settings, named), [] if named is not None else embedded_folders(settings)


def _note(sentence: str) -> None:
    echo(f"waiting: {sentence}", err=True)


@db.command("migrate")
def migrate_database() -> None:
    """Migrate the database to the schema of this program. Do nothing if it is up to date."""

    database, folders = _database()

    async def ask() -> list[str]:
        async with database as source, await connect(source()) as connection:
            return await migrate(connection, note=_note, folders=folders)

    done = asyncio.run(ask())
    for line in done or ["the schema is up to date"]:
        echo(line)


@db.command("status")
def database_status(output: OutputOption = Output.TABLE) -> None:
    """Show the schema of the database and the schema that this program needs. Exit code 5 if they differ."""
    database, folders = _database()

    async def ask() -> tuple[str, int, SchemaState, str | None]:
        async with database as source:
            dsn = source()
            async with await connect(dsn) as connection:
                state = await read_state(connection)
                sentence = await view_conflict(connection) if state.current else None
                return place(dsn), connection.info.server_version, state, sentence

    where, version, state, sentence = asyncio.run(ask())
    if output.is_document:
        print_document(_status_document(where, version, state, sentence), output)
    else:
        _print_status(where, version, state, sentence)
    if state.moved_to is not None:
        raise moved(where, state)
    if state.unreleased:
        raise unreleased(where, folders)
    if not state.current:
        raise SchemaMismatch(
            "the database is newer than this program can work with: install a newer one"
            if state.too_new
            else "the database is not up to date: run `dataflow db migrate`"
        )


def _status_document(where: str, version: int, state: SchemaState, views: str | None) -> dict[str, Any]:
    return {
        "database": where,
        "postgres": f"{version // 10000}.{version % 10000}",
        "migrations": [{"name": it.name, "state": _word(it, state)} for it in sql_files.migrations()],
        "current": state.current,
        "moved_to": state.moved_to,
        "conflict": views,
    }


def _print_status(where: str, version: int, state: SchemaState, sentence: str | None) -> None:
    echo(f"database  {where}, Postgres {version // 10000}.{version % 10000}")
    for migration in sql_files.migrations():
        echo(f"schema    {migration.name}  {_word(migration, state)}")
    for number in [] if state.unreleased else state.newer:
        echo(f"schema    {number:04}  of a newer program")
    same = state.functions == sql_files.functions_digest()
    echo(f"functions {state.functions or 'none'}  {'current' if same else 'of another version'}")
    if sentence is not None:
        echo(f"views     {sentence}")


def _word(migration: sql_files.Migration, state: SchemaState) -> str:
    if migration.number not in state.applied:
        return "pending"
    return "applied" if state.applied[migration.number] == migration.digest else "of an unreleased version"


@db.command("verify")
def verify(output: OutputOption = Output.TABLE) -> int:
    """Check the consistency of all data. Exit code 1 if something is inconsistent."""
    problems = with_store(lambda store: store.verify())
    if output.is_document:
        print_document({"consistent": not problems, "problems": problems}, output)
    else:
        for problem in problems or ["all is consistent"]:
            echo(problem)
    return ExitCode.FAILED if problems else ExitCode.OK


@db.command("assign")
def assign_to_namespace(
    name: Annotated[str, typer.Argument(metavar="ID", help="A data set or a job that a file has declared.")],
    into: Annotated[str, typer.Argument(metavar="NAMESPACE", help="The namespace of its future resource.")],
) -> None:
    """Move a data set or a job of a file into a namespace, with its chunks, runs and history.

    A data set and a job of the same id move together. Its resource takes it over then.
    """
    moved_rows = with_store(lambda store: store.assign(name, into, actor()))
    counts = ", ".join(counted(moved_rows[table], word) for table, word in _ASSIGNED.items() if moved_rows[table])
    echo(f"{name} is {into}/{name} now: {counts}")


@db.command("move")
def move_database(
    dsn: Annotated[
        str,
        typer.Argument(
            metavar="DSN", help="The new address, without a password: postgresql://user@host:5432/database."
        ),
    ],
) -> None:
    """Move all state to another database. Afterwards every command on the old one fails, and names the new one."""
    require_postgres()
    if has_password(dsn):
        raise InvalidInput(
            "the address has a password, which other users of this machine can read: leave it out, and use PGPASSWORD "
            "or ~/.pgpass"
        )
    settings = read_settings()
    database, folders = _database()
    if folders and not embedded_exists(settings):
        raise Refused(
            f"there is no embedded database in {settings.postgres_home} to move: set "
            "DATAFLOW_DSN to the database that is to be moved, or DATAFLOW_HOME to its folder"
        )

    async def ask() -> Moved | None:
        async with database as source, await connect(source()) as old:
            if is_moved_to(await read_state(old), dsn):
                return None
            if folders:
                await migrate(old, folders=folders)
            async with await connect(dsn) as new:
                return await move(old, new, dsn, _note, lambda line: echo(line, err=True))

    _print_move(asyncio.run(ask()))


def _print_move(done: Moved | None) -> None:
    if done is None:
        echo("moved already")
        return
    for line in done.notes:
        echo(line, err=True)
    rows = ", ".join(counted(done.rows[table], word) for table, word in _COUNTED.items())
    found = "" if done.copied else "; an earlier attempt had copied all of it"
    echo(f"moved to {done.address}: {rows}{found}")
    echo(f"next: export DATAFLOW_DSN={shlex.quote(done.address)}")
