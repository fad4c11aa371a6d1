"""Report on a run: lines of its log, and its report in the termination message of a pod or in a file.

The content of a report: core/pipelines/report.py.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from opendataflow.core.pipelines.expectations import ExpectationResult
from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.pipelines.report import LARGEST, LARGEST_FILE
from opendataflow.core.pipelines.report_text import render_report
from opendataflow.names import CONTEXT_FOLDER, REPORT_FILE

TERMINATION_LOG = Path("/dev/termination-log")


def write_report(
    fields: Mapping[str, Any],
    steps: Sequence[Step],
    expectations: Sequence[ExpectationResult],
    environ: Mapping[str, str],
) -> None:
    """Replace the report of this run. A failed write does not fail the run."""
    folder = Path(environ["DATAFLOW_CONTEXT"]).parent
    with suppress(OSError):
        if folder == Path(CONTEXT_FOLDER):  # in a pod, where the file can't be replaced by a rename
            TERMINATION_LOG.write_text(render_report(fields, steps, expectations, LARGEST), "utf-8")
            return
        draft = folder / f".{REPORT_FILE}"
        draft.write_text(render_report(fields, steps, expectations, LARGEST_FILE), "utf-8")
        os.replace(draft, folder / REPORT_FILE)


def log_line(line: str, printed: str = "") -> None:
    """Print a line of the run's log, and below it an indented text."""
    print("\n".join((line, *(f"    {text}" for text in printed.splitlines()))), flush=True)
