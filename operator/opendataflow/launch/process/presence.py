"""Shows that an engine is alive, by a file lock that the kernel releases when the process ends.

Each engine locks a file of its own, named after its lease, before its first claim. If another engine of the same
machine can lock that file, the first engine has ended. Child processes do not inherit the lock. A missing file, or the
file of another machine, proves nothing.
"""

import fcntl
import os
from pathlib import Path

from opendataflow.errors import Refused
from opendataflow.launch.process.host import this_host
from opendataflow.model.records.run import Host, Proof


class Presence:
    """The presence file of one engine, and checks of the files of others. `runs_home`: the folder that they share."""

    def __init__(self, runs_home: Path) -> None:
        self._folder = runs_home / "engines"
        self._held: int | None = None

    def hold(self, lease: str) -> None:
        """Show that the engine with this lease is alive, until `release` or the end of the process."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._held = os.open(self._path(lease), os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Refused(
                f"{self._folder} can't be written ({error.strerror}): make it writable, or name another DATAFLOW_HOME"
            ) from error

    def release(self, lease: str) -> None:
        """Remove the file of an engine whose runs are all committed."""
        if self._held is not None:
            self._path(lease).unlink(missing_ok=True)
            os.close(self._held)
            self._held = None

    def prove_owner_dead(self, lease: str, host: Host) -> Proof:
        """Prove that the engine with this lease, of this machine, has ended.

        Host names are not unique: only the file of an engine shows that it ran on this machine.
        """
        here = this_host()
        if host.name != here.name:
            return Proof(False, f"it belongs to another host, {host.name}")
        try:
            found = os.open(self._path(lease), os.O_RDWR)
        except FileNotFoundError:
            return Proof(False, f"it is unknown whether its engine is alive: {self._path(lease)} is missing")
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return Proof(False, "its engine is alive", alive=True)
        finally:
            os.close(found)
        return Proof(True, "its engine has ended")

    def _path(self, lease: str) -> Path:
        return self._folder / f"{lease}.lock"
