"""All commands, and how one is run: errors become one sentence and an exit code."""

import logging
import sys

import typer

# Each of these registers its commands.
import opendataflow.cli.administration.crypt
import opendataflow.cli.administration.db
import opendataflow.cli.administration.doctor
import opendataflow.cli.administration.notify
import opendataflow.cli.chunks.check
import opendataflow.cli.chunks.load
import opendataflow.cli.chunks.plan
import opendataflow.cli.jobs.apply
import opendataflow.cli.jobs.init
import opendataflow.cli.jobs.local
import opendataflow.cli.jobs.scale
import opendataflow.cli.jobs.verbs
import opendataflow.cli.jobs.wrap
import opendataflow.cli.legacy.commands
import opendataflow.cli.legacy.import_legacy
import opendataflow.cli.pipeline.commands
import opendataflow.cli.pipeline.history
import opendataflow.cli.reports.describe
import opendataflow.cli.reports.get
import opendataflow.cli.reports.history
import opendataflow.cli.reports.logs
import opendataflow.cli.reports.status  # noqa: F401
from opendataflow.cli.app import Panel, app
from opendataflow.cli.cluster.where import add_to
from opendataflow.cli.output.printing import silence
from opendataflow.errors import DataflowError
from opendataflow.names import ExitCode
from opendataflow.stdio import write_line

add_to(app, {Panel.SEE, Panel.ASK})


def run(arguments: list[str]) -> int:
    """Run one command; return its exit code (docs/reference/exit-codes.md)."""
    # The pool reports every attempt to connect; what matters of it is told by the one who asked.
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
    except SystemExit:  # Typer's way of telling that the reader of the output has gone, and its only use of it
        silence()
        return ExitCode.OK
    return result if isinstance(result, int) else ExitCode.OK


def _fail(sentence: str, code: ExitCode) -> ExitCode:
    _flush()
    if sentence:
        write_line(sys.stderr, f"error: {sentence}")
    return code


def _flush() -> None:
    """Print what is waiting: a reader that has gone is noticed here, and not when the interpreter ends."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence()


def _usage(error: typer.TyperException) -> str:
    """What is wrong with the arguments, and where to read on; nothing where the help was printed for want of any."""
    said = error.format_message().replace("Value error, ", "").rstrip(".")
    if not said:
        return ""
    context = getattr(error, "ctx", None)
    where = f"see `{context.command_path if context else 'dataflow'} --help`"
    return f"{said[:1].lower()}{said[1:]}" + (f" Else {where}" if said.endswith("?") else f"; {where}")
