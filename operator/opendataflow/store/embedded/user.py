"""The operating system user of the server: runs programs as this user, and creates folders for it.

It never creates a user, and never changes the mode of a folder that it did not create.
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
    """The user of the server: the caller, or an existing unprivileged user if the caller is root.

    `data`: the cluster. Its owner is the user, if the cluster exists. `other`: the unprivileged user, or None for the
    caller.
    """

    def __init__(self, data: Path) -> None:
        self.other = _unprivileged(data) if os.geteuid() == 0 else None

    def run(
        self, argv: Sequence[str], *, output: int | IO[bytes] = subprocess.PIPE, keep: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program to its end as this user, in its own session and with a minimal environment.

        `output`: the target of stdout and stderr. `keep`: file descriptors that it inherits. The server does not
        inherit the caller's environment, because it may contain keys.
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
        """Make this user the owner of a new file or folder."""
        if self.other is not None:
            os.chown(path, self.other.pw_uid, self.other.pw_gid)

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its missing parents. This user can enter them, and only the caller can list them.

        Raise EmbeddedPostgresError before any change if this user can't enter an existing parent.
        """
        path = [*reversed(folder.parents), folder]
        existing = [step for step in path if step.exists()]
        self._check_access(existing, folder)
        for missing in path[len(existing) :]:
            with suppress(FileExistsError):  # created by another process
                missing.mkdir()
                missing.chmod(0o700 if self.other is None else 0o711)

    def _check_access(self, folders: Sequence[Path], goal: Path) -> None:
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
    """Return the user of a server that root starts: the owner of the cluster, else `postgres`, else `nobody`."""
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
