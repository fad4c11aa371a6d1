"""Parses the body of a custom resource into an entry of the catalog. It sends no request.

The API server refuses unknown fields. Any other invalid value becomes the fault of the entry, never an exception.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from opendataflow.control.resources.catalog import Entry, Fault, Key, Model
from opendataflow.control.resources.failures import concerns_one_resource, failure
from opendataflow.core.kubernetes.nesting import too_deep
from opendataflow.errors import InvalidInput
from opendataflow.model.fields.rules import CLUSTER_CONTEXT
from opendataflow.model.fields.validation_errors import sentences
from opendataflow.model.resources.actions import DataFlowAction
from opendataflow.model.resources.datasets import DataSet
from opendataflow.model.resources.jobs import DataFlowJob
from opendataflow.names import API_VERSION, Reason

KINDS: dict[str, type[Model]] = {"DataSet": DataSet, "DataFlowJob": DataFlowJob, "DataFlowAction": DataFlowAction}
PLURALS = {"DataSet": "datasets", "DataFlowJob": "dataflowjobs", "DataFlowAction": "dataflowactions"}

DEEPEST_SPEC = 64
"""The maximum nesting of a spec. The spec itself is level 1."""
LARGEST_SPEC = 256 * 1024
"""The maximum size of a spec, as the bytes of its JSON text."""

_MOST_FAULTS = 3
_LONGEST = 900
_LONGEST_NAME = 100

logger = logging.getLogger(__name__)


def parse_key(kind: str, body: Mapping[str, Any]) -> Key:
    """Return the key of a resource."""
    metadata = body.get("metadata") or {}
    return Key(kind, str(metadata.get("namespace", "")), str(metadata.get("name", "")))


def parse_entry(kind: str, body: Mapping[str, Any]) -> Entry:
    """Return the entry of a resource. An invalid body gives an entry without a model, and with a fault."""
    metadata = body.get("metadata") or {}
    entry = Entry(
        key=parse_key(kind, body),
        uid=str(metadata.get("uid", "")),
        generation=int(metadata.get("generation", 0)),
        model=None,
        status=body.get("status") or {},
        created=str(metadata.get("creationTimestamp", "")),
        annotations=metadata.get("annotations") or {},
        creator=_creator(metadata),
    )
    try:
        entry.model = parse_spec(entry.key, body.get("spec") or {})
    except InvalidInput as error:
        entry.fault = Fault(Reason.INVALID_SPEC, str(error))
    except Exception as error:
        if not concerns_one_resource(error):
            raise
        logger.exception("%s %s can't be parsed", kind, entry.key.owner)
        entry.fault = failure(error)
    return entry


def parse_spec(key: Key, spec: object) -> Model:
    """Return the model of a resource with this spec. Raises InvalidInput with all faults in one text."""
    check_bounds(spec)
    metadata = {"name": key.name, "namespace": key.namespace}
    written = {"apiVersion": API_VERSION, "kind": key.kind, "metadata": metadata, "spec": spec}
    model = KINDS[key.kind]
    try:
        return model.model_validate(written, extra="ignore", by_alias=True, by_name=False, context=CLUSTER_CONTEXT)
    except ValidationError as error:
        raise InvalidInput(_join(sentences(model, error))) from None


def check_bounds(spec: object) -> None:
    """Check the depth and the size of a spec, so that every later step may recurse and copy. Raises InvalidInput."""
    deep = too_deep(spec, DEEPEST_SPEC)
    if deep is not None:
        raise InvalidInput(f"spec.{deep}: the spec is nested deeper than {DEEPEST_SPEC} levels: nest it less deeply")
    if not isinstance(spec, Mapping):
        return
    sizes = {name: len(json.dumps(value, ensure_ascii=False).encode(errors="replace")) for name, value in spec.items()}
    if sum(sizes.values()) > LARGEST_SPEC:
        largest = max(sizes, key=lambda name: sizes[name])
        raise InvalidInput(
            f"spec: it has {sum(sizes.values())} bytes of JSON, and at most {LARGEST_SPEC} are allowed: "
            f"shorten spec.{largest[:_LONGEST_NAME]}, which has {sizes[largest]}"
        )


def _creator(metadata: Mapping[str, Any]) -> str:
    """Return the program that wrote the resource first, such as kubectl-create."""
    written = [field for field in metadata.get("managedFields") or () if not field.get("subresource")]
    first: Mapping[str, Any] = min(written, key=lambda field: str(field.get("time", "")), default={})
    return str(first.get("manager", ""))


def _join(found: list[str]) -> str:
    more = [f"and {len(found) - _MOST_FAULTS} more"] if len(found) > _MOST_FAULTS else []
    return "; ".join([*found[:_MOST_FAULTS], *more])[:_LONGEST]
