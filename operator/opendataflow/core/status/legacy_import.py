"""Convert the rows of a database of the old framework to the state that is imported. Pure.

The result lists the rows that are not imported. This module never guesses the result of a run.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from opendataflow.errors import InvalidInput
from opendataflow.keys import bare
from opendataflow.names import COUNTED_CHUNKS, ChunkStatus, is_shell_name

Row = Mapping[str, Any]

_TAKEN = tuple(str(status) for status in COUNTED_CHUNKS if status is not ChunkStatus.DECLARED)
_TODAY = "today"
"""The built-in data set of both frameworks. It has no row that could be imported."""
_MOST_NAMED = 5
"""The number of rows that a sentence names."""


class Running(StrEnum):
    """The new status of chunks that are RUNNING in the old database. Only their owner knows how their runs ended."""

    FAILED = "failed"
    RESUBMIT = "resubmit"
    SKIP = "skip"


@dataclass(frozen=True)
class OldRows:
    """All rows of the three tables of the old framework."""

    jobs: tuple[Row, ...]
    datasets: tuple[Row, ...]
    statuses: tuple[Row, ...]


@dataclass(frozen=True)
class OldChunk:
    """A chunk with its status. `maker`: the jobid of its row, which is the producer."""

    dataset: str
    data_id: str
    status: str
    maker: str
    modified: datetime | None


@dataclass(frozen=True)
class OldState:
    """The state to import. `jobs`: rows {jobid, itemtype, datasetid, itemvalue}. `running`: chunks that are RUNNING.

    `left`: sentences about rows that are not imported.
    """

    datasets: tuple[tuple[str, Row], ...]
    jobs: tuple[Row, ...]
    chunks: tuple[OldChunk, ...]
    running: tuple[OldChunk, ...]
    left: tuple[str, ...]

    def decided(self, running: Running) -> tuple[OldChunk, ...]:
        """Return all chunks; the running ones with the status of the decision, or without them for SKIP."""
        if running is Running.SKIP:
            return self.chunks
        return (*self.chunks, *(replace(chunk, status=running.value.upper()) for chunk in self.running))


def old_state(rows: OldRows) -> OldState:
    """Return the state to import. Raise InvalidInput, with one line for each fault, if a row is invalid."""
    faults: list[str] = []
    left: list[str] = []
    datasets = _datasets(rows.datasets, faults)
    jobs = list(_jobs(rows.jobs, faults, left))
    chunks = _chunks(rows.statuses, faults, left)
    datasets.pop(_TODAY, None)
    named = {row["datasetid"] for row in jobs if row["datasetid"]} | {chunk.dataset for chunk in chunks}
    faults += [
        f"the id {name} has a /, which separates a namespace from an id: rename it before the import"
        for name in sorted({*named, *datasets, *(row["jobid"] for row in jobs)})
        if name != bare(name)
    ]
    undeclared = sorted(named - datasets.keys() - {_TODAY})
    if undeclared:
        left.append(f"without a row in dataset, made without columns: {_first(undeclared)}")
        datasets |= {name: {} for name in undeclared}
    if faults:
        raise InvalidInput("\n".join(faults))
    return OldState(
        tuple(datasets.items()),
        tuple(jobs),
        tuple(chunk for chunk in chunks if chunk.status != ChunkStatus.RUNNING),
        tuple(chunk for chunk in chunks if chunk.status == ChunkStatus.RUNNING),
        tuple(left),
    )


def _datasets(rows: Iterable[Row], faults: list[str]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for row in rows:
        name = row["datasetid"]
        columns = {column: value for column, value in row.items() if column != "datasetid"}
        if not name:
            faults.append("dataset: a row has no datasetid: give it one, or delete it")
        elif found.setdefault(name, columns) != columns:
            faults.append(f"dataset: {name} has two rows that differ: delete one of them")
    return found


def _jobs(rows: Iterable[Row], faults: list[str], left: list[str]) -> Iterator[Row]:
    for row in rows:
        job, item, dataset, value = (row[column] for column in ("jobid", "itemtype", "datasetid", "itemvalue"))
        if not job or not item or (item in ("IN", "OUT") and not dataset):
            faults.append(
                f"job: a row of job {job or '(none)'} has no jobid, itemtype or datasetid: complete or delete it"
            )
        elif item in ("IN", "OUT"):
            yield {"jobid": job, "itemtype": item, "datasetid": dataset, "itemvalue": None}
        elif value is None or not is_shell_name(item) or item.startswith("DATAFLOW_"):
            left.append(f"environment item {item} of job {job}: it has no value, or a name that no variable can have")
        else:
            yield {"jobid": job, "itemtype": item, "datasetid": None, "itemvalue": value}


def _chunks(rows: Sequence[Row], faults: list[str], left: list[str]) -> list[OldChunk]:
    outputs = [row for row in rows if row["locktype"] == "OUT" and row["datasetid"] != _TODAY]
    if len(outputs) < len(rows):
        left.append(f"rows of datastatus that are not OUT, as read locks of runs: {len(rows) - len(outputs)}")
    newest: dict[tuple[str, str], OldChunk] = {}
    for row in outputs:
        chunk = OldChunk(row["datasetid"], row["dataid"], row["status"], row["jobid"], row["modified"])
        if not chunk.dataset or not chunk.data_id or chunk.status not in _TAKEN:
            faults.append(
                f"datastatus: chunk {chunk.data_id} of {chunk.dataset} is {chunk.status}: set it to one of "
                f"{', '.join(_TAKEN)}"
            )
            continue
        key = (chunk.dataset, chunk.data_id)
        if key not in newest or _time(chunk) >= _time(newest[key]):
            newest[key] = chunk
    if len(newest) < len(outputs) - len(faults):
        left.append(
            f"older rows of chunks that several jobs have a row for: {len(outputs) - len(faults) - len(newest)}"
        )
    return sorted(newest.values(), key=lambda chunk: (chunk.dataset, chunk.data_id))


def _time(chunk: OldChunk) -> float:
    return chunk.modified.timestamp() if chunk.modified is not None else 0


def _first(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
