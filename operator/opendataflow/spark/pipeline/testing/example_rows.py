"""Check the rows of a unit test's examples."""

from collections.abc import Mapping
from typing import Any

from opendataflow.errors import StepFailed
from opendataflow.spark.pipeline.execute.loading import LoadedStep


def check_rows(step: LoadedStep, rows: Any) -> None:
    """Raise StepFailed if an example is not a list of rows."""
    if not (isinstance(rows, list | tuple) and all(isinstance(row, Mapping) for row in rows)):
        raise StepFailed(
            f"{step.location}: expected_inputs is a list of rows for each frame, expected_output a list of rows, "
            "and a row is a dict of column and value"
        )
