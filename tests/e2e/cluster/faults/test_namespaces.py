"""Namespaces are kept apart, and one that is deleted with all that runs in it goes at once and comes back as it was."""

from typing import Any

import pytest

from tests.e2e.cluster.faults.flows import is_right, script
from tests.e2e.cluster.faults.installation import SECONDS, Installation
from tests.e2e.cluster.times import Times
from tests.kube.jobs import dataset, job
from tests.kube.scene import Flows

GRACE = 5


def may(installation: Installation, namespace: str, verb: str, resource: str) -> bool:
    """Whether the API server would let the operator do something."""
    attributes = {"namespace": namespace, "verb": verb, "resource": resource}
    body: dict[str, Any] = {"spec": {"user": installation.account, "resourceAttributes": attributes}}
    answer = installation.api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize("verb", ["get", "list", "watch"])
def test_the_operator_may_not_read_secrets_anywhere(installation: Installation, verb: str) -> None:
    everywhere = (installation.home, installation.here.namespace, installation.there.namespace, "kube-system")
    assert may(installation, installation.here.namespace, verb, "pods")
    assert [namespace for namespace in everywhere if may(installation, namespace, verb, "secrets")] == []


def test_a_job_uses_a_data_set_of_another_namespace_only_when_that_shares_it(
    here: Flows, there: Flows, busybox: str
) -> None:
    here.apply(dataset("private", 2))
    there.apply(dataset("derived"), job("takes", [f"{here.namespace}/private"], ["derived"], **script(busybox, "true")))
    message = there.sees("takes", "Stalled", "True", "NotShared", SECONDS)
    assert "spec.shareWith" in message
    assert there.runs("takes") == []
    here.apply(dataset("private", 2, shareWith=[there.namespace]))
    there.until_done("takes", 2, SECONDS)
    is_right(there)


def test_a_namespace_deleted_with_all_that_runs_in_it_goes_at_once_and_comes_back_as_it_was(
    installation: Installation, here: Flows, there: Flows, busybox: str, times: Times
) -> None:
    ignores = script(busybox, "trap '' TERM; while :; do sleep 1; done")
    ignores["podTemplate"]["spec"]["terminationGracePeriodSeconds"] = GRACE
    there.flow("doomed", 3, **ignores)
    here.flow("beside", 4, **script(busybox, "sleep 2"), parallelism=1)
    there.running("doomed", 3, SECONDS)
    path = f"/api/v1/namespaces/{there.namespace}"
    there.api.delete(path)
    with times.measured_as(f"kubectl delete namespace, with pods that ignore SIGTERM for {GRACE} s -> gone"):
        there.api.wait_gone(path, SECONDS)
    here.until_done("beside", 4, SECONDS)
    is_right(here)
    died, refused = there.runs("doomed")[:3], there.runs("doomed")[3:]
    assert {run["failure_class"] for run in died} == {"Infrastructure"}
    assert all("deleted by somebody" in run["message"] for run in died)
    assert {run["failure_class"] for run in refused} <= {"NotStarted"}
    assert {consumed for consumed, _ in there.consumed("doomed")} == {0}

    there.api.create("/api/v1/namespaces", {"metadata": {"name": there.namespace}})
    installation.give_rights_again()
    there.flow("doomed", 3, **script(busybox, "true"))
    there.until_done("doomed", 3, SECONDS)
    is_right(there)
