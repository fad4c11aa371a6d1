"""The environment of a run's process: the launcher's own without its secrets, and the command's on top.

Values are bytes and stay as they are: nothing is expanded, quoted or cut. This module never starts a process.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opendataflow.names import SECRET_VARIABLES

WITHHELD = frozenset(name.encode() for name in SECRET_VARIABLES)
"""What opens the database and the passwords: the launcher has it, runs do not."""

NAMING_THE_FOLDER = frozenset({"DATAFLOW_CONTEXT", "SPARK_CONF_DIR"})
"""The variables in which `{run_folder}` means the run's folder; in any other it is plain text."""

_SHELL_VARIABLES = """
BASH BASHOPTS BASHPID BASH_ARGV0 BASH_COMMAND BASH_EXECUTION_STRING BASH_SUBSHELL BASH_VERSINFO BASH_VERSION
COMP_WORDBREAKS EPOCHREALTIME EPOCHSECONDS HISTCMD IFS LINENO OLDPWD OPTARG OPTERR OPTIND PPID PS1 PS2 PS4 PWD
RANDOM SECONDS SHELLOPTS SHLVL SRANDOM _
"""
SET_BY_SHELLS = frozenset(_SHELL_VARIABLES.split())
"""Variables that dash or bash, in the place of sh, were seen to change or to drop."""

_SHELL_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class Environment:
    """`plain` passes through a shell untouched; `awkward` would not, and is put back behind it."""

    plain: Mapping[bytes, bytes]
    awkward: Mapping[bytes, bytes]

    @property
    def awkward_file(self) -> bytes:
        """The awkward variables, each as NAME=value and a NUL."""
        return b"".join(name + b"=" + value + b"\0" for name, value in self.awkward.items())


def run_environment(own: Mapping[bytes, bytes], given: Mapping[str, str], folder: Path) -> Environment:
    """Return what the run sees: `own` (os.environb) minus the secrets, then the command's `given`.

    Raises ValueError for what no environment can hold: a NUL, or a name that is empty or has a `=`.
    """
    plain = {name: value for name, value in own.items() if name not in WITHHELD}
    awkward = {name: plain.pop(name) for name in list(plain) if not _SHELL_NAME.match(name)}
    for name, value in given.items():
        if name in NAMING_THE_FOLDER:
            value = value.replace("{run_folder}", str(folder))
        key, content = _encode(name), _encode(value)
        if not key or b"=" in key or b"\0" in key + content:
            raise ValueError(f"the variable {name!r} can't be put into an environment")
        easy = _SHELL_NAME.match(key) and name not in SET_BY_SHELLS
        (plain if easy else awkward)[key] = content
    return Environment(plain, awkward)


def _encode(text: str) -> bytes:
    """Encode as UTF-8 whatever the locale says; bytes that came in undecodable go out as they were."""
    return text.encode("utf-8", "surrogateescape")
