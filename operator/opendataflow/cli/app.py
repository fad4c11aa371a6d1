"""What all commands share: the application, how a command runs, and who is asking."""

import asyncio
import getpass
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated, TypeVar

import typer

from opendataflow import __version__
from opendataflow.cli.cluster.where import require_postgres
from opendataflow.cli.output.printing import Output
from opendataflow.opening.database import open_store
from opendataflow.settings import read_settings
from opendataflow.stdio import write_line
from opendataflow.store.store import Store

T = TypeVar("T")

OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Form of the answer.")]


class Panel(StrEnum):
    """The headings of `dataflow --help`."""

    WORK = "Declare and run"
    SEE = "See"
    ASK = "Ask for"
    KEEP = "Look after it"
    OLD = "Known from the Java framework"


app = typer.Typer(
    name="dataflow",
    help="Run partitioned batch work when its data is ready.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _say_version(wanted: bool) -> None:
    if wanted:
        write_line(sys.stdout, f"dataflow {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def actor() -> str:
    """Who is asking, for the history: user@host; in a container the user may have only a number."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def with_store(ask: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store, ask it, close it."""
    require_postgres()

    async def asked() -> T:
        async with open_store(read_settings()) as store:
            return await ask(store)

    return asyncio.run(asked())
