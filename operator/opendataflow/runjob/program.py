"""RunJob and `dataflow run` as programs: what they run, with which database, and who may stop them."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from opendataflow.core.runs.wrapped import job_of
from opendataflow.engine.passwords import Passwords
from opendataflow.errors import DataflowError, InvalidInput
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.names import ExitCode
from opendataflow.opening.database import open_store
from opendataflow.opening.passkey import Passkey
from opendataflow.runjob.passwords import split_key
from opendataflow.runjob.wrap import Wrap, Wrapper
from opendataflow.settings import read_settings
from opendataflow.stdio import write_line


def run_script(arguments: Sequence[str]) -> int:
    """Run one chunk of the script's job; return the script's exit code, or that of a sentence on stderr."""
    try:
        key, command = split_key(arguments, os.environ)
        if key is not None:
            write_line(
                sys.stderr,
                "the passkey is an argument, which other users of this machine can read: set PASSKEY instead",
            )
        return run(_wrap(command), Passkey(argument=key))
    except DataflowError as error:
        write_line(sys.stderr, f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:  # instead of a passkey; a script that runs is ended by its own handler
        return ExitCode.INTERRUPTED


def run(wrap: Wrap, passkey: Passkey) -> int:
    """Run one chunk; return the exit code."""
    return asyncio.run(_run(wrap, passkey))


def _wrap(arguments: Sequence[str]) -> Wrap:
    if not arguments:
        raise InvalidInput("RunJob needs a script: RunJob ./myETL.sh [ARGS…]; its name is the job's")
    return Wrap(job_of(arguments[0]), tuple(arguments))


async def _run(wrap: Wrap, passkey: Passkey) -> int:
    settings = read_settings()
    async with open_store(settings, size=1, passkey=passkey) as store:
        passwords = Passwords(passkey)
        launcher = ProcessLauncher(settings.runs_home, foreground=True, redactor=passwords.redactor)
        wrapper = Wrapper(store, launcher, passwords, _say)
        _stop_on_signals(wrapper)
        return await wrapper.once(wrap)


def _say(line: str) -> None:
    write_line(sys.stdout, line)


def _stop_on_signals(wrapper: Wrapper) -> None:
    """End the script at SIGINT, SIGTERM or SIGHUP; its chunk is given back. What nohup has taken away stays so."""
    stopping: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, lambda: stopping.add(loop.create_task(wrapper.stop())))
