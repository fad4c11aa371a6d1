"""The steps of a pipeline: in which order, what each is given, and what is known of one that was run. Pure.

Reading and writing are steps too: what fails there is no transformation's fault. A step's record has the fields that
the table `step` remembers of a run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from opendataflow.core.text.explain import counted
from opendataflow.errors import InvalidInput, StepFailed
from opendataflow.model.projects.project import Pipeline
from opendataflow.names import StepStatus


@dataclass(frozen=True)
class Signature:
    """What a transformation takes. `needed`: frames that it can't do without. `most`: frames that it has parameters
    for; None where it takes as many as there are. `stream`: it takes an item. `item`: it can't do without."""

    needed: int
    most: int | None
    stream: bool = False
    item: bool = False


@dataclass
class Step:
    """What is known of one step of a run. `rows`: None where they are not known. `seconds`: as long as it ran itself;
    what Spark puts off until the end is in the time of the write."""

    name: str
    status: StepStatus = StepStatus.WAITING
    rows: int | None = None
    seconds: float | None = None
    stdout: str = ""
    error: str | None = None
    """The sentence, and below it the traceback as far as it is the user's."""


def read_step(source: str) -> str:
    """The name of the step that reads a source."""
    return f"read {source}"


def write_step(destination: str) -> str:
    """The name of the step that writes."""
    return f"write {destination}"


def steps_of(pipeline: Pipeline) -> list[Step]:
    """Return the steps of a pipeline in their order, none of them run."""
    names = [
        *(read_step(source.name) for source in pipeline.sources),
        *(transformation.name for transformation in pipeline.transformations),
        write_step(pipeline.destination.name),
    ]
    return [Step(name) for name in names]


def double_column(columns: Sequence[str], *, by_case: bool = False) -> str | None:
    """Return the first name that two columns have; None where there is none. `by_case`: as pandas tells names apart,
    where Spark takes `id` and `ID` for one."""
    told = [name if by_case else name.lower() for name in columns]
    return next((name for index, name in enumerate(columns) if told[index] in told[:index]), None)


def check_columns(columns: Sequence[str], at: str, *, by_case: bool = False) -> None:
    """Raise StepFailed where two columns of a result have one name. `at`: the step's file and line."""
    double = double_column(columns, by_case=by_case)
    if double is not None:
        raise StepFailed(f"{at}: the result has two columns {double}; rename one of them, or drop it")


def frames_given(signature: Signature, sources: Sequence[str]) -> int:
    """Return how many frames a transformation is given: the first is what the one before it returned, or the first
    source; the others are the sources behind the first, as read.

    Raises InvalidInput where it takes none, or needs more than there are.
    """
    if signature.most == 0:
        raise InvalidInput("run() takes no frame; its first parameter is the frame that it changes")
    if signature.needed > len(sources):
        raise InvalidInput(
            f"run() takes {counted(signature.needed, 'frame')} and the pipeline has "
            f"{counted(len(sources), 'source')} ({', '.join(sources)})"
        )
    return len(sources) if signature.most is None else min(signature.most, len(sources))
