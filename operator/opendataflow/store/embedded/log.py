"""What the server's programs say: the log's length, and the line that tells a person why. Never logs itself."""

import re
from contextlib import suppress
from pathlib import Path

LIMIT = 16 * 1024 * 1024
"""Bytes of log after which a start begins a new one; one older log is kept."""

_FATAL = re.compile("(FATAL|PANIC):")
_TOO_EARLY = re.compile("FATAL: +the database system is ")


def rotate(log: Path) -> None:
    """Begin a new log where the old one is long."""
    with suppress(FileNotFoundError):
        if log.stat().st_size > LIMIT:
            log.replace(log.with_suffix(".log.1"))


def read_from(log: Path, byte: int) -> str:
    """Return what the log says from `byte` on."""
    with log.open("rb") as file:
        file.seek(byte)
        return file.read().decode(errors="replace")


def fault(said: str) -> str | None:
    """Return the last line that is fatal; None where the program has named no reason, as one that is killed.

    What it tells clients that come too early is no reason.
    """
    lines = [line.strip() for line in said.splitlines() if _FATAL.search(line) and not _TOO_EARLY.search(line)]
    return lines[-1] if lines else None


def complaint(said: str) -> str:
    """Return the line that says why a program has ended: the last one that is fatal, else the last one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return fault(said) or (lines or ["it said nothing"])[-1]
