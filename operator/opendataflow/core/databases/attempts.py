"""Which attempt writes a chunk, and whether it still may: the checks of the owner and of the fencing token. Pure.

Tables and folders use the same checks. An owner is the identity of the database whose run writes, on a cluster with the
namespace of the job: `3f2a9c01d4e7` or `3f2a9c01d4e7/team`. Fencing tokens of different databases are not comparable.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from opendataflow.errors import Refused


@dataclass(frozen=True)
class Attempt:
    """One attempt to write a chunk.

    `fence`: the fencing token, which grows with every claim. None if a person started the run by hand; such an attempt
    counts as the newest. `token`: unique for this attempt. `owner`: None if no database started the run; such an
    attempt may write chunks of every owner, and leaves them to that owner.
    """

    dataset: str
    data_id: str
    token: str
    fence: int | None = None
    owner: str | None = None


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


def make_owner(identity: str, namespace: str | None = None) -> str:
    """Return the owner for the runs of a database, in a namespace of a cluster or on one machine."""
    return identity if namespace is None else f"{identity}/{namespace}"


def is_same_owner(known: str, own: str) -> bool:
    """Return whether both are of one database, and not of two namespaces. A run on one machine has no namespace."""
    identity, _, namespace = known.partition("/")
    own_identity, _, own_namespace = own.partition("/")
    return identity == own_identity and (not namespace or not own_namespace or namespace == own_namespace)


def check_owner(attempt: Attempt, known: str | None, place: str, remedy: str) -> None:
    """Raise Refused if the chunk belongs to another owner. `known`: the owner that the destination stores.

    `remedy`: what a person can do to hand the chunk over.
    """
    if attempt.owner is not None and known is not None and not is_same_owner(known, attempt.owner):
        raise Refused(
            f"{place}: the chunk {attempt.data_id} of {attempt.dataset} belongs to another OpenDataFlow database or "
            f"namespace ({known}; this run is of {attempt.owner}): nothing was written; {remedy}"
        )


def check_newest(attempt: Attempt, known: int | None, place: str) -> None:
    """Raise Refused if a newer attempt has begun. `known`: the fencing token that the destination stores."""
    if attempt.fence is not None and known is not None and known > attempt.fence:
        raise Refused(
            f"{place}: {attempt.dataset} knows a newer attempt of the chunk {attempt.data_id} (fence {known}) than "
            f"this one (fence {attempt.fence}): nothing was written"
        )
