"""Shows that an engine lives, by a lock that its process holds and that no death leaves behind.

Each engine locks a file of its own, named after its lease, before it claims anything. Another engine of the same
machine that can take the lock knows that the first one has ended, however it ended; its children do not inherit the
lock. Nothing is concluded from a file that is missing or from another machine's.
"""

import fcntl
import os
from pathlib import Path

from opendataflow.errors import Refused
from opendataflow.launch.process.host import this_host
from opendataflow.model.records.run import Host, Proof


class Presence:
    """The presence of one engine, and looking for that of others. `runs_home`: the folder that they share."""

    def __init__(self, runs_home: Path) -> None:
        self._folder = runs_home / "engines"
        self._held: int | None = None

    def hold(self, lease: str) -> None:
        """Show that the engine with this lease lives, until `drop` or the end of the process."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._held = os.open(self._path(lease), os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise Refused(
                f"{self._folder} can't be written ({error.strerror}): make it writable, or name another DATAFLOW_HOME"
            ) from error

    def drop(self, lease: str) -> None:
        """Stop showing it, and leave nothing: for an engine whose runs are all committed."""
        if self._held is not None:
            self._path(lease).unlink(missing_ok=True)
            os.close(self._held)
            self._held = None

    def gone(self, lease: str, host: Host) -> Proof:
        """Say whether the engine with this lease, of this machine, has ended.

        Host names are not unique: only a file that the engine has left here shows that it lived here.
        """
        here = this_host()
        if host.name != here.name:
            return Proof(False, f"it belongs to another host, {host.name}")
        try:
            found = os.open(self._path(lease), os.O_RDWR)
        except FileNotFoundError:
            return Proof(False, f"nothing tells whether its engine lives: {self._path(lease)} is missing")
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return Proof(False, "its engine is alive", alive=True)
        finally:
            os.close(found)
        return Proof(True, "its engine has ended")

    def _path(self, lease: str) -> Path:
        return self._folder / f"{lease}.lock"
