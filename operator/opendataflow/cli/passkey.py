"""Where a passkey comes from: a key file, the environment, or a person at the terminal. Never from an argument.

Arguments can be read by every user of the machine. No sentence here shows what was read or typed.
"""

import getpass
import os
import shlex
import stat
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opendataflow.errors import InvalidInput, Refused

_LONGEST_LINE = 65536


@dataclass(frozen=True)
class Origin:
    """The places of one passkey: how people call it, its option and its variable."""

    what: str
    option: str
    variable: str


PASSKEY = Origin("passkey", "--key-file", "PASSKEY")
NEW_PASSKEY = Origin("new passkey", "--new-key-file", "PASSKEY_NEW")


def find_passkey(
    origin: Origin, key_file: Path | None, *, twice: bool = False, environ: Mapping[str, str] = os.environ
) -> str:
    """Return the passkey of the key file, else of the environment, else ask; `twice` where a slip would be sealed in.

    InvalidInput where it is empty or its file can't be used; Refused where nobody is there to be asked.
    """
    if key_file is not None:
        return read_key_file(key_file)
    given = environ.get(origin.variable)
    if given is None:
        remedy = f"set {origin.variable} or give {origin.option}"
        return ask_hidden(origin.what, twice=twice, remedy=remedy)
    if not given:
        raise InvalidInput(f"{origin.variable} is set, but empty: set it to the {origin.what}, or unset it to be asked")
    return given


def read_key_file(path: Path) -> str:
    """Return the first line of a file that nobody but its owner can open."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            line = b"" if mode & 0o077 else file.readline(_LONGEST_LINE)
    except OSError as error:
        raise InvalidInput(f"{path}: can't be read: {error.strerror}") from error
    if mode & 0o077:
        raise InvalidInput(
            f"{path}: the key file is open to other users (mode {mode:04o}): run `chmod 600 {shlex.quote(str(path))}`"
        )
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    if not line:
        raise InvalidInput(f"{path}: the first line is empty: write the passkey there")
    try:
        return line.decode()
    except UnicodeDecodeError:  # its own text would show the line
        raise InvalidInput(f"{path}: the first line is no UTF-8 text") from None


def ask_hidden(what: str, *, twice: bool, remedy: str) -> str:
    """Ask at the terminal, without echo, also where stdin is something else."""
    typed = _typed(f"{what}: ", what, remedy)
    if not typed:
        raise InvalidInput(f"no {what} was typed")
    if twice and _typed(f"{what} once more: ", what, remedy) != typed:
        raise InvalidInput(f"the {what} was not typed the same twice: begin anew")
    return typed


def _typed(prompt: str, what: str, remedy: str) -> str:
    try:
        with warnings.catch_warnings():
            # The warning says that the terminal is missing, or shows what is typed: neither will do.
            warnings.simplefilter("error", getpass.GetPassWarning)
            return getpass.getpass(prompt)
    except getpass.GetPassWarning:
        raise Refused(f"there is no terminal to ask for the {what} on: {remedy}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"the {what} is no UTF-8 text") from None
    except EOFError:
        raise Refused(f"no {what} was typed") from None
