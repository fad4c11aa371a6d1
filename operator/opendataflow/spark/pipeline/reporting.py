"""Where a run tells of its work: in its pod's termination message, on one machine in a file of its own folder.

What is in a report is said in core/report.py.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from opendataflow.core.attempts import Result
from opendataflow.core.expectations import Checked
from opendataflow.core.pipeline_steps import Step, read_step
from opendataflow.core.report import report_text
from opendataflow.names import CONTEXT_FOLDER, REPORT_FILE

TERMINATION_LOG = Path("/dev/termination-log")


def report_of(steps: Sequence[Step], result: Result | None, checked: Sequence[Checked]) -> dict[str, Any]:
    """Return what a run tells of its steps; `result`: None where one has failed."""
    if result is None:
        return {"failure": _failure(steps)}
    read = [step.rows for step in steps if step.name.startswith(read_step(""))]
    return {
        "rows": result.rows,
        "rowsIn": None if None in read else sum(rows or 0 for rows in read),
        "bytes": result.bytes,
        "checksum": result.checksum,
        "expectations": {it.name: it.held for it in checked},
        "steps": [[step.name, step.rows, None if step.seconds is None else round(step.seconds, 2)] for step in steps],
    }


def write_report(report: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Write the report of the run that this process is; nothing by hand. Not to be able to is no reason to fail."""
    if "DATAFLOW_CONTEXT" not in environ:
        return
    folder = Path(environ["DATAFLOW_CONTEXT"]).parent
    in_pod = folder == Path(CONTEXT_FOLDER)
    with suppress(OSError):
        (TERMINATION_LOG if in_pod else folder / REPORT_FILE).write_text(report_text(report), "utf-8")


def _failure(steps: Sequence[Step]) -> str | None:
    return next((f"{step.name} has failed: {step.error.partition(chr(10))[0]}" for step in steps if step.error), None)
