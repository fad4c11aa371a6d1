"""The folder of one run: its log, its input files and its process record. Never inspects processes."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opendataflow.core.pipelines.report import LARGEST_FILE
from opendataflow.core.runs.logs import LOG
from opendataflow.names import OWN_JVM_FILE, REPORT_FILE, REUSABLE_FILE, UNUSED_FILE

RECORD = "process"
CONTEXT = "context.json"
HOLDER = "holder"
HOLDERS = "holders"
TAIL_BYTES = 64 * 1024
_LONGEST_REASON = 1000

KEPT = frozenset({LOG, RECORD, CONTEXT})
"""The files that stay after the end of a run. Others may hold secrets, such as the properties of Spark."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run, and its files."""

    path: Path

    @property
    def log(self) -> Path:
        """Return the path of the log: standard output and standard error, in the order of their writes."""
        return self.path / LOG

    @property
    def record(self) -> Path:
        """Return the path of the process record, or of its tombstone."""
        return self.path / RECORD

    def prepare(self, files: Mapping[str, str]) -> None:
        """Create the folder (mode 0700) and the files of the run (mode 0600).

        Raises OSError. Raises ValueError for a file name with a folder, with a leading dot, or of the log or record.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in files.items():
            if name != Path(name).name or name.startswith(".") or name in (LOG, RECORD):
                raise ValueError(f"a run's file can't be called {name!r}")
            self.write_private(name, text.encode("utf-8", "surrogateescape"))

    def write_private(self, name: str, content: bytes) -> Path:
        """Write a file that only its owner can read. Replace an existing file."""
        path = self.path / name
        path.unlink(missing_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        return path

    def write_holder(self, holder: "RunFolder") -> None:
        """Record the holder whose JVM the run uses, before the run starts: both end before the run counts as dead."""
        self.write_private(HOLDER, holder.path.name.encode())

    def read_holder(self) -> "RunFolder | None":
        """Return the folder of the holder whose JVM the run uses, if any. Raises OSError if that is unknown."""
        try:
            name = (self.path / HOLDER).read_text("utf-8")
        except FileNotFoundError:
            return None
        return RunFolder(self.path.parent / HOLDERS / Path(name).name)

    @property
    def is_reusable(self) -> bool:
        """Return whether the run has declared that the next run can use the JVM of its holder."""
        return (self.path / REUSABLE_FILE).is_file() or self.has_not_used_holder

    @property
    def has_not_used_holder(self) -> bool:
        """Return whether the run has declared that it has not used the JVM of its holder."""
        return (self.path / UNUSED_FILE).is_file()

    @property
    def why_own_jvm(self) -> str | None:
        """Return why a run that may share a JVM has one of its own; None if it shares one, or if nothing is known."""
        try:
            with (self.path / OWN_JVM_FILE).open("rb") as file:
                reason = file.read(_LONGEST_REASON).decode("utf-8", "replace")
        except OSError:
            return None
        return reason.replace("\0", "") or None

    def has_record(self) -> bool:
        """Return whether the record of a process, or a tombstone, exists."""
        return os.path.lexists(self.record)

    def open_log(self) -> int:
        """Return a file descriptor that appends to the log; the caller closes it."""
        return os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write_log(self, sentence: str) -> None:
        """Append a line to the log. Ignore errors: the run itself does not fail because of them."""
        with suppress(OSError), open(self.open_log(), "w", encoding="utf-8", errors="replace") as file:
            file.write(f"{sentence}\n")

    def log_size(self) -> int:
        """Return the size of the log in bytes; 0 if there is none."""
        with suppress(OSError):
            return self.log.stat().st_size
        return 0

    def append_output_of(self, other: "RunFolder", since: int) -> None:
        """Append the end of what another process has written to its log since the log had a size. Ignore errors."""
        with suppress(OSError), other.log.open("rb") as log:
            log.seek(max(since, other.log_size() - TAIL_BYTES))
            if written := log.read(TAIL_BYTES).decode(errors="replace").rstrip():
                self.write_log(f"dataflow: output of Spark's JVM:\n{written}")

    def read_tail(self) -> str:
        """Return the last whole lines of the log: at most 64 KiB of UTF-8, without NULs, which Postgres refuses."""
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
        if len(encoded) > TAIL_BYTES:  # each invalid byte has become three bytes
            cut = True
            text = encoded[-TAIL_BYTES:].decode("utf-8", "ignore")
        return _from_line_start(text) if cut else text

    def read_report(self) -> str | None:
        """Return the report file of the run; None if the run wrote none."""
        try:
            with (self.path / REPORT_FILE).open("rb") as file:
                return file.read(LARGEST_FILE + 1).decode("utf-8", "replace")
        except OSError:
            return None

    def remove_private_files(self) -> None:
        """Delete all files except the log, the context and the record."""
        with suppress(FileNotFoundError), os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name not in KEPT and not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.path)


def remove_folder(runs_home: Path, name: str, *, dry_run: bool = False) -> bool:
    """Delete the folder of an ended run, with its log. Return whether it existed. A symbolic link is not followed."""
    path = runs_home / name
    if path.is_symlink() or not path.is_dir():
        return False
    if not dry_run:
        shutil.rmtree(path)
    return True


def _from_line_start(text: str) -> str:
    """Drop the incomplete first line. A text of one line stays."""
    return text.partition("\n")[2] or text
