"""What the five answers about a chunk rest on: who looked, when, and at what. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opendataflow.core.text.moments import shown
from opendataflow.names import TaskState

Facts = Mapping[str, Any]
"""The row of opendataflow.inspection(), or a part of it."""

NOBODY = "nobody"
DATABASE = "the state database"
"""Who looked, if an answer rests on the recorded states of chunks and tasks alone."""


@dataclass(frozen=True)
class Evidence:
    """One piece of evidence.

    `who`: a run, a person, a command, DATABASE or NOBODY. `when`: a time with its zone; None if nobody looked, or for
    the present state. `what`: a place, a version, or a number of rows. `sentence`: all of it, for people.
    """

    sentence: str
    who: str = DATABASE
    when: str | None = None
    what: str | None = None


def chunk_name(found: Facts, dataset: Facts) -> str:
    """Return the name of a chunk for people."""
    return f"chunk {found['data_id']} of {dataset['dataset']}"


def run_name(found: Facts) -> str:
    """Return the last run of the task for people."""
    return f"run {found['run']['id']} of job {found['job']}"


def writer_name(dataset: Facts) -> str:
    """Return the run that made the present version of a chunk, for people."""
    return f"run {dataset['run']} of job {dataset['run_job']}"


def not_yet(found: Facts) -> str:
    """Return why there is no data, in a few words: it is still to come, or it is not asked for any more."""
    return "its id was withdrawn" if found["state"] == TaskState.RETIRED else "not yet"


def shown_time(text: str | None) -> str:
    """Return a time of the database's JSON to the second, with its zone."""
    return shown(text) if text else "an unknown time"


def outputs_of(found: Facts) -> list[Facts]:
    """Return the output data sets of the task."""
    return [dataset for dataset in found["datasets"] if dataset["itemtype"] == "OUT"]


def inputs_of(found: Facts) -> list[Facts]:
    """Return the input data sets of the task."""
    return [dataset for dataset in found["datasets"] if dataset["itemtype"] == "IN"]
