"""What a person sees on terminals of 60, 80 and 120 columns: keys and numbers are whole, and what is missing is named.

After a change of the output, `DATAFLOW_TEST_REWRITE=1 pytest tests/unit/test_terminal.py` writes the files again. Read
the difference.
"""

import fcntl
import io
import os
import pty
import re
import struct
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opendataflow.cli.jobs.local import default_slots
from opendataflow.cli.options import in_time_zone
from opendataflow.cli.output.live import Display, live_console
from opendataflow.cli.output.printing import Output, print_rows
from opendataflow.cli.output.screen import Text, console
from opendataflow.cli.output.tables import lay_out
from opendataflow.cli.reports.status import print_status
from opendataflow.core.text.moments import rate, shown
from opendataflow.core.text.progress import problem_lines
from opendataflow.model.records.claim import Progress
from opendataflow.model.resources.api import DataFlowJob
from opendataflow.names import API_VERSION, TaskState
from tests.unit.test_show import job_status

GOLDEN = Path(__file__).parent / "data" / "terminal"
JOB, RAW, SUMS = "daily-customer-aggregation", "a-rather-long-input-dataset", "another-long-output-dataset"
AT = datetime(2026, 11, 30, 20, 6, 12, tzinfo=UTC)
REASON = (
    "no retries left (2 allowed): exit code 3: the file of the day could not be read, because its row 4711 has seven "
    "columns and not six; the last line of the log was: ValueError: too many values to unpack"
)

JOBS: list[dict[str, Any]] = [
    {"job": JOB, "state": "Failed", "done": 4701, "total": 5900, "stale": 0, "running": 2, "retrying": 0, "failed": 12},
    {"job": "sum", "state": "Complete", "done": 27, "total": 27, "stale": 3, "running": 0, "retrying": 0, "failed": 0},
]
JOBS = [{**job, "parallelism": 4, "inputs": f"{RAW}, {SUMS}", "outputs": SUMS} for job in JOBS]
TASKS: list[dict[str, Any]] = [
    {"data_id": "2013-01-01", "state": "DONE", "run": 99871, "attempts": 0, "reason": None},
    {"data_id": "2013-01-02", "state": "FAILED", "run": 99872, "attempts": 3, "reason": REASON},
    {"data_id": "2013-01-03", "state": "FAILED", "run": 99873, "attempts": 3, "reason": "exit code 3"},
]
TASKS = [{"job": JOB, "stale": False, "due_at": None, **task} for task in TASKS]
RUNS: list[dict[str, Any]] = [
    {"run": 99872, "data_id": "2013-01-02", "attempt": 3, "state": "FAILED", "seconds": 3601.5, "message": REASON},
    {"run": 99871, "data_id": "2013-01-01", "attempt": 1, "state": "SUCCEEDED", "seconds": 12.0, "message": None},
]
RUNS = [{"job": JOB, "claimed_at": AT, **run} for run in RUNS]
CHUNKS: list[dict[str, Any]] = [
    {"data_id": "2013-01-01", "status": "READY", "run": 99871, "published_at": AT, "reason": None},
    {"data_id": "2013-01-02", "status": "HOLD", "run": None, "published_at": None, "reason": "the audit is not over"},
]
CHUNKS = [{"dataset": RAW, "stale": False, **chunk} for chunk in CHUNKS]
DATASETS: list[dict[str, Any]] = [
    {"dataset": RAW, "producer": None, "consumers": JOB},
    {"dataset": SUMS, "producer": JOB, "consumers": ""},
]
DATASETS = [
    {"kind": "csv", "place": "warehouse/daily/files", "ready": 5900, "failed": 12, "chunks": 5912, **row}
    for row in DATASETS
]
STATUS = job_status(
    job=JOB,
    counts={"DONE": 4701, "FAILED": 12, "QUEUED": 1187},
    failed=[{"reason": REASON, "chunks": 12, "examples": ["2013-01-03", "2013-01-07", "2013-01-13"]}],
    watermark="2013-01-02",
    gaps=12,
    gap_examples=["2013-01-03", "2013-01-07"],
    per_minute=1811.4,
)


def table(rows: list[dict[str, Any]], *columns: str, optional: tuple[str, ...] = ()) -> Callable[[], None]:
    return lambda: print_rows(rows, Output.TABLE, columns, "none", optional)


