"""Require passing unit tests before a run uses a version of its project.

Each version is tested once. A run reports the result, and later runs get the known results in their order. See
core/text/project_tests.py.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opendataflow.core.pipelines.pipeline_order import KnownTests
from opendataflow.core.text.project_tests import at
from opendataflow.errors import StepFailed
from opendataflow.model.projects.data_sources import DATA_SOURCES_FILE
from opendataflow.model.projects.project import PROJECT_FILE
from opendataflow.spark.pipeline.project.project_folder import ResolvedPipeline
from opendataflow.spark.pipeline.project.reporting import log_line
from opendataflow.spark.pipeline.testing.unit_tests import run_unit_test

Verdict = dict[str, Any]
"""The field `tests` of a report."""


class TestsFail(StepFailed):
    """The unit tests of a project fail, so the run did nothing. `verdict`: for the report, or None."""

    __test__ = False  # no tests of pytest

    def __init__(self, sentence: str, verdict: Verdict | None) -> None:
        super().__init__(sentence)
        self.verdict = verdict


def project_version(folder: Path, commit: str | None) -> str:
    """Return the identity of a project's state: its commit, or a digest of its description and modules."""
    if commit is not None:
        return commit
    digest = hashlib.sha256()
    for file in sorted([folder / PROJECT_FILE, folder / DATA_SOURCES_FILE, *folder.rglob("*.py")]):
        name = file.relative_to(folder)
        if file.is_file() and not any(part.startswith(".") for part in name.parts):
            content = file.read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"files:{digest.hexdigest()}"


def make_verdict(version: str, known: KnownTests | None, *, passed: bool) -> Verdict | None:
    """Return what a run reports about the tests of a version, or None if earlier results are unknown."""
    if known is None:
        return None
    verdict = {"subject": known["subject"], "commit": version, "passed": passed}
    # The files of an earlier digest are gone. An available commit that passed would run instead of a failed one.
    is_lost = not passed and (":" in version or version == known["failed"])
    return {**verdict, "gone": known["passed"]} if is_lost and known["passed"] else verdict


def has_passed(version: str, known: KnownTests | None) -> bool:
    """Return whether the version is known to pass. Raises TestsFail if its tests are known to fail."""
    if known is not None and version == known["failed"] and known["failure"]:
        raise TestsFail(known["failure"], make_verdict(version, known, passed=False))
    return known is not None and version == known["passed"]


def run_tests(resolved: ResolvedPipeline, spark: Any, version: str, known: KnownTests | None) -> Verdict | None:
    """Run the unit tests of the pipeline. Return the verdict for the report. Raises TestsFail if a test fails."""
    failed: list[str] = []
    for step in resolved.pipeline.transformations:
        result = run_unit_test(resolved, step.name, lambda: spark)
        log_line(f"test {step.name}: {'passed' if result.sentence is None else 'FAILED'}", result.stdout)
        if result.sentence is not None:
            failed.append(result.sentence)
            log_line("\n".join((f"  {result.sentence}", *(f"    {line}" for line in result.details))))
    if failed:
        raise make_tests_fail(resolved.slug, failed, version, known)
    return make_verdict(version, known, passed=True)


def make_tests_fail(slug: str, faults: Sequence[str], version: str, known: KnownTests | None) -> TestsFail:
    """Return the error for faults. Each fault is one sentence, and optionally more lines."""
    more = f"; {len(faults) - 1} more" if faults[1:] else ""
    sentence = f"the tests of pipeline {slug} fail{at(version)}: {faults[0].partition(chr(10))[0]}{more}"
    return TestsFail(sentence, make_verdict(version, known, passed=False))
