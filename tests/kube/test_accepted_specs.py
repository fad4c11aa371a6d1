"""While a changed job is refused, its accepted spec stays in force, also for an operator that has just started.

Seen at others: a controller that runs the new program without consent after its restart, or nothing at all, silently;
a status that somebody has edited and that is believed.
"""

import json

import pytest

from tests.kube.conftest import Kubectl
from tests.kube.jobs import Database, dataset, job
from tests.kube.operators import Operator, Operators
from tests.kube.test_operator import apply, condition, patch, stalled
from tests.waiting import wait_until

OLD = job("wash", ["raw"], ["clean"], env={"WHICH": "old"})
NEW = job("wash", ["raw"], ["clean", "extra"], env={"WHICH": "new"})


@pytest.fixture
def operator(operators: Operators, kubectl: Kubectl) -> Operator:
    """One that has made clean of two chunks of raw, by the old program."""
    first = operators.start()
    apply(kubectl, dataset("raw", 2), dataset("clean"), dataset("extra"), OLD)
    kubectl("wait", "dfj/wash", "--for=condition=Succeeded", "--timeout=240s")
    return first


def programs(kubectl: Kubectl) -> dict[str, str]:
    """Which program has run for each data id."""
    return {
        pod["metadata"]["annotations"]["opendataflow.io/data-id"]: next(
            variable["value"] for variable in pod["spec"]["containers"][0]["env"] if variable["name"] == "WHICH"
        )
        for pod in kubectl.json("get", "pods", "--selector=opendataflow.io/job=wash")["items"]
    }


def accepted(kubectl: Kubectl) -> dict[str, object]:
    found: dict[str, object] = json.loads(kubectl.json("get", "dfj/wash")["status"]["acceptedSpec"])
    return found


def test_a_refused_job_starts_new_runs_of_its_old_program_after_a_restart(
    operators: Operators, operator: Operator, kubectl: Kubectl, database: Database
) -> None:
    operator.kill()
    apply(kubectl, dataset("raw", 3), NEW)
    operators.restart()
    assert stalled(kubectl, "dfj/wash")["reason"] == "PlanRefused"
    wait_until(lambda: database.done("wash") == 3, "the new chunk is done")
    assert programs(kubectl)["2-2"] == "old"
    kubectl("wait", "dfj/wash", "--for=jsonpath={.status.progress}=3/3", "--timeout=240s")

    plan = kubectl.json("get", "dfj/wash")["status"]["plan"]["hash"]
    patch(kubectl, "dfj/wash", {"allow": {"change": plan, "backfill": "none"}})
    kubectl("wait", "dfj/wash", "--for=condition=Stalled=False", "--timeout=240s")
    assert accepted(kubectl)["outputs"] == ["clean", "extra"]
    apply(kubectl, dataset("raw", 4))
    wait_until(lambda: database.done("wash") == 4, "a chunk of the new program is done")
    assert programs(kubectl)["3-3"] == "new"
    assert database.problems() == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (json.dumps({**OLD["spec"], "env": {"WHICH": "forged"}}), "status.acceptedSpec is not the spec"),
        ('{"inputs": ["raw"', "status.acceptedSpec is not a JSON"),
    ],
    ids=["forged", "damaged"],
)
def test_an_accepted_spec_that_the_database_does_not_confirm_starts_nothing_and_says_so(
    operators: Operators, operator: Operator, kubectl: Kubectl, database: Database, text: str, sentence: str
) -> None:
    apply(kubectl, dataset("copy"), job("other", ["raw"], ["copy"], priority=-1))
    kubectl("wait", "dfj/other", "--for=condition=Succeeded", "--timeout=240s")
    operator.kill()
    edited = json.dumps({"status": {"acceptedSpec": text}})
    kubectl("patch", "dfj/wash", "--subresource=status", "--type=merge", f"--patch={edited}")
    apply(kubectl, dataset("raw", 3), NEW)
    operators.restart()
    wait_until(lambda: sentence in condition(kubectl, "dfj/wash", "Stalled").get("message", ""), sentence)
    wait_until(lambda: database.done("other") == 3, "a job that comes after it has run")
    assert (database.done("wash"), database.running("wash"), database.states("wash")["QUEUED"]) == (2, 0, 1)

    apply(kubectl, OLD)
    kubectl("wait", "dfj/wash", "--for=condition=Succeeded", "--timeout=240s")
    assert database.done("wash") == 3
