"""Where a passkey comes from: a key file, the environment, or a person at the terminal. Never from an argument.

Arguments can be read by every user of the machine. No sentence here shows what was read or typed.
"""

import os
import signal
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opendataflow.errors import InvalidInput, Refused

_LONGEST_LINE = 65536


@dataclass(frozen=True)
class Origin:
    """The places of one passkey: how people call it, its option, its variable, and that which names its file."""

    what: str
    option: str
    variable: str
    file_variable: str | None = None


PASSKEY = Origin("passkey", "--key-file", "PASSKEY", "DATAFLOW_KEY_FILE")
NEW_PASSKEY = Origin("new passkey", "--new-key-file", "PASSKEY_NEW")


class Passkey:
    """The passkey of one program, looked for when something encrypted needs it, and then once.

    `argument`: the old form of RunJob has it there. Where nobody has given one, a person is asked who sits at a
    terminal; without a terminal, or where nobody is to be asked (`asks`), there is none.
    """

    def __init__(self, key_file: Path | None = None, argument: str | None = None, *, asks: bool = True) -> None:
        self._asks = asks
        self._key_file = key_file
        self._given = argument
        self._looked = argument is not None

    def get(self) -> str | None:
        """Return it, or None. InvalidInput where its file can't be used, or nothing was typed."""
        if not self._looked:
            self._given = given_passkey(PASSKEY, self._key_file, os.environ)
            if self._given is None and self._asks and sys.stdin is not None and sys.stdin.isatty():
                self._given = ask_hidden(PASSKEY.what, twice=False, remedy="set PASSKEY or DATAFLOW_KEY_FILE")
            self._looked = True
        return self._given


def given_passkey(origin: Origin, key_file: Path | None, environ: Mapping[str, str]) -> str | None:
    """Return what the key file, the environment or the file that it names has; None where there is none of them."""
    if key_file is not None:
        return read_key_file(key_file)
    given = environ.get(origin.variable)
    if given is not None:
        if not given:
            raise InvalidInput(
                f"{origin.variable} is set, but empty: set it to the {origin.what}, or unset it to be asked"
            )
        return given
    named = environ.get(origin.file_variable) if origin.file_variable else None
    return read_key_file(Path(named)) if named else None


def find_passkey(
    origin: Origin, key_file: Path | None, *, twice: bool = False, environ: Mapping[str, str] = os.environ
) -> str:
    """Return the passkey of the key file, else of the environment, else ask; `twice` where a slip would be sealed in.

    InvalidInput where it is empty or its file can't be used; Refused where nobody is there to be asked.
    """
    given = given_passkey(origin, key_file, environ)
    if given is not None:
        return given
    return ask_hidden(origin.what, twice=twice, remedy=f"set {origin.variable} or give {origin.option}")


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
            f"{path}: the key file is open to other users (mode {mode:04o}): run `chmod 600 {_quoted(path)}`"
        )
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    if not line:
        raise InvalidInput(f"{path}: the first line is empty: write the passkey there")
    try:
        return line.decode()
    except UnicodeDecodeError:  # its own text would show the line
        raise InvalidInput(f"{path}: the first line is no UTF-8 text") from None


def _quoted(path: Path) -> str:
    import shlex

    return shlex.quote(str(path))


def ask_hidden(what: str, *, twice: bool, remedy: str) -> str:
    """Ask at the terminal, without echo, also where stdin is something else."""
    typed = _typed(f"{what}: ", what, remedy)
    if not typed:
        raise InvalidInput(f"no {what} was typed")
    if twice and _typed(f"{what} once more: ", what, remedy) != typed:
        raise InvalidInput(f"the {what} was not typed the same twice: begin anew")
    return typed


def _typed(prompt: str, what: str, remedy: str) -> str:
    import getpass  # most runs ask nobody, and start without these
    import warnings

    # Whoever has other plans for Ctrl-C, such as an event loop, has not begun with its work.
    own = signal.signal(signal.SIGINT, signal.default_int_handler)
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
    finally:
        signal.signal(signal.SIGINT, own)
