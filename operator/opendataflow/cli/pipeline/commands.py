"""`dataflow pipeline`: creates, tests and runs pipelines of a project by hand, on this machine."""

import dataclasses
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from opendataflow.cli.app import OutputOption, app
from opendataflow.cli.chunks.load import read_list
from opendataflow.cli.output.live import live_console
from opendataflow.cli.output.printing import Output, echo, print_document, print_rows
from opendataflow.cli.pipeline.init import write_project
from opendataflow.cli.pipeline.show import (
    LiveSteps,
    show_expectations,
    show_item,
    show_run,
    show_test,
    show_tests,
    waiting,
)
from opendataflow.core.chunks.chunk_list import parse_chunk_list
from opendataflow.core.chunks.items import check_distinct, data_id_of
from opendataflow.core.databases.attempts import Result
from opendataflow.core.databases.dialect import Dialect, Driver
from opendataflow.core.pipelines.expectations import ExpectationResult
from opendataflow.core.pipelines.pipeline_steps import Step
from opendataflow.core.text.explain import counted
from opendataflow.core.text.verbs import did_you_mean
from opendataflow.errors import DataflowError, InvalidInput, NotInstalled, StepFailed
from opendataflow.model.projects.project import Destination, Source, schema_text
from opendataflow.names import ExitCode, StepStatus
from opendataflow.spark import archiving, class_archive
from opendataflow.spark.pipeline.errors.printed_output import capture_prints
from opendataflow.spark.pipeline.execute.loading import check_modules
from opendataflow.spark.pipeline.execute.running import ChunkRun, Item, check_item, load_step, load_steps, run_steps
from opendataflow.spark.pipeline.io.file_checks import require_path
from opendataflow.spark.pipeline.measure.session import local_session
from opendataflow.spark.pipeline.project.project_folder import OpenProject, ResolvedPipeline, open_project
from opendataflow.spark.pipeline.storage.database_login import guess_dialect, new_attempt, required_drivers
from opendataflow.spark.pipeline.testing.unit_tests import UnitTestResult, run_unit_test
from opendataflow.spark.shared.jvm_start import spark_home

pipeline = typer.Typer(help="Create, test and run pipelines by hand.", no_args_is_help=True)
app.add_typer(pipeline, name="pipeline")


def complete_pipeline(incomplete: str) -> list[str]:
    """Return the slugs of the current project that start with `incomplete`."""
    try:
        return [it.slug for it in open_project(None).pipelines if it.slug.startswith(incomplete)]
    except DataflowError:
        return []


ProjectOption = Annotated[
    Path | None,
    typer.Option(
        "--project",
        "-p",
        help="The project's folder. Default: the current folder or its nearest parent with a project.",
    ),
]
SlugArgument = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="The slug of the pipeline.", autocompletion=complete_pipeline)
]
MaybeSlug = Annotated[
    str | None,
    typer.Argument(
        metavar="PIPELINE", help="The slug of a pipeline. Default: all pipelines.", autocompletion=complete_pipeline
    ),
]


@pipeline.command("init")
def init(folder: Annotated[Path, typer.Argument(help="The folder. Created if missing.")]) -> None:
    """Write a first project into a folder. It can be tested and run unchanged. Never overwrite a file."""
    for line in write_project(folder):
        echo(line)


@pipeline.command("schema")
def schema() -> None:
    """Print the JSON schema of project.yml. Editors use it to validate and complete the file."""
    echo(schema_text(), nl=False)


@pipeline.command("list")
def list_pipelines(project: ProjectOption = None, output: OutputOption = Output.TABLE) -> None:
    """List the pipelines of a project."""
    opened = open_project(project)
    found = [
        {
            "pipeline": it.slug,
            "sources": ", ".join(source.name for source in it.sources),
            "transformations": ", ".join(step.name for step in it.transformations),
            "destination": it.destination.name,
        }
        for it in opened.pipelines
    ]
    print_rows(found, output, ("pipeline", "sources", "transformations", "destination"), "there are no pipelines")
    _print_notes(opened, opened.resolve_all())


