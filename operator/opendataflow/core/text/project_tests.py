"""Which version of a job's project has passed its unit tests, and what is said of it. Pure.

Runs find out (spark/pipeline/job.py), Postgres remembers a row of `project_test` for each job, and every run is told
it. A version is a commit, or a digest of what is no repository.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from opendataflow.model.resources.pipeline_runtime import PipelineRuntime

Tests = Mapping[str, Any] | None
"""The row; None where nothing is to be tested, or nobody remembers."""
_SHOWN = 12


def subject_of(pipeline: PipelineRuntime | None) -> str | None:
    """What tells the tests of one project, pipeline and image from those of another; None where none have to pass."""
    if pipeline is None or not pipeline.require_tests:
        return None
    said = [pipeline.project.model_dump(mode="json"), pipeline.pipeline, pipeline.image]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def tests_known(pipeline: PipelineRuntime, tests: Tests) -> dict[str, str | None] | None:
    """What a run of the pipeline has to know of its tests; None where nothing was remembered of them."""
    if tests is None or tests["subject"] != subject_of(pipeline):
        return None
    return {name: tests[name] for name in ("subject", "passed", "failed", "failure")}


def stopped_by_tests(tests: Tests) -> bool:
    """Whether nothing may run but a look whether the project is mended."""
    return tests is not None and tests["failed"] is not None and tests["passed"] is None


def tests_sentence(tests: Mapping[str, Any]) -> str:
    """How the tests are, and what follows."""
    if tests["failed"] is None:
        return f"they pass{at(tests['passed'])}" if tests["passed"] else "nothing was tested yet"
    if tests["passed"] is not None:
        return f"{tests['failure']}; runs go on{at(tests['passed'])}, whose tests pass"
    return f"{tests['failure']}; no chunk is done until the project is mended, which is looked at again and again"


def at(version: str) -> str:
    """Where that is, for a sentence; nothing of what has no commit."""
    return "" if ":" in version else f" at commit {version[:_SHOWN]}"
