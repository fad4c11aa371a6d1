"""The server of `dataflow ui`: composes access, pages and static files, and runs until it is stopped."""

import asyncio
import errno
import secrets
import signal
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from aiohttp import web

from opendataflow.dashboard.access import HOST, LaptopAccess, add_headers
from opendataflow.dashboard.acting import ACTIONS, ACTOR
from opendataflow.dashboard.grid import Cells
from opendataflow.dashboard.live import CHANGES, Changes, events
from opendataflow.dashboard.pages import CELLS, DATABASE, ROUTES, TOKEN, answer_errors
from opendataflow.errors import Refused
from opendataflow.store.database import Database

STATIC = Path(str(files("opendataflow"))) / "dashboard" / "static"
_MOST_BYTES = 16 * 1024
"""The longest body of a form."""


def application(database: Database, access: LaptopAccess, actor: str = "") -> web.Application:
    """Return the application over one database. `actor`: who changes something, for the history; empty: only read."""
    app = web.Application(middlewares=[access.check, answer_errors], client_max_size=_MOST_BYTES)
    app[DATABASE], app[CELLS], app[CHANGES] = database, Cells(database), Changes(database)
    app[ACTOR], app[TOKEN] = actor, secrets.token_urlsafe(32) if actor else ""
    app.on_response_prepare.append(add_headers)
    app.on_startup.append(_start)
    app.on_shutdown.append(_stop)
    app.add_routes([*ROUTES, *ACTIONS])
    app.router.add_get("/events", events, allow_head=False)
    app.router.add_static("/static", STATIC)
    return app


async def _start(app: web.Application) -> None:
    app[CHANGES].start()


async def _stop(app: web.Application) -> None:
    await app[CHANGES].close()


async def serve(database: Database, port: int, actor: str, note: Callable[[str], object]) -> None:
    """Serve the dashboard until SIGINT or SIGTERM. `port`: 0 for a free one. `note` gets the URL.

    `actor`: who changes something; empty if the dashboard only reads.

    Raise Refused if the port is in use.
    """
    access = LaptopAccess()
    runner = web.AppRunner(application(database, access, actor), access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await _listen(runner, port)
        stopped = _stop_on_signals()
        note(access.url(runner.addresses[0][1]))
        await stopped.wait()
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, port: int) -> None:
    try:
        await web.TCPSite(runner, HOST, port).start()
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        reason = "is in use" if error.errno == errno.EADDRINUSE else "is not allowed for this user"
        raise Refused(f"port {port} of {HOST} {reason}: choose another one with --port, or 0 for a free one") from None


def _stop_on_signals() -> asyncio.Event:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    return stopped
