"""Runs the steps of one pipeline for one chunk, or one item, and keeps of each what is to be known.

It knows no engine: `Frames` reads, counts and writes, and says which step an error belongs to.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from io import RawIOBase, TextIOBase
from typing import Any, Protocol

from opendataflow.core.pipelines.pipeline_steps import Step, frames_given, steps_of
from opendataflow.errors import InvalidInput, StepFailed
from opendataflow.model.projects.project import Pipeline, Source
from opendataflow.names import StepStatus
from opendataflow.spark.pipeline.errors.error_report import Told, writable
from opendataflow.spark.pipeline.execute.loading import Loaded, NotLoaded, load
from opendataflow.spark.pipeline.project.project_folder import OpenProject

MOST_PRINTED = 64 * 1024
"""How many characters of what a step prints are kept: the last ones."""

Item = Mapping[str, Any]
Show = Callable[[Sequence[Step]], None]
Hear = Callable[[str], None]


class Frames(Protocol):
    """What an engine does with frames. Steps are named by their index in `steps_of`."""

    def read(self, source: Source, place: str) -> Any:
        """Return the frame of a source. `place`: where the project's file has it."""

    def call(self, step: Loaded, frames: Sequence[Any], item: Item | None) -> Any:
        """Return what run() makes of the frames. Raises StepFailed where that is no frame."""

    def counted(self, frame: Any, index: int) -> Any:
        """Return the frame that the next steps get; its rows are counted now, or while they are written."""

    def write(self, frame: Any) -> None:
        """Write the last frame."""

    def rows(self) -> Mapping[int, int]:
        """Return the rows of each step, as far as they are known."""

    def printed(self) -> Mapping[int, str]:
        """Return what steps have printed elsewhere than in this process."""

    def blame(self, error: BaseException, index: int) -> tuple[int, Told]:
        """Return the step that an error is of, which came to light in step `index`, and what to say."""


@dataclass(frozen=True)
class Order:
    """What is to be run. `data_id`: of the chunk; None for all that is there, in the Django tool's form. `bounds`: what
    is remembered of the chunk, by data set."""

    project: OpenProject
    pipeline: Pipeline
    steps: Sequence[Loaded]
    data_id: str | None = None
    item: Item | None = None
    bounds: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)

    @property
    def sources(self) -> list[str]:
        """The names of the sources."""
        return [source.name for source in self.pipeline.sources]

    def expectations(self) -> list[str]:
        """Return the file and line of each expectation."""
        number, _ = self.project.file.pipeline(self.pipeline.slug)
        file, count = self.project.file, len(self.pipeline.expectations)
        return [file.place("pipelines", number, "expectations", index) for index in range(count)]

    def at(self, index: int) -> str:
        """Return the file and line that a step is written at."""
        number, _ = self.project.file.pipeline(self.pipeline.slug)
        first = len(self.pipeline.sources)
        if index < first:
            return self.project.file.place("pipelines", number, "sources", index)
        if index < first + len(self.steps):
            return self.steps[index - first].at
        return self.project.file.place("pipelines", number, "destination")


class Printed(TextIOBase):
    """Keeps the end of what is printed. `hear`: gets each line, as soon as it is whole."""

    encoding = "utf-8"

    def __init__(self, hear: Hear | None = None) -> None:
        self.buffer = _Bytes(self)
        self._hear = hear
        self._kept = ""
        self._line = ""

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, text: str) -> int:
        """Keep it."""
        text = writable(text)
        self._kept += text
        if len(self._kept) > 2 * MOST_PRINTED:
            self._kept = self._kept[-MOST_PRINTED:]
        if self._hear is not None:
            *lines, self._line = (self._line + text).split("\n")
            for line in lines:
                self._hear(line)
        return len(text)

    def end(self) -> str:
        """Hand on a line that has no end; return what was kept."""
        if self._hear is not None and self._line:
            self._hear(self._line)
            self._line = ""
        return self._kept[-MOST_PRINTED:]


class _Bytes(RawIOBase):
    """Takes bytes as the text that they are in UTF-8."""

    def __init__(self, to: Printed) -> None:
        self._to = to

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, given: Any) -> int:
        """Hand it on."""
        self._to.write(bytes(given).decode("utf-8", "replace"))
        return len(given)


@contextmanager
def captured(hear: Hear | None = None) -> Iterator[Printed]:
    """Keep what is printed meanwhile, and hand on its lines."""
    kept = Printed(hear)
    with redirect_stdout(kept):
        yield kept


