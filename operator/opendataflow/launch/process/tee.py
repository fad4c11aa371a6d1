"""Copies the output of a foreground run to this program's own output, and to the log of the run.

Each byte of standard output and standard error is copied at once; the log gets both. If the reader of this program's
output goes away (a closed pipe), the log still gets everything, and the run does not fail.

If secrets have to be removed, the log gets whole lines, so that a secret is found. The reader gets the raw output.
"""

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

Redact = Callable[[str], str]
"""Removes secrets from a text."""

_CHUNK = 65536
_LONGEST_LINE = 1 << 20


@dataclass
class Tee:
    """Two pipes, each with a thread. `log`: a descriptor of the log, closed at the end. `redact`: removes secrets."""

    log: int
    redact: Redact | None = None
    _threads: list[threading.Thread] = field(default_factory=list)
    _write_ends: list[int] = field(default_factory=list)

    def open(self) -> tuple[int, int]:
        """Return the descriptors for the standard output and the standard error of a child process."""
        for own in (1, 2):
            reading, writing = os.pipe()
            thread = threading.Thread(target=self._pump, args=(reading, own), daemon=True, name=f"tee-{own}")
            thread.start()
            self._threads.append(thread)
            self._write_ends.append(writing)
        return self._write_ends[0], self._write_ends[1]

    def close_write_ends(self) -> None:
        """Close the write ends in this process. The pipes end when the child closes its own write ends."""
        for writing in self._write_ends:
            os.close(writing)
        self._write_ends.clear()

    def finish(self, seconds: float) -> None:
        """Wait until all output is copied, for at most `seconds` per pipe."""
        for thread in self._threads:
            thread.join(seconds)
        # A process that has left the session may keep a pipe open. Then the thread goes on writing to the log.
        if not any(thread.is_alive() for thread in self._threads):
            os.close(self.log)

    def _pump(self, reading: int, own: int) -> None:
        listening = True
        waiting = b""
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            while data := pipe.read(_CHUNK):
                waiting = self._to_log(waiting + data)
                if listening:
                    try:
                        _write_all(own, data)
                    except OSError:
                        listening = False
            self._to_log(waiting, whole=True)

    def _to_log(self, data: bytes, *, whole: bool = False) -> bytes:
        """Write data to the log. With `redact`, write whole lines only, and return the unwritten rest."""
        rest = b""
        if self.redact is not None:
            end = len(data) if whole or len(data) > _LONGEST_LINE else data.rfind(b"\n") + 1
            data, rest = data[:end], data[end:]
            data = self.redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        with suppress(OSError):  # a full disk must not end the run
            _write_all(self.log, data)
        return rest


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # another process made it non-blocking: the reader is slow, not gone
            select.select([], [descriptor], [])
