"""The entry points `dataflow` and `kubectl dataflow`. They import the commands inside, as it takes half a second."""

import os
import sys

from opendataflow.interrupts import left_at_once


def kubectl() -> None:
    """Run the command line as `kubectl dataflow`: it goes through the cluster where nothing else is said."""
    os.environ.setdefault("DATAFLOW_KUBE", "1")
    main()


def main() -> None:
    """Run the command line and exit."""
    with left_at_once():
        from opendataflow.stdio import prepare_streams

        prepare_streams()
        from opendataflow.cli.commands import run
    sys.exit(run(sys.argv[1:]))
