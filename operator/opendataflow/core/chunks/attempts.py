"""Which attempt writes a chunk, and whether it still may: the check of the fencing token. Pure.

Tables and folders use the same check.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from opendataflow.errors import Refused


@dataclass(frozen=True)
class Attempt:
    """One attempt to write a chunk.

    `fence`: the fencing token, which grows with every claim. None if a person started the run by hand; such an attempt
    counts as the newest. `token`: unique for this attempt.
    """

    dataset: str
    data_id: str
    token: str
    fence: int | None = None


@dataclass(frozen=True)
class Seen:
    """Number and checksum of the rows that passed; None if not measured."""

    rows: int | None
    checksum: str | None


@dataclass(frozen=True)
class Result:
    """The result of a write. `where`: the table or folder. `rows`, `checksum`, `bytes`: None if unknown.

    `kept`: nothing was written, because an earlier attempt has written the chunk and it is written only once.
    """

    where: str
    rows: int | None = None
    checksum: str | None = None
    bytes: int | None = None
    kept: bool = False


def fence_of(environ: Mapping[str, str], data_id: str) -> int | None:
    """Return the fencing token of this process's run, if the run is for the chunk `data_id`; else None."""
    fence = environ.get("DATAFLOW_FENCE", "")
    return int(fence) if fence.isdecimal() and environ.get("DATAFLOW_DATA_ID") == data_id else None


def check_newest(attempt: Attempt, known: int | None, place: str) -> None:
    """Raise Refused if a newer attempt has begun. `known`: the fencing token that the destination stores."""
    if attempt.fence is not None and known is not None and known > attempt.fence:
        raise Refused(
            f"{place}: {attempt.dataset} knows a newer attempt of the chunk {attempt.data_id} (fence {known}) than "
            f"this one (fence {attempt.fence}): nothing was written"
        )
