"""The files of a home: their paths and contents, and durable open_private files. It never creates the home."""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opendataflow.errors import EmbeddedPostgresError


@dataclass(frozen=True)
class Home:
    """One home. `path`: its folder, absolute and without symbolic links, in the form that the server reports."""

    path: Path

    @property
    def data(self) -> Path:
        """The cluster. It is complete if it exists."""
        return self.path / "data"

    @property
    def log(self) -> Path:
        """The server's log."""
        return self.path / "server.log"

    def port(self) -> int | None:
        """Return the TCP port of the last start, or None before the first one."""
        return first_number(self.path / "port")

    def set_port(self, port: int) -> None:
        """Write the TCP port of the next start."""
        write_private(self.path / "port", f"{port}\n")

    def password(self) -> str:
        """Return the superuser's password. Raise EmbeddedPostgresError with a remedy if its file is missing."""
        path = self.path / "password"
        try:
            return path.read_text()
        except FileNotFoundError as error:
            raise EmbeddedPostgresError(
                f"The password of the embedded Postgres, {path}, is gone: put it back, or move "
                f"{self.data} away to begin with an empty database."
            ) from error

    def new_password(self) -> str:
        """Create, store and return the password of a new cluster."""
        password = secrets.token_urlsafe(32)
        write_private(self.path / "password", password)
        return password

    @contextmanager
    def temporary_folder(self) -> Iterator[Path]:
        """Yield a folder for unfinished files. Delete it afterwards, and folders that killed processes left."""
        for left in self.path.glob(".making-*"):
            shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=".making-", dir=self.path))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def open_private(path: str, flags: int) -> int:
    """Open a file and create it with mode 0600 if missing. Programs do not inherit it. An `opener` for `open`.

    The mode of an existing file stays unchanged.
    """
    return os.open(path, flags | os.O_CREAT, 0o600)


def write_private(path: Path, text: str) -> None:
    """Write a file with mode 0600 atomically: after a power failure it has either the old or the new content."""
    new = path.with_name(f".new-{path.name}")
    new.unlink(missing_ok=True)
    with open(new, "w", opener=open_private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that its names survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def first_number(path: Path) -> int | None:
    """Return the number in a file's first line. Return None if the file is missing or has no number yet."""
    try:
        return int(path.read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None
