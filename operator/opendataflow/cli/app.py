"""The Typer application that all commands share, and helpers to run a command."""

import asyncio
import getpass
import os
import re
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from opendataflow.cli.cluster.choice import require_postgres
from opendataflow.cli.output.printing import Output
from opendataflow.errors import InvalidInput
from opendataflow.names import CONTROLS
from opendataflow.settings import read_settings

if TYPE_CHECKING:  # the client of Postgres takes long to load, and a help does not need it
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


app = typer.Typer(
    name="dataflow",
    help="Run partitioned batch work when its data is ready.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # the help of Rich takes a tenth of a second longer
)


@app.callback()
def _options(
    _: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
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


def with_store(ask: Callable[["Store"], Awaitable[T]]) -> T:
    """Open the store, call `ask` with the store, close the store, and return the result."""
    from opendataflow.opening.database import open_store

    require_postgres()

    async def open_and_ask() -> T:
        async with open_store(read_settings(), size=1) as store:
            return await ask(store)

    return asyncio.run(open_and_ask())
