"""The places that a pipeline's run has read and written, for its report. Pure.

A run that has read or written a place has looked at it. So these are evidence of where a chunk is.
"""

import json
from collections.abc import Container, Iterator, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from opendataflow.core.chunks.chunk_bounds import partition_folder
from opendataflow.core.databases.attempts import Result
from opendataflow.core.pipelines.pipeline_steps import Step, read_step_name
from opendataflow.core.text.explain import counted
from opendataflow.model.projects.project import DATA_ID, Destination, Pipeline, Source
from opendataflow.model.records.look import Look
from opendataflow.names import Answer, StepStatus

_MOST_BYTES = 1000
"""Bytes of all looks in a report, which has 4 KiB in a pod."""
_REPORTED = ("dataset", "place", "found", "sentence")
"""The fields in a report. Who looked, and when, follows from the run."""


def looks_of(
    pipeline: Pipeline, steps: Sequence[Step], result: Result | None, data_id: str, home: str, at: datetime
) -> Iterator[Look]:
    """Yield the destination, if it was written, and the sources that were read. `home`: the project's folder."""
    if result is not None:
        to = pipeline.destination
        inside = [] if to.database else [partition_folder(to.partition, data_id)]
        rows = "" if result.rows is None else f" {counted(result.rows, 'row')}"
        done = "an earlier attempt has written" if result.kept else "has written"
        yield _look(to, "/".join([_place(to, home), *inside]), f"{done}{rows} to", at)
    by_name = {step.name: step for step in steps}
    for source in pipeline.sources:
        step = by_name.get(read_step_name(source.name))
        if result is not None and step is not None and step.status is StepStatus.DONE:
            rows = "" if step.rows is None else f" {counted(step.rows, 'row')}"
            yield _look(source, _place(source, home).replace(DATA_ID, data_id), f"has read{rows} from", at)


def _look(end: Source | Destination, place: str, done: str, at: datetime) -> Look:
    return Look(end.dataset or end.name, place, Answer.YES, f"{done} {place}", "", at)


def _place(end: Source | Destination, home: str) -> str:
    if end.database is not None:
        return f"{end.database.url} {end.where}"
    return end.where if "://" in end.where else str(PurePosixPath(home, end.where))


def report_looks(looks: Iterator[Look], datasets: Container[str]) -> list[dict[str, Any]] | None:
    """Return the looks for a report, as many as it has room for. `datasets`: those of the job."""
    room, reported = _MOST_BYTES, []
    for look in looks:
        document = {name: value for name, value in look.document().items() if name in _REPORTED}
        room -= len(json.dumps(document, ensure_ascii=False).encode("utf-8", "replace"))
        if look.dataset in datasets and room >= 0:
            reported.append(document)
    return reported or None
