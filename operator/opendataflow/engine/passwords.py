"""Opens the passwords of a job's data sets for the process that starts its runs.

What it opens goes into the environment of the run and nowhere else: not to Postgres, not into a file, not into a
sentence. Its `redactor` takes them out of what the run has printed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opendataflow.errors import DataflowError, Refused
from opendataflow.names import shell_name
from opendataflow.opening.passkey import Passkey


class Passwords:
    """Opens ciphertexts with one passkey, each once. Where there is none to open, nobody is asked for it."""

    def __init__(self, passkey: Passkey) -> None:
        self._passkey = passkey
        self._opened: dict[str, str] = {}

    def variables(self, datasets: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """Return `D_password` of each data set that has a ciphertext; nothing without a passkey.

        Refused where one does not open, before anything is started.
        """
        sealed = {row["id"]: row["encryptedpass"] for row in datasets if row["encryptedpass"]}
        key = self._passkey.get() if sealed else None
        if key is None:
            return {}
        return {shell_name(f"{name}_password"): self._open(name, text, key) for name, text in sealed.items()}

    def missing(self, datasets: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the variables that are not set because there is no passkey."""
        sealed = [row["id"] for row in datasets if row["encryptedpass"]]
        return [shell_name(f"{name}_password") for name in sealed] if sealed and self._passkey.get() is None else []

    def redactor(self) -> Callable[[str], str] | None:
        """Return what takes the passwords that were opened out of a text; None where none was."""
        opened = tuple(self._opened.values())  # others may be opened meanwhile
        if not opened:
            return None
        from opendataflow.crypto.redact import Secrets

        return Secrets({str(number): secret for number, secret in enumerate(opened)}).redact

    def _open(self, name: str, text: str, key: str) -> str:
        if text not in self._opened:
            from opendataflow.crypto.sealed import open_sealed  # most jobs have no password, and its import takes time

            try:
                self._opened[text] = open_sealed(text, key)
            except DataflowError as error:
                raise Refused(f"the password of data set {name} can't be opened: {error}") from error
        return self._opened[text]
