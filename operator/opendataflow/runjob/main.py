"""The entry point `RunJob SCRIPT [ARGS…]`."""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from opendataflow.core.wrapped import job_of
from opendataflow.errors import DataflowError, InvalidInput
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.runjob.wrap import Wrap, Wrapper
from opendataflow.settings import read_settings
from opendataflow.store.opening import open_store


def main() -> None:
    """Run one chunk of the script's job and exit with the script's exit code."""
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    try:
        sys.exit(run(_wrap(sys.argv[1:])))
    except DataflowError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


def run(wrap: Wrap) -> int:
    """Run one chunk; return the exit code."""
    return asyncio.run(_run(wrap))


def _wrap(arguments: Sequence[str]) -> Wrap:
    if not arguments:
        raise InvalidInput("RunJob needs a script: RunJob ./myETL.sh [ARGS…]; its name is the job's")
    return Wrap(job_of(arguments[0]), tuple(arguments))


async def _run(wrap: Wrap) -> int:
    settings = read_settings()
    async with open_store(settings, size=2) as store:
        wrapper = Wrapper(store, ProcessLauncher(settings.runs_home, foreground=True), _say)
        _stop_on_signals(wrapper)
        return await wrapper.once(wrap)


def _say(line: str) -> None:
    with suppress(OSError):  # the reader has gone; the run goes on
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def _stop_on_signals(wrapper: Wrapper) -> None:
    """End the script at SIGINT, SIGTERM or SIGHUP; its chunk is given back."""
    tasks: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, lambda: tasks.add(loop.create_task(wrapper.stop())))


if __name__ == "__main__":
    main()
