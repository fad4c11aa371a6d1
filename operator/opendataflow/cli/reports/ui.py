"""`dataflow ui`: serves the dashboard for a browser on this machine."""

import asyncio
from typing import Annotated

import typer

from opendataflow.cli.app import app
from opendataflow.cli.cluster.choice import require_postgres
from opendataflow.cli.output.printing import echo
from opendataflow.settings import read_settings

_CONNECTIONS = 5  # one of them listens


@app.command("ui")
def ui(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="The port on 127.0.0.1. 0: any free one.")
    ] = 8642,
) -> None:
    """Serve the dashboard on 127.0.0.1 until Ctrl-C, and print its URL. It shows everything and changes nothing.

    The URL has a random token: whoever has it can read the dashboard.
    """
    from opendataflow.dashboard.server import serve  # with aiohttp and Jinja
    from opendataflow.opening.database import open_store

    require_postgres()

    async def run() -> None:
        async with open_store(read_settings(), size=_CONNECTIONS) as store:
            await serve(store, port, lambda url: echo(f"dashboard: {url}\nCtrl-C ends it"))

    asyncio.run(run())
