"""What the server's programs say: the log's length, and the line that tells a person why. Never logs itself."""

from contextlib import suppress
from pathlib import Path

LIMIT = 16 * 1024 * 1024
"""Bytes of log after which a start begins a new one; one older log is kept."""


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


def complaint(said: str) -> str:
    """Return the line that says why a program has ended: the last one that is fatal, else the last one."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    loud = [line for line in lines if "FATAL:" in line or "PANIC:" in line]
    return (loud or lines or ["it said nothing"])[-1]
