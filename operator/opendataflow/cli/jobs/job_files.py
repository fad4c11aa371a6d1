"""Reads job files and applies them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from opendataflow.core.runs.declared import Row, dataset_row, job_row
from opendataflow.core.text.plan import options_sentence
from opendataflow.engine.declaring import declare, plan
from opendataflow.errors import InvalidInput, PlanRefused
from opendataflow.model.records.plan import NO_CONSENT, Applied, Consent, Plan
from opendataflow.model.resources.api import DataFlowJob, DataSet
from opendataflow.model.resources.jobfile import parse_job_file
from opendataflow.store.store import Store


@dataclass(frozen=True)
class Declared:
    """The resources of all given job files. `folders`: job id -> the folder of its file."""

    datasets: tuple[DataSet, ...]
    jobs: tuple[DataFlowJob, ...]
    folders: dict[str, Path]


def read_files(paths: Iterable[Path]) -> Declared:
    """Read job files.

    Raise InvalidInput if a file can't be read, has an error, or declares an id that another file declares.
    """
    datasets: dict[str, DataSet] = {}
    jobs: dict[str, DataFlowJob] = {}
    folders: dict[str, Path] = {}
    for path in paths:
        parsed = parse_job_file(_read(path), str(path))
        for dataset in parsed.datasets:
            if datasets.setdefault(dataset.id, dataset) is not dataset:
                raise InvalidInput(f"{path}: DataSet {dataset.id} is in another of the files too: keep one")
        for job in parsed.jobs:
            if jobs.setdefault(job.id, job) is not job:
                raise InvalidInput(f"{path}: DataFlowJob {job.id} is in another of the files too: keep one")
            folders[job.id] = path.absolute().parent
    return Declared(tuple(datasets.values()), tuple(jobs.values()), folders)


async def apply_files(store: Store, declared: Declared, actor: str, consent: Consent = NO_CONSENT) -> Applied:
    """Apply the resources of the files, all or none. The error PlanRefused names the options that allow the plan."""
    try:
        return await declare(store, *_rows(declared), actor, consent)
    except PlanRefused as error:
        raise PlanRefused(
            f"{error}; {options_sentence(Plan.of_json(error.plan), consent.change)}", error.plan
        ) from error


async def plan_files(store: Store, declared: Declared, consent: Consent) -> Plan:
    """Return the plan of the files, and change nothing."""
    return await plan(store, *_rows(declared), consent)


def _rows(declared: Declared) -> tuple[list[Row], list[Row]]:
    return [dataset_row(dataset) for dataset in declared.datasets], [job_row(job) for job in declared.jobs]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: the file is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise InvalidInput(f"{path}: can't be read: {error.strerror}") from error