def load_steps(project: OpenProject, pipeline: Pipeline) -> list[Loaded]:
    """Load all transformations of a pipeline, and look whether there are frames for them.

    Raises NotLoaded where there are some that can't be run.
    """
    loaded: list[Loaded] = []
    faults: dict[str, str] = {}
    for transformation in pipeline.transformations:
        try:
            loaded.append(load_step(project, pipeline, transformation.name))
        except StepFailed as error:
            faults[transformation.name] = str(error)
    if faults:
        raise NotLoaded(faults)
    return loaded


def load_step(project: OpenProject, pipeline: Pipeline, name: str) -> Loaded:
    """Load a transformation, and look whether there are frames for it. Raises StepFailed."""
    with captured() as printed:
        step = load(project, pipeline.slug, name)
    try:
        frames_given(step.signature, [source.name for source in pipeline.sources])
    except InvalidInput as error:
        raise StepFailed(f"{step.at}: {error}") from None
    return replace(step, printed=printed.end())


def steps_not_run(pipeline: Pipeline, faults: Mapping[str, str]) -> list[Step]:
    """Return the steps of a pipeline of which some can't be run, so that none was."""
    steps = steps_of(pipeline)
    for step in steps:
        step.error = faults.get(step.name)
        step.status = StepStatus.SKIPPED if step.error is None else StepStatus.FAILED
    return steps


def check_item(steps: Sequence[Loaded], *, given: bool) -> None:
    """Raise StepFailed where a transformation takes no item and is given one, or the other way round."""
    for step in steps:
        if given and not step.signature.stream:
            raise StepFailed(f"{step.at}: run() takes no item; with --stream its last parameter is `stream`")
        if step.signature.item and not given:
            raise StepFailed(f"{step.at}: run() wants an item; give it one by --stream, or write stream=None")


def run_steps(order: Order, frames: Frames, show: Show, hear: Hear | None = None) -> list[Step]:
    """Run all steps; return what became of them. `show`: called with all when one begins, when it has ended, and when
    all is known. `hear`: gets each line that they print, at once.

    A failed step is no exception: its record has the sentence, and those behind it are SKIPPED.
    """
    return _Run(order, frames, show, hear).run()


class _Failed(Exception):
    """A step has failed; its record says why."""


class _Run:
    def __init__(self, order: Order, frames: Frames, show: Show, hear: Hear | None) -> None:
        self._hear = hear
        self._order = order
        self._frames = frames
        self._show = show
        self._steps = steps_of(order.pipeline)

    def run(self) -> list[Step]:
        with suppress(_Failed):
            self._all()
        self._complete()
        self._show(self._steps)
        return self._steps

    def _all(self) -> None:
        sources: list[Any] = []
        for number, source in enumerate(self._order.pipeline.sources):
            with self._step(number):
                sources.append(self._frames.counted(self._frames.read(source, self._order.at(number)), number))
        frame = sources[0]
        for number, step in enumerate(self._order.steps, len(sources)):
            given = frames_given(step.signature, self._order.sources)
            with self._step(number):
                print(step.printed, end="")
                result = self._frames.call(step, [frame, *sources[1:given]], self._order.item)
                frame = self._frames.counted(result, number)
        with self._step(len(self._steps) - 1):
            self._frames.write(frame)

    @contextmanager
    def _step(self, index: int) -> Iterator[None]:
        step = self._steps[index]
        step.status = StepStatus.RUNNING
        self._show(self._steps)
        began = time.monotonic()
        with captured(self._hear) as printed:
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
        step.rows = self._frames.rows().get(index)
        self._show(self._steps)

    def _fail(self, error: BaseException, index: int) -> None:
        guilty, told = self._frames.blame(error, index)
        for step in self._steps[guilty:]:
            step.status = StepStatus.SKIPPED
        self._steps[guilty].status = StepStatus.FAILED
        self._steps[guilty].error = self._order.project.in_words(str(told))

    def _complete(self) -> None:
        """Add what is known only at the end."""
        for index, rows in self._frames.rows().items():
            if self._steps[index].status is StepStatus.DONE:
                self._steps[index].rows = rows
        elsewhere = self._frames.printed()
        for index, step in enumerate(self._steps):
            step.stdout = (step.stdout + elsewhere.get(index, ""))[-MOST_PRINTED:]
            if step.status in (StepStatus.WAITING, StepStatus.RUNNING):
                step.status = StepStatus.SKIPPED
