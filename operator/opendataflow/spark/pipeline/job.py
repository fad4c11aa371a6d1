"""The program of a run of `runtime.pipeline`, on one machine and in a driver's pod.

It parses its order (core/pipelines/pipeline_order.py), finds the project, looks at the locations of its data, runs the
required unit tests, runs the pipeline for one chunk, and reports. The report names the executed commit, whether the run
succeeds or fails.
"""

import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opendataflow.core.chunks.chunk_parts import Chunk, check_parts, part_of_source
from opendataflow.core.databases.attempts import Attempt, Result
from opendataflow.core.pipelines.expectations import ExpectationResult
from opendataflow.core.pipelines.looks import looks_of, report_looks
from opendataflow.core.pipelines.pipeline_order import (
    FilesProject,
    FolderProject,
    GitProject,
    PipelineOrder,
    parse_order,
)
from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.pipelines.step_lines import StepLines
from opendataflow.core.runs.preflight import Finding, Locations
from opendataflow.errors import DataflowError, InvalidInput
from opendataflow.model.projects.data_sources import DATA_SOURCES_FILE
from opendataflow.model.projects.project import PROJECT_FILE
from opendataflow.names import PIPELINE_FILE, ExitCode, Preflight, StepStatus
from opendataflow.spark.pipeline.execute.loading import StepsNotLoaded, check_modules
from opendataflow.spark.pipeline.execute.running import ChunkRun, check_item, list_failed_steps, load_steps, run_steps
from opendataflow.spark.pipeline.io.preflight import LocationMissing, Observer, look_at_files
from opendataflow.spark.pipeline.measure.session import local_session
from opendataflow.spark.pipeline.project.fetching import fetch_usable, find_fetched
from opendataflow.spark.pipeline.project.project_folder import ResolvedPipeline, open_project
from opendataflow.spark.pipeline.project.reporting import log_line, write_report
from opendataflow.spark.pipeline.storage.database_login import new_attempt, required_drivers
from opendataflow.spark.pipeline.testing.test_gate import (
    TestsFail,
    Verdict,
    has_passed,
    make_tests_fail,
    project_version,
    run_tests,
)
from opendataflow.spark.shared.jvm import hide_holder

if TYPE_CHECKING:
    from opendataflow.spark.pipeline.execute.pandas_frames import PandasFrames
    from opendataflow.spark.pipeline.execute.spark_frames import SparkFrames


@dataclass(frozen=True)
class FoundProject:
    """The folder of a project on this machine. `commit`: None if the project is not from git."""

    folder: Path
    commit: str | None = None


@contextmanager
def find_project(order: PipelineOrder) -> Iterator[FoundProject]:
    """Yield the project of an order. Raises the errors of `fetching.fetch_ref`."""
    project = order.project
    match project:
        case FolderProject():
            yield FoundProject(project.path)
        case FilesProject():
            with tempfile.TemporaryDirectory(prefix="dataflow-project-") as folder:
                lay_out(project.files, Path(folder), order.pipeline)
                yield FoundProject(Path(folder))
        case GitProject():
            found = find_fetched(project) if project.is_fetched else fetch_usable(project, order.tests)
            top, commit = found
            yield FoundProject(top / (project.folder or ""), commit)


def lay_out(files: Path, folder: Path, slug: str) -> None:
    """Copy files that lie side by side, as in a ConfigMap, to the places that a project expects.

    `project.yml` and `data-sources.yml` go to the top, Python modules to the folder of the pipeline, all other files to
    `sources`.
    """
    for file in files.iterdir():
        if file.name.startswith("..") or not file.is_file():  # the kubelet's folders for atomic updates
            continue
        inside = (
            ""
            if file.name in (PROJECT_FILE, DATA_SOURCES_FILE)
            else f"pipelines/{slug}"
            if file.suffix == ".py"
            else "sources"
        )
        (folder / inside).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / inside / file.name)


