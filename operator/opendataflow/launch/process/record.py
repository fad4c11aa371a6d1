"""The record of a run's process: the file `process` in the run's folder, and its tombstone.

The file appears by link(2), which is atomic and fails where it exists already. So exactly one of two happens,
whatever is killed at whatever moment:

    the run's shim links its record      the command runs after that; the record says which process it is
    a takeover links its tombstone       the shim that comes late can't link, and ends without the command

Four lines or more, the last one `end`, so that a file cut short by a full disk is not taken for a whole one.
This module never looks at processes.
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
    """A process that was started: its id is also its session's. `start`: clock ticks since the boot."""

    token: str
    boot: str
    namespace: str
    pid: int
    start: int


@dataclass(frozen=True)
class Tombstone:
    """No process was started for this run, and none can be."""


@dataclass(frozen=True)
class Unreadable:
    """There is a file, but it is not a record."""


def new_token() -> str:
    """Return a word that no other start shares; it tells whose record lies in a folder."""
    return os.urandom(8).hex()


def record_heading(token: str, host: Host) -> str:
    """Return what the shim writes before its own `stat` line; boot and namespace are its parent's."""
    boot, namespace = boot_and_namespace(host)
    return f"{FIRST_LINE}\ntoken {token}\nboot {boot}\nnamespace {namespace}"


def read_record(path: Path) -> Record | Tombstone | Unreadable | None:
    """Read the record at `path`; None where there is no file. Raises OSError where it can't be read."""
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
    """Put a tombstone at `path` unless something is there; True: the run never started and never will.

    Creates the folder, for a run that did not come that far. Raises OSError where that can't be written.
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
