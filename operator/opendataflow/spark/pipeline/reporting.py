"""Where a run tells of its work: in its log, in its pod's termination message, on one machine in a file of its own
folder.

What is in a report is said in core/report.py.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from opendataflow.core.report import LARGEST
from opendataflow.names import CONTEXT_FOLDER, REPORT_FILE

TERMINATION_LOG = Path("/dev/termination-log")


def write_report(report: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Write it, without what is unknown and without the end of a sentence that is too long. It is no reason to fail."""
    known = {name: value for name, value in report.items() if value is not None}
    text = json.dumps(known, ensure_ascii=False)
    if len(text.encode()) > LARGEST and known.pop("expectations", None):
        text = json.dumps(known, ensure_ascii=False)
    over = len(text.encode()) - LARGEST
    if over > 0 and "failure" in known:
        sentence = str(known["failure"]).encode()
        known["failure"] = sentence[: max(len(sentence) // 2 - over, 200)].decode(errors="ignore")
        text = json.dumps(known, ensure_ascii=False)
    folder = Path(environ["DATAFLOW_CONTEXT"]).parent
    in_pod = folder == Path(CONTEXT_FOLDER)
    with suppress(OSError):
        (TERMINATION_LOG if in_pod else folder / REPORT_FILE).write_text(text, "utf-8")


def say(line: str, printed: str = "") -> None:
    """Print a line of the run's log, and below it what something has printed."""
    print("\n".join((line, *(f"    {text}" for text in printed.splitlines()))), flush=True)
