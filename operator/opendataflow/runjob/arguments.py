"""Understands the arguments of RunJob: its own options, and the forms of the old framework.

A word that may be a passkey is never printed.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from opendataflow import __version__
from opendataflow.errors import InvalidInput
from opendataflow.runjob.programs import PROGRAM_SUFFIXES, locate
from opendataflow.stdio import write_line

HELP = """Usage: RunJob [--literal] SCRIPT [ARGUMENTS]...

Run one ready chunk of the job that has the script's name, and exit with the script's exit code.

  RunJob ./loadbob.sh one two         the job is loadbob
  RunJob ./loadbob.sh '$dataid'       the script gets the data id of its chunk as its first argument
  RunJob KEY ./loadbob.sh one two     the old form with a passkey; set PASSKEY instead
  RunJob KEY loadbob ./any.sh one     the old form with a passkey and a job

A relative script is looked for in the current folder, and then beside RunJob. $NAME and ${NAME} in the arguments become
the variables of the run (docs/reference/environment.md). Nothing is split or executed.

Options, before the script:
  --literal      Give the arguments to the script as they are.
  -h, --help     Show this message.
  --version      Print the version.

Exit codes: that of the script, 75 nothing can run now, 2 wrong input, 4 the database does not answer, 143 stopped.
`dataflow run` does the same with more options."""


class Call(NamedTuple):
    """A call of RunJob. `key`: the passkey among the arguments. `literal`: whether arguments stay as they are."""

    job: str
    command: tuple[str, ...]
    key: str | None = None
    literal: bool = False


def answer(arguments: Sequence[str]) -> bool:
    """Print the help or the version if the arguments ask for one. Return whether they do."""
    first = arguments[0] if arguments else ""
    if first in ("--help", "-h"):
        write_line(sys.stdout, HELP)
    elif first == "--version":
        write_line(sys.stdout, f"RunJob {__version__}")
    else:
        return False
    return True


def parse_call(arguments: Sequence[str], environ: Mapping[str, str], beside: Path) -> Call:
    """Return the call. `beside`: the folder of RunJob. Raise InvalidInput if no argument is a program.

    The program is the first argument, or the second or third one of the old forms `KEY SCRIPT` and `KEY JOB SCRIPT`.
    """
    literal = arguments[:1] == ["--literal"]
    words = tuple(arguments[1:] if literal else arguments)
    if not words:
        raise InvalidInput("RunJob needs a script: RunJob ./myETL.sh [ARGS…]; its name is the job's")

    def is_program(number: int) -> bool:
        return number < len(words) and locate(words[number], environ.get("PATH"), beside) is not None

    if is_program(0):
        return Call(job_of(words[0]), words, None, literal)
    if _is_path(words[0]):
        raise InvalidInput(_missing(words[0], beside))
    if is_program(2) and not (is_program(1) and _is_path(words[1])):
        return Call(words[1], words[2:], words[0], literal)
    if is_program(1):
        return Call(job_of(words[1]), words[1:], words[0], literal)
    for word in words[1:3]:
        if _is_path(word):
            raise InvalidInput(_missing(word, beside))
    raise InvalidInput(
        "none of the first arguments of RunJob is a program; they are not printed here, because one may be a passkey; "
        "see `RunJob --help`"
    )


def job_of(script: str) -> str:
    """Return the id of a script's job: the file name without the extension."""
    return os.path.splitext(os.path.basename(script))[0]


def _is_path(word: str) -> bool:
    """Return whether a word can only be a script, and no passkey and no job."""
    return word.startswith(("./", "../")) or word.endswith(PROGRAM_SUFFIXES)


def _missing(word: str, beside: Path) -> str:
    return f"{word}: there is no such program, neither in {Path.cwd()} nor beside RunJob in {beside}"
