"""Files that only their owner reads, whole after a power cut. Never changes the mode of a file that is there."""

import os
from pathlib import Path


def private(path: str, flags: int) -> int:
    """Open, as a new file of mode 0600 if need be; never inherited by a program. An `opener` for `open`."""
    return os.open(path, flags | os.O_CREAT, 0o600)


def write_private(path: Path, text: str) -> None:
    """Write a file of mode 0600 that is either the old one or the new one, also after a power cut."""
    new = path.with_name(f".new-{path.name}")
    new.unlink(missing_ok=True)
    with open(new, "w", opener=private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in the folder outlast a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def first_number(path: Path) -> int | None:
    """Return the number in a file's first line; None where there is no file or no number yet."""
    try:
        return int(path.read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None
