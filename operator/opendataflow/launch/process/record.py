"""The record of a run's process: the file `process` in the folder of the run, or its tombstone.

The file is created by link(2), which is atomic and fails if the file exists. So exactly one of these happens, no matter
which process is killed and when:

    the shim of the run links its record   the command runs after that; the record identifies its process
    a takeover links its tombstone         a later shim can't link its record, and ends without running the command

A file has four lines or more. The last one is `end`, so that a file cut short by a full disk is detected.
This module never inspects processes.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opendataflow.launch.process.host import boot_and_namespace
from opendataflow.launch.process.session import parse_stat
from opendataflow.model.records.run import Host

FIRST_LINE = "dataflow-process 1"
LAST_LINE = "end"


@dataclass(frozen=True)
class Record:
    """A started process. `pid`: also the id of its session. `start`: its start time in clock ticks since the boot."""

    token: str
    boot: str
    namespace: str
    pid: int
    start: int


@dataclass(frozen=True)
class Tombstone:
    """Marks that no process was started for this run, and that none can start."""


@dataclass(frozen=True)
class Unreadable:
    """A file that is not a valid record."""


def new_token() -> str:
    """Return a random word that identifies one start in its record."""
    return os.urandom(8).hex()


def record_heading(token: str, host: Host) -> str:
    """Return the lines that the shim writes before its `stat` line. Boot and namespace are those of its parent."""
    boot, namespace = boot_and_namespace(host)
    return f"{FIRST_LINE}\ntoken {token}\nboot {boot}\nnamespace {namespace}"


def read_record(path: Path) -> Record | Tombstone | Unreadable | None:
    """Read the record at `path`; None if there is no file. Raises OSError if it can't be read."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    lines = text.splitlines()
    if len(lines) < 3 or lines[0] != FIRST_LINE or lines[-1] != LAST_LINE:
        return Unreadable()
    if lines[1] == "abandoned":
        return Tombstone()
    return _parse(lines)


def _parse(lines: list[str]) -> Record | Unreadable:
    items = dict(line.partition(" ")[::2] for line in lines[1:-1])
    try:
        leader = parse_stat(items["stat"])
        return Record(items["token"], items["boot"], items["namespace"], leader.pid, leader.start)
    except (KeyError, ValueError, IndexError):
        return Unreadable()


def place_tombstone(path: Path, host: Host) -> bool:
    """Put a tombstone at `path` unless a file exists. Return whether it was put: then the run never starts.

    Create the folder if it does not exist. Raises OSError if it can't be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{new_token()}")
    try:
        draft.write_text(f"{FIRST_LINE}\nabandoned\nby {host.name} {host.boot}\n{LAST_LINE}\n", encoding="utf-8")
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        with suppress(OSError):
            draft.unlink()
    return True
