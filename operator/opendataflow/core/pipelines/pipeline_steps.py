"""The steps of a pipeline: their order, their frames, and the record of an executed step. Pure.

Reading a source and writing the result are steps too. A record has the fields of the table `step`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from opendataflow.core.text.explain import counted
from opendataflow.errors import InvalidInput, StepFailed
from opendataflow.model.projects.project import Pipeline
from opendataflow.names import StepStatus


@dataclass(frozen=True)
class Signature:
    """The parameters of a run().

    `needed`: number of required frames. `most`: maximum number of frames; None: any number. `stream`: accepts an item.
    `item`: requires an item.
    """

    needed: int
    most: int | None
    stream: bool = False
    item: bool = False


@dataclass
class Step:
    """The record of one step of a run.

    `rows`: None if unknown. `seconds`: the step's own time. Work that Spark defers counts as time of the write.
    """

    name: str
    status: StepStatus = StepStatus.WAITING
    rows: int | None = None
    seconds: float | None = None
    stdout: str = ""
    error: str | None = None
    """One sentence, and below it the user's part of the traceback."""


def read_step_name(source: str) -> str:
    """Return the name of the step that reads a source."""
    return f"read {source}"


def write_step_name(destination: str) -> str:
    """Return the name of the step that writes the result."""
    return f"write {destination}"


def list_steps(pipeline: Pipeline) -> list[Step]:
    """Return new records for the steps of a pipeline, in order."""
    names = [
        *(read_step_name(source.name) for source in pipeline.sources),
        *(transformation.name for transformation in pipeline.transformations),
        write_step_name(pipeline.destination.name),
    ]
    return [Step(name) for name in names]


def find_duplicate(columns: Sequence[str], *, case_sensitive: bool = False) -> str | None:
    """Return the first duplicate name, or None. pandas is case sensitive. Spark treats `id` and `ID` as one name."""
    names = [name if case_sensitive else name.lower() for name in columns]
    return next((name for index, name in enumerate(columns) if names[index] in names[:index]), None)


def check_columns(columns: Sequence[str], at: str, *, case_sensitive: bool = False) -> None:
    """Raise StepFailed if two columns of a result have one name. `at`: the step's file and line."""
    duplicate = find_duplicate(columns, case_sensitive=case_sensitive)
    if duplicate is not None:
        raise StepFailed(f"{at}: the result has two columns {duplicate}; rename one of them, or drop it")


def count_frames(signature: Signature, sources: Sequence[str]) -> int:
    """Return the number of frames for a transformation.

    The first frame is the result of the previous step, or the first source. The others are the other sources. Raises
    InvalidInput if the transformation takes no frame, or requires more frames than exist.
    """
    if signature.most == 0:
        raise InvalidInput("run() takes no frame; its first parameter is the frame that it changes")
    if signature.needed > len(sources):
        raise InvalidInput(
            f"run() takes {counted(signature.needed, 'frame')} and the pipeline has "
            f"{counted(len(sources), 'source')} ({', '.join(sources)})"
        )
    return len(sources) if signature.most is None else min(signature.most, len(sources))
