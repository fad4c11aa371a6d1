"""Which version of a job's project has passed its unit tests, and the sentences about it. Pure.

Runs execute the tests (spark/pipeline/job.py). Postgres stores one row of `project_test` for each job, and every run
gets this row. A version is a commit, or a digest of a project that is not in a repository.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # every report uses the sentences, and the models take half of the time that a command needs to start
    from opendataflow.model.resources.pipeline_runtime import PipelineRuntime

Tests = Mapping[str, Any] | None
"""The row of `project_test`; None if the project requires no tests, or no result is stored."""
_SHOWN = 12
"""How many characters of a commit are shown."""


def subject_of(pipeline: "PipelineRuntime | None") -> str | None:
    """Return a digest of project, pipeline and image, to which test results belong; None if no tests are required."""
    if pipeline is None or not pipeline.require_tests:
        return None
    tested = [pipeline.project.model_dump(mode="json"), pipeline.pipeline, pipeline.image]
    return hashlib.sha256(json.dumps(tested, sort_keys=True).encode()).hexdigest()[:16]


def tests_known(pipeline: "PipelineRuntime", tests: Tests) -> dict[str, str | None] | None:
    """Return the test results that a run of the pipeline needs; None if no result is stored for this pipeline."""
    if tests is None or tests["subject"] != subject_of(pipeline):
        return None
    return {name: tests[name] for name in ("subject", "passed", "failed", "failure")}


def stopped_by_tests(tests: Tests) -> bool:
    """Return whether the tests fail in every known version, so that only a run that tests again may start."""
    return tests is not None and tests["failed"] is not None and tests["passed"] is None


def tests_sentence(tests: Mapping[str, Any]) -> str:
    """Return a sentence: the result of the tests, and its consequence."""
    if tests["failed"] is None:
        return f"they pass{at(tests['passed'])}" if tests["passed"] else "nothing was tested yet"
    if tests["passed"] is not None:
        return f"{tests['failure']}; runs go on{at(tests['passed'])}, whose tests pass"
    return f"{tests['failure']}; no chunk is done until the project is fixed, which is checked again and again"


def at(version: str) -> str:
    """Return " at commit …" for a sentence; an empty text if the version is no commit."""
    return "" if ":" in version else f" at commit {version[:_SHOWN]}"
