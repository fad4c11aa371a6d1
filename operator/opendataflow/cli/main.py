"""The entry points `dataflow` and `kubectl dataflow`.

They import the commands inside of a function, because this import takes long. The help and the version need none.
"""

import gc
import os
import sys

from opendataflow.interrupts import exit_on_interrupt


def kubectl() -> None:
    """Run the command line as `kubectl dataflow`, which uses the cluster unless DATAFLOW_KUBE is set."""
    os.environ.setdefault("DATAFLOW_KUBE", "1")
    main()


def main() -> None:
    """Run the command line and exit."""
    with exit_on_interrupt():
        from opendataflow.stdio import prepare_streams

        prepare_streams()
        from opendataflow.cli.overview import answer

        code = answer(sys.argv[1:])
        if code is None:
            gc.disable()  # collections during the imports take as long as a fifth of them, and free nothing
            from opendataflow.cli.commands import run

            gc.enable()
    sys.exit(run(sys.argv[1:]) if code is None else code)
