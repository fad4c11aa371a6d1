"""The folder of one chunk in a destination: its name, and the marker file that names the attempt. Imports no Spark."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opendataflow.core.chunks.chunk_bounds import partition_folder
from opendataflow.core.databases.attempts import Attempt, check_newest, check_owner
from opendataflow.errors import StepFailed
from opendataflow.model.projects.project import Destination
from opendataflow.spark.pipeline.storage.staging import MARKER, DestinationFolder

_LONGEST_NAME, _SHOWN = 240, 40
"""Maximum length of a folder's name in bytes, with room for the staging suffix; characters shown in a message."""


class AlreadyWritten(Exception):
    """The chunk is complete, and mode `append` writes a chunk only once. `known`: its marker."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        self.known = known


@dataclass(frozen=True)
class ChunkFolder:
    """The folder that an attempt writes. `place`: of the destination in the project's file."""

    to: Destination
    attempt: Attempt
    place: str

    @property
    def name(self) -> str:
        """The name of the folder in the destination."""
        return partition_folder(self.to.partition, self.attempt.data_id)

    @property
    def replaces_all(self) -> bool:
        """Whether the attempt replaces the whole destination."""
        return self.to.mode == "replace"

    def check_name(self) -> None:
        """Raise StepFailed if the folder's name is too long for a file system."""
        size = len(self.name.encode())
        if size > _LONGEST_NAME and "://" not in self.to.where:
            raise StepFailed(
                f"{self.place}: the folder of the chunk would have a name of {size} bytes, and {_LONGEST_NAME} are "
                f"allowed: {self.name[:_SHOWN]}...; give the chunk a shorter data id, or write to a table"
            )

    def check_marker(self, home: DestinationFolder, marker: str | None) -> Mapping[str, Any]:
        """Return the current marker, or {} if it is of another chunk.

        Raises Refused if it has another owner or a newer token, AlreadyWritten if mode `append` has to write nothing.
        """
        where = home.path(MARKER if self.replaces_all else f"{self.name}/{MARKER}")
        try:
            content: dict[str, Any] = {} if marker is None else json.loads(marker)
        except ValueError:
            raise StepFailed(f"{where}: it can't be read; remove the folder to write the chunk anew") from None
        check_owner(
            self.attempt,
            content.get("owner"),
            self.place,
            f"write to another path, or, if nothing else writes it any more, delete owner and fence in {where}",
        )
        known = content if content.get("dataId") == self.attempt.data_id else {}
        check_newest(self.attempt, known.get("fence"), self.place)
        if known and self.to.mode == "append":
            raise AlreadyWritten(known)
        return known

    def render_marker(self, known: Mapping[str, Any], measures: Mapping[str, Any]) -> str:
        """Return the text of the new marker. An attempt by hand has no token and no owner, and keeps the known ones."""
        attempt = self.attempt
        fields = {
            "dataset": attempt.dataset,
            "dataId": attempt.data_id,
            "fence": known.get("fence") if attempt.fence is None else attempt.fence,
            "owner": known.get("owner") if attempt.owner is None else attempt.owner,
            "attempt": attempt.token,
        }
        return json.dumps({name: it for name, it in {**fields, **measures}.items() if it is not None})
