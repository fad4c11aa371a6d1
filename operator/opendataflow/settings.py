"""What the environment tells the program: where Postgres is and where local state lives.

Read once, by the command line; every other part gets values as arguments. It never opens a file.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """`dsn`: the address of the database. `properties`: the file that has it, where there is no `dsn`; None: the one
    of the current folder, if any, else the embedded Postgres under `home` is meant. `home`: the folder of local state.
    """

    dsn: str | None
    home: Path
    properties: Path | None = None

    @property
    def postgres_home(self) -> Path:
        """The folder of the embedded Postgres."""
        return self.home / "postgres"

    @property
    def runs_home(self) -> Path:
        """The folder with one folder for each local run: its logs, context and process record."""
        return self.home / "runs"


def read_settings(environ: Mapping[str, str] = os.environ, uid: int | None = None) -> Settings:
    """Read DATAFLOW_DSN, DATAFLOW_PROPERTIES and DATAFLOW_HOME.

    Without DATAFLOW_HOME the home is `~/.local/state/opendataflow` (XDG_STATE_HOME), and for root
    `/var/lib/opendataflow`: the embedded Postgres runs as an unprivileged user then, who can't enter /root.
    """
    root = (os.getuid() if uid is None else uid) == 0
    given = environ.get("DATAFLOW_HOME")
    if given:
        home = Path(given)
    elif root:
        home = Path("/var/lib/opendataflow")
    else:
        state = environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
        home = Path(state) / "opendataflow"
    named = environ.get("DATAFLOW_PROPERTIES")
    return Settings(
        dsn=environ.get("DATAFLOW_DSN") or None, home=home.absolute(), properties=Path(named) if named else None
    )
