"""Imports the module of a command and runs the command. An error becomes one sentence and an exit code.

A command imports only what it needs: all modules together take longer than most commands.
"""

import logging
import sys
from collections.abc import Iterable
from importlib import import_module

import typer

from opendataflow.cli.app import Panel, app
from opendataflow.cli.cluster.choice import add_cluster_options
from opendataflow.cli.output.screen import silence_stdout
from opendataflow.core.text.verbs import VERBS
from opendataflow.errors import DataflowError
from opendataflow.names import ExitCode
from opendataflow.stdio import write_line

_LEGACY = (
    *("sql", "dml", "runs", "jobs", "datasets", "getjob", "GetJobData", "endjob", "SetDataStatus", "createtables"),
    *("ddl", "startjob", "deleterun", "forcejob"),
)
MODULES: dict[str, tuple[str, ...]] = {
    "apply": ("jobs.apply",),
    "init": ("jobs.init",),
    "local": ("jobs.local",),
    "run": ("jobs.wrap",),
    "pipeline": ("pipeline.commands", "pipeline.history"),
    "status": ("reports.status",),
    "why": ("reports.status",),
    "get": ("reports.get",),
    "inspect": ("reports.inspection",),
    "five": ("reports.inspection",),
    "describe": ("reports.describe",),
    "logs": ("reports.logs",),
    **dict.fromkeys((*(verb.name for verb in VERBS), "lost"), ("jobs.verbs",)),
    **dict.fromkeys(("scale", "suspend", "resume"), ("jobs.scale",)),
    "delete": ("jobs.delete",),
    "chunks": ("chunks.load", "chunks.plan", "chunks.check"),
    "doctor": ("administration.doctor",),
    "db": ("administration.db",),
    "crypt": ("administration.crypt",),
    "notify": ("administration.notify",),
    "history": ("reports.history",),
    **dict.fromkeys(_LEGACY, ("legacy.commands",)),
    "import-legacy": ("legacy.import_legacy",),
}
"""Command -> the modules that register it and its subcommands. Their order is the order of `dataflow --help`."""


def all_commands() -> typer.Typer:
    """Return the application with all commands, for the help, the completion and an unknown command."""
    return _with_modules(module for modules in MODULES.values() for module in modules)


def _with_modules(modules: Iterable[str]) -> typer.Typer:
    for module in modules:
        import_module(f"opendataflow.cli.{module}")
    add_cluster_options(app, {Panel.SHOW, Panel.CHANGE})
    return app


def application_of(arguments: list[str]) -> typer.Typer:
    """Return the application with at least the command that the arguments name."""
    modules = MODULES.get(arguments[0]) if arguments else None
    return all_commands() if modules is None else _with_modules(modules)


def run(arguments: list[str]) -> int:
    """Run one command; return its exit code (docs/reference/exit-codes.md)."""
    # The pool logs every attempt to connect. The caller reports the final error.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    try:
        result = application_of(arguments)(arguments, prog_name="dataflow", standalone_mode=False)
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
