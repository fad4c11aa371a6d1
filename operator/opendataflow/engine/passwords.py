"""Decrypts the passwords of a job's data sets for the process that starts the runs.

A decrypted password goes into the environment of the run and nowhere else: not to Postgres, a file or a message. The
`redactor` removes the passwords from the output of a run.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opendataflow.core.runs.environment import password_variable
from opendataflow.errors import DataflowError, Refused
from opendataflow.names import SECRET_VARIABLES
from opendataflow.opening.passkey import Passkey

_HOLDS_PASSWORD = re.compile(r"(?i)(?:password|passwd|pwd)$")


def inherited_passwords(environ: Mapping[str, str]) -> list[str]:
    """Return the values of variables like PGPASSWORD or orders_password, which a child process inherits."""
    return [
        value
        for name, value in environ.items()
        if _HOLDS_PASSWORD.search(name) and name not in SECRET_VARIABLES | {"PWD", "OLDPWD"} and value
    ]


class Passwords:
    """Decrypts ciphertexts with one passkey, each once. The passkey is read only if there is a ciphertext."""

    def __init__(self, passkey: Passkey) -> None:
        self._passkey = passkey
        self._opened: dict[str, str] = {}

    def variables(self, datasets: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """Return the variable `D_password` of each data set with a ciphertext; an empty dict without a passkey.

        Raises Refused if a ciphertext can't be decrypted.
        """
        sealed = {row["id"]: row["encryptedpass"] for row in datasets if row["encryptedpass"]}
        key = self._passkey.get() if sealed else None
        if key is None:
            return {}
        return {password_variable(name): self._open(name, text, key) for name, text in sealed.items()}

    def missing(self, datasets: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the names of variables that are not set because there is no passkey."""
        sealed = [row["id"] for row in datasets if row["encryptedpass"]]
        return [password_variable(name) for name in sealed] if sealed and self._passkey.get() is None else []

    def redactor(self) -> Callable[[str], str] | None:
        """Return a function that removes passwords from a text; None if there are none.

        The passwords: those that were decrypted, and those in variables of this process, which runs inherit.
        """
        opened = (*self._opened.values(), *inherited_passwords(os.environ))
        if not opened:
            return None
        from opendataflow.crypto.redact import Secrets

        return Secrets({str(number): secret for number, secret in enumerate(opened)}).redact

    def _open(self, name: str, text: str, key: str) -> str:
        if text not in self._opened:
            from opendataflow.crypto.sealed import open_sealed  # slow to import, and most jobs have no password

            try:
                self._opened[text] = open_sealed(text, key)
            except DataflowError as error:
                raise Refused(f"the password of data set {name} can't be opened: {error}") from error
        return self._opened[text]
