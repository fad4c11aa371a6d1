"""Examples of unit tests as frames of pandas."""

import copy
from collections.abc import Sequence
from typing import Any

from opendataflow.core.pipelines.pipeline_steps import check_columns
from opendataflow.core.pipelines.row_difference import Row
from opendataflow.spark.pipeline.errors.error_report import report_error
from opendataflow.spark.pipeline.execute import pandas_frames
from opendataflow.spark.pipeline.execute.loading import LoadedStep
from opendataflow.spark.pipeline.execute.running import Item
from opendataflow.spark.pipeline.project.project_folder import OpenProject
from opendataflow.spark.pipeline.testing.example_rows import check_rows


class PandasExamples:
    """The examples of one transformation that uses pandas. Implements `unit_tests.Examples`."""

    def __init__(self, step: LoadedStep) -> None:
        self._step = step
        self.ordered = bool(getattr(step.module, "ordered", True))

    def run(self, frames: Sequence[Any], items: Sequence[Item | None]) -> tuple[list[Row], list[str]]:
        """Run the transformation once per item. Return the rows and columns of the result."""
        given = [self._make_frame(frame) for frame in copy.deepcopy(frames)]
        for item in items:
            given[0] = pandas_frames.call_run(self._step, [frame.copy() for frame in given], item)
        columns = list(given[0].columns)
        check_columns(columns, self._step.location, case_sensitive=True)  # rows are dicts, with one cell per name
        return pandas_frames.rows_from_frame(given[0]), columns

    def rows(self, expected: Any) -> list[Row]:
        """Return the expected rows with Python values."""
        if pandas_frames.is_frame(expected):
            return pandas_frames.rows_from_frame(expected)
        check_rows(self._step, expected)
        return [{name: pandas_frames.to_python_value(value) for name, value in row.items()} for row in expected]

    def explain(self, error: BaseException, project: OpenProject) -> str:
        """Return the report of an error in run()."""
        return str(report_error(error, project, self._step.location))

    def _make_frame(self, rows: Any) -> Any:
        if not pandas_frames.is_frame(rows):
            check_rows(self._step, rows)
        return pandas_frames.frame_from_rows(rows)
