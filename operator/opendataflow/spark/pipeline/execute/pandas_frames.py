"""Frames of pandas in this process, for projects in the Django tool's form and for pandas transformations."""

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from opendataflow.core.databases.attempts import Attempt, Result
from opendataflow.core.pipelines.expectations import ExpectationResult
from opendataflow.core.pipelines.row_difference import Row
from opendataflow.errors import StepFailed
from opendataflow.model.projects.project import Source
from opendataflow.spark.pipeline.errors.error_report import ErrorReport, describe_returned, missing_extra, report_error
from opendataflow.spark.pipeline.execute.loading import LoadedStep
from opendataflow.spark.pipeline.execute.running import ChunkRun, Item
from opendataflow.spark.pipeline.io.chunk_folder import ChunkFolder
from opendataflow.spark.pipeline.io.file_checks import check_encoding, list_files, require_path
from opendataflow.spark.pipeline.storage.atomic_replace import staged_file
from opendataflow.spark.pipeline.storage.spark_paths import LOCAL_SCHEME
from opendataflow.spark.pipeline.storage.staging import LocalFolder

try:
    import pandas
except ModuleNotFoundError as _error:
    raise missing_extra(_error) from None


class PandasFrames:
    """One run in the Django tool's form: whole sources in memory, the result in a new file or in the chunk's folder."""

    def __init__(
        self, chunk: ChunkRun, *, replace: bool = False, cache: dict[str, Any], attempt: Attempt | None = None
    ) -> None:
        """Set what to run.

        `replace`: delete earlier results at the end. `cache`: sources read for earlier items. `attempt`: at the chunk
        of a job.
        """
        self._attempt = attempt
        self._chunk = chunk
        self._replace = replace
        self._cache = cache
        self._rows: dict[int, int] = {}
        self.result: Result | None = None
        self.expectations: Sequence[ExpectationResult] = ()

    def read(self, source: Source, place: str) -> Any:
        """Read a CSV file of the project or of a bucket, a table, or a query. An item finds it read already."""
        if source.name not in self._cache:
            self._cache[source.name] = self._read(source, place)
        return self._cache[source.name]

    def _read(self, source: Source, place: str) -> Any:
        if source.database is not None or "://" in source.where:
            return self._read_remote(source, place)
        project = self._chunk.project
        shown = str(project.folder / source.where)
        path = require_path(project.home / source.where, shown, place)
        check_encoding(list_files({shown: path}))
        return read_csv(path, shown)

    def _read_remote(self, source: Source, place: str) -> Any:
        from opendataflow.spark.pipeline.storage.pandas_sources import open_address, read_rows  # slow to import

        if source.database is not None:
            return read_rows(source, place)
        with open_address(source.where, place) as file:
            return read_csv(file, source.where)

    def call(self, step: LoadedStep, frames: Sequence[Any], item: Item | None) -> Any:
        """Call run() with copies, which run() may change."""
        return call_run(step, [frame.copy() for frame in frames], item)

    def count_rows(self, frame: Any, index: int) -> Any:
        """Count the rows immediately."""
        self._rows[index] = len(frame)
        return frame

    def write(self, frame: Any) -> None:
        """Write the chunk of a job. Else write a new file, beside those of earlier runs or in their place."""
        self._rows[max(self._rows) + 1] = len(frame)
        self.result = self._write_new(frame) if self._attempt is None else self._write_chunk(frame, self._attempt)

    def _write_new(self, frame: Any) -> Result:
        folder = self._chunk.project.home / "output"
        slug = self._chunk.pipeline.slug
        earlier = list_outputs(folder, slug) if self._replace else []
        stamp = round(time.time() * 1000)
        while (target := folder / f"{slug}{stamp}.csv").exists():
            stamp += 1
        with staged_file(target) as path:
            frame.to_csv(path, index=False)
        for path in earlier:
            path.unlink(missing_ok=True)
        return Result(self._chunk.project.display_path(target), len(frame), bytes=target.stat().st_size)

    def _write_chunk(self, frame: Any, attempt: Attempt) -> Result:
        """Replace the folder of a chunk, which has one file. Raises Refused if a newer attempt has written it."""
        project, to = self._chunk.project, self._chunk.pipeline.destination
        folder = ChunkFolder(to, attempt, self._chunk.step_place(self._chunk.write_index))
        folder.check_name()
        home = LocalFolder(project.home / to.where, project.display_path(project.home / to.where))
        with home.staging(folder.name, attempt) as staging:
            folder.check_marker(home, staging.read_marker())
            rows = Path(staging.rows.removeprefix(LOCAL_SCHEME))
            rows.mkdir()
            frame.to_csv(rows / f"{self._chunk.pipeline.slug}.csv", index=False)
            size = staging.size()
            known = folder.check_marker(home, staging.read_marker())
            staging.set_marker(folder.render_marker(known, {"rows": len(frame), "bytes": size}))
        return Result(home.path(folder.name), len(frame), bytes=size)

    def row_counts(self) -> Mapping[int, int]:
        """Return the row counts of all steps so far."""
        return self._rows

    def worker_prints(self) -> Mapping[int, str]:
        """Return nothing. All steps run in this process."""
        return {}

    def attribute_error(self, error: BaseException, index: int) -> tuple[int, ErrorReport]:
        """Attribute the error to the step that raised it. pandas defers nothing."""
        return index, report_error(error, self._chunk.project, self._chunk.step_place(index))


