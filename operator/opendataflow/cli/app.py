"""The Typer application that all commands share, and helpers to run a command."""

import asyncio
import getpass
import os
import re
import socket
import sys
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated, TypeVar

import typer

from opendataflow import __version__
from opendataflow.cli.cluster.choice import require_postgres
from opendataflow.cli.output.printing import Output
from opendataflow.errors import InvalidInput
from opendataflow.names import CONTROLS
from opendataflow.opening.database import open_store
from opendataflow.settings import read_settings
from opendataflow.stdio import write_line
from opendataflow.store.store import Store

T = TypeVar("T")


def _one_line(reason: str | None) -> str | None:
    if reason is not None and re.search(f"[{CONTROLS}]", reason):
        raise InvalidInput(f'--reason: one line of text is wanted, without control characters, found "{reason}"')
    return reason


ReasonOption = Annotated[str | None, typer.Option("--reason", callback=_one_line, help="The reason, for the history.")]
AllowOverlapOption = Annotated[
    bool, typer.Option("--allow-overlap", help="Allow chunks whose bounds overlap those of others.")
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]


class Panel(StrEnum):
    """Headings of `dataflow --help`."""

    RUN = "Declare and run"
    SHOW = "Show"
    CHANGE = "Change"
    MAINTAIN = "Maintain"
    LEGACY = "Known from the Java framework"


app = typer.Typer(
    name="dataflow",
    help="Run partitioned batch work when its data is ready.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        write_line(sys.stdout, f"dataflow {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def actor() -> str:
    """Return the person who runs the command, as user@host, for the history.

    In a container the user may have no name; then the user is a number.
    """
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def with_store(ask: Callable[[Store], Awaitable[T]]) -> T:
    """Open the store, call `ask` with the store, close the store, and return the result."""
    require_postgres()

    async def open_and_ask() -> T:
        async with open_store(read_settings()) as store:
            return await ask(store)

    return asyncio.run(open_and_ask())
