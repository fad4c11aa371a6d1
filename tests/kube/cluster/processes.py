"""One program of the test cluster: started, killed, paused, started again with the same arguments.

A program dies with the process that has started it, however that ends; nothing is left behind by a killed test run.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Program:
    """A program with a log file. Start it from a thread that lives as long as it should: its end ends the program.

    `environ`: variables beside those of this process.
    """

    def __init__(self, name: str, command: list[str], log: Path, environ: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.log = log
        self._command = command
        self._environ = None if environ is None else {**os.environ, **environ}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again."""
        assert not self.running, f"{self.name} runs already"
        parent = os.getpid()

        def die_with_parent() -> None:
            if sys.platform == "linux":
                _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != parent:  # it has died before the line above
                    os._exit(1)

        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )

    @property
    def running(self) -> bool:
        """Whether its process is there; a paused one is."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None, f"{self.name} has not been started"
        return self._process.pid

    def kill(self) -> None:
        """End it without warning (SIGKILL); return when it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, seconds: float = 10) -> None:
        """Ask it to end (SIGTERM); kill it when it does not."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        """Let it hang (SIGSTOP): connections stay open, and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def output(self, lines: int = 20) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
