"""Reads the body of a custom resource, as an API server hands it over, into its model.

Strictness about fields is the API server's: what it has stored beside the known fields is passed over. What its schema
can't say is said here, with the sentences of job files.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from opendataflow.errors import InvalidInput
from opendataflow.model.actions import DataFlowAction
from opendataflow.model.datasets import DataSet
from opendataflow.model.faults import sentences
from opendataflow.model.jobs import DataFlowJob
from opendataflow.model.rules import ON_A_CLUSTER

Resource = DataSet | DataFlowJob | DataFlowAction

_KINDS: dict[str, type[Resource]] = {model.__name__: model for model in (DataSet, DataFlowJob, DataFlowAction)}


def resource_of(body: Mapping[str, Any]) -> Resource:
    """Return the resource. Raises InvalidInput with one line for each fault; KeyError for a kind of others."""
    model = _KINDS[body["kind"]]
    try:
        return model.model_validate(dict(body), by_alias=True, by_name=False, extra="ignore", context=ON_A_CLUSTER)
    except ValidationError as error:
        raise InvalidInput("\n".join(sentences(model, error))) from None
