"""The entry point `RunJob SCRIPT [ARGS…]`."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from opendataflow.core.wrapped import job_of
from opendataflow.engine.passwords import Passwords
from opendataflow.errors import DataflowError, InvalidInput
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.runjob.passwords import split_key
from opendataflow.runjob.wrap import Wrap, Wrapper
from opendataflow.settings import read_settings
from opendataflow.store.opening import open_store


def main() -> None:
    """Run one chunk of the script's job and exit with the script's exit code."""
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    try:
        passkey, command = split_key(sys.argv[1:], os.environ)
        if passkey is not None and "PASSKEY" not in os.environ:
            sys.stderr.write(
                "the passkey is an argument, which other users of this machine can read: set PASSKEY instead\n"
            )
        sys.exit(run(_wrap(command), passkey))
    except DataflowError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


def run(wrap: Wrap, passkey: str | None) -> int:
    """Run one chunk; return the exit code."""
    return asyncio.run(_run(wrap, Passwords(passkey)))


def _wrap(arguments: Sequence[str]) -> Wrap:
    if not arguments:
        raise InvalidInput("RunJob needs a script: RunJob ./myETL.sh [ARGS…]; its name is the job's")
    return Wrap(job_of(arguments[0]), tuple(arguments))


async def _run(wrap: Wrap, passwords: Passwords) -> int:
    settings = read_settings()
    async with open_store(settings, size=2) as store:
        wrapper = Wrapper(store, ProcessLauncher(settings.runs_home, foreground=True), passwords, _say)
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
