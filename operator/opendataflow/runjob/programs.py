"""Finds the program of a run, and checks before any claim that the system can start it."""

import os
import shutil
from pathlib import Path

from opendataflow.errors import InvalidInput

PROGRAM_SUFFIXES = (".sh", ".bash", ".ksh", ".py", ".pl", ".rb", ".R", ".php", ".jar", ".bat", ".exe")
"""Ends of names that only files have."""
_LONGEST_FIRST_LINE = 256


def locate(word: str, path: str | None, beside: Path | None) -> str | None:
    """Return how the system starts the program that a word names, or None if there is none.

    It is looked for as a shell does. With `beside`, a relative one is also looked for in the current folder and in that
    folder.
    """
    if "/" in word:
        if os.path.isfile(word):
            return word
        folders = [] if beside is None or os.path.isabs(word) else [beside]
    else:
        if shutil.which(word, path=path) is not None:
            return word
        folders = [] if beside is None else [Path.cwd(), beside]
    return next((str(folder / word) for folder in folders if (folder / word).is_file()), None)


def check_program(program: str, path: str | None, folder: Path | None = None) -> None:
    """Raise InvalidInput if the system can't start a program, for a reason that its file shows.

    `path`: the variable PATH of the run. `folder`: where the run starts; None: the current folder.
    """
    start = folder or Path.cwd()
    file = str(start / program) if "/" in program else shutil.which(program, path=path)
    if file is None:
        raise InvalidInput(f"{program}: there is no such program in PATH ({path})")
    if os.path.isdir(file):
        raise InvalidInput(f"{program} is a folder, not a program")
    if not os.path.exists(file):
        raise InvalidInput(f"{program}: there is no such program (in {start})")
    if not os.access(file, os.X_OK):
        raise InvalidInput(f"{program} is not executable: chmod +x makes it so")
    _check_interpreter(program, file, path)


def _check_interpreter(program: str, file: str, path: str | None) -> None:
    try:
        with open(file, "rb") as opened:
            first = opened.read(_LONGEST_FIRST_LINE).partition(b"\n")[0]
    except OSError:  # a program may be executable and not readable
        return
    if not first.startswith(b"#!"):
        return
    if first.endswith(b"\r"):
        raise InvalidInput(
            f"{program}: its first line ends with a carriage return, so that no interpreter has this name; "
            f"remove all of them: sed -i 's/\\r$//' {program}"
        )
    words = first[2:].decode(errors="replace").split()
    if not words:
        return
    if not os.path.exists(words[0]):
        raise InvalidInput(f"{program}: its interpreter {words[0]} (first line) does not exist")
    named = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), None)
    if os.path.basename(words[0]) == "env" and named is not None and shutil.which(named, path=path) is None:
        raise InvalidInput(f"{program}: its interpreter {named} (first line) is not in PATH ({path})")
