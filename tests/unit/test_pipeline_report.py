"""What a run of a pipeline leaves in its termination message."""

from pathlib import Path

from opendataflow.cli.pipeline_report import report
from opendataflow.core.attempts import Result
from opendataflow.core.expectations import Checked
from opendataflow.core.pipeline_steps import Step
from opendataflow.core.report import read_report
from opendataflow.names import StepStatus

STEPS = [Step("read a", StepStatus.DONE, 4, 0.1), Step("read b", StepStatus.DONE, 2), Step("one", StepStatus.DONE, 3)]
RUN = {"DATAFLOW_RUN_ID": "7"}


def test_a_run_reports_rows_bytes_checksum_and_expectations(tmp_path: Path) -> None:
    place = tmp_path / "log"
    place.touch()
    checked = [Checked("rows", True, "fail", ""), Checked("keys", False, "warn", "")]
    report(RUN, STEPS, Result("output/out", 3, "xxhash64:1", 99), checked, place)
    told = read_report(place.read_text())
    assert told is not None
    assert {name: it for name, it in told.metrics.items() if name != "steps"} == {
        "rows": 3,
        "rowsIn": 6,
        "bytes": 99,
        "checksum": "xxhash64:1",
        "expectations": {"rows": True, "keys": False},
    }


def test_a_run_that_fails_leaves_a_sentence_and_no_report(tmp_path: Path) -> None:
    place = tmp_path / "log"
    place.touch()
    report(RUN, [*STEPS, Step("two", StepStatus.FAILED, error="two.py, line 3: no\nTraceback")], None, [], place)
    assert place.read_text() == "two has failed: two.py, line 3: no"
    assert read_report(place.read_text()) is None


def test_by_hand_and_on_one_machine_nothing_is_left(tmp_path: Path) -> None:
    report({}, STEPS, Result("output/out"), [], tmp_path)
    report(RUN, STEPS, Result("output/out"), [], tmp_path / "log")
    assert list(tmp_path.iterdir()) == []