def place_destination(resolved: ResolvedPipeline, output: str | None) -> ResolvedPipeline:
    """Return the pipeline with the absolute location of its destination.

    `output`: the folder or address for relative destinations; None: no storage outlives the run. A pipeline in the
    Django tool's form writes to a folder with its slug: two pipelines may have one destination. Raises InvalidInput if
    the result would be lost.
    """
    destination, django = resolved.pipeline.destination, resolved.project.file.django
    where = f"output/{resolved.slug}" if django else destination.where
    if destination.database is not None or "://" in where or Path(where).is_absolute():
        return resolved
    if output is None:
        raise InvalidInput(
            f"{resolved.place('destination')}: {where} would be gone with the pod; write "
            "runtime.pipeline.output, such as the path of a volume of podTemplate or s3a://bucket/data"
        )
    if django and "://" in output:
        raise InvalidInput(
            f"{resolved.place()}: a pipeline in the Django tool's form writes files of this machine: write a path as "
            "runtime.pipeline.output, or version: 2"
        )
    return resolved.with_destination_path(
        f"{output.rstrip('/')}/{where}" if "://" in output else str(Path(output, where))
    )


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run. `result`: None if nothing was written. `tests`: the verdict on the project's unit tests.

    `looks`: the places that were written and read.
    """

    steps: Sequence[Step] = ()
    result: Result | None = None
    expectations: Sequence[ExpectationResult] = ()
    tests: Verdict | None = None
    looks: Sequence[Mapping[str, Any]] | None = None

    def report_fields(self) -> dict[str, Any]:
        """Return the fields of the report about rows, or {} if nothing was written."""
        if self.result is None:
            return {}
        read = [step.rows for step in self.steps if step.name.startswith("read ")]
        known = [rows for rows in read if rows is not None]
        return {
            "rows": self.result.rows,
            "rowsIn": sum(known) if len(known) == len(read) else None,
            "bytes": self.result.bytes,
            "checksum": self.result.checksum,
            "looks": self.looks,
        }


@dataclass
class JobRun:
    """One run: its order, its project, its chunk, and the variables of its process.

    `locations`: what the run has found so far at the locations of its data.
    """

    order: PipelineOrder
    found: FoundProject
    chunk: Chunk
    environ: Mapping[str, str] = field(repr=False)
    locations: Locations = field(default_factory=Locations)

    def run(self) -> RunOutcome:
        """Run the pipeline for the chunk. Raises DataflowError if the run can't begin."""
        resolved = place_destination(self._resolve(), self.order.output)
        try:
            return self._test_and_run(resolved)
        except StepsNotLoaded as error:
            steps = list_failed_steps(resolved.pipeline, error.faults)
            StepLines(log_line).show(steps)
            return RunOutcome(steps)

    def _resolve(self) -> ResolvedPipeline:
        """Open the project and return its pipeline. An invalid project fails required unit tests."""
        folder, order = self.found.folder, self.order
        try:
            if not (folder / PROJECT_FILE).is_file():
                raise InvalidInput(self._explain_missing_project())
            os.chdir(folder)  # messages name files relative to the project
            return open_project(Path()).resolve(order.pipeline)
        except InvalidInput as error:
            if order.require_tests:
                version = project_version(folder, self.found.commit)
                raise make_tests_fail(order.pipeline, [str(error)], version, order.tests) from None
            raise

    def _explain_missing_project(self) -> str:
        project = self.order.project
        match project:
            case FolderProject():
                return f"there is no {self.found.folder / PROJECT_FILE}; look at runtime.pipeline.project.path"
            case FilesProject():
                return f"the ConfigMap of the project has no {PROJECT_FILE}"
            case GitProject():
                where = f"{project.folder}/{PROJECT_FILE}" if project.folder else PROJECT_FILE
                return f"{project.git.url} has no {where}; write the folder that has it beside url, as `folder`"

    def _test_and_run(self, resolved: ResolvedPipeline) -> RunOutcome:
        order, project, pipeline = self.order, resolved.project, resolved.pipeline
        check_parts(resolved.place, pipeline, self.chunk)
        observer, data_id = Observer.of(self.environ), self.chunk.data_id
        if order.preflight:
            self._check_locations(look_at_files(resolved, data_id, observer))
        version = project_version(Path(), self.found.commit) if order.require_tests else ""
        needs_tests = order.require_tests and not has_passed(version, order.tests)
        if not needs_tests:  # unit tests report missing modules, too, and then no attempt of the chunk is lost
            check_modules(resolved)
        with ExitStack() as stack:
            spark = None
            if project.file.django:
                check_whole_sources(resolved, self.chunk)
            else:
                spark = stack.enter_context(local_session(pipeline.slug, required_drivers(pipeline), data_id))
                if order.preflight:
                    from opendataflow.spark.pipeline.io.spark_preflight import look_with_spark  # see _frames

                    self._check_locations(look_with_spark(spark, resolved, data_id, observer))
            verdict = None
            if needs_tests:
                with project.importable():  # tests and run use separate modules
                    verdict = run_tests(resolved, spark, version, order.tests)
            stack.enter_context(project.importable())
            return self._run_steps(resolved, spark, verdict)

    def _check_locations(self, findings: Iterable[Finding]) -> None:
        """Record what was found. Raises LocationMissing if the run may not start."""
        self.locations = Locations((*self.locations.findings, *findings))
        if self.locations.verdict is not Preflight.PASSED:
            raise LocationMissing(self.locations.sentence)

    def _run_steps(self, resolved: ResolvedPipeline, spark: Any, verdict: Verdict | None) -> RunOutcome:
        data_id, loaded = self.chunk.data_id, load_steps(resolved)
        check_item(loaded, given=False)
        chunk = ChunkRun(resolved, loaded, data_id, bounds=self.chunk.bounds)
        attempt = new_attempt(chunk.pipeline.destination.name, data_id, self.environ, self.order.owner)
        frames = _frames(chunk, spark, attempt)
        lines, out = StepLines(log_line), sys.stdout

        def on_change(steps: Sequence[Step]) -> None:
            lines.show(steps)
            known = {"commit": self.found.commit, "tests": verdict, "unfinished": True}
            fields = {**known, **self.locations.report_fields()}
            write_report(fields, steps, frames.expectations, self.environ)  # all that is known if the run is killed

        steps = run_steps(chunk, frames, on_change, lambda line: print(f"    {line}", file=out, flush=True))
        for it in frames.expectations:
            log_line(f"{it.name}: {'holds' if it.held else f'does not hold ({it.severity})'}: {it.found}")
        looks = looks_of(
            resolved.pipeline, steps, frames.result, data_id, str(resolved.project.home), datetime.now(UTC)
        )
        reported = report_looks(looks, self.chunk.bounds)
        return RunOutcome(steps, frames.result, frames.expectations, verdict, reported)


