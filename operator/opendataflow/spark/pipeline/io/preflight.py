"""Look at the files of a pipeline before Spark starts: does each source exist, and can the destination be made?

Locations that only Spark can reach are in `spark_preflight`. No file is opened here.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from opendataflow.core.runs.preflight import Finding
from opendataflow.errors import StepFailed
from opendataflow.model.projects.project import DATA_ID, Destination, Source
from opendataflow.model.records.look import Look
from opendataflow.names import Answer, Preflight
from opendataflow.spark.pipeline.project.project_folder import OpenProject, ResolvedPipeline

_WILDCARDS = frozenset("*?[{\\")


class LocationMissing(StepFailed):
    """A location of the run is missing or can't be reached, so the run did nothing."""


@dataclass(frozen=True)
class Observer:
    """The run that looks: its name, for people."""

    who: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Observer":
        """Return the observer of a run with these variables."""
        return cls(f"run {environ.get('DATAFLOW_RUN_ID', '?')}")

    def finding(
        self, dataset: str, place: str, found: Answer, sentence: str, verdict: Preflight = Preflight.PASSED
    ) -> Finding:
        """Return what was found now."""
        return Finding(Look(dataset, place, found, sentence, self.who, datetime.now(UTC)), verdict)


def is_local_file(source: Source) -> bool:
    """Return whether this module can look at a source: one local path. Only Hadoop knows its wildcards."""
    is_local = source.database is None and "://" not in source.where
    return is_local and not _WILDCARDS & set(source.where.replace(DATA_ID, ""))


def shared_folder(where: str) -> str | None:
    """Return the folder that the locations of all chunks have in common; None if the location has no data id."""
    before, found, _ = where.partition(DATA_ID)
    return before.rpartition("/")[0] + "/" * ("/" in before) if found else None


def look_at_files(resolved: ResolvedPipeline, data_id: str, observer: Observer) -> Iterator[Finding]:
    """Yield what is found at the local paths of a pipeline."""
    for index, source in enumerate(resolved.pipeline.sources):
        if is_local_file(source):
            yield _look_at_source(resolved.project, source, data_id, resolved.place("sources", index), observer)
    destination = resolved.pipeline.destination
    if destination.database is None and "://" not in destination.where:
        yield _look_at_destination(resolved.project, destination, resolved.place("destination"), observer)


def _look_at_source(project: OpenProject, source: Source, data_id: str, place: str, observer: Observer) -> Finding:
    where = source.where.replace(DATA_ID, data_id)
    dataset, path, shown = source.dataset or source.name, project.home / where, project.display_location(where)
    try:
        if path.exists():
            return observer.finding(dataset, str(path), Answer.YES, f"{shown} is there")
    except ValueError as error:  # a name that no file can have: the run reports it
        return observer.finding(dataset, where, Answer.UNKNOWN, f"{place}: {error}")
    except OSError as error:
        sentence = f"{place}: {shown}: can't be looked at: {error.strerror}"
        return observer.finding(dataset, str(path), Answer.UNKNOWN, sentence, _scope(project, source))
    return observer.finding(dataset, str(path), Answer.NO, f"{place}: there is no {shown}", _scope(project, source))


def _scope(project: OpenProject, source: Source) -> Preflight:
    """Return whose runs a missing path prevents. Without the folder that all chunks share, no chunk is there."""
    shared = shared_folder(source.where)
    if shared is None:
        return Preflight.JOB
    try:
        return Preflight.CHUNK if (project.home / shared).is_dir() else Preflight.JOB
    except OSError:
        return Preflight.JOB


def _look_at_destination(project: OpenProject, to: Destination, place: str, observer: Observer) -> Finding:
    """Look at the destination's folder, or the nearest one above, in which the run makes the missing ones."""
    target = project.home / to.where
    dataset = to.dataset or to.name
    try:
        nearest = next(it for it in (target, *target.parents) if it.exists() and (it != target or it.is_dir()))
        fault = (
            f"{nearest} is no folder"
            if not nearest.is_dir()
            else None
            if os.access(nearest, os.W_OK | os.X_OK)
            else f"{nearest} can't be written"
        )
    except OSError as error:
        sentence = f"{place}: {target}: can't be looked at: {error.strerror}"
        return observer.finding(dataset, str(target), Answer.UNKNOWN, sentence, Preflight.JOB)
    if fault is not None:
        sentence = f"{place}: {fault}, so {to.where} can't be made"
        return observer.finding(dataset, str(target), Answer.NO, sentence, Preflight.JOB)
    return observer.finding(dataset, str(target), Answer.UNKNOWN, f"only its folder was looked at: {nearest} is there")
