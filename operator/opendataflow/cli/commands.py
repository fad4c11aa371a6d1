"""Registers all commands and runs one of them. An error becomes one sentence and an exit code."""

import logging
import sys

import typer

# isort: off
# Each module registers its commands. Their order here is the order of `dataflow --help`.
import opendataflow.cli.jobs.apply
import opendataflow.cli.jobs.init
import opendataflow.cli.jobs.local
import opendataflow.cli.jobs.wrap
import opendataflow.cli.pipeline.commands
import opendataflow.cli.pipeline.history
import opendataflow.cli.reports.status
import opendataflow.cli.reports.get
import opendataflow.cli.reports.inspection
import opendataflow.cli.reports.describe
import opendataflow.cli.reports.logs
import opendataflow.cli.jobs.verbs
import opendataflow.cli.jobs.scale
import opendataflow.cli.chunks.load
import opendataflow.cli.chunks.plan
import opendataflow.cli.chunks.check
import opendataflow.cli.administration.doctor
import opendataflow.cli.administration.db
import opendataflow.cli.administration.crypt
import opendataflow.cli.administration.notify
import opendataflow.cli.reports.history
import opendataflow.cli.legacy.commands
import opendataflow.cli.legacy.import_legacy  # noqa: F401

# isort: on
from opendataflow.cli.app import Panel, app
from opendataflow.cli.cluster.choice import add_cluster_options
from opendataflow.cli.output.printing import silence_stdout
from opendataflow.errors import DataflowError
from opendataflow.names import ExitCode
from opendataflow.stdio import write_line

add_cluster_options(app, {Panel.SHOW, Panel.CHANGE})


def run(arguments: list[str]) -> int:
    """Run one command; return its exit code (docs/reference/exit-codes.md)."""
    # The pool logs every attempt to connect. The caller reports the final error.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    try:
        result = app(arguments, prog_name="dataflow", standalone_mode=False)
        _flush()
    except DataflowError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        return _fail(_usage(error), ExitCode.USAGE)
    except typer.Abort:
        return _fail("nothing was confirmed, so nothing was changed", ExitCode.INTERRUPTED)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except SystemExit:  # Typer raises this only if the reader of the output has closed the pipe
        silence_stdout()
        return ExitCode.OK
    return result if isinstance(result, int) else ExitCode.OK


def _fail(sentence: str, code: ExitCode) -> ExitCode:
    _flush()
    if sentence:
        write_line(sys.stderr, f"error: {sentence}")
    return code


def _flush() -> None:
    """Flush stdout, to notice a closed pipe here and not at the exit of the interpreter."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()


def _usage(error: typer.TyperException) -> str:
    """Return the sentence for wrong arguments, with the command that shows the help.

    Return an empty text if Typer has printed the help instead, because no argument was given.
    """
    message = error.format_message().replace("Value error, ", "").rstrip(".")
    if not message:
        return ""
    context = getattr(error, "ctx", None)
    where = f"see `{context.command_path if context else 'dataflow'} --help`"
    return f"{message[:1].lower()}{message[1:]}" + (f" Else {where}" if message.endswith("?") else f"; {where}")
