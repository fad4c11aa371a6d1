"""RunJob to which something happens at one moment of its life: it is killed, signalled, or its reader goes away."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.e2e.conftest import Program

MOMENTS = {
    "at its beginning": ("Store", "facts_before_claim", "before"),
    "before its claim": ("Store", "claim_one", "before"),
    "between claim and start": ("ProcessLauncher", "start", "before"),
    "while the script runs": ("ProcessLauncher", "ended", "before"),
    "after its end, before the commit": ("Store", "complete", "before"),
    "after the commit": ("Store", "complete", "after"),
}

_RUNJOB = """
import os, sys, time
from pathlib import Path
from opendataflow.launch.process.launcher import ProcessLauncher
from opendataflow.runjob.main import main
from opendataflow.store.store import Store

where, method = {"Store": Store, "ProcessLauncher": ProcessLauncher}[sys.argv[1]], sys.argv[2]
before, happens = sys.argv[3] == "before", sys.argv[4]
del sys.argv[1:5]
original = getattr(where, method)

async def interrupted(*arguments, **options):
    if before:
        exec(happens)
    result = await original(*arguments, **options)
    if not before:
        exec(happens)
    return result

setattr(where, method, interrupted)
main()
"""


def start_runjob(
    program: Program,
    folder: Path,
    moment: str,
    happens: str,
    *,
    output: int | IO[bytes] = subprocess.PIPE,
    kept: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start RunJob for `./loadbob.sh` in `folder`. `happens`: a statement of Python, done inside it at the moment.

    `output`: its standard output and standard error; `kept`: descriptors that it inherits.
    """
    return subprocess.Popen(
        [sys.executable, "-c", _RUNJOB, *MOMENTS[moment], happens, "./loadbob.sh"],
        cwd=folder,
        env=program.environ,
        stdout=output,
        stderr=subprocess.STDOUT,
        pass_fds=kept,
    )
