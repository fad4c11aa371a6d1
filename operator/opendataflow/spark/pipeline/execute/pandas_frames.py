"""Frames of pandas, in this process: for projects in the Django tool's form, and for pandas transformations."""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opendataflow.core.chunks.attempts import Result
from opendataflow.core.pipelines.expectations import Checked
from opendataflow.core.pipelines.row_difference import Row
from opendataflow.errors import StepFailed
from opendataflow.model.projects.project import Source
from opendataflow.spark.pipeline.errors.error_report import Told, missing_extra, returned, tell
from opendataflow.spark.pipeline.execute.loading import Loaded
from opendataflow.spark.pipeline.execute.running import Item, Order
from opendataflow.spark.pipeline.io.sources import check_text, existing, texts_in
from opendataflow.spark.pipeline.storage.writing import staged_file

try:
    import pandas
except ModuleNotFoundError as _error:
    raise missing_extra(_error) from None


class PandasFrames:
    """One run in the Django tool's form: sources whole in memory, the result in a file of its own."""

    def __init__(self, order: Order, *, replace: bool, kept: dict[str, Any]) -> None:
        """`replace`: the results of earlier runs go when the new one is there. `kept`: sources that were read already,
        for the next item."""
        self._order = order
        self._replace = replace
        self._kept = kept
        self._rows: dict[int, int] = {}
        self._last = 0
        self.result: Result | None = None
        self.checked: Sequence[Checked] = ()

    def read(self, source: Source, place: str) -> Any:
        """Read a CSV file."""
        project = self._order.project
        shown = str(project.folder / source.where)
        path = existing(project.home / source.where, shown, place)
        check_text(texts_in({shown: path}))
        if source.name not in self._kept:
            self._kept[source.name] = read_csv(path, shown)
        return self._kept[source.name]

    def call(self, step: Loaded, frames: Sequence[Any], item: Item | None) -> Any:
        """Call run() with copies: what it changes in them is its own."""
        return call(step, [frame.copy() for frame in frames], item)

    def counted(self, frame: Any, index: int) -> Any:
        """Count at once."""
        self._rows[index] = self._last = len(frame)
        return frame

    def write(self, frame: Any) -> None:
        """Write a file beside those of earlier runs, or in their place."""
        folder = self._order.project.home / "output"
        slug = self._order.pipeline.slug
        earlier = outputs(folder, slug) if self._replace else []
        stamp = round(time.time() * 1000)
        while (target := folder / f"{slug}{stamp}.csv").exists():
            stamp += 1
        with staged_file(target) as path:
            frame.to_csv(path, index=False)
        self._rows[max(self._rows) + 1] = len(frame)
        self.result = Result(self._order.project.shown(target), len(frame), bytes=target.stat().st_size)
        for path in earlier:
            path.unlink(missing_ok=True)

    def rows(self) -> Mapping[int, int]:
        """The rows of all steps so far."""
        return self._rows

    def printed(self) -> Mapping[int, str]:
        """Nothing: all of it happens in this process."""
        return {}

    def blame(self, error: BaseException, index: int) -> tuple[int, Told]:
        """The step itself: nothing is put off."""
        return index, tell(error, self._order.project, self._order.at(index))


def outputs(folder: Path, slug: str) -> list[Path]:
    """Return the files that runs of a pipeline have left."""
    return [path for path in folder.glob("*.csv") if re.fullmatch(rf"{re.escape(slug)}\d{{13,}}\.csv", path.name)]


def read_csv(path: Path, shown: str) -> Any:
    """Read a CSV file, whose quoted cells may hold newlines. Raises StepFailed."""
    try:
        return pandas.read_csv(path)
    except OSError as error:
        raise StepFailed(f"{shown}: can't be read: {error.strerror}") from None
    except pandas.errors.EmptyDataError:
        raise StepFailed(f"{shown}: the file is empty; its first line names the columns") from None
    except pandas.errors.ParserError as error:
        raise StepFailed(f"{shown}: {str(error).strip().removeprefix('Error tokenizing data. C error: ')}") from None


def items_of(path: Path, shown: str) -> list[Item]:
    """Return the rows of a CSV file as dicts; a cell without anything is None."""
    check_text(texts_in({shown: path}))
    return list(rows_of(read_csv(path, shown)))


def call(step: Loaded, frames: Sequence[Any], item: Item | None) -> Any:
    """Call run() of a pandas transformation; StepFailed where it returns no frame."""
    given = {} if item is None or not step.signature.stream else {"stream": dict(item)}
    result = step.run(*frames, **given)
    if isinstance(result, pandas.DataFrame):
        return result
    raise StepFailed(f"{step.at}: run() {returned(result)}; a DataFrame of pandas is wanted")


def is_frame(value: object) -> bool:
    """Whether it is a frame of pandas."""
    return isinstance(value, pandas.DataFrame)


def frame_of(rows: Any) -> Any:
    """Return a frame of rows, or a copy of a frame."""
    return rows.copy() if is_frame(rows) else pandas.DataFrame(list(rows))


def plain(value: Any) -> Any:
    """Return a single value as one of Python, an array as a list; what is missing is None."""
    if value is pandas.NA or value is pandas.NaT:
        return None
    return value.tolist() if type(value).__module__ == "numpy" and hasattr(value, "tolist") else value


def rows_of(frame: Any) -> list[Row]:
    """Return the rows of a frame as values of Python; what is missing is None."""
    cells = frame.astype(object)
    found = cells.where(cells.notna(), None).to_dict("records")
    return [{name: plain(value) for name, value in row.items()} for row in found]
