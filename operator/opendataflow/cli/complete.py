"""Shell completion: ids of jobs, of data sets, and of their chunks or tasks.

A completion runs whenever a person presses TAB. Therefore it prints nothing, ignores errors and ends within two
seconds. It queries a running database only: it never starts the embedded one and never changes
anything.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

import typer

_SECONDS = 2.0
_MOST = 50


def complete_job(incomplete: str) -> list[str]:
    """Return ids of jobs that start with `incomplete`."""
    return _starting(incomplete, "job")


def complete_dataset(incomplete: str) -> list[str]:
    """Return ids of data sets that start with `incomplete`."""
    return _starting(incomplete, "dataset")


def complete_owner(context: typer.Context, incomplete: str) -> list[str]:
    """Return ids of jobs, or of data sets if --dataset is given."""
    return _starting(incomplete, "dataset" if context.params.get("dataset") else "job")


def complete_data_id(context: typer.Context, incomplete: str) -> list[str]:
    """Return data ids of the job or data set that precedes this argument."""
    owner = next((context.params[name] for name in ("owner", "job", "dataset") if context.params.get(name)), None)
    return _starting(incomplete, "data_id", owner) if isinstance(owner, str) else []


def _starting(incomplete: str, kind: str, owner: str | None = None) -> list[str]:
    logging.disable(logging.CRITICAL)
    found: Sequence[str] = ()
    with suppress(Exception):  # the shell would print an error into the line that the person types
        found = asyncio.run(_within_time(kind, owner, incomplete))
    return list(found)


async def _within_time(kind: str, owner: str | None, start: str) -> list[str]:
    from opendataflow.opening.database import existing_dsn  # every command imports this module, for its arguments
    from opendataflow.opening.passkey import Passkey
    from opendataflow.settings import read_settings
    from opendataflow.store.connections.peek import ids_starting_with

    async with asyncio.timeout(_SECONDS):
        dsn = await asyncio.to_thread(existing_dsn, read_settings(), Passkey(asks=False))
        return [] if dsn is None else await ids_starting_with(dsn, kind, owner, start, _MOST)