@pipeline.command("describe")
def describe(slug: SlugArgument, project: ProjectOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show the sources, steps and destination of a pipeline, and its errors.

    To read the type hints of its steps, this executes their modules, but not run(). A note says so before.
    """
    opened = open_project(project)
    resolved = opened.resolve(slug)
    echo(f"note: to read their type hints, the modules of the steps are executed: {opened.folder}", err=True)
    with ExitStack() as stack:
        description = _describe(resolved, stack)
        if not output.is_document:
            _show_description(opened, description)
            _print_notes(opened, [resolved])
        else:
            print_document(description, output)


def _show_description(opened: OpenProject, description: Mapping[str, Any]) -> None:
    form = "the Django tool's form" if opened.file.django else "version 2"
    echo(f"pipeline {description['pipeline']} of {opened.file.project.name} ({form})")
    for source in description["sources"]:
        chunk = "" if source["chunk"] is None else f", the rows of the chunk by {source['chunk']}"
        echo(f"  read   {source['name']}: {source['path']}{'' if source['there'] else ' (not there)'}{chunk}")
    for step in description["transformations"]:
        echo(f"  step   {step['name']}: {step['fault'] or step['says']}")
    for expectation in description["expectations"]:
        echo(f"  expect {expectation['name']}{'' if expectation['severity'] == 'fail' else ', else a warning'}")
    to = description["destination"]
    echo(f"  write  {to['name']}: {to['path']}, {to['format']}" + (f", {to['mode']}" if to["mode"] else ""))


@pipeline.command("test")
def run_tests(slug: MaybeSlug = None, project: ProjectOption = None, output: OutputOption = Output.TABLE) -> int:
    """Run the unit tests of transformations, which their modules define. Exit code 1 if a test fails."""
    opened = open_project(project)
    chosen = opened.resolve_all() if slug is None else (opened.resolve(slug),)
    results: list[UnitTestResult] = []
    with ExitStack() as stack:
        for result in _test_results(chosen, stack):
            results.append(result)
            if not output.is_document:
                show_test(result)
        if output.is_document:
            print_document([asdict(result) for result in results], output)
        else:
            show_tests(results)
        _print_notes(opened, chosen)
    return ExitCode.FAILED if any(result.sentence is not None for result in results) else ExitCode.OK


@pipeline.command("run")
def run(
    slug: SlugArgument,
    data_id: Annotated[
        str | None,
        typer.Option(
            "--data-id", help="The data id of the chunk. Required, except with --stream or in the Django tool's form."
        ),
    ] = None,
    chunks: Annotated[
        Path | None,
        typer.Option(
            "--chunks",
            metavar="FILE",
            help="A list of chunks, from `chunks plan --file`. Its bounds select rows of the first source.",
        ),
    ] = None,
    stream: Annotated[
        Path | None,
        typer.Option(
            "--stream", metavar="FILE", help="A CSV file of items, or its name in sources/. Run once per item."
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="In the Django tool's form: remove the results of earlier runs.")
    ] = False,
    project: ProjectOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Process one chunk on this machine: read, run the steps in order, write. A second run has the same result."""
    opened = open_project(project)
    resolved = opened.resolve(slug)
    _check_options(opened, data_id, stream, chunks, replace)
    for note in opened.file.notes() if opened.file.ignored else ():
        echo(f"note: {note}", err=True)
    bounds = {} if chunks is None or data_id is None else _bounds(chunks, data_id, resolved.pipeline.sources[0])
    with ExitStack() as stack:
        stack.enter_context(opened.importable())
        check_modules(resolved)
        spark = None
        if not opened.file.django:  # before modules are loaded: some need Spark then, for example for @udf("int")
            spark = stack.enter_context(_session(f"dataflow {slug}", required_drivers(resolved.pipeline)))
        steps = load_steps(resolved)
        check_item(steps, given=stream is not None)
        items = [None] if stream is None else _items(opened, stream)
        done: list[dict[str, Any]] = []
        known: dict[str, Any] = {}
        for number, item in enumerate(items):
            chunk = data_id if opened.file.django or item is None else data_id_of(item)
            chunk_run = ChunkRun(resolved, steps, chunk, item, bounds)
            made, result, checked = _run(chunk_run, spark, known, replace=replace and number == 0)
            # Modules print only while they are loaded, before the first item.
            steps = [dataclasses.replace(step, printed="") for step in steps]
            done.append(
                {"data_id": chunk, "item": item, "steps": [asdict(step) for step in made], **_outcome(result, checked)}
            )
            if not output.is_document:
                if item is not None:
                    show_item(number, len(items), item)
                show_run(made, result)
                show_expectations(checked)
            if result is None:
                break
    if output.is_document:
        print_document(done, output)
    _raise_failed_step(done)


@pipeline.command("prepare")
def prepare() -> None:
    """Archive Spark's classes, so that Spark starts faster. Takes half a minute, and 190 MB in the cache.

    Runs and tests do this in the background when they end. This command does it now and reports errors.
    """
    try:
        made = archiving.make_archive(os.environ, spark_home(), sys.executable)
    except archiving.ArchivingFailed as error:
        raise NotInstalled(str(error)) from None
    except OSError as error:
        where = error.filename or class_archive.archive_path(os.environ, spark_home())
        raise InvalidInput(f"{where}: can't be written: {error.strerror}") from error
    echo(f"Spark starts quicker now: {made.file} ({made.file.stat().st_size / 1e6:.0f} MB) has its classes")


@pipeline.command("clean")
def clean(project: ProjectOption = None) -> None:
    """Empty the project's folder output/."""
    folder = open_project(project).folder / "output"
    removed = 0
    try:
        for path in sorted(folder.iterdir()) if folder.exists() else ():
            removed += 1
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
    except OSError as error:
        raise InvalidInput(f"{error.filename}: can't be removed: {error.strerror}") from error
    echo(f"{folder} is empty; removed: {removed}")


def _test_results(chosen: Sequence[ResolvedPipeline], stack: ExitStack) -> Iterator[UnitTestResult]:
    """Run the tests of pipelines and yield each result.

    `stack`: closes the Spark session after the last result. The first test that needs Spark starts the session.
    """
    for project in {id(it.project): it.project for it in chosen}.values():
        stack.enter_context(project.importable())
    started: list[Any] = []

    def session() -> Any:
        if not started:
            started.append(stack.enter_context(_session("dataflow pipeline test")))
        return started[0]

    for resolved in chosen:
        for transformation in resolved.pipeline.transformations:
            yield run_unit_test(resolved, transformation.name, session)


@contextmanager
def _session(name: str, drivers: Sequence[Driver] = ()) -> Iterator[Any]:
    with ExitStack() as stack:
        with waiting("starting Spark"):
            spark = stack.enter_context(local_session(name, drivers))
        yield spark
        if sys.stderr.isatty() and class_archive.is_wanted(os.environ, spark_home()):
            echo("note: Spark will start quicker: its classes are being archived, in the background", err=True)


def _run(
    chunk: ChunkRun, spark: Any, known: dict[str, Any], *, replace: bool
) -> tuple[list[Step], Result | None, Sequence[ExpectationResult]]:
    if spark is None:
        from opendataflow.spark.pipeline.execute.pandas_frames import PandasFrames

        frames: Any = PandasFrames(chunk, replace=replace, cache=known)
    else:
        from opendataflow.spark.pipeline.execute.spark_frames import SparkFrames

        assert chunk.data_id is not None
        frames = SparkFrames(chunk, spark, new_attempt(chunk.pipeline.destination.name, chunk.data_id, os.environ))
    with LiveSteps(live_console(stderr=True)) as live:
        steps = run_steps(chunk, frames, live.show)
    return steps, frames.result, frames.expectations


def _outcome(result: Result | None, checked: Sequence[ExpectationResult]) -> dict[str, Any]:
    measures = ("rows", "bytes", "checksum", "kept")
    return {
        "written": None if result is None else result.where,
        **{name: getattr(result, name, None) for name in measures},
        "expectations": [asdict(it) for it in checked],
    }


def _check_options(
    opened: OpenProject, data_id: str | None, stream: Path | None, chunks: Path | None, replace: bool
) -> None:
    if opened.file.django:
        if data_id is not None or chunks is not None:
            raise InvalidInput("the Django tool's form has no chunks: leave out --data-id and --chunks")
        return
    if stream is not None and data_id is not None:
        raise InvalidInput("an item is a chunk of its own: write --stream or --data-id, and not both")
    if stream is not None and chunks is not None:
        raise InvalidInput("an item has no bounds: write --chunks with --data-id only")
    if stream is None and not data_id:
        raise InvalidInput("which chunk? write its data id, such as --data-id 2013-01-01")
    if replace:
        raise InvalidInput("--replace is for projects in the Django tool's form; here write destination.mode")


def _bounds(file: Path, data_id: str, source: Source) -> Mapping[str, Mapping[str, Any] | None]:
    """Return data set -> the chunk's bounds from a list of chunks. A job passes bounds in the same form."""
    listed = parse_chunk_list(read_list(str(file)), str(file))
    found = next((one for one in listed if one.id == data_id), None)
    if found is None:
        raise InvalidInput(f"{file}: there is no chunk {data_id}{did_you_mean(data_id, [one.id for one in listed])}")
    return {source.dataset or source.name: found.bounds}


def _items(opened: OpenProject, stream: Path) -> list[Item]:
    from opendataflow.spark.pipeline.execute.pandas_frames import read_items

    path = stream if os.path.exists(stream) else opened.folder / "sources" / stream
    items = read_items(require_path(path, str(path), "--stream"), str(path))
    if not opened.file.django:
        check_distinct(items)
    if not items:
        echo(f"{path} has no rows, so nothing was run", err=True)
    return items


def _describe(resolved: ResolvedPipeline, stack: ExitStack) -> dict[str, Any]:
    opened, found = resolved.project, resolved.pipeline
    with opened.importable(), capture_prints():
        steps = [_describe_step(resolved, step.name, stack) for step in found.transformations]
    sources = []
    for source in found.sources:
        path = _location(opened, source)
        there = source.database is not None or "://" in path or "{" in path or os.path.exists(path)
        by = source.partitioning.column if source.partitioning is not None else source.predicate
        sources.append({"name": source.name, "path": path, "format": _format(source), "there": there, "chunk": by})
    to = found.destination
    where = str(opened.folder / "output") if opened.file.django else _location(opened, to)
    mode = None if opened.file.django else to.mode
    return {
        "pipeline": found.slug,
        "sources": sources,
        "transformations": steps,
        "expectations": [{"name": it.title, "severity": it.severity} for it in found.expectations],
        "destination": {"name": to.name, "path": where, "format": _format(to), "mode": mode},
    }


def _location(opened: OpenProject, it: Source | Destination) -> str:
    return opened.display_location(it.where) if it.database is None else f"{it.where} in {it.database.url}"


def _format(it: Source | Destination) -> str:
    return it.format if it.database is None else (guess_dialect(it.database) or Dialect).spark_format


def _describe_step(resolved: ResolvedPipeline, name: str, stack: ExitStack) -> dict[str, Any]:
    """Describe a transformation. `stack`: closes the Spark session, which only some modules need to be loaded."""
    try:
        try:
            step = load_step(resolved, name)
        except StepFailed as error:
            if "SESSION_OR_CONTEXT_NOT_EXISTS" not in str(error):
                raise
            stack.enter_context(_session("dataflow pipeline describe"))
            step = load_step(resolved, name)
    except StepFailed as error:
        return {"name": name, "fault": str(error).partition("\n")[0], "says": None}
    taken = step.signature
    frames = "any number of frames" if taken.most is None else counted(taken.needed, "frame")
    item = " and an item" if taken.stream else ""
    return {"name": name, "fault": None, "says": f"{step.engine}, takes {frames}{item} ({step.location})"}


def _print_notes(opened: OpenProject, chosen: Sequence[ResolvedPipeline]) -> None:
    """Print notes on stderr: observations that are no errors."""
    for note in opened.file.notes():
        echo(f"note: {note}", err=True)
    for resolved in chosen:
        for path in resolved.list_unlisted_modules():
            echo(f"note: {path} is not in the list of transformations, so it is never run", err=True)


def _raise_failed_step(done: list[dict[str, Any]]) -> None:
    """Raise StepFailed for the first step that failed."""
    for made in done:
        for step in made["steps"]:
            if step["status"] is StepStatus.FAILED:
                raise StepFailed(f"{step['name']} has failed: {step['error'].partition(chr(10))[0]}")
