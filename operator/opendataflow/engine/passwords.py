"""Opens the passwords of a job's data sets for the process that starts its runs.

What it opens goes into the environment of the run and nowhere else: not to Postgres, not into a file, not into a
sentence. `redacted` takes it out of what the run has printed.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from opendataflow.errors import DataflowError, Refused
from opendataflow.names import shell_name


class Passwords:
    """Opens ciphertexts with one passkey, each once. `passkey`: None where nobody has given one."""

    def __init__(self, passkey: str | None) -> None:
        self._passkey = passkey
        self._opened: dict[str, str] = {}

    @property
    def any_opened(self) -> bool:
        """Whether there is anything to be hidden."""
        return bool(self._opened)

    def variables(self, datasets: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """Return `D_password` of each data set that has a ciphertext; nothing without a passkey.

        Refused where one does not open, before anything is started.
        """
        if not self._passkey:
            return {}
        sealed = {row["id"]: row["encryptedpass"] for row in datasets if row["encryptedpass"]}
        return {shell_name(f"{name}_password"): self._open(name, text) for name, text in sealed.items()}

    def missing(self, datasets: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the variables that are not set because there is no passkey."""
        if self._passkey:
            return []
        return [shell_name(f"{row['id']}_password") for row in datasets if row["encryptedpass"]]

    def redacted(self, text: str) -> str:
        """Return a text without the passwords that were opened."""
        opened = tuple(self._opened.values())  # others may be opened meanwhile
        if not opened:
            return text
        from opendataflow.crypto.redact import Secrets

        return Secrets({str(number): secret for number, secret in enumerate(opened)}).redact(text)

    def _open(self, name: str, text: str) -> str:
        if text not in self._opened:
            from opendataflow.crypto.sealed import open_sealed  # most jobs have no password, and its import takes time

            try:
                self._opened[text] = open_sealed(text, self._passkey or "")
            except DataflowError as error:
                raise Refused(f"the password of data set {name} can't be opened: {error}") from error
        return self._opened[text]
