"""Decrypts the passwords of a run in its pod: `python -m opendataflow.runtime.open_passwords FOLDER`.

It reads the ciphertexts from DATAFLOW_SEALED (JSON, see `core.kubernetes.pods`) and the passkeys from variables of the
user's Secrets. FOLDER is a volume in memory. It writes `env` there, a script for any POSIX shell that sets the
variables, and a static `busybox`, a shell for images that have none. It never prints a secret.
"""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from opendataflow.core.kubernetes.pods import SEALED_VARIABLE
from opendataflow.crypto.sealed import open_sealed
from opendataflow.errors import DataflowError, InvalidInput, Refused
from opendataflow.names import ExitCode, is_shell_name

ENV_FILE = "env"
BUSYBOX = "busybox"
TERMINATION_LOG = Path("/dev/termination-log")


def open_passwords(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the decrypted variables.

    Raise InvalidInput if DATAFLOW_SEALED or a passkey is unusable. Raise Refused if a password can't be decrypted.
    """
    try:
        wanted = json.loads(environ.get(SEALED_VARIABLE, ""))
        pairs = {str(name): (str(each["sealed"]), str(each["passkey"])) for name, each in wanted.items()}
    except (ValueError, AttributeError, KeyError, TypeError):
        raise InvalidInput(f"{SEALED_VARIABLE} is not what the operator writes: use its own image") from None
    return {name: _opened(name, sealed, environ.get(passkey)) for name, (sealed, passkey) in pairs.items()}


def _opened(name: str, sealed: str, passkey: str | None) -> str:
    if not passkey:
        raise InvalidInput(f"the passkey for {name} is empty: look at the Secret that passkeySecretRef names")
    try:
        # A Secret that was created from a file often ends with an invisible line break.
        opened = open_sealed(sealed, passkey.removesuffix("\n").removesuffix("\r"))
    except DataflowError as error:
        raise Refused(f"{name} can't be opened: {error}") from error
    if "\0" in opened:
        raise Refused(f"{name} can't be a variable: it has a zero byte")
    return opened


def script(variables: Mapping[str, str]) -> str:
    """Return a shell script that sets and exports the variables. The shell expands nothing in their values."""
    for name in variables:
        if not is_shell_name(name):
            raise InvalidInput(f"{name} can't be a variable of a shell")
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())


def write(folder: Path, variables: Mapping[str, str], busybox: Path) -> None:
    """Write `env` and a copy of `busybox` into the folder, each by an atomic rename.

    Everybody may read them, because the container `main` has another user. Only `main` and this program mount the
    volume.
    """
    for name, content, mode in (
        (ENV_FILE, script(variables).encode(), 0o444),
        (BUSYBOX, busybox.read_bytes(), 0o555),
    ):
        draft = folder / f".{name}"
        draft.unlink(missing_ok=True)  # left by an earlier attempt, and read-only
        draft.touch(mode=0o600)
        draft.write_bytes(content)
        draft.chmod(mode)
        draft.replace(folder / name)


def main(arguments: list[str], environ: Mapping[str, str] = os.environ) -> int:
    """Decrypt and write. Return an exit code. Report a failure on stderr, and to the operator in the pod's status."""
    try:
        busybox = shutil.which(BUSYBOX, path=environ.get("PATH"))
        if len(arguments) != 1 or busybox is None:
            raise InvalidInput(
                f"one folder is wanted, and a static {BUSYBOX} on the PATH: use the operator's own image"
            )
        write(Path(arguments[0]), open_passwords(environ), Path(busybox))
    except DataflowError as error:
        return _failed(str(error), error.exit_code)
    except OSError as error:
        return _failed(f"the opened passwords can't be written: {error.strerror}", ExitCode.FAILED)
    return ExitCode.OK


def _failed(sentence: str, code: int) -> int:
    print(f"dataflow: {sentence}", file=sys.stderr)
    if TERMINATION_LOG.exists():
        TERMINATION_LOG.write_text(sentence)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
