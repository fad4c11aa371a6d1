"""Answers `dataflow`, `dataflow --help` and `dataflow --version`, without importing any command."""

import os
import sys
import textwrap

from opendataflow import __version__
from opendataflow.cli.contents import COMMANDS, NOUNS, PANELS, SYNONYMS
from opendataflow.names import ExitCode
from opendataflow.stdio import write_line

_HELP = ("--help", "-h", "help")
_VERSION = ("--version", "version")
_WIDTH = 15
EXIT_CODES = (
    "Exit codes: 0 done, 1 refused or failed, 2 wrong input, 3 not everything is done, 4 the database or the cluster "
    "does not answer, 5 the schema does not match, 6 something is stale, 75 nothing can run now, 130 interrupted."
)
_LAST = """Examples:
  dataflow local -f job.yaml --until-caught-up
  dataflow why delays 2013-09

Options:
  -h, --help             Show this help, or that of a command: dataflow COMMAND --help
  --version              Print the version.
  --install-completion   Complete commands and ids with the Tab key in the current shell.
  --show-completion      Print the script for the completion.
"""


def answer(arguments: list[str]) -> int | None:
    """Print the help or the version if that is all that the arguments ask for. Return the exit code, else None."""
    if any(name.endswith("_COMPLETE") and name.startswith("_") for name in os.environ):
        return None  # a shell asks for completions, without arguments
    if not arguments or (len(arguments) == 1 and arguments[0] in _HELP):
        write_line(sys.stdout, overview())
        return ExitCode.OK if arguments else ExitCode.USAGE
    if arguments[0] in _VERSION:
        write_line(sys.stdout, f"dataflow {__version__}")
        return ExitCode.OK
    return None


def overview() -> str:
    """Return the help of the program: all commands under their headings."""
    parts = ["Usage: dataflow [OPTIONS] COMMAND [ARGUMENTS]...", "Run partitioned batch work when its data is ready."]
    for panel in PANELS:
        listed = [(name, entry.summary) for name, entry in COMMANDS.items() if entry.panel == panel]
        lines = [f"  {name.ljust(_WIDTH)}{summary}" for name, summary in listed]
        parts.append("\n".join([f"{panel}:", *lines]))
    return "\n\n".join([*parts, _LAST.rstrip(), textwrap.fill(EXIT_CODES, 100)])


def with_usual_names(arguments: list[str]) -> list[str]:
    """Return the arguments with the names of the commands: `get job` is `get jobs`, `help get` is `get --help`."""
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    first = SYNONYMS.get(arguments[0], arguments[0]) if arguments else ""
    forms = NOUNS.get(first, {})
    return [first, *(forms.get(word, word) for word in arguments[1:2]), *arguments[2:]] if arguments else []
