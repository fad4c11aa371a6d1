"""Who the server runs as, what runs as them, and which folders they can reach.

Never creates a user, and never changes the mode of a folder that it did not make.
"""

import os
import pwd
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from opendataflow.errors import EmbeddedPostgresError


class ServerUser:
    """Who the server runs as: the caller, or for root an unprivileged user that exists already.

    `data`: the cluster, whose owner it is once that is there. `other`: that user; None: the caller.
    """

    def __init__(self, data: Path) -> None:
        self.other = _unprivileged(data) if os.geteuid() == 0 else None

    def run(
        self, argv: Sequence[str], *, output: int | IO[bytes] = subprocess.PIPE, keep: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program to its end as this user, in its own session, with no environment to speak of.

        `output`: where what it prints goes. `keep`: file descriptors that it inherits. The caller's
        environment stays out of a server that outlives it: it may hold keys.
        """
        environ = {k: v for k, v in os.environ.items() if k in ("PATH", "TZ", "LD_LIBRARY_PATH")}
        identity: dict[str, Any] = {}
        if self.other is not None:
            identity = {"user": self.other.pw_uid, "group": self.other.pw_gid, "extra_groups": []}
        return subprocess.run(
            argv,
            cwd="/",
            env={**environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=keep,
            start_new_session=True,
            umask=0o077,
            check=False,
            **identity,
        )

    def own(self, path: Path) -> None:
        """Give a new file or folder to this user."""
        if self.other is not None:
            os.chown(path, self.other.pw_uid, self.other.pw_gid)

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it that are missing: this user can enter them, only the caller list them.

        Refuses before it makes anything if this user can't enter one that is there.
        """
        way = [*reversed(folder.parents), folder]
        there = [step for step in way if step.exists()]
        self._check_reach(there, folder)
        for missing in way[len(there) :]:
            with suppress(FileExistsError):  # made by another process meanwhile
                missing.mkdir()
                missing.chmod(0o700 if self.other is None else 0o711)

    def _check_reach(self, folders: Sequence[Path], goal: Path) -> None:
        if self.other is None:
            return
        script = 'for f do test -x "$f" || { printf %s "$f"; exit 1; }; done'
        blocked = self.run(["/bin/sh", "-c", script, "sh", *map(str, folders)]).stdout.decode()
        if blocked:
            raise EmbeddedPostgresError(
                f"The embedded Postgres runs as the user {self.other.pw_name} and can't enter {blocked} on "
                f"the way to {goal}: set DATAFLOW_HOME to a folder that this user can enter."
            )


def _unprivileged(data: Path) -> pwd.struct_passwd:
    """Return whom root starts the server as: the owner of the cluster, else `postgres`, else `nobody`."""
    with suppress(FileNotFoundError, KeyError):
        if owner := data.stat().st_uid:
            return pwd.getpwuid(owner)
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise EmbeddedPostgresError(
        "Postgres refuses to run as root, and this system has neither a user postgres nor nobody: "
        "start the program as another user, or set DATAFLOW_DSN."
    )
