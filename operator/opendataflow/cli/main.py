"""The entry point `dataflow`: errors become one sentence and an exit code."""

import logging
import os
import sys

import click

from opendataflow.cli import apply, db, get, local, status, verbs  # noqa: F401  # each registers its commands
from opendataflow.cli.app import app
from opendataflow.errors import DataflowError
from opendataflow.names import ExitCode


def main() -> None:
    """Run the command line and exit."""
    # The pool reports every attempt to connect; what matters of it is told by the one who asked.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; return its exit code (docs/reference/exit-codes.md)."""
    try:
        result = app(arguments, prog_name="dataflow", standalone_mode=False)
        return int(result) if isinstance(result, int) else int(ExitCode.OK)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        error.show()
        return int(ExitCode.USAGE)
    except DataflowError as error:
        sys.stderr.write(f"error: {error}\n")
        return int(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError:
        # The reader has gone, as `head` does. Nothing more can be printed, also not at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return int(ExitCode.OK)
