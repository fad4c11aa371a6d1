"""The program as users start it: as a process of its own, with a home of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

DATAFLOW = Path(sys.executable).parent / "dataflow"


@dataclass(frozen=True)
class Program:
    """Starts `dataflow` with one home and one database (None: the embedded one)."""

    home: Path
    dsn: str | None = None

    @property
    def environ(self) -> dict[str, str]:
        """The environment of its processes."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DATAFLOW_")}
        return {**kept, "DATAFLOW_HOME": str(self.home), **({"DATAFLOW_DSN": self.dsn} if self.dsn else {})}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command; its output goes to pipes."""
        return subprocess.Popen(
            [DATAFLOW, *arguments],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, code: int | None = 0) -> str:
        """Run a command to its end; return what it printed. `code`: the exit code that it must have."""
        done = subprocess.run(
            [DATAFLOW, *arguments], env=self.environ, capture_output=True, text=True, check=False, timeout=300
        )
        output = done.stdout + done.stderr
        assert "Traceback" not in output, output
        assert code is None or done.returncode == code, output
        return output


@pytest.fixture
def embedded(open_folder: Path) -> Iterator[Program]:
    """The program with an embedded Postgres of its own."""
    program = Program(open_folder / "home")
    yield program
    program.run("get", "jobs")  # the last one to leave stops the server
