"""The entry point `RunJob SCRIPT [ARGS…]`."""

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence

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
        launcher = ProcessLauncher(settings.runs_home, foreground=True)
        wrapper = Wrapper(store, launcher, _say)
        stopped = _stop_on_signals(wrapper, launcher)
        code = await wrapper.once(wrap)
        return 128 + stopped[0] if stopped else code


def _say(line: str) -> None:
    try:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except OSError:
        pass  # the reader has gone; the run goes on


def _stop_on_signals(wrapper: Wrapper, launcher: ProcessLauncher) -> list[int]:
    """End the script at SIGINT or SIGTERM; its work is given back. Return the list that receives the signals."""
    received: list[int] = []
    tasks: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()

    def stop(number: int) -> None:
        received.append(number)
        if wrapper.run is not None:
            tasks.add(loop.create_task(launcher.kill(wrapper.run, cancelled=False)))

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop, number)
    return received


if __name__ == "__main__":
    main()
