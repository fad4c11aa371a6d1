"""Lines about steps in a run's log, and the part of a log about one step."""

from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.pipelines.step_lines import StepLines, filter_step_lines, list_logged_steps
from opendataflow.names import StepStatus


def test_a_line_comes_when_a_step_begins_and_one_when_it_ends() -> None:
    printed: list[str] = []
    lines, steps = StepLines(printed.append), [Step("read a"), Step("clean"), Step("write b")]
    steps[0].status = StepStatus.RUNNING
    lines.show(steps)
    assert printed == ["step 1/3 read a: begins"]
    steps[0].status, steps[0].seconds, steps[0].rows = StepStatus.DONE, 0.5, 3
    lines.show(steps)
    lines.show(steps)
    steps[1].status, steps[1].seconds, steps[1].error = StepStatus.FAILED, 0.25, "no day\nFile x.py, line 3"
    steps[2].status = StepStatus.SKIPPED
    lines.show(steps)
    assert printed[1:] == [
        "step 1/3 read a: DONE, 3 rows, 0.50 s",
        "step 2/3 clean: FAILED after 0.25 s: no day",
        "    File x.py, line 3",
    ]


def test_facts_of_the_end_are_logged_at_the_end() -> None:
    printed: list[str] = []
    lines, steps = StepLines(printed.append), [Step("clean", StepStatus.DONE, seconds=0.1, stdout="here\n")]
    lines.show(steps)
    steps[0].rows, steps[0].stdout = 4, "here\nthere\n"
    lines.show(steps)
    assert printed[1:] == ["step 1/1 clean: its rows: 4", "step 1/1 clean: printed on workers:", "    there"]


LOG = """\
commit 4f
step 1/3 read a: begins
WARN spark
step 1/3 read a: DONE, 0.10 s
step 2/3 clean: begins
    step 1/3 read a: is what a user may print
step 2/3 clean: DONE, 0.10 s
step 3/3 write b: begins
step 3/3 write b: DONE, 3 rows, 0.10 s
step 2/3 clean: its rows: 4
"""


def test_the_lines_of_a_step_are_found_wherever_they_are() -> None:
    assert list(filter_step_lines(LOG.splitlines(), "clean")) == [
        "step 2/3 clean: begins",
        "    step 1/3 read a: is what a user may print",
        "step 2/3 clean: DONE, 0.10 s",
        "step 2/3 clean: its rows: 4",
    ]
    assert list_logged_steps(LOG.splitlines()) == ["read a", "clean", "write b"]
