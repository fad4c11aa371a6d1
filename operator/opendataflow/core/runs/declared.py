"""Convert resources of users to the rows that the store writes. Pure; keys are columns of sql/schema/tables.sql.

Commands and code of users are never in these rows. They stay in the user's file.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from opendataflow.core.runs.environment import JobFacts, check_names
from opendataflow.core.runs.graph import JobLinks
from opendataflow.core.runs.retry import RetryPolicy
from opendataflow.core.text.project_tests import subject_of
from opendataflow.errors import InvalidInput
from opendataflow.keys import bare, input_key, key_of
from opendataflow.model.records.dataset import DataSetFacts
from opendataflow.model.resources.api import DataFlowJob, DataSet
from opendataflow.names import TODAY

Row = dict[str, Any]

MANY_CHUNKS = 10_000
"""A longer chunk source is stored as its rule, and Postgres computes its chunks batch by batch."""


def dataset_row(dataset: DataSet, namespace: str = "") -> Row:
    """Return the row of a data set with `chunks`: [{id, bounds}], or with `source` if its chunk source is long.

    `namespace`: of its resource; empty for a file. InvalidInput for `today`.
    """
    if dataset.id == TODAY:
        raise InvalidInput(f"DataSet {TODAY}: the data set {TODAY} is built in: give yours another id")
    facts = DataSetFacts.of(dataset)
    partitioning = dataset.spec.partitioning
    return {
        **{column: getattr(facts, column) for column in facts.__dataclass_fields__},
        "id": key_of(namespace, dataset.id),
        "options": dict(facts.options),
        "partitioning": None if partitioning is None else partitioning.model_dump(),
        "secret_ref": _secrets(dataset),
        **_chunks(dataset),
    }


def _chunks(dataset: DataSet) -> Row:
    source = dataset.spec.chunk_source
    if source is not None and source.count > MANY_CHUNKS:
        return {"source": source.model_dump(mode="json", by_alias=True, exclude_none=True)}
    return {"chunks": [{"id": data_id, "bounds": bounds} for data_id, bounds in dataset.chunks()]}


def _secrets(dataset: DataSet) -> Row | None:
    """Return references to the Secrets with the password or with its passkey. It never contains their values."""
    credentials = dataset.spec.credentials
    if credentials is None:
        return None
    references = {"secretRef": credentials.secret_ref, "passkeySecretRef": credentials.passkey_secret_ref}
    return {name: each.model_dump() for name, each in references.items() if each is not None} or None


def job_row(job: DataFlowJob, namespace: str = "") -> Row:
    """Return the row of a job with `inputs`, `outputs` and `env`. `namespace`: of its resource; empty for a file.

    Raise InvalidInput if a variable is set twice, or if a data set is named twice.
    """
    check_names(JobFacts.of(job))
    spec, policy = job.spec, RetryPolicy.of(job.spec.retry)
    inputs = [input_key(namespace, name) for name in spec.inputs]
    outputs = [key_of(namespace, name) for name in spec.outputs]
    for key in (*inputs, *outputs):
        if (*inputs, *outputs).count(key) > 1:
            raise InvalidInput(f"job {job.id}: the data set {bare(key)} is named twice, also as {key}: name it once")
    return {
        "id": key_of(namespace, job.id),
        "parallelism": spec.parallelism,
        "priority": spec.priority,
        "suspended": spec.suspend,
        "descending": spec.order == "descending",
        "chunk_from": spec.chunks.start if spec.chunks else None,
        "chunk_to": spec.chunks.end if spec.chunks else None,
        "retry_limit": policy.limit,
        "infrastructure_limit": policy.infrastructure_limit,
        "backoff_initial": policy.initial,
        "backoff_factor": policy.factor,
        "backoff_maximum": policy.maximum,
        "run_deadline": spec.run_deadline_seconds,
        "cancel_on_delete": spec.on_delete == "Cancel",
        "pipeline": spec.runtime.pipeline.pipeline if spec.runtime.pipeline else None,
        "inputs": inputs,
        "outputs": outputs,
        "env": dict(spec.env),
        "tests": subject_of(spec.runtime.pipeline),
    }


def links(row: Row) -> JobLinks:
    """Return the links of a job from a row with `job`, `inputs` and `outputs`."""
    return JobLinks(row["job"], tuple(row["inputs"]), tuple(row["outputs"]))


_LIMITS = {"parallelism", "suspend", "priority"}
"""Fields that do not change what a run does."""
_DIGITS = 32
"""128 bits: nobody finds another spec with the same digest."""


def spec_text(model: DataSet | DataFlowJob) -> str:
    """Return a spec as JSON, with all defaults and without requests and consents. Equal specs have equal texts."""
    return _json(_written(model))


def spec_digest(model: DataSet | DataFlowJob) -> str:
    """Return two digests of a spec, joined by a dot: of the fields that change runs, and of the limits."""
    return fields_digest(_written(model))


def fields_digest(spec: Mapping[str, object]) -> str:
    """Return the digests of a spec from its fields, such as those of `spec_text`."""
    definition = {name: value for name, value in spec.items() if name not in _LIMITS}
    limits = {name: value for name, value in spec.items() if name in _LIMITS}
    return f"{_digest(definition)}.{_digest(limits)}"


def _written(model: DataSet | DataFlowJob) -> Mapping[str, object]:
    return model.spec.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"resubmit", "allow"})


def starts_same_runs(one: str | None, other: str) -> bool:
    """Return whether two digests of a job's spec differ at most in the limits."""
    return one is not None and one.partition(".")[0] == other.partition(".")[0]


def _digest(spec: object) -> str:
    return hashlib.sha256(_json(spec).encode()).hexdigest()[:_DIGITS]


def _json(spec: object) -> str:
    return json.dumps(spec, sort_keys=True, separators=(",", ":"))
