"""Parse a job file: a YAML text with data sets and jobs.

A number in a text field is refused, because it would change (1.10 would become 1.1). Each error is a sentence with the
line, and never contains a secret. This module opens no file. `absolute_path` resolves relative paths from a given
folder.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from yaml.nodes import Node

from opendataflow.errors import InvalidInput
from opendataflow.model.fields.validation_errors import describe_value, sentences
from opendataflow.model.fields.yaml_documents import documents, line_of, source_text
from opendataflow.model.resources.datasets import DataSet
from opendataflow.model.resources.jobs import DataFlowJob
from opendataflow.names import API_VERSION

_KINDS: dict[str, type[DataSet] | type[DataFlowJob]] = {"DataFlowJob": DataFlowJob, "DataSet": DataSet}


@dataclass(frozen=True)
class JobFile:
    """The resources of one file, in the written order."""

    datasets: tuple[DataSet, ...]
    jobs: tuple[DataFlowJob, ...]


def parse_job_file(text: str, source: str) -> JobFile:
    """Return the resources in a text. `source`: the file's name, for errors.

    Raise InvalidInput: for invalid YAML with the first fault, else with one line for each fault of the file.
    """
    resources: list[tuple[DataSet | DataFlowJob, int]] = []
    faults: list[str] = []
    for node, written in documents(text, source):
        try:
            resources.append((_resource(node, written, source), line_of(node)))
        except InvalidInput as error:
            faults.append(str(error))
    faults += _taken_ids(resources, source)
    if faults:
        raise InvalidInput("\n".join(faults))
    if not resources:
        raise InvalidInput(f"{source}: nothing is declared here; write a DataSet or a DataFlowJob")
    return JobFile(
        datasets=tuple(resource for resource, _ in resources if isinstance(resource, DataSet)),
        jobs=tuple(resource for resource, _ in resources if isinstance(resource, DataFlowJob)),
    )


def absolute_path(written: str | None, folder: Path) -> Path:
    """Return the absolute path of `workingDirectory` or `spark.main`. `folder`: the absolute folder of the job file.

    `written`: None for the folder itself. Neither `~` nor variables are expanded.
    """
    if not folder.is_absolute():
        raise ValueError(f"the folder of the job file is not absolute: {folder}")
    return folder if written is None else folder / written


# Resources -----------------------------------------------------------------------------------------------


def _resource(node: Node, written: Any, source: str) -> DataSet | DataFlowJob:
    place = f"{source}, line {line_of(node)}"
    if not isinstance(written, dict):
        found = describe_value(written)
        raise InvalidInput(f"{place}: a resource has apiVersion, kind, metadata and spec, this is {found}")
    if written.get("apiVersion") != API_VERSION:
        raise InvalidInput(f"{place}: {_unknown('apiVersion', written, [API_VERSION])}")
    kind = written.get("kind")
    model = _KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise InvalidInput(f"{place}: {_unknown('kind', written, list(_KINDS))}")
    try:
        return model.model_validate(written, by_alias=True, by_name=False)
    except ValidationError as error:
        metadata = written.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        title = f"{source}, {kind} {name}" if isinstance(name, str) else f"{place}, {kind}"
        faults = sentences(model, error, lambda path, value: source_text(node, path, value))
        raise InvalidInput("\n".join(f"{title}: {sentence}" for sentence in faults)) from None


def _unknown(field: str, written: Mapping[str, Any], known: list[str]) -> str:
    names = " and ".join(known)
    if field not in written:
        return f"{field} is missing; known here: {names}"
    return f"{field} {describe_value(written[field])} is not known; known here: {names}"


def _taken_ids(resources: Iterable[tuple[DataSet | DataFlowJob, int]], source: str) -> Iterator[str]:
    first: dict[tuple[str, str], int] = {}
    for resource, line in resources:
        key = (resource.kind, resource.id)
        if key in first:
            yield (
                f"{source}, line {line}: there is another {resource.kind} with the id {resource.id} on line "
                f"{first[key]}; give one of them another spec.id"
            )
        first.setdefault(key, line)
