"""What the pods of a job may ask for: the Pod Security Standards, and the rules of this project."""

from typing import Any

import pytest

from opendataflow.core.kubernetes.policy.pod_security import (
    PodPolicy,
    Violation,
    check_violations,
    judge_namespace,
    judge_pod_security,
)
from opendataflow.errors import PolicyViolated
from opendataflow.names import PodProfile
from tests.pod_specs import BASELINE, CASES, PRIVILEGED, RESTRICTED, PodCase

STRICT = PodPolicy(PodProfile.RESTRICTED, ("opendataflow-spark",))
LAX = PodPolicy(PodProfile.BASELINE, ("opendataflow-spark",))


def refused(policy: PodPolicy, pod: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(each.field for each in judge_pod_security(pod, policy)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_restricted_names_the_fields_that_it_refuses(case: PodCase) -> None:
    assert sorted(refused(STRICT, case.manifest())) == sorted(case.refused)
    assert (case.refused == []) is (case.level == RESTRICTED)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_baseline_refuses_only_what_is_known_to_open_the_node(case: PodCase) -> None:
    found = refused(LAX, case.manifest())
    assert bool(found) is (case.level == PRIVILEGED)
    assert set(found) <= set(case.refused)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_any_refuses_nothing(case: PodCase) -> None:
    assert refused(PodPolicy(PodProfile.ANY), case.manifest()) == []


@pytest.mark.parametrize("policy", [STRICT, LAX], ids=[RESTRICTED, BASELINE])
@pytest.mark.parametrize(
    ("field", "value", "permitted"),
    [
        ("nodeName", "n1", False),
        ("priorityClassName", "system-node-critical", False),
        ("priorityClassName", "nightly", True),
        ("serviceAccountName", "cluster-admin", False),
        ("serviceAccountName", "opendataflow-spark", True),
        ("serviceAccountName", "default", True),
        ("serviceAccount", "cluster-admin", False),
        ("nodeSelector", {"disk": "ssd"}, True),
    ],
)
def test_a_pod_chooses_no_node_no_priority_of_the_system_and_no_foreign_account(
    field: str, value: object, permitted: bool, policy: PodPolicy
) -> None:
    found = refused(policy, PodCase("", RESTRICTED, pod={field: value}).manifest())
    assert found == ([] if permitted else [f"spec.{field}"])


@pytest.mark.parametrize(
    "spec",
    [
        {"hostNetwork": "true"},
        {"hostPID": 1.5},
        {"volumes": [{"name": "v", "aNewKind": {}}]},
        {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}]},
        {"priorityClassName": ["x"]},
        {"serviceAccountName": ["x"]},
        {"securityContext": "x"},
        {"containers": [{"name": "main", "securityContext": {"privileged": "no", "capabilities": {"drop": "ALL"}}}]},
        {"containers": [{"name": "main", "securityContext": {"seccompProfile": {"type": []}}}]},
    ],
    ids=str,
)
def test_a_value_that_is_not_known_to_be_allowed_is_refused(spec: dict[str, Any]) -> None:
    assert refused(STRICT, PodCase("", RESTRICTED, pod=spec).manifest())


def test_the_message_names_the_fields_and_the_policy_and_no_value() -> None:
    case = PodCase("", RESTRICTED, pod={"serviceAccountName": "s3cret", "nodeName": "s3cret"})
    with pytest.raises(PolicyViolated) as caught:
        check_violations(judge_pod_security(case.manifest(), STRICT), STRICT)
    assert str(caught.value) == (
        "spec.nodeName: the scheduler chooses the node; write nodeSelector or affinity; spec.serviceAccountName: only "
        "these service accounts are allowed: default, opendataflow-spark (allowedServiceAccounts) (the operator's "
        "podPolicy is restricted)"
    )


def test_the_message_has_at_most_three_fields_and_each_only_once() -> None:
    found = [Violation(f"spec.f{number % 5}", "no") for number in range(10)]
    with pytest.raises(PolicyViolated) as caught:
        check_violations(found, LAX)
    assert str(caught.value) == (
        "spec.f0: no; spec.f1: no; spec.f2: no; and 2 more (the operator's podPolicy is baseline)"
    )


def test_a_namespace_is_closed_unless_everything_is_permitted() -> None:
    closed = PodPolicy(PodProfile.BASELINE, closed_namespace="flow")
    assert [each.field for each in judge_namespace("flow", closed)] == ["metadata.namespace"]
    assert list(judge_namespace("team-a", closed)) == []
    assert list(judge_namespace("", PodPolicy())) == []
    assert list(judge_namespace("flow", PodPolicy(PodProfile.ANY, closed_namespace="flow"))) == []


def test_a_pod_without_violations_passes() -> None:
    check_violations([], STRICT)
