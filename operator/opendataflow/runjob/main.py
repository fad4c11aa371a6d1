"""The entry point `RunJob SCRIPT [ARGS…]`. Half of the time of a short run would go into what it leaves out.

While it imports, nothing is garbage; when it ends, all is committed and the system takes the memory back.
"""

import gc
import os
import sys
from contextlib import suppress

from opendataflow.interrupts import left_at_once


def main() -> None:
    """Run one chunk of the script's job and exit with the script's exit code."""
    with left_at_once():
        from opendataflow.stdio import prepare_streams

        prepare_streams()
        gc.disable()
        from opendataflow.runjob.program import run_script

        gc.enable()
    code = run_script(sys.argv[1:])
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # its reader has gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
