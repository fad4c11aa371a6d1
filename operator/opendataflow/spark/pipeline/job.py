"""The program of a run of `runtime.pipeline`, on one machine and in a driver's pod: it finds the project, tests it
where it is to be tested, runs the pipeline for one chunk, and reports.

What it is to do is a file beside the context, see core/pipelines/pipeline_order.py. The commit that it has run is in
its report, whatever became of it.
"""

import json
import os
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opendataflow.core.chunks.attempts import Result
from opendataflow.core.chunks.chunk_parts import Chunk, check_parts
from opendataflow.core.pipelines.expectations import Checked
from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.pipelines.step_lines import StepLines
from opendataflow.errors import DataflowError, InvalidInput
from opendataflow.model.projects.project import PROJECT_FILE, Pipeline
from opendataflow.names import PIPELINE_FILE, ExitCode, StepStatus
from opendataflow.spark.pipeline.execute.loading import NotLoaded, check_modules
from opendataflow.spark.pipeline.execute.running import Order, load_steps, run_steps, steps_not_run
from opendataflow.spark.pipeline.measure.session import local_session
from opendataflow.spark.pipeline.project.fetching import fetched_before, fetched_usable, git_of
from opendataflow.spark.pipeline.project.project_folder import OpenProject, open_project
from opendataflow.spark.pipeline.project.reporting import say, write_report
from opendataflow.spark.pipeline.storage.databases import attempt_of, drivers_of
from opendataflow.spark.pipeline.testing.test_gate import TestsFail, check_known, check_tests, tests_fail, version_of


@dataclass(frozen=True)
class Found:
    """A project that is here. `commit`: None where it is not from git."""

    folder: Path
    commit: str | None = None


@contextmanager
def found(order: Mapping[str, Any]) -> Iterator[Found]:
    """Give the project of an order. Raises as `fetching.fetched` does."""
    if "path" in order:
        yield Found(Path(order["path"]))
    elif "files" in order:
        with tempfile.TemporaryDirectory(prefix="dataflow-project-") as folder:
            lay_out(Path(order["files"]), Path(folder), order["pipeline"])
            yield Found(Path(folder))
    else:
        clones, git = Path(order["clones"]), git_of(order)
        before = order["fetched"]
        top, commit = fetched_before(git, clones) if before else fetched_usable(git, clones, order["tests"])
        yield Found(top / (order["folder"] or ""), commit)


def lay_out(files: Path, folder: Path, slug: str) -> None:
    """Copy files that lie side by side, as a ConfigMap has them, to where a project has them: `project.yml` at its top,
    modules of Python in the folder of the pipeline, all others in `sources`."""
    for file in files.iterdir():
        if file.name.startswith("..") or not file.is_file():  # what the kubelet swaps folders with
            continue
        inside = "" if file.name == "project.yml" else f"pipelines/{slug}" if file.suffix == ".py" else "sources"
        (folder / inside).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, folder / inside / file.name)


def placed(project: OpenProject, slug: str, output: str | None) -> Pipeline:
    """Return the pipeline with the folder that it writes to: relative ones are in `output`; None: there is none that
    stays. Raises InvalidInput where it can't be run for a chunk, or here."""
    index, pipeline = project.file.pipeline(slug)
    if project.file.django:
        raise InvalidInput(
            f"{project.file.place()}: a job runs pipelines chunk by chunk, and the Django tool's form has no chunks; "
            "write version: 2"
        )
    where = pipeline.destination.where
    if pipeline.destination.database is not None:
        return pipeline
    if "://" in where or Path(where).is_absolute():
        return pipeline
    if output is None:
        raise InvalidInput(
            f"{project.file.place('pipelines', index, 'destination')}: {where} would be gone with the pod; write "
            "runtime.pipeline.output, such as the path of a volume of podTemplate or s3a://bucket/data"
        )
    path = f"{output.rstrip('/')}/{where}" if "://" in output else str(Path(output, where))
    destination = pipeline.destination.model_copy(update={"path": path})
    return pipeline.model_copy(update={"destination": destination})


@dataclass(frozen=True)
class Done:
    """What became of the steps and expectations, and what was written: None where nothing was. `tests`: what was found
    out about those of the project."""

    steps: Sequence[Step]
    result: Result | None
    checked: Sequence[Checked]
    tests: Mapping[str, Any] | None = None


def run(order: Mapping[str, Any], at: Found, environ: Mapping[str, str]) -> Done:
    """Run the pipeline for the chunk. A DataflowError where it could not begin."""
    project = _opened(order, at)
    pipeline = placed(project, order["pipeline"], order["output"])
    try:
        return _run(order, at, environ, project, pipeline)
    except NotLoaded as error:
        lines, steps = StepLines(say), steps_not_run(pipeline, error.faults)
        lines.show(steps)
        return Done(steps, None, ())


