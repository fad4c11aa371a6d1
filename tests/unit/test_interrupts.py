"""Ctrl-C in the first moment of a program, while it imports."""

import subprocess
import sys

import pytest

from opendataflow.names import ExitCode

PROGRAM = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "{inside}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["program", "status"]
from {entry} import main
main()
"""


@pytest.mark.parametrize(
    ("entry", "inside"),
    [
        ("opendataflow.cli.main", "opendataflow.cli.commands"),
        ("opendataflow.runjob.main", "opendataflow.runjob.program"),
    ],
)
def test_ctrl_c_while_a_program_imports_ends_it_without_a_traceback(entry: str, inside: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(entry=entry, inside=inside)], capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.INTERRUPTED, b"", b"")
