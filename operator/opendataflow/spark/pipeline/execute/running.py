"""Run the steps of one pipeline for one chunk or one item, and record the result of each step.

`Frames` hides the engine: it reads, counts and writes frames, and attributes errors to steps.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from opendataflow.core.pipelines.pipeline_steps import Step, count_frames, list_steps
from opendataflow.errors import InvalidInput, StepFailed
from opendataflow.model.projects.project import Pipeline, Source
from opendataflow.names import StepStatus
from opendataflow.spark.pipeline.errors.error_report import ErrorReport
from opendataflow.spark.pipeline.errors.printed_output import MAX_PRINTED, LineListener, capture_prints
from opendataflow.spark.pipeline.execute.loading import LoadedStep, StepsNotLoaded, load_module
from opendataflow.spark.pipeline.project.project_folder import OpenProject, ResolvedPipeline

Item = Mapping[str, Any]
StepsListener = Callable[[Sequence[Step]], None]


class Frames(Protocol):
    """The frames of an engine in one run. An index is the position of a step in `list_steps`."""

    def read(self, source: Source, place: str) -> Any:
        """Return the frame of a source. `place`: of the source in the project's file."""

    def call(self, step: LoadedStep, frames: Sequence[Any], item: Item | None) -> Any:
        """Call run() with frames and return its frame. Raises StepFailed if the result is no frame."""

    def count_rows(self, frame: Any, index: int) -> Any:
        """Return the frame for the next steps. Its rows are counted now, or during the write."""

    def write(self, frame: Any) -> None:
        """Write the last frame."""

    def row_counts(self) -> Mapping[int, int]:
        """Return the known row counts, by step."""

    def worker_prints(self) -> Mapping[int, str]:
        """Return the output of steps outside this process, by step."""

    def attribute_error(self, error: BaseException, index: int) -> tuple[int, ErrorReport]:
        """Return the step that caused an error, and the report. `index`: the step in which the error was raised."""


