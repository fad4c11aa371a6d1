"""Whatever an API server takes, the operator takes over or says why not; never with a traceback.

Seen at others: one resource with an odd value, and the controller ends or tries it again and again for ever.
"""

import os

from hypothesis import HealthCheck, Phase, given, settings

from opendataflow.names import API_VERSION
from tests import specs
from tests.kube.cluster.api import Api, Refused
from tests.kube.operators import Operator, Operators
from tests.share import soaked
from tests.waiting import wait_until

PLURALS = {"DataSet": "datasets", "DataFlowJob": "dataflowjobs", "DataFlowAction": "dataflowactions"}
EXAMPLES = int(os.environ.get("DATAFLOW_TEST_OPERATOR_SPECS") or soaked(300, 3000))


def path(namespace: str, kind: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURALS[kind]}"


def put(cluster: Api, namespace: str, made: list[specs.Body]) -> int:
    """Create resources under names of their own; return how many the API server has taken."""
    taken = 0
    for number, body in enumerate(made):
        body["metadata"] = {"name": f"{body['kind'].lower()}-{number}"}
        if isinstance(body["spec"], dict):
            body["spec"].pop("chunkSource", None)  # millions of chunks are another test's
        try:
            cluster.create(f"{path(namespace, body['kind'])}?fieldValidation=Strict", body)
            taken += 1
        except Refused as refused:
            if refused.status not in (400, 422):
                raise
    return taken


def unreported(cluster: Api, namespace: str) -> list[str]:
    """Resources of which nothing is reported."""
    return [
        f"{kind} {each['metadata']['name']}"
        for kind in PLURALS
        for each in cluster.items(path(namespace, kind))
        if not (each.get("status") or {}).get("phase") and not (each.get("status") or {}).get("conditions")
    ]


def test_whatever_is_applied_is_taken_over_or_refused_in_a_sentence(
    operators: Operators, cluster: Api, namespace: str
) -> None:
    made: list[specs.Body] = []

    @settings(
        max_examples=EXAMPLES,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(specs.resources)
    def gather(body: specs.Body) -> None:
        made.append(body)

    gather()
    operator: Operator = operators.start()
    assert put(cluster, namespace, made) > EXAMPLES // 10
    wait_until(lambda: not unreported(cluster, namespace), "everything is reported")
    assert operator.alive
    assert "Traceback" not in operator.output()
    assert '"level": "ERROR"' not in operator.output()
