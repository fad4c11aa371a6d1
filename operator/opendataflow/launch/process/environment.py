"""The environment of a run: the environment of the launcher without its secrets, plus the variables of the command.

Values are bytes: nothing is expanded, quoted or shortened. This module never starts a process.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opendataflow.names import SECRET_VARIABLES

WITHHELD = frozenset(name.encode() for name in SECRET_VARIABLES)
"""Variables of the launcher that runs do not get: they give access to the database and to passwords."""

NAMING_THE_FOLDER = frozenset({"DATAFLOW_CONTEXT", "SPARK_CONF_DIR"})
"""The variables in which `{run_folder}` is replaced by the folder of the run."""

_SHELL_VARIABLES = """
BASH BASHOPTS BASHPID BASH_ARGV0 BASH_COMMAND BASH_EXECUTION_STRING BASH_SUBSHELL BASH_VERSINFO BASH_VERSION
COMP_WORDBREAKS EPOCHREALTIME EPOCHSECONDS HISTCMD IFS LINENO OLDPWD OPTARG OPTERR OPTIND PPID PS1 PS2 PS4 PWD
RANDOM SECONDS SHELLOPTS SHLVL SRANDOM _
"""
SET_BY_SHELLS = frozenset(_SHELL_VARIABLES.split())
"""Variables that dash or bash change or drop, when they run as sh."""

_SHELL_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class Environment:
    """The variables of a run. `plain`: a shell passes them on unchanged. `unsafe`: it does not; see `restore`."""

    plain: Mapping[bytes, bytes]
    unsafe: Mapping[bytes, bytes]

    @property
    def unsafe_file(self) -> bytes:
        """Return the unsafe variables, each as NAME=value with a trailing NUL."""
        return b"".join(name + b"=" + value + b"\0" for name, value in self.unsafe.items())


def run_environment(own: Mapping[bytes, bytes], given: Mapping[str, str], folder: Path) -> Environment:
    """Return the environment of a run: `own` (os.environb) without secrets, overridden by `given`.

    `folder`: the folder of the run. Raises ValueError for a NUL, an empty name, or a name that contains `=`.
    """
    plain = {name: value for name, value in own.items() if name not in WITHHELD}
    unsafe = {name: plain.pop(name) for name in list(plain) if not _SHELL_NAME.match(name)}
    for name, value in given.items():
        if name in NAMING_THE_FOLDER:
            value = value.replace("{run_folder}", str(folder))
        key, content = _encode(name), _encode(value)
        if not key or b"=" in key or b"\0" in key + content:
            raise ValueError(f"the variable {name!r} can't be put into an environment")
        easy = _SHELL_NAME.match(key) and name not in SET_BY_SHELLS
        (plain if easy else unsafe)[key] = content
    return Environment(plain, unsafe)


def _encode(text: str) -> bytes:
    """Encode a text as UTF-8, independent of the locale. Bytes that could not be decoded stay unchanged."""
    return text.encode("utf-8", "surrogateescape")