def _opened(order: Mapping[str, Any], at: Found) -> OpenProject:
    """Return the project. One that can't be read, or lacks the pipeline, fails the tests that have to pass."""
    try:
        if not (at.folder / PROJECT_FILE).is_file():
            raise InvalidInput(_lacking(order, at))
        os.chdir(at.folder)  # files are told as they are named in the project
        project = open_project(Path())
        project.file.pipeline(order["pipeline"])
    except InvalidInput as error:
        if order["requireTests"]:
            raise tests_fail(
                order["pipeline"], [str(error)], version_of(at.folder, at.commit), order["tests"]
            ) from None
        raise
    return project


def _lacking(order: Mapping[str, Any], at: Found) -> str:
    """The sentence about a project without its file."""
    if "path" in order:
        return f"there is no {at.folder / PROJECT_FILE}; look at runtime.pipeline.project.path"
    if "files" in order:
        return f"the ConfigMap of the project has no {PROJECT_FILE}"
    where = f"{order['folder']}/{PROJECT_FILE}" if order["folder"] else PROJECT_FILE
    return f"{order['git']['url']} has no {where}; write the folder that has it beside url, as `folder`"


def _run(
    order: Mapping[str, Any], at: Found, environ: Mapping[str, str], project: OpenProject, pipeline: Pipeline
) -> Done:
    data_id, bounds, verdict = environ["DATAFLOW_DATA_ID"], _bounds(environ), None
    check_parts(project.file, pipeline, Chunk(data_id, bounds))
    version = version_of(Path(), at.commit) if order["requireTests"] else ""
    to_test = order["requireTests"] and not check_known(version, order["tests"])
    if not to_test:  # its tests say so, too, and then it costs the chunk nothing
        check_modules(project, pipeline.slug)
    with ExitStack() as stack:
        spark = stack.enter_context(local_session(f"{pipeline.slug} {data_id}", drivers_of(pipeline)))
        from opendataflow.spark.pipeline.execute.spark_frames import SparkFrames

        if to_test:
            with project.imports():  # the run gets modules of its own
                verdict = check_tests(project, pipeline, spark, version, order["tests"])
        stack.enter_context(project.imports())
        chunk = Order(project, pipeline, load_steps(project, pipeline), data_id, bounds=bounds)
        frames = SparkFrames(chunk, spark, attempt_of(pipeline.destination.name, data_id, environ))
        lines, out = StepLines(say), sys.stdout

        def show(steps: Sequence[Step]) -> None:
            lines.show(steps)
            told = {"commit": at.commit, "tests": verdict, "unfinished": True}
            write_report(told, steps, frames.checked, environ)  # all that is known of a run that is killed

        steps = run_steps(chunk, frames, show, lambda line: print(f"    {line}", file=out, flush=True))
        for it in frames.checked:
            say(f"{it.name}: {'holds' if it.held else f'does not hold ({it.severity})'}: {it.found}")
    return Done(steps, frames.result, frames.checked, verdict)


def report_of(done: Done) -> dict[str, Any]:
    """Return what a run tells of its work. Nothing of rows where nothing was written."""
    if done.result is None:
        return {}
    read = [step.rows for step in done.steps if step.name.startswith("read ")]
    known = [rows for rows in read if rows is not None]
    return {
        "rows": done.result.rows,
        "rowsIn": sum(known) if len(known) == len(read) else None,
        "bytes": done.result.bytes,
        "checksum": done.result.checksum,
    }


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Do it; return an exit code. Why it has failed is the last line of the log, and in the report."""
    commit: str | None = None
    done = Done((), None, ())
    try:
        order = _order(environ)
        with found(order) as at:
            commit = at.commit
            if commit is not None:
                say(f"commit {commit}")
            done = run(order, at, environ)
        wrong = next((step for step in done.steps if step.status is StepStatus.FAILED), None)
        if wrong is None:
            write_report({**report_of(done), "commit": commit, "tests": done.tests}, done.steps, done.checked, environ)
            return ExitCode.OK
        sentence = f"{wrong.name} has failed: {(wrong.error or '').partition(chr(10))[0]}"
    except TestsFail as error:
        done, sentence = Done((), None, (), error.verdict), str(error)
    except DataflowError as error:
        sentence, _, rest = str(error).partition("\n")
        print(rest, file=sys.stderr)
    except Exception as error:
        traceback.print_exc()
        sentence = f"{type(error).__name__}: {error}".partition("\n")[0]
    told = {**report_of(done), "commit": commit, "tests": done.tests, "failure": sentence}
    write_report(told, done.steps, done.checked, environ)
    print(sentence, file=sys.stderr, flush=True)
    return ExitCode.FAILED


def _order(environ: Mapping[str, str]) -> dict[str, Any]:
    written: dict[str, Any] = json.loads((Path(environ["DATAFLOW_CONTEXT"]).parent / PIPELINE_FILE).read_text("utf-8"))
    return written


def _bounds(environ: Mapping[str, str]) -> dict[str, dict[str, Any] | None]:
    """What is remembered of the chunk, by data set of the job."""
    context = json.loads(Path(environ["DATAFLOW_CONTEXT"]).read_text("utf-8"))
    return {name: dataset["bounds"] for name, dataset in context["datasets"].items()}


if __name__ == "__main__":
    sys.exit(main())
