"""The folder of one run: its log, the files it reads, its process record. Never looks at processes."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opendataflow.core.pipelines.report import LARGEST_FILE
from opendataflow.names import REPORT_FILE

LOG = "output.log"
RECORD = "process"
CONTEXT = "context.json"
TAIL_BYTES = 64 * 1024

KEPT = frozenset({LOG, RECORD, CONTEXT})
"""What stays when a run is over; other files may hold secrets (Spark's properties)."""


@dataclass(frozen=True)
class RunFolder:
    """A run's folder and what lies in it."""

    path: Path

    @property
    def log(self) -> Path:
        """Standard output and standard error of the run, in the order in which they were written."""
        return self.path / LOG

    @property
    def record(self) -> Path:
        """Which process the run is, or a tombstone."""
        return self.path / RECORD

    def prepare(self, files: Mapping[str, str]) -> None:
        """Create the folder (mode 0700) and the run's files (mode 0600).

        Raises OSError, and ValueError for a file whose name is not a plain one or is one of the folder's own.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in files.items():
            if name != Path(name).name or name.startswith(".") or name in (LOG, RECORD):
                raise ValueError(f"a run's file can't be called {name!r}")
            self.write_private(name, text.encode("utf-8", "surrogateescape"))

    def write_private(self, name: str, content: bytes) -> Path:
        """Write a file that only its owner can read, in place of whatever had that name."""
        path = self.path / name
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        return path

    def has_record(self) -> bool:
        """Whether a process or a tombstone has taken this run already."""
        return os.path.lexists(self.record)

    def open_log(self) -> int:
        """Return a file descriptor that appends to the log; the caller closes it."""
        return os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write_log(self, sentence: str) -> None:
        """Append a line to the log; a log that can't be written is not an error of the run."""
        with suppress(OSError), open(self.open_log(), "w", encoding="utf-8", errors="replace") as file:
            file.write(f"{sentence}\n")

    def read_tail(self) -> str:
        """Return the end of the log: text that Postgres can hold, at most 64 KiB of UTF-8, of whole lines."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - TAIL_BYTES, 0))
                content = file.read(TAIL_BYTES)
        except OSError:
            return ""
        text = content.decode("utf-8", "replace").replace("\0", "")
        cut = size > TAIL_BYTES
        encoded = text.encode("utf-8")
        if len(encoded) > TAIL_BYTES:  # each byte that was no UTF-8 has become three
            cut = True
            text = encoded[-TAIL_BYTES:].decode("utf-8", "ignore")
        return _from_line_start(text) if cut else text

    def read_report(self) -> str | None:
        """Return what the run has written to be its report; None where it has not."""
        try:
            with (self.path / REPORT_FILE).open("rb") as file:
                return file.read(LARGEST_FILE + 1).decode("utf-8", "replace")
        except OSError:
            return None

    def remove_private_files(self) -> None:
        """Delete all files but the log, the context and the record."""
        with suppress(FileNotFoundError), os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name not in KEPT and not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)


def remove_folder(runs_home: Path, name: str, *, dry_run: bool = False) -> bool:
    """Delete the folder of a run that has ended, with its log; return whether there was one. A link is left alone."""
    path = runs_home / name
    if path.is_symlink() or not path.is_dir():
        return False
    if not dry_run:
        shutil.rmtree(path)
    return True


def _from_line_start(text: str) -> str:
    """Drop the part of a line in front; one endless line is kept as it is."""
    return text.partition("\n")[2] or text
