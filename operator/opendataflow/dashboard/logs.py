"""Reads the log of a run: the end of its file if that is on this machine, else the end that the database keeps."""

from contextlib import suppress

from opendataflow.core.runs.logs import is_in_pod, log_file
from opendataflow.dashboard.details import Log, log_note
from opendataflow.dashboard.models import Row

_MOST_BYTES = 64 * 1024


def read_log(run: Row) -> Log:
    """Return the end of a log. `run`: the row of run_log()."""
    if not is_in_pod(run):
        with suppress(OSError), log_file(run).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - _MOST_BYTES, 0))
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
            return Log(text, log_note(run, cut=size > _MOST_BYTES, on_this_machine=True))
    return Log(run["log_tail"] or "", log_note(run, cut=True, on_this_machine=False))
