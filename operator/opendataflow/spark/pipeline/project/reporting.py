"""Where a run tells of its work: in its log, in its pod's termination message, on one machine in a file of its own
folder.

What is in a report is said in core/pipelines/report.py.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from opendataflow.core.pipelines.expectations import Checked
from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.pipelines.report import LARGEST, LARGEST_FILE
from opendataflow.core.pipelines.report_text import report_text
from opendataflow.names import CONTEXT_FOLDER, REPORT_FILE

TERMINATION_LOG = Path("/dev/termination-log")


def write_report(
    told: Mapping[str, Any], steps: Sequence[Step], checked: Sequence[Checked], environ: Mapping[str, str]
) -> None:
    """Write it in place of what was told before. It is no reason to fail."""
    folder = Path(environ["DATAFLOW_CONTEXT"]).parent
    with suppress(OSError):
        if folder == Path(CONTEXT_FOLDER):  # in a pod, where it can't be renamed to
            TERMINATION_LOG.write_text(report_text(told, steps, checked, LARGEST), "utf-8")
            return
        beside = folder / f".{REPORT_FILE}"
        beside.write_text(report_text(told, steps, checked, LARGEST_FILE), "utf-8")
        os.replace(beside, folder / REPORT_FILE)


def say(line: str, printed: str = "") -> None:
    """Print a line of the run's log, and below it what something has printed."""
    print("\n".join((line, *(f"    {text}" for text in printed.splitlines()))), flush=True)
