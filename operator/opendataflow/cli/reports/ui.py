"""`dataflow ui`: serves the dashboard for a browser on this machine."""

import asyncio
from typing import Annotated

import typer

from opendataflow.cli.app import actor, app
from opendataflow.cli.cluster.choice import require_postgres
from opendataflow.cli.output.printing import echo
from opendataflow.settings import read_settings

_CONNECTIONS = 5  # one of them listens


@app.command("ui")
def ui(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port on 127.0.0.1. 0: any free one.")
    ] = 8642,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show everything and change nothing.")] = False,
) -> None:
    """Serve the dashboard on 127.0.0.1 until Ctrl-C, and print its URL.

    The URL has a random token: whoever has it can use the dashboard. What it changes is in the history under your name.
    """
    from opendataflow.dashboard.server import serve  # with aiohttp and Jinja
    from opendataflow.opening.database import open_store

    require_postgres()

    async def run() -> None:
        async with open_store(read_settings(), size=_CONNECTIONS) as store:
            person = "" if read_only else actor()
            await serve(store, port, person, lambda url: echo(f"dashboard: {url}\nCtrl-C ends it"))

    asyncio.run(run())
