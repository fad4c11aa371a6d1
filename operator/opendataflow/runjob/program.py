"""The main functions of RunJob and `dataflow run`: they open the store, handle signals and run one chunk."""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from opendataflow.engine.passwords import Passwords
from opendataflow.errors import DataflowError
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.names import ExitCode
from opendataflow.opening.database import database_name, open_store
from opendataflow.opening.passkey import Passkey
from opendataflow.runjob.arguments import parse_call
from opendataflow.runjob.wrap import ScriptRunner, WrappedCommand
from opendataflow.settings import read_settings
from opendataflow.stdio import write_line
from opendataflow.store.leader import identity


def run_script(arguments: Sequence[str], beside: Path) -> int:
    """Run one chunk of the script's job. Return the script's exit code. `beside`: the folder of RunJob.

    If an error prevents the run, print the error on stderr and return its exit code.
    """
    try:
        call = parse_call(list(arguments), os.environ, beside)
        if call.key is not None:
            write_line(
                sys.stderr,
                "the passkey is an argument, which other users of this machine can read: set PASSKEY instead",
            )
        key = None if "PASSKEY" in os.environ else call.key
        return run(WrappedCommand(call.job, call.command, beside=beside, literal=call.literal), Passkey(argument=key))
    except DataflowError as error:
        write_line(sys.stderr, f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:  # at the prompt for a passkey; while a script runs, a signal handler ends it
        return ExitCode.INTERRUPTED


def run(wrapped: WrappedCommand, passkey: Passkey) -> int:
    """Run one chunk and return the exit code."""
    return asyncio.run(_run(wrapped, passkey))


async def _run(wrapped: WrappedCommand, passkey: Passkey) -> int:
    settings = read_settings()
    async with open_store(settings, size=1, passkey=passkey) as store:
        passwords = Passwords(passkey)
        launcher = ProcessLauncher(
            settings.runs_home(await identity(store)),
            former_home=settings.all_runs,
            foreground=True,
            redactor=passwords.redactor,
        )
        runner = ScriptRunner(store, launcher, passwords, _print, database_name(settings, store.where))
        _stop_on_signals(runner)
        return await runner.run(wrapped)


def _print(line: str) -> None:
    write_line(sys.stdout, line)


def _stop_on_signals(runner: ScriptRunner) -> None:
    """End the script at SIGINT, SIGTERM or SIGHUP. Its task is tried again.

    A signal that is ignored already, as under nohup, stays ignored.
    """
    stopping: set[asyncio.Task[None]] = set()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, lambda: stopping.add(loop.create_task(runner.stop())))
