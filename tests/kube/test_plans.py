"""A changed resource that affects finished work is refused with its plan, until spec.allow names that plan."""

import json

import pytest

from tests.kube.conftest import Kubectl
from tests.kube.jobs import Database, dataset, job
from tests.kube.operators import Operators
from tests.kube.test_operator import apply, condition, patch, stalled
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def _finished(operators: Operators, kubectl: Kubectl) -> None:
    """The job wash has made clean of three chunks of raw."""
    operators.start()
    apply(kubectl, dataset("raw", 3), dataset("clean"), dataset("extra"), job("wash", ["raw"], ["clean"]))
    kubectl("wait", "dfj/wash", "--for=condition=Succeeded", "--timeout=240s")


def test_a_smaller_source_is_refused_until_its_plan_is_allowed(kubectl: Kubectl, database: Database) -> None:
    apply(kubectl, dataset("raw", 2))
    refused = stalled(kubectl, "dset/raw")
    assert (refused["reason"], "1 finished task of job wash would be retired (2-2)" in refused["message"]) == (
        "PlanRefused",
        True,
    )
    plan = kubectl.json("get", "dset/raw")["status"]["plan"]
    assert (plan["needs"], f"spec.allow: {{change: {plan['hash']}}}" in refused["message"]) == (["retire"], True)
    assert any("1 chunk retired, finished: 2-2" in line for line in plan["lines"])
    assert database.states("wash") == {"DONE": 3}

    patch(kubectl, "dset/raw", {"allow": {"change": "0123456789ab"}})
    wait_until(
        lambda: "names another plan, 0123456789ab" in condition(kubectl, "dset/raw", "Stalled")["message"],
        "a stale hash is refused",
    )
    assert database.states("wash") == {"DONE": 3}

    patch(kubectl, "dset/raw", {"allow": {"change": plan["hash"]}})
    kubectl("wait", "dset/raw", "--for=condition=Stalled=False", "--timeout=240s")
    assert database.states("wash") == {"DONE": 2, "RETIRED": 1}
    wait_until(lambda: "plan" not in kubectl.json("get", "dset/raw")["status"], "the status has no plan any more")
    events = kubectl("get", "events", "--no-headers", "--field-selector=type=Warning")
    assert events.count("PlanRefused") >= 1
    assert database.problems() == []


def test_a_new_output_is_refused_and_made_after_a_backfill(kubectl: Kubectl, database: Database) -> None:
    patch(kubectl, "dfj/wash", {"outputs": ["clean", "extra"]})
    refused = stalled(kubectl, "dfj/wash")
    assert (refused["reason"], "never made the new output extra" in refused["message"]) == ("PlanRefused", True)
    rows = database.rows("SELECT opendataflow.bare_id(dataset) AS dataset FROM opendataflow.job_output")
    assert rows == [{"dataset": "clean"}]
    status = kubectl.json("get", "dfj/wash")["status"]
    assert status["progress"] == "3/3"
    assert json.loads(status["acceptedSpec"])["outputs"] == ["clean"]

    allow = {"change": status["plan"]["hash"], "backfill": "none"}
    patch(kubectl, "dfj/wash", {"allow": allow})
    wait_until(
        lambda: condition(kubectl, "dfj/wash", "Succeeded")["reason"] == "OutputsMissing", "the job is incomplete"
    )
    status = kubectl.json("get", "dfj/wash")["status"]
    assert status["state"] == "Incomplete"

    patch(kubectl, "dfj/wash", {"resubmit": {"id": "extra", "from": "0-0"}})
    kubectl("wait", "dfj/wash", "--for=condition=Succeeded", "--timeout=240s")
    assert database.done("wash") == 3
    kubectl("wait", "dset/extra", "--for=jsonpath={.status.counts.ready}=3", "--timeout=240s")
    assert database.problems() == []
