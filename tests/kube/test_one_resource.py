"""One resource of one tenant, whatever is in it, stops neither the operator nor the resources of other namespaces."""

import json
from dataclasses import dataclass

import pytest

from opendataflow.control.resources.bodies import DEEPEST_SPEC, LARGEST_SPEC
from opendataflow.names import ANNOTATION_REQUESTED_BY, API_VERSION, ConditionType, Reason
from tests.kube.cluster.api import Api, Object
from tests.kube.jobs import PLURALS, action, dataset, job
from tests.kube.operators import Operator, Operators
from tests.waiting import wait_until

TEMPLATE_LEVEL = 3
"""spec, podTemplate and its spec."""


def nested(depth: int) -> bytes:
    """A value that is nested so deep, as JSON; Python's own encoder refuses it."""
    return b'{"a":' * depth + b"1" + b"}" * depth


@dataclass
class Tenants:
    """Two namespaces and one operator for both."""

    api: Api
    tenant: str
    other: str
    operators: Operators
    made: int = 0

    @property
    def operator(self) -> Operator:
        return self.operators.made[0]

    def begin(self) -> None:
        """Start the operator, if it does not run yet."""
        if not self.operators.made:
            self.operators.start(DATAFLOW_NAMESPACES=f"{self.tenant},{self.other}")

    def create(self, namespace: str, body: Object, **values: bytes) -> None:
        """Create a resource. `values`: JSON texts that replace the texts of these names."""
        text = json.dumps(body).encode()
        for name, value in values.items():
            text = text.replace(f'"{name}"'.encode(), value)
        self.api.text("POST", f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURALS[body['kind']]}", text)

    def status(self, namespace: str, kind: str, name: str) -> Object:
        """The status; it is cut out of the text, of which the rest may be too deep for Python's decoder."""
        text = self.api.text("GET", f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURALS[kind]}/{name}")
        _, begin, status = text.rpartition('"status":{')
        found: Object = json.JSONDecoder().raw_decode("{" + status)[0] if begin else {}
        return found

    def condition(self, namespace: str, kind: str, name: str, of: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition; empty before it is reported."""
        found = [one for one in self.status(namespace, kind, name).get("conditions", []) if one["type"] == of]
        return (found[0]["status"], found[0]["reason"], found[0]["message"]) if found else ("", "", "")

    def sees(self, name: str, reason: Reason, kind: str = "DataFlowJob") -> str:
        """Wait until a resource of the tenant is stalled for this reason; return the message."""
        seen = ["", "", ""]

        def stalled() -> bool:
            seen[:] = self.condition(self.tenant, kind, name, ConditionType.STALLED)
            return seen[:2] == ["True", reason]

        wait_until(stalled, f"{name} is stalled: {reason}")
        return seen[2]

    def goes_on(self) -> None:
        """See that the same process accepts a new resource of the other namespace, and has logged no traceback."""
        self.made += 1
        name = f"after-{self.made}"
        self.create(self.other, dataset(name, 1))

        def ready() -> bool:
            return self.condition(self.other, "DataSet", name, ConditionType.READY)[0] == "True"

        wait_until(ready, f"{name} is accepted")
        assert self.operator.alive
        assert "Traceback" not in self.operator.output()


@pytest.fixture
def tenants(cluster: Api, operators: Operators, namespace: str, other_namespace: str) -> Tenants:
    """The operator is started by `begin`."""
    return Tenants(cluster, namespace, other_namespace, operators)


def deep_job(name: str) -> Object:
    return job(name, [], [f"{name}-out"], podTemplate={"spec": {"volumes": "DEEP"}})


def test_a_spec_that_is_nested_too_deep_stalls_only_itself(tenants: Tenants) -> None:
    depths = (DEEPEST_SPEC - TEMPLATE_LEVEL + 1, 100, 300, 2000)
    tenants.create(tenants.tenant, deep_job("allowed"), DEEP=nested(DEEPEST_SPEC - TEMPLATE_LEVEL))
    for when in ("before", "after"):
        for depth in depths:
            tenants.create(tenants.tenant, deep_job(f"{when}-{depth}"), DEEP=nested(depth))
        tenants.begin()
        for depth in depths:
            message = tenants.sees(f"{when}-{depth}", Reason.INVALID_SPEC)
            assert message.startswith("spec.podTemplate.spec.volumes.a.a.a")
            assert str(DEEPEST_SPEC) in message
        tenants.goes_on()
    assert "nested" not in tenants.condition(tenants.tenant, "DataFlowJob", "allowed", ConditionType.READY)[2]


def test_a_spec_that_is_too_large_stalls_only_itself(tenants: Tenants) -> None:
    tenants.begin()
    large = job("large", [], ["out"], podTemplate={"spec": {"hostname": "x" * LARGEST_SPEC}})
    tenants.create(tenants.tenant, large)
    message = tenants.sees("large", Reason.INVALID_SPEC)
    assert str(LARGEST_SPEC) in message
    assert "spec.podTemplate" in message
    tenants.goes_on()


def test_an_action_that_postgres_can_not_store_fails_alone(tenants: Tenants) -> None:
    tenants.begin()
    tenants.create(tenants.tenant, dataset("held", 1))
    hold = action("hold", dataset="held", action="hold", chunks=["0-0"])
    hold["metadata"]["annotations"] = {ANNOTATION_REQUESTED_BY: "a\0b"}
    tenants.create(tenants.tenant, hold)
    wait_until(lambda: tenants.status(tenants.tenant, "DataFlowAction", "hold").get("message"), "it is answered")
    tenants.goes_on()
