"""Shows what a run prints to this program's own reader, beside its log. For one run in the foreground.

Standard output and standard error arrive at this program's own, each byte as it comes; the log gets both. When the own
reader goes away, as a closed pipe does, the log goes on getting everything: a run does not fail because nobody listens.

Where something has to be hidden, the log gets whole lines, in which it can be found; the reader gets what is printed.
"""

import os
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

Redact = Callable[[str], str]
"""Takes secrets out of a text."""

_CHUNK = 65536
_LONGEST_LINE = 1 << 20


@dataclass
class Tee:
    """Two pipes and a thread for each. `log`: a descriptor of the log, closed at the end. `redact`: hides secrets."""

    log: int
    redact: Redact | None = None
    _threads: list[threading.Thread] = field(default_factory=list)
    _writing: list[int] = field(default_factory=list)

    def open(self) -> tuple[int, int]:
        """Return the descriptors for a child's standard output and standard error."""
        for own in (1, 2):
            reading, writing = os.pipe()
            thread = threading.Thread(target=self._pump, args=(reading, own), daemon=True, name=f"tee-{own}")
            thread.start()
            self._threads.append(thread)
            self._writing.append(writing)
        return self._writing[0], self._writing[1]

    def started(self) -> None:
        """Close this program's ends for writing: what is left are the child's, and the pipes end with them."""
        for writing in self._writing:
            os.close(writing)
        self._writing.clear()

    def finish(self, seconds: float) -> None:
        """Wait until all that was printed has been handed on, but no longer than `seconds`."""
        for thread in self._threads:
            thread.join(seconds)
        # A process that has left the session may hold a pipe open: its thread goes on writing to the log.
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
        """Write what can be written; return the rest: the line that has not ended, where something is to be hidden."""
        rest = b""
        if self.redact is not None:
            end = len(data) if whole or len(data) > _LONGEST_LINE else data.rfind(b"\n") + 1
            data, rest = data[:end], data[end:]
            data = self.redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        with suppress(OSError):  # a full disk must not end the script
            _write_all(self.log, data)
        return rest


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # whoever shares it has made it so: the reader is slow, not gone
            select.select([], [descriptor], [])
