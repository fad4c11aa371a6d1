"""Lets a run of a job use a version of its project only when its unit tests have passed: each version is tested once,
as runs report what they find out, and are told what was reported before (core/text/project_tests.py).
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opendataflow.core.text.project_tests import at
from opendataflow.errors import StepFailed
from opendataflow.model.projects.project import Pipeline
from opendataflow.spark.pipeline.project.project_folder import OpenProject
from opendataflow.spark.pipeline.project.reporting import say
from opendataflow.spark.pipeline.testing.unit_tests import run_unit_test

Known = Mapping[str, str | None] | None
"""`tests` of an order; None where nobody remembers."""


class TestsFail(StepFailed):
    """The unit tests of a project fail, so that nothing was done. `verdict`: for the report; None: for nobody."""

    __test__ = False  # no tests of pytest

    def __init__(self, sentence: str, verdict: Mapping[str, Any] | None) -> None:
        super().__init__(sentence)
        self.verdict = verdict


def version_of(folder: Path, commit: str | None) -> str:
    """What tells this state of a project from others: its commit, or a digest of its description and modules."""
    if commit is not None:
        return commit
    known = hashlib.sha256()
    for file in sorted([folder / "project.yml", *folder.rglob("*.py")]):
        name = file.relative_to(folder)
        if file.is_file() and not any(part.startswith(".") for part in name.parts):
            content = file.read_bytes()
            known.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"files:{known.hexdigest()}"


def verdict_of(found: str, known: Known, *, passed: bool) -> dict[str, Any] | None:
    """What a run reports of the tests of the version that it has found."""
    if known is None:
        return None
    told = {"subject": known["subject"], "commit": found, "passed": passed}
    # The files of earlier digests are gone; and a commit that has passed would be here instead of one that fails.
    lost = not passed and (":" in found or found == known["failed"])
    return {**told, "gone": known["passed"]} if lost and known["passed"] else told


def check_known(found: str, known: Known) -> bool:
    """Whether the version has passed before. Raises TestsFail where its tests are known to fail."""
    if known is not None and found == known["failed"] and known["failure"]:
        raise TestsFail(known["failure"], verdict_of(found, known, passed=False))
    return known is not None and found == known["passed"]


def check_tests(
    project: OpenProject, pipeline: Pipeline, spark: Any, found: str, known: Known
) -> dict[str, Any] | None:
    """Run the unit tests of the pipeline; return what is to be reported of them. Raises TestsFail where one fails."""
    failed: list[str] = []
    for step in pipeline.transformations:
        result = run_unit_test(project, pipeline, step.name, lambda: spark)
        say(f"test {step.name}: {'passed' if result.sentence is None else 'FAILED'}", result.stdout)
        if result.sentence is not None:
            failed.append(result.sentence)
            say("\n".join((f"  {result.sentence}", *(f"    {line}" for line in result.details))))
    if failed:
        raise tests_fail(pipeline.slug, failed, found, known)
    return verdict_of(found, known, passed=True)


def tests_fail(slug: str, faults: Sequence[str], found: str, known: Known) -> TestsFail:
    """Return what is raised where there are faults, each a sentence and perhaps more lines."""
    more = f"; {len(faults) - 1} more" if faults[1:] else ""
    sentence = f"the tests of pipeline {slug} fail{at(found)}: {faults[0].partition(chr(10))[0]}{more}"
    return TestsFail(sentence, verdict_of(found, known, passed=False))
