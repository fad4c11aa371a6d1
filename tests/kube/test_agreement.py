"""Models and custom resource definitions agree on what is valid: generated resources, asked of both.

Each run asks for 1,500, other ones every day; `make soak` for 10,000, others every time.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from pydantic import ValidationError

from opendataflow.model.fields.rules import CLUSTER_CONTEXT
from opendataflow.model.resources.crd import KINDS
from opendataflow.names import API_VERSION
from tests import specs
from tests.kube.cluster.api import Api, Refused
from tests.share import SHARE, SOAK, soaked

MODELS = {kind.name: kind for kind in KINDS}
EXAMPLES = int(os.environ.get("DATAFLOW_TEST_SPECS") or soaked(1500, 10000))
SENDERS = 8


@dataclass(frozen=True)
class Answer:
    """What an API server says to one resource. `stored`: what it would store; None where it refuses."""

    sent: specs.Body
    stored: specs.Body | None
    refusal: str = ""


def ask(api: Api, namespace: str, body: specs.Body) -> Answer:
    plural = MODELS[body["kind"]].plural
    path = f"/apis/{API_VERSION}/namespaces/{namespace}/{plural}?dryRun=All&fieldValidation=Strict"
    try:
        return Answer(body, api.create(path, body))
    except Refused as refused:
        if refused.status not in (400, 422):
            raise
        return Answer(body, None, json.loads(str(refused).partition(": ")[2])["message"])


def faults(body: specs.Body) -> list[str]:
    """What the model says that a schema can say too."""
    known = {name: body[name] for name in ("apiVersion", "kind", "metadata", "spec") if name in body}
    try:
        MODELS[body["kind"]].model.model_validate(
            {**known, "metadata": {"name": body["metadata"]["name"]}},
            by_alias=True,
            by_name=False,
            context=CLUSTER_CONTEXT,
        )
    except ValidationError as error:
        return [
            f"{fault['loc']}: {fault['msg']}" for fault in error.errors() if fault.get("ctx", {}).get("by_schema", True)
        ]
    return []


def disagreement(answer: Answer) -> str | None:
    """Return what is wrong; None where both say the same. What is stored counts: null and 2.0 are not, for example."""
    found = faults(answer.stored or answer.sent)
    if bool(found) == (answer.stored is None):
        return None
    return f"{json.dumps(answer.sent['spec'])}\n  model: {found or 'valid'}\n  API server: {answer.refusal or 'valid'}"


def generated(count: int) -> list[specs.Body]:
    bodies: list[specs.Body] = []

    @settings(
        max_examples=count,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(specs.resources)
    def collect(body: specs.Body) -> None:
        bodies.append(body)

    if not SOAK:
        collect = seed(SHARE)(collect)
    collect()
    return bodies


@pytest.mark.timeout(3600)
def test_models_and_definitions_agree_on_what_is_valid(cluster: Api, namespace: str) -> None:
    bodies = generated(EXAMPLES)
    with ThreadPoolExecutor(SENDERS) as senders:
        answers = list(senders.map(lambda body: ask(cluster, namespace, body), bodies))
    wrong = sorted(filter(None, map(disagreement, answers)), key=len)
    assert not wrong, f"{len(wrong)} of {len(bodies)}, the shortest first:\n" + "\n".join(wrong[:5])
    refused = sum(answer.stored is None for answer in answers)
    assert len(bodies) * 0.2 < refused < len(bodies) * 0.8, "one kind of answer is hardly tested"
