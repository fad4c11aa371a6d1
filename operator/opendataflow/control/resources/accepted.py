"""Reads and writes the accepted spec of a DataFlowJob in its status, for the time when a change is refused. Pure.

Whoever may edit the status may write anything there. So only a text with the digest in Postgres is used.
"""

import json
from collections.abc import Mapping
from typing import Any

from opendataflow.control.resources.bodies import DEEPEST_SPEC, parse_spec
from opendataflow.control.resources.catalog import Key
from opendataflow.core.kubernetes.nesting import too_deep
from opendataflow.core.runs.declared import fields_digest, spec_digest, spec_text
from opendataflow.errors import InvalidInput
from opendataflow.model.resources.jobs import DataFlowJob
from opendataflow.model.resources.statuses import LONGEST_SPEC

FIELD = "status.acceptedSpec"


def accepted_job(key: Key, status: Mapping[str, Any], declared_as: str) -> DataFlowJob:
    """Return the job with its accepted spec. `declared_as`: the digest of this spec, as in Postgres.

    Raises InvalidInput with a sentence if the status does not have this spec.
    """
    text = status.get("acceptedSpec")
    if text is None:
        raise InvalidInput(f"{FIELD} is missing (a spec of more than {LONGEST_SPEC} characters is left out)")
    spec = _parsed(text)
    if fields_digest(spec) != declared_as:
        raise InvalidInput(f"{FIELD} is not the spec that was accepted last")
    try:
        job = parse_spec(key, spec)
    except InvalidInput as error:
        raise InvalidInput(f"this version does not accept {FIELD}: {error}") from None
    assert isinstance(job, DataFlowJob)
    return job


def accepted_text(job: DataFlowJob, declared_as: str) -> str | None:
    """Return the text for the status; None if an earlier version of this program has written it, with other fields."""
    return spec_text(job) if spec_digest(job) == declared_as else None


def _parsed(text: object) -> Mapping[str, object]:
    """Return the fields of a spec. The digest is of the text, not of the model, which may have changed since."""
    try:
        spec = json.loads(text) if isinstance(text, str) and len(text) <= LONGEST_SPEC else None
    except (ValueError, RecursionError):
        spec = None
    if not isinstance(spec, dict) or too_deep(spec, DEEPEST_SPEC):
        raise InvalidInput(f"{FIELD} is not a JSON object of at most {LONGEST_SPEC} characters")
    return spec
