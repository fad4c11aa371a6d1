"""Which attempt writes a chunk, and whether it still may: the rule of the fence, for tables and folders. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from opendataflow.errors import Refused


@dataclass(frozen=True)
class Attempt:
    """Who writes a chunk. `fence`: grows with each attempt of a job; None by hand, which counts as the newest one.
    `token`: tells this attempt from all others."""

    dataset: str
    data_id: str
    token: str
    fence: int | None = None


@dataclass(frozen=True)
class Seen:
    """What is known of rows that have passed."""

    rows: int | None
    checksum: str | None


@dataclass(frozen=True)
class Result:
    """What was written. `rows`, `checksum`, `bytes`: None where they are not known. `kept`: nothing was written, as an
    earlier attempt has, and the chunk is written only once."""

    where: str
    rows: int | None = None
    checksum: str | None = None
    bytes: int | None = None
    kept: bool = False


def fence_of(environ: Mapping[str, str], data_id: str) -> int | None:
    """Return the fence of the run that this process is, for its own chunk; None by hand."""
    fence = environ.get("DATAFLOW_FENCE", "")
    return int(fence) if fence.isdecimal() and environ.get("DATAFLOW_DATA_ID") == data_id else None


def check_newest(attempt: Attempt, known: int | None, place: str) -> None:
    """Raise Refused where a newer attempt has begun. `known`: the fence that the destination remembers."""
    if attempt.fence is not None and known is not None and known > attempt.fence:
        raise Refused(
            f"{place}: {attempt.dataset} knows a newer attempt of the chunk {attempt.data_id} (fence {known}) than "
            f"this one (fence {attempt.fence}): nothing was written"
        )
