"""From the body of a resource, as the API server tells it, to an entry of the catalog. Nothing is asked for.

Strictness about unknown fields is the API server's; whatever else is wrong becomes a fault of the entry, never an
error.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from opendataflow.control.resources.catalog import Entry, Fault, Key, Model
from opendataflow.model.fields.rules import ON_A_CLUSTER
from opendataflow.model.fields.validation_errors import sentences
from opendataflow.model.resources.actions import DataFlowAction
from opendataflow.model.resources.datasets import DataSet
from opendataflow.model.resources.jobs import DataFlowJob
from opendataflow.names import API_VERSION, Reason

KINDS: dict[str, type[Model]] = {"DataSet": DataSet, "DataFlowJob": DataFlowJob, "DataFlowAction": DataFlowAction}
PLURALS = {"DataSet": "datasets", "DataFlowJob": "dataflowjobs", "DataFlowAction": "dataflowactions"}

_MOST_FAULTS = 3
_LONGEST = 900


def key_of(kind: str, body: Mapping[str, Any]) -> Key:
    """The key of a resource."""
    metadata = body.get("metadata") or {}
    return Key(kind, str(metadata.get("namespace", "")), str(metadata.get("name", "")))


def entry_of(kind: str, body: Mapping[str, Any]) -> Entry:
    """The entry of a resource."""
    metadata = body.get("metadata") or {}
    entry = Entry(
        key=key_of(kind, body),
        uid=str(metadata.get("uid", "")),
        generation=int(metadata.get("generation", 0)),
        model=None,
        status=body.get("status") or {},
        created=str(metadata.get("creationTimestamp", "")),
        annotations=metadata.get("annotations") or {},
        creator=_creator(metadata),
    )
    written = {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": entry.key.name, "namespace": entry.key.namespace},
        "spec": body.get("spec") or {},
    }
    try:
        entry.model = KINDS[kind].model_validate(
            written, extra="ignore", by_alias=True, by_name=False, context=ON_A_CLUSTER
        )
    except ValidationError as error:
        entry.fault = Fault(Reason.INVALID_SPEC, _together(sentences(KINDS[kind], error)))
    return entry


def _creator(metadata: Mapping[str, Any]) -> str:
    """The program that has written the resource first, such as kubectl-create."""
    written = [field for field in metadata.get("managedFields") or () if not field.get("subresource")]
    first: Mapping[str, Any] = min(written, key=lambda field: str(field.get("time", "")), default={})
    return str(first.get("manager", ""))


def _together(found: list[str]) -> str:
    more = [f"and {len(found) - _MOST_FAULTS} more"] if len(found) > _MOST_FAULTS else []
    return "; ".join([*found[:_MOST_FAULTS], *more])[:_LONGEST]