COUNTS = ("stale", "running", "retrying", "failed")
REPORTS: Mapping[str, Callable[[], None]] = {
    "jobs": table(JOBS, "job", "state", "done", "total", *COUNTS, "parallelism", "inputs", "outputs", optional=COUNTS),
    "tasks": table(TASKS, "job", "data_id", "state", "stale", "attempts", "run", "due_at", "reason"),
    "runs": table(RUNS, "run", "job", "data_id", "attempt", "state", "claimed_at", "seconds", "message"),
    "chunks": table(CHUNKS, "dataset", "data_id", "status", "stale", "run", "published_at", "reason"),
    "datasets": table(DATASETS, "dataset", "kind", "place", "producer", "consumers", "ready", "failed", "chunks"),
    "status": lambda: print_status(console(), STATUS),
}
"""The reports, with the columns of their commands."""


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> Iterator[list[str]]:
    """Make stdout and stderr a real terminal. At the end, the list has what it has received."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    received = io.BytesIO()

    def read() -> None:
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other end is closed
                return
            if not piece:
                return
            received.write(piece)

    reader = threading.Thread(target=read)
    reader.start()
    shown: list[str] = []
    with monkeypatch.context() as patched, open(theirs, "w", encoding="utf-8") as stream:
        for name in ("COLUMNS", "NO_COLOR"):
            patched.delenv(name, raising=False)
        for name, value in (("TERM", "xterm"), ("TZ", "UTC")):
            patched.setenv(name, value)
        for name in ("stdout", "stderr"):
            patched.setattr(f"sys.{name}", stream)
        yield shown
    reader.join()
    os.close(ours)
    shown += received.getvalue().decode().replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_looks_like_its_golden_file_on_terminals_of_60_80_and_120_columns(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = []
    for columns in (60, 80, 120):
        with terminal(monkeypatch, columns) as shown:
            REPORTS[name]()
        parts.append("\n".join([f"{f' {columns} columns ':-^{columns}}", *shown]))
    text = "\n".join(parts).replace("\x1b", "␛") + "\n"
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("DATAFLOW_TEST_REWRITE"):
        file.write_text(text, "utf-8")
    assert text == file.read_text("utf-8")


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "run": st.integers(0, 10**12),
            "job": st.text("ab-日", min_size=1, max_size=40),
            "attempts": st.integers(0, 10**6),
            "seconds": st.floats(0, 10**6),
            "reason": st.text("ab ", max_size=300),
        }
    ),
    max_size=5,
)


@given(rows=ROWS, width=st.integers(1, 140))
def test_keys_and_numbers_are_whole_at_every_width_and_missing_columns_are_named(
    rows: list[dict[str, Any]], width: int
) -> None:
    cells = [{name: Text(str(value)).on_one_line() for name, value in row.items()} for row in rows]
    made = lay_out(("run", "job", "attempts", "seconds", "reason"), cells, width)
    lines = [line.plain for line in made.lines]
    shown = [name for name in ("run", "job", "attempts", "seconds") if name.upper() not in made.left_out]
    assert {"run", "job"} <= set(shown)
    assert lines[0].split()[: len(shown)] == [name.upper() for name in shown]
    first = [line for line in lines[1:] if not line.startswith("    ")]
    assert [line.split()[: len(shown)] for line in first] == [[row[name].plain for name in shown] for row in cells]
    if made.left_out:
        assert made.note is not None
        assert all(name in made.note for name in made.left_out)


def test_a_wide_table_has_every_column_and_the_whole_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, 60) as shown:
        print_rows(TASKS, Output.WIDE, list(TASKS[0]), "none")
    assert len(shown) == 1 + len(TASKS)
    assert REASON in shown[2]
    assert "DUE AT" in shown[0]


def test_colours_are_for_terminals_that_want_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, 120) as coloured:
        REPORTS["runs"]()
    with terminal(monkeypatch, 120) as plain:
        monkeypatch.setenv("NO_COLOR", "1")
        REPORTS["runs"]()
    assert any("\x1b[31mFAILED\x1b[0m" in line for line in coloured)
    assert not any("\x1b" in line for line in plain)


@pytest.mark.parametrize(
    ("per_minute", "words"),
    [
        (1811.4, "1811 a minute"),
        (240.0, "240 a minute"),
        (12.04, "12 a minute"),
        (2.345, "2.35 a minute"),
        (1.0, "1 a minute"),
        (0.5, "30 an hour"),
        (0.0167, "1 an hour"),
    ],
)
def test_a_rate_is_in_plain_digits(per_minute: float, words: str) -> None:
    assert rate(per_minute) == words


def test_a_time_has_the_offset_of_the_local_zone_and_is_in_utc_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert shown("2013-02-01T03:00:00.123+00:00") == "2013-02-01 04:00:00 +01:00"
        with in_time_zone(utc=True):
            assert shown(AT) == "2026-11-30 20:06:12 +00:00"
        assert shown(AT) == "2026-11-30 21:06:12 +01:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_the_live_display_shows_failures_the_breaker_and_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = {"dataset": "orders", "itemtype": "IN", "status": "FAILED", "chunks": 7, "examples": ["2013-04"]}
    breaker = {
        "opened_at": "2026-11-30T20:00:00+00:00",
        "chunks": 5,
        "message": "no answer",
        "probes": 0,
        "probe": None,
        "next_in_seconds": 30,
    }
    status = {**STATUS, "waiting": [waits], "breaker": breaker}
    with terminal(monkeypatch, 80) as shown:
        display = Display(live_console(), [JOB])
        display.show([Progress(JOB, {TaskState.DONE: 4701, TaskState.FAILED: 12})])
        display.show_problems(problem_lines(status))
        with display._live:
            pass
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", "\n".join(shown))
    for words in ("4701/4713", "12 failed", "breaker    open since", "failed     12 chunks", "waiting    7 chunks"):
        assert words in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "resubmit" not in text


def test_a_script_may_run_as_often_as_its_job_allows_and_spark_as_there_are_cores() -> None:
    def made(parallelism: int, **runtime: Any) -> DataFlowJob:
        spec = {"inputs": ["a"], "outputs": ["b"], "parallelism": parallelism, "runtime": runtime}
        return DataFlowJob.model_validate(
            {"apiVersion": API_VERSION, "kind": "DataFlowJob", "metadata": {"name": "j"}, "spec": spec}
        )

    script, spark = made(7, script={"command": ["true"]}), made(5, spark={"main": "x.py"})
    assert default_slots([script], 2) == 7
    assert default_slots([spark], 2) == 2
    assert default_slots([spark], 8) == 5
    assert default_slots([script, spark], 2) == 9
    assert default_slots([made(0, script={"command": ["true"]})], 2) == 1
