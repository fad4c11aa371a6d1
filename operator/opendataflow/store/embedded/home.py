"""The files of a home: where they are and what they hold. Never looks at a process, and never makes the home."""

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opendataflow.errors import EmbeddedPostgresError
from opendataflow.store.embedded.files import first_number, write_private


@dataclass(frozen=True)
class Home:
    """One home. `path`: its folder, absolute and without links: the server tells its data folder so."""

    path: Path

    @property
    def data(self) -> Path:
        """The cluster: whole, or not there."""
        return self.path / "data"

    @property
    def log(self) -> Path:
        """What the server says."""
        return self.path / "server.log"

    def port(self) -> int | None:
        """Return the TCP port of the last start; None before the first one."""
        return first_number(self.path / "port")

    def set_port(self, port: int) -> None:
        """Say where the next start will listen."""
        write_private(self.path / "port", f"{port}\n")

    def password(self) -> str:
        """Return the superuser's password, or say what to do now that it is gone."""
        path = self.path / "password"
        try:
            return path.read_text()
        except FileNotFoundError as error:
            raise EmbeddedPostgresError(
                f"The password of the embedded Postgres, {path}, is gone: put it back, or move "
                f"{self.data} away to begin with an empty database."
            ) from error

    def new_password(self) -> str:
        """Make the password of a new cluster."""
        password = secrets.token_urlsafe(32)
        write_private(self.path / "password", password)
        return password

    @contextmanager
    def making(self) -> Iterator[Path]:
        """Yield a folder for half made things; it and what a killed process left of its own go."""
        for left in self.path.glob(".making-*"):
            shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=".making-", dir=self.path))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