def list_outputs(folder: Path, slug: str) -> list[Path]:
    """Return the result files of a pipeline's earlier runs."""
    return [path for path in folder.glob("*.csv") if re.fullmatch(rf"{re.escape(slug)}\d{{13,}}\.csv", path.name)]


def read_csv(path: Path | IO[bytes], shown: str) -> Any:
    """Read a CSV file. Quoted cells may contain line breaks. Raises StepFailed."""
    try:
        return pandas.read_csv(path)
    except OSError as error:
        raise StepFailed(f"{shown}: can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise StepFailed(f"{shown}: it is not UTF-8 text; save it as UTF-8") from None
    except pandas.errors.EmptyDataError:
        raise StepFailed(f"{shown}: the file is empty; its first line names the columns") from None
    except pandas.errors.ParserError as error:
        raise StepFailed(f"{shown}: {str(error).strip().removeprefix('Error tokenizing data. C error: ')}") from None


def read_items(path: Path, shown: str) -> list[Item]:
    """Return the rows of a CSV file as dicts. An empty cell is None."""
    check_encoding(list_files({shown: path}))
    return list(rows_from_frame(read_csv(path, shown)))


def call_run(step: LoadedStep, frames: Sequence[Any], item: Item | None) -> Any:
    """Call run() of a pandas transformation. Raises StepFailed if the result is no frame."""
    given = {} if item is None or not step.signature.stream else {"stream": dict(item)}
    result = step.run(*frames, **given)
    if isinstance(result, pandas.DataFrame):
        return result
    raise StepFailed(f"{step.location}: run() {describe_returned(result)}; a DataFrame of pandas is wanted")


def is_frame(value: object) -> bool:
    """Return whether a value is a frame of pandas."""
    return isinstance(value, pandas.DataFrame)


def frame_from_rows(rows: Any) -> Any:
    """Return a frame with the rows, or a copy of a frame."""
    return rows.copy() if is_frame(rows) else pandas.DataFrame(list(rows))


def to_python_value(value: Any) -> Any:
    """Convert a value to Python: an array to a list, a missing value to None."""
    if value is pandas.NA or value is pandas.NaT:
        return None
    return value.tolist() if type(value).__module__ == "numpy" and hasattr(value, "tolist") else value


def rows_from_frame(frame: Any) -> list[Row]:
    """Return the rows of a frame with Python values. A missing value is None."""
    cells = frame.astype(object)
    found = cells.where(cells.notna(), None).to_dict("records")
    return [{name: to_python_value(value) for name, value in row.items()} for row in found]
