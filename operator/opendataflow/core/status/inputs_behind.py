"""Sentences about what has changed further up behind a chunk. Pure: opendataflow.changes_behind() finds it.

A task is stale if its own inputs have newer versions. Chunks that were made from its outputs are not stale: they were
made from the present versions. But these versions are not what a new run would make.
"""

from collections.abc import Iterator, Sequence

from opendataflow.core.status.evidence import Evidence, Facts
from opendataflow.core.text.explain import counted, shell_command
from opendataflow.names import ChunkStatus

_MOST_NAMED = 20
"""The number of changes that get a sentence each."""


def outdated_inputs(changes: Facts) -> str | None:
    """Return why data is not what a new run would make: an input further up is stale. The nearest one is named."""
    one = next((it for it in changes["changed"] if _is_outdated(it)), None)
    if one is None:
        return None
    what = "data" if one["dataset"] is not None else "a declaration"
    return (
        f"an input further up is stale: run {one['run']} of job {one['job']} made it from {what} that has changed since"
    )


def unsettled_inputs(changes: Facts) -> str | None:
    """Return why nobody knows whether data is up to date: an input further up is not READY, or too many are."""
    if changes["changed"]:
        one = changes["changed"][0]
        return f"chunk {one['data_id']} of {one['dataset']}, further up, is not READY any more"
    return None if changes["complete"] else "too many versions are behind it to look at all"


def changes_evidence(changes: Facts) -> list[Evidence]:
    """Return a piece of evidence for each change, the nearest first, and the command that makes all of it again."""
    changed: Sequence[Facts] = changes["changed"]
    found = [_evidence(one) for one in changed[:_MOST_NAMED]]
    if len(changed) > _MOST_NAMED:
        found.append(Evidence(f"and {counted(len(changed) - _MOST_NAMED, 'more change')} further up"))
    return [*found, *_remedy(changed)]


def _is_outdated(one: Facts) -> bool:
    return one["dataset"] is None or one["fence"] != one["now"]


def _evidence(one: Facts) -> Evidence:
    who = f"run {one['run']} of job {one['job']}"
    if one["dataset"] is None:
        return Evidence(f"further up, {who} made {one['data_id']} before its declaration changed", who)
    version = f"version {one['fence']}"
    status = "" if one["status"] == ChunkStatus.READY else f"{one['status']} "
    now = f"{status}in version {one['now']}" if one["now"] != one["fence"] else one["status"]
    sentence = f"further up, {who} read {version} of chunk {one['data_id']} of {one['dataset']}, which is {now} now"
    return Evidence(sentence, who, None, version)


def _remedy(changed: Sequence[Facts]) -> Iterator[Evidence]:
    """Name the farthest job whose outputs are outdated: all that was made from them is made again with it."""
    one = next((it for it in reversed(changed) if _is_outdated(it)), None)
    if one is not None:
        command = shell_command("resubmit", one["job"], one["data_id"], cascade=True)
        yield Evidence(f"to make it and all that was made from it again: {command}")
