"""Read a passkey from a key file, the environment or the terminal. Never from an argument.

All users of a machine can read arguments. No message contains what was read or typed.
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
class PasskeySource:
    """The sources of one passkey. `what`: its name in messages. `file_variable`: the variable with the file's path."""

    what: str
    option: str
    variable: str
    file_variable: str | None = None


PASSKEY = PasskeySource("passkey", "--key-file", "PASSKEY", "DATAFLOW_KEY_FILE")
NEW_PASSKEY = PasskeySource("new passkey", "--new-key-file", "PASSKEY_NEW")


class Passkey:
    """The passkey of one program. It is read once, when a ciphertext needs it.

    `argument`: the passkey in the old form of RunJob. `asks`: prompt at a terminal if no passkey is given. Without a
    terminal there is no passkey.
    """

    def __init__(self, key_file: Path | None = None, argument: str | None = None, *, asks: bool = True) -> None:
        self._asks = asks
        self._key_file = key_file
        self._given = argument
        self._is_read = argument is not None

    def get(self) -> str | None:
        """Return the passkey, or None. Raises InvalidInput if its file is unusable or nothing was typed."""
        if not self._is_read:
            self._given = read_passkey(PASSKEY, self._key_file, os.environ)
            if self._given is None and self._asks and sys.stdin is not None and sys.stdin.isatty():
                self._given = prompt_hidden(PASSKEY.what, twice=False, remedy="set PASSKEY or DATAFLOW_KEY_FILE")
            self._is_read = True
        return self._given


def read_passkey(origin: PasskeySource, key_file: Path | None, environ: Mapping[str, str]) -> str | None:
    """Return the passkey of the key file, of the environment or of the file named there, or None."""
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
    origin: PasskeySource, key_file: Path | None, *, twice: bool = False, environ: Mapping[str, str] = os.environ
) -> str:
    """Return the passkey of the key file, else of the environment, else prompt. `twice`: prompt again to confirm.

    Raises InvalidInput if the passkey is empty or its file is unusable, Refused without a terminal.
    """
    given = read_passkey(origin, key_file, environ)
    if given is not None:
        return given
    return prompt_hidden(origin.what, twice=twice, remedy=f"set {origin.variable} or give {origin.option}")


def read_key_file(path: Path) -> str:
    """Return the first line of a file. Raises InvalidInput if other users can open the file."""
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
    except UnicodeDecodeError:  # its message would contain the line
        raise InvalidInput(f"{path}: the first line is no UTF-8 text") from None


def _quoted(path: Path) -> str:
    import shlex  # only for an error

    return shlex.quote(str(path))


def prompt_hidden(what: str, *, twice: bool, remedy: str) -> str:
    """Prompt at the terminal without echo, even if stdin is redirected. `remedy`: for the error without a terminal."""
    typed = _read_typed(f"{what}: ", what, remedy)
    if not typed:
        raise InvalidInput(f"no {what} was typed")
    if twice and _read_typed(f"{what} once more: ", what, remedy) != typed:
        raise InvalidInput(f"the {what} was not typed the same twice: begin anew")
    return typed


def _read_typed(prompt: str, what: str, remedy: str) -> str:
    import getpass  # most runs prompt for nothing, and start faster without this
    import warnings  # see above

    # An event loop's handler of Ctrl-C would not end the prompt.
    own = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with warnings.catch_warnings():
            # The warning means that the terminal is missing, or that typed characters are visible.
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
