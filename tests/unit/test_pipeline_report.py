"""What a run of a pipeline tells of its work."""

from pathlib import Path

from opendataflow.core.attempts import Result
from opendataflow.core.expectations import Checked
from opendataflow.core.pipeline_steps import Step
from opendataflow.core.report import read_report
from opendataflow.names import REPORT_FILE, StepStatus
from opendataflow.spark.pipeline.reporting import report_of, write_report

STEPS = [Step("read a", StepStatus.DONE, 4, 0.1), Step("read b", StepStatus.DONE, 2), Step("one", StepStatus.DONE, 3)]


def test_a_run_reports_rows_bytes_checksum_and_expectations(tmp_path: Path) -> None:
    checked = [Checked("rows", True, "fail", ""), Checked("keys", False, "warn", "")]
    write_report(report_of(STEPS, Result("output/out", 3, "xxhash64:1", 99), checked), _environ(tmp_path))
    told = read_report((tmp_path / REPORT_FILE).read_text())
    assert told is not None
    assert {name: it for name, it in told.metrics.items() if name != "steps"} == {
        "rows": 3,
        "rowsIn": 6,
        "bytes": 99,
        "checksum": "xxhash64:1",
        "expectations": {"rows": True, "keys": False},
    }


def test_rows_read_are_told_where_those_of_all_sources_are_known() -> None:
    steps = [Step("read a", StepStatus.DONE, 4), Step("read b", StepStatus.DONE, None), *STEPS[2:]]
    assert report_of(steps, Result("out"), [])["rowsIn"] is None


def test_a_run_that_fails_reports_the_first_line_of_what_went_wrong() -> None:
    failed = [*STEPS, Step("two", StepStatus.FAILED, error="two.py, line 3: no\nTraceback")]
    assert report_of(failed, None, []) == {"failure": "two has failed: two.py, line 3: no"}


def test_a_sentence_that_is_too_long_for_a_pod_loses_its_end(tmp_path: Path) -> None:
    write_report({"commit": "ab", "failure": 'ü"\n' * 5000}, _environ(tmp_path))
    told = read_report((tmp_path / REPORT_FILE).read_text())
    assert told is not None
    assert told.metrics["commit"] == "ab"
    assert told.metrics["failure"].startswith('ü"\nü"')


def test_by_hand_nothing_is_left(tmp_path: Path) -> None:
    write_report(report_of(STEPS, Result("output/out"), []), {})
    assert list(tmp_path.iterdir()) == []


def _environ(folder: Path) -> dict[str, str]:
    return {"DATAFLOW_CONTEXT": str(folder / "context.json")}
