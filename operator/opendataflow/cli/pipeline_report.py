"""What `dataflow pipeline run` tells where it is the command of a run: its report in the pod's termination message.

A run that fails leaves a sentence there and no report: a report says that the work was done.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from opendataflow.core.attempts import Result
from opendataflow.core.expectations import Checked
from opendataflow.core.pipeline_steps import Step, read_step
from opendataflow.core.report import report_text
from opendataflow.spark.driver import TERMINATION_LOG


def report(
    environ: Mapping[str, str],
    steps: Sequence[Step],
    result: Result | None,
    checked: Sequence[Checked],
    place: Path = TERMINATION_LOG,
) -> None:
    """Write it, in a pod of a run; nothing elsewhere."""
    if "DATAFLOW_RUN_ID" not in environ or not place.exists():
        return
    with suppress(OSError):  # it is no reason to fail
        place.write_text(_sentence(steps) if result is None else _report(steps, result, checked), "utf-8")


def _report(steps: Sequence[Step], result: Result, checked: Sequence[Checked]) -> str:
    read = [step.rows for step in steps if step.name.startswith(read_step(""))]
    return report_text(
        {
            "rows": result.rows,
            "rowsIn": None if None in read else sum(rows or 0 for rows in read),
            "bytes": result.bytes,
            "checksum": result.checksum,
            "expectations": {it.name: it.held for it in checked},
            "steps": [
                [step.name, step.rows, None if step.seconds is None else round(step.seconds, 2)] for step in steps
            ],
        }
    )


def _sentence(steps: Sequence[Step]) -> str:
    return next((f"{step.name} has failed: {step.error.partition(chr(10))[0]}" for step in steps if step.error), "")
