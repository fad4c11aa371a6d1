"""Writes the rows of a chunk into a folder of its own, with a file that says which attempt has written it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opendataflow.core.attempts import Attempt, Result, check_newest
from opendataflow.core.chunk_bounds import partition_folder
from opendataflow.errors import StepFailed
from opendataflow.model.project import Destination
from opendataflow.spark.pipeline.opened import OpenProject
from opendataflow.spark.pipeline.writing import staged_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARKER = "_opendataflow.json"
"""In the folder that is swapped. Spark does not read files that begin so."""


class _Kept(Exception):
    """The chunk is there already, and is written only once."""


class Folder:
    """The folder of a destination, for one chunk."""

    def __init__(self, project: OpenProject, destination: Destination, attempt: Attempt, place: str) -> None:
        """`place`: of the destination in the project's file. Raises StepFailed where it is no folder here."""
        if "://" in destination.where:
            raise StepFailed(f"{place}: by hand a destination is a folder of this machine; write another path")
        self._to = destination
        self._attempt = attempt
        self._place = place
        self._home = project.home / destination.where
        self._chunk = partition_folder(destination.partition, attempt.data_id)
        self._shown = project.shown(self._home / self._chunk)

    def write(self, frame: "DataFrame", observed: Callable[[], Mapping[str, object]]) -> Result:
        """Write the folder of the chunk anew, or the whole destination. `observed`: what is known of the rows when they
        have passed: `rows`, `checksum`.

        Raises StepFailed where that can't be, Refused where a newer attempt has written it.
        """
        if self._to.partition in frame.columns:
            raise StepFailed(
                f"{self._place}: the result has a column {self._to.partition}, which is the name of the chunks' "
                "folders; write another destination.partition, or drop the column"
            )
        whole = self._to.mode == "replace"
        target = self._home if whole else self._home / self._chunk
        options = ({"header": "true"} if self._to.format == "csv" else {}) | self._to.options
        known: dict[str, Any] = {}
        try:
            with staged_folder(target) as staging:
                known = self._known(target)
                check_newest(self._attempt, known.get("fence"), self._place)
                if known and self._to.mode == "append":
                    raise _Kept
                folder = staging / self._chunk if whole else staging
                frame.write.format(self._to.format).options(**options).save(str(folder))
                seen = observed()
                size = sum(file.stat().st_size for file in folder.rglob("*") if _is_data(file))
                rows, checksum = seen.get("rows"), seen.get("checksum")
                self._mark(staging, known.get("fence"), rows=rows, checksum=checksum, bytes=size)
        except _Kept:
            return Result(self._shown, known.get("rows"), known.get("checksum"), known.get("bytes"), kept=True)
        return Result(
            self._shown, rows if isinstance(rows, int) else None, None if checksum is None else str(checksum), size
        )

    def _known(self, target: Path) -> dict[str, Any]:
        """What the folder says of this chunk; nothing where it is of another one, or of nobody."""
        try:
            told = json.loads((target / MARKER).read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except ValueError:
            raise StepFailed(
                f"{target / MARKER}: it can't be read; remove the folder to write the chunk anew"
            ) from None
        return told if told.get("dataId") == self._attempt.data_id else {}

    def _mark(self, staging: Path, fence: int | None, **seen: object) -> None:
        """`fence`: the one that is known, which stays where there is none, as by hand."""
        attempt = self._attempt
        fence = fence if attempt.fence is None else attempt.fence
        told = {"dataset": attempt.dataset, "dataId": attempt.data_id, "fence": fence, "attempt": attempt.token, **seen}
        (staging / MARKER).write_text(json.dumps({name: it for name, it in told.items() if it is not None}), "utf-8")


def _is_data(file: Path) -> bool:
    return file.name[0] not in "._" and file.is_file()