@dataclass(frozen=True)
class ChunkRun:
    """A pipeline with its loaded steps, and the chunk to run it for.

    `data_id`: of the chunk; None in the Django tool's form, which has no chunks. `bounds`: of the chunk, by data set.
    """

    resolved: ResolvedPipeline
    steps: Sequence[LoadedStep]
    data_id: str | None = None
    item: Item | None = None
    bounds: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)

    @property
    def project(self) -> OpenProject:
        """The project of the pipeline."""
        return self.resolved.project

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline."""
        return self.resolved.pipeline

    @property
    def source_names(self) -> list[str]:
        """The names of the sources."""
        return [source.name for source in self.pipeline.sources]

    @property
    def write_index(self) -> int:
        """The index of the step that writes the result."""
        return len(self.pipeline.sources) + len(self.steps)

    def expectation_places(self) -> list[str]:
        """Return the file and line of each expectation."""
        return [self.resolved.place("expectations", index) for index in range(len(self.pipeline.expectations))]

    def step_place(self, index: int) -> str:
        """Return the file and line of a step."""
        first = len(self.pipeline.sources)
        if index < first:
            return self.resolved.place("sources", index)
        if index < self.write_index:
            return self.steps[index - first].location
        return self.resolved.place("destination")


def load_steps(resolved: ResolvedPipeline) -> list[LoadedStep]:
    """Load all transformations of a pipeline, and check their numbers of frames.

    Raises StepsNotLoaded if some can't be run.
    """
    loaded: list[LoadedStep] = []
    faults: dict[str, str] = {}
    for transformation in resolved.pipeline.transformations:
        try:
            loaded.append(load_step(resolved, transformation.name))
        except StepFailed as error:
            faults[transformation.name] = str(error)
    if faults:
        raise StepsNotLoaded(faults)
    return loaded


def load_step(resolved: ResolvedPipeline, name: str) -> LoadedStep:
    """Load a transformation, and check its number of frames. Raises StepFailed."""
    with capture_prints() as printed:
        step = load_module(resolved, name)
    try:
        count_frames(step.signature, [source.name for source in resolved.pipeline.sources])
    except InvalidInput as error:
        raise StepFailed(f"{step.location}: {error}") from None
    return replace(step, printed=printed.end())


def list_failed_steps(pipeline: Pipeline, faults: Mapping[str, str]) -> list[Step]:
    """Return the records of a pipeline whose steps were not loaded. `faults`: sentences by step."""
    steps = list_steps(pipeline)
    for step in steps:
        step.error = faults.get(step.name)
        step.status = StepStatus.SKIPPED if step.error is None else StepStatus.FAILED
    return steps


def check_item(steps: Sequence[LoadedStep], *, given: bool) -> None:
    """Raise StepFailed if an item is given to a run() that takes none, or missing for a run() that requires one."""
    for step in steps:
        if given and not step.signature.stream:
            raise StepFailed(f"{step.location}: run() takes no item; with --stream its last parameter is `stream`")
        if step.signature.item and not given:
            raise StepFailed(f"{step.location}: run() wants an item; give it one by --stream, or write stream=None")


def run_steps(
    chunk: ChunkRun, frames: Frames, on_change: StepsListener, on_line: LineListener | None = None
) -> list[Step]:
    """Run all steps and return their records.

    `on_change`: receives all records at the start and end of each step, and at the end of the run. `on_line`: receives
    each line that a step prints. A failed step raises no exception. Its record has the error, and later steps are
    SKIPPED.
    """
    return _StepRunner(chunk, frames, on_change, on_line).run()


class _Failed(Exception):
    """A step has failed. The record of the step has the error."""


class _StepRunner:
    def __init__(self, chunk: ChunkRun, frames: Frames, on_change: StepsListener, on_line: LineListener | None) -> None:
        self._on_line = on_line
        self._chunk = chunk
        self._frames = frames
        self._on_change = on_change
        self._steps = list_steps(chunk.pipeline)

    def run(self) -> list[Step]:
        with suppress(_Failed):
            self._run_all()
        self._complete()
        self._on_change(self._steps)
        return self._steps

    def _run_all(self) -> None:
        sources: list[Any] = []
        for index, source in enumerate(self._chunk.pipeline.sources):
            with self._step(index):
                read = self._frames.read(source, self._chunk.step_place(index))
                sources.append(self._frames.count_rows(read, index))
        frame = sources[0]
        for index, step in enumerate(self._chunk.steps, len(sources)):
            given = count_frames(step.signature, self._chunk.source_names)
            with self._step(index):
                print(step.printed, end="")
                result = self._frames.call(step, [frame, *sources[1:given]], self._chunk.item)
                frame = self._frames.count_rows(result, index)
        with self._step(len(self._steps) - 1):
            self._frames.write(frame)

    @contextmanager
    def _step(self, index: int) -> Iterator[None]:
        step = self._steps[index]
        step.status = StepStatus.RUNNING
        self._on_change(self._steps)
        began = time.monotonic()
        with capture_prints(self._on_line) as printed:
            try:
                yield
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a transformation may even call exit()
                self._fail(error, index)
                raise _Failed from error
            finally:
                step.seconds = time.monotonic() - began
                step.stdout = printed.end()
        step.status = StepStatus.DONE
        step.rows = self._frames.row_counts().get(index)
        self._on_change(self._steps)

    def _fail(self, error: BaseException, index: int) -> None:
        failed, report = self._frames.attribute_error(error, index)
        for step in self._steps[failed:]:
            step.status = StepStatus.SKIPPED
        self._steps[failed].status = StepStatus.FAILED
        self._steps[failed].error = self._chunk.project.shorten_paths(str(report))

    def _complete(self) -> None:
        """Add facts that are known only at the end."""
        for index, rows in self._frames.row_counts().items():
            if self._steps[index].status is StepStatus.DONE:
                self._steps[index].rows = rows
        elsewhere = self._frames.worker_prints()
        for index, step in enumerate(self._steps):
            step.stdout = (step.stdout + elsewhere.get(index, ""))[-MAX_PRINTED:]
            if step.status in (StepStatus.WAITING, StepStatus.RUNNING):
                step.status = StepStatus.SKIPPED
