"""Runs commands to their end. The error of one that fails contains its output."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO


def run(
    command: Sequence[str | Path],
    *,
    folder: Path | None = None,
    stdin: IO[bytes] | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Return what a command prints. `environ`: variables beside those of this process.

    Raises CalledProcessError, whose notes are the output.
    """
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        stdin=stdin or subprocess.DEVNULL,
        env={**os.environ, **(environ or {})},
        capture_output=True,
        check=False,
    )
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace").strip()
    if done.returncode:
        failed = subprocess.CalledProcessError(done.returncode, [str(word) for word in command], out, err)
        failed.add_note(err)
        raise failed
    return out


def succeeds(*command: str | Path, seconds: float | None = None) -> bool:
    """Whether a command ends well, within `seconds`."""
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=seconds).returncode == 0
    except subprocess.TimeoutExpired:
        return False