def check_whole_sources(resolved: ResolvedPipeline, chunk: Chunk) -> None:
    """Raise InvalidInput if bounds of the chunk select rows of a source: the Django tool's form reads whole sources."""
    for index, source in enumerate(resolved.pipeline.sources):
        if part_of_source(source, chunk) is not None:
            raise InvalidInput(
                f"{resolved.place('sources', index)}: the chunk {chunk.data_id} is a part of the rows of "
                f"{source.name}, and the Django tool's form reads whole sources; write version: 2"
            )


def _frames(chunk: ChunkRun, spark: Any, attempt: Attempt) -> "SparkFrames | PandasFrames":
    # Both import packages that are optional.
    if spark is None:
        from opendataflow.spark.pipeline.execute.pandas_frames import PandasFrames

        return PandasFrames(chunk, cache={}, attempt=attempt)
    from opendataflow.spark.pipeline.execute.spark_frames import SparkFrames

    return SparkFrames(chunk, spark, attempt)


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Run the order beside the context. Return an exit code.

    The reason of a failure is the last line of the log, and in the report.
    """
    hide_holder(os.environ)
    run: JobRun | None = None
    outcome = RunOutcome()
    try:
        order, chunk = _read_order(environ), _read_chunk(environ)
        with find_project(order) as found:
            if found.commit is not None:
                log_line(f"commit {found.commit}")
            run = JobRun(order, found, chunk, environ)
            outcome = run.run()
        failed = next((step for step in outcome.steps if step.status is StepStatus.FAILED), None)
        if failed is None:
            write_report(_report_fields(run, outcome), outcome.steps, outcome.expectations, environ)
            return ExitCode.OK
        sentence = f"{failed.name} has failed: {(failed.error or '').partition(chr(10))[0]}"
    except TestsFail as error:
        outcome, sentence = RunOutcome(tests=error.verdict), str(error)
    except DataflowError as error:
        sentence, _, rest = str(error).partition("\n")
        print(rest, file=sys.stderr)
    except Exception as error:
        traceback.print_exc()
        sentence = f"{type(error).__name__}: {error}".partition("\n")[0]
    fields = {**_report_fields(run, outcome), "failure": sentence}
    write_report(fields, outcome.steps, outcome.expectations, environ)
    print(sentence, file=sys.stderr, flush=True)
    return ExitCode.FAILED


def _report_fields(run: JobRun | None, outcome: RunOutcome) -> dict[str, Any]:
    """Return the fields of the report. `run`: None if the project was not found."""
    known = {} if run is None else {"commit": run.found.commit, **run.locations.report_fields()}
    made = {name: value for name, value in outcome.report_fields().items() if value is not None}
    return {**known, **made, "tests": outcome.tests}


def _read_order(environ: Mapping[str, str]) -> PipelineOrder:
    file = Path(environ["DATAFLOW_CONTEXT"]).parent / PIPELINE_FILE
    return parse_order(file.read_text("utf-8"), str(file))


def _read_chunk(environ: Mapping[str, str]) -> Chunk:
    """Return the chunk of this run, with its bounds by data set of the job."""
    context = json.loads(Path(environ["DATAFLOW_CONTEXT"]).read_text("utf-8"))
    bounds = {name: dataset["bounds"] for name, dataset in context["datasets"].items()}
    return Chunk(environ["DATAFLOW_DATA_ID"], bounds)


if __name__ == "__main__":
    sys.exit(main())
