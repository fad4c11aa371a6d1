"""Imports the module of a command and runs the command. An error becomes one sentence and an exit code.

A command imports only what it needs: all modules together take longer than most commands.
"""

import logging
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any

import typer
from typer.main import get_command

from opendataflow.cli import overview
from opendataflow.cli.app import app
from opendataflow.cli.cluster.choice import CLUSTER_OPTIONS, chosen_cluster
from opendataflow.cli.contents import COMMANDS, EXAMPLES, Panel
from opendataflow.cli.options import UTC_OPTIONS, add_options, in_time_zone
from opendataflow.cli.output.screen import silence_stdout
from opendataflow.cli.overview import EXIT_CODES
from opendataflow.cli.values import convert_without_pydantic
from opendataflow.errors import DataflowError
from opendataflow.names import ExitCode
from opendataflow.stdio import write_line


def all_commands() -> typer.Typer:
    """Return the application with all commands, for the help, the completion and an unknown command."""
    return _with_modules(module for entry in COMMANDS.values() for module in entry.modules)


def _with_modules(modules: Iterable[str]) -> typer.Typer:
    for module in modules:
        import_module(f"opendataflow.cli.{module}")
    shows, changes = ([name for name, it in COMMANDS.items() if it.panel == one] for one in (Panel.SHOW, Panel.CHANGE))
    add_options(app, [*shows, *changes], CLUSTER_OPTIONS, chosen_cluster)
    add_options(app, shows, UTC_OPTIONS, in_time_zone)
    return app


def application_of(arguments: list[str]) -> typer.Typer:
    """Return the application with at least the command that the arguments name."""
    entry = COMMANDS.get(arguments[0]) if arguments else None
    return all_commands() if entry is None else _with_modules(entry.modules)


def command_of(arguments: list[str]) -> Any:
    """Return the command line for the arguments: with examples in its help, and its own conversion of values."""
    convert_without_pydantic()
    command = get_command(application_of(arguments))
    _complete_help(command, "")
    return command


def _complete_help(command: Any, name: str) -> None:
    """Add examples and exit codes to the help of a command and its subcommands, and `-h`."""
    # For `crypt`, `-h…` may be the begin of a secret that somebody has typed.
    helps = ["--help"] if name.startswith("crypt ") else ["-h", "--help"]
    command.context_settings = {**command.context_settings, "help_option_names": helps}
    for parameter in command.params:
        parameter.metavar = parameter.metavar or _metavar(parameter)
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = _no_type
    if name in EXAMPLES:
        lines = [f"  {example}" for example in EXAMPLES[name]]
        command.epilog = "\n".join(["\b", "Examples:", *lines, "", EXIT_CODES])
    for word, subcommand in getattr(command, "commands", {}).items():
        _complete_help(subcommand, f"{name} {word}".strip())


def _no_type(ctx: Any) -> str:  # noqa: ARG001  the signature of Typer
    return ""


def _metavar(parameter: Any) -> str | None:
    """Return the word for the value of a parameter in its help. None: a flag, or one that lists its choices."""
    kind = parameter.type_descriptor
    if parameter.param_type_name == "argument":
        return str(parameter.name).upper()
    if kind.annotation is bool or kind.is_choice:
        return None
    return "NUMBER" if kind.annotation in (int, float) else "FILE" if kind.is_path else "TEXT"


def run(arguments: list[str]) -> int:
    """Run one command; return its exit code (docs/reference/exit-codes.md)."""
    answered = overview.answer(arguments)
    if answered is not None:
        return answered
    arguments = overview.with_usual_names(arguments)
    # The pool logs every attempt to connect. The caller reports the final error.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    try:
        result = command_of(arguments)(arguments, prog_name="dataflow", standalone_mode=False)
        _flush()
    except DataflowError as error:
        return _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        return _fail(_usage(error), ExitCode.USAGE)
    except typer.Abort:
        return _fail("nothing was confirmed, so nothing was changed", ExitCode.INTERRUPTED)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except OSError as error:  # of stdout: commands handle the errors of their files
        if error.filename is not None:
            return _fail(f"{error.filename}: {error.strerror}", ExitCode.FAILED)
        silence_stdout()
        return _fail(f"the output can't be written: {error.strerror}", ExitCode.FAILED)
    except SystemExit:  # Typer raises this only if the reader of the output has closed the pipe
        silence_stdout()
        return ExitCode.OK
    return result if isinstance(result, int) else ExitCode.OK


def _fail(sentence: str, code: ExitCode) -> ExitCode:
    _flush_quietly()
    if sentence:
        write_line(sys.stderr, f"error: {sentence}")
    return code


def _flush() -> None:
    """Flush stdout, to notice a closed pipe here and not at the exit of the interpreter."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()


def _flush_quietly() -> None:
    with suppress(OSError):
        _flush()


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
