"""What a user does with jobs on a cluster, and sees: applied, scaled, suspended, asked again, changed, deleted.

Seen at others: a limit that needs a restart; a resize that kills what runs; a resubmit that is lost or done twice; an
id that two teams use; a spec that is wrong and is tried for ever.
"""

import json
import subprocess

import pytest

from tests.kube.cluster.annotations import PREFIX
from tests.kube.cluster.api import Api, Object
from tests.kube.conftest import Kubectl
from tests.kube.jobs import Database, action, dataset, documents, job
from tests.kube.operators import Operator, Operators
from tests.kube.recorder import Recorder, with_finalizer
from tests.waiting import wait_until


@pytest.fixture
def operator(operators: Operators) -> Operator:
    return operators.start()


def apply(kubectl: Kubectl, *resources: Object) -> None:
    kubectl("apply", "-f-", stdin=documents(*resources))


def patch(kubectl: Kubectl, name: str, spec: Object) -> None:
    kubectl("patch", name, "--type=merge", "--patch", json.dumps({"spec": spec}))


def finish_pods(kubectl: Kubectl, pods: int) -> None:
    """End the pods that run for ever, as soon as so many run."""

    def running() -> int:
        return sum(pod["status"]["phase"] == "Running" for pod in kubectl.json("get", "pods")["items"])

    wait_until(lambda: running() == pods, f"{pods} pods run")
    kubectl("annotate", "pods", "--all", "--overwrite", f"{PREFIX}run-seconds=0")


def condition(kubectl: Kubectl, name: str, kind: str) -> Object:
    found: list[Object] = kubectl.json("get", name).get("status", {}).get("conditions", [])
    return next((each for each in found if each["type"] == kind), {})


def stalled(kubectl: Kubectl, name: str) -> Object:
    """Wait until a resource is stalled; return the condition."""
    kubectl("wait", name, "--for=condition=Stalled", "--timeout=240s")
    return condition(kubectl, name, "Stalled")


def test_a_job_runs_every_chunk_once_and_shows_how_far_it_is(
    operator: Operator, kubectl: Kubectl, cluster: Api, namespace: str, database: Database
) -> None:
    with Recorder(cluster, namespace) as recorder:
        apply(kubectl, dataset("raw", 12), dataset("clean"), job("wash", ["raw"], ["clean"], parallelism=4))
        kubectl("wait", "dfj/wash", "--for=condition=Succeeded", "--timeout=240s")
        wait_until(lambda: not with_finalizer(cluster, namespace), "the pods are released")
    assert database.done("wash") == 12
    assert recorder.most["wash"] <= 4
    assert recorder.together == recorder.of_one_name() == []
    assert database.published_more_than_once() == database.problems() == []
    columns = kubectl("get", "dfj", "wash", "--no-headers").split()
    assert columns[:6] == ["wash", "Done", "12/12", "0", "0", "4"]
    kubectl("wait", "dset/clean", "--for=jsonpath={.status.counts.ready}=12", "--timeout=240s")
    assert operator.alive


def taken_over(kubectl: Kubectl, name: str) -> bool:
    """Whether the status is about the spec as it is now."""
    found = kubectl.json("get", f"dfj/{name}")
    return bool(found["metadata"]["generation"] == found["status"].get("observedGeneration"))


@pytest.mark.usefixtures("operator")
def test_parallelism_goes_up_in_seconds_and_down_by_draining(
    kubectl: Kubectl, cluster: Api, namespace: str, database: Database
) -> None:
    forever = {"run-seconds": "forever"}
    with Recorder(cluster, namespace) as recorder:
        apply(kubectl, dataset("raw", 60), dataset("clean"), job("wash", ["raw"], ["clean"], forever, parallelism=10))
        wait_until(lambda: database.running("wash") == 10, "10 run")
        # An event compares two reports of the operator: the first one has to come before the change.
        kubectl("wait", "dfj/wash", "--for=jsonpath={.status.progress}=0/60", "--timeout=240s")
        kubectl("scale", "dfj/wash", "--replicas=30")
        wait_until(lambda: database.running("wash") == 30, "30 run")
        kubectl("scale", "dfj/wash", "--replicas=2")
        wait_until(lambda: "-> 2" in kubectl("get", "events"), "the change is reported")
        assert database.running("wash") == 30  # nobody is killed
        finish_pods(kubectl, 30)
        wait_until(lambda: database.done("wash") == 30, "what ran has ended")
        wait_until(lambda: database.running("wash") == 2, "2 run")
        kubectl("scale", "dfj/wash", "--replicas=0")
        wait_until(lambda: taken_over(kubectl, "wash"), "the operator knows")
        finish_pods(kubectl, 2)
        wait_until(lambda: database.done("wash") == 32 and not database.running("wash"), "nothing runs")
        kubectl("scale", "dfj/wash", "--replicas=10")
        wait_until(lambda: database.running("wash") == 10, "10 run again")
    assert recorder.most["wash"] == 30
    assert recorder.together == []


@pytest.mark.usefixtures("operator")
def test_suspend_drains_and_resume_goes_on(kubectl: Kubectl, database: Database) -> None:
    apply(kubectl, dataset("raw", 6), dataset("clean"), job("wash", ["raw"], ["clean"], {"run-seconds": "forever"}))
    wait_until(lambda: database.running("wash") == 3, "3 run")
    patch(kubectl, "dfj/wash", {"suspend": True})
    kubectl("wait", "dfj/wash", "--for=condition=Suspended", "--timeout=240s")
    assert database.running("wash") == 3
    finish_pods(kubectl, 3)
    wait_until(lambda: database.done("wash") == 3 and not database.running("wash"), "it has drained")
    patch(kubectl, "dfj/wash", {"suspend": False})
    wait_until(lambda: database.running("wash") == 3, "it goes on")


def test_a_resubmit_is_done_once_for_its_id_also_two_in_a_row_and_while_it_runs(
    operators: Operators, operator: Operator, kubectl: Kubectl, database: Database
) -> None:
    apply(kubectl, dataset("raw", 3), dataset("clean"), job("wash", ["raw"], ["clean"], {"run-seconds": "4"}))
    kubectl("wait", "dfj/wash", "--for=condition=Succeeded", "--timeout=240s")

    def runs(data_id: str) -> int:
        return len(database.rows("SELECT FROM opendataflow.run WHERE data_id = %s", data_id))

    patch(kubectl, "dfj/wash", {"resubmit": {"id": "one", "chunks": ["0-0", "1-1"]}})
    kubectl("wait", "dfj/wash", "--for=jsonpath={.status.resubmit.id}=one", "--timeout=240s")
    wait_until(lambda: (runs("0-0"), runs("1-1")) == (2, 2), "they run again")
    patch(kubectl, "dfj/wash", {"resubmit": {"id": "two", "chunks": ["0-0"]}})
    kubectl("wait", "dfj/wash", "--for=jsonpath={.status.resubmit.id}=two", "--timeout=240s")
    wait_until(lambda: database.done("wash") == 3 and runs("0-0") == 3, "asked while it ran, it runs once more")
    assert (runs("1-1"), runs("2-2")) == (2, 1)

    operator.kill()
    operators.restart()
    apply(kubectl, dataset("other", 1))
    kubectl("wait", "dset/other", "--for=condition=Ready", "--timeout=240s")
    assert (runs("0-0"), runs("1-1")) == (3, 2)
    assert database.published_more_than_once() == []


def test_a_second_resubmit_is_refused_until_the_first_is_taken_over(kubectl: Kubectl) -> None:
    apply(kubectl, dataset("raw", 3), dataset("clean"), job("wash", ["raw"], ["clean"]))
    patch(kubectl, "dfj/wash", {"resubmit": {"id": "one", "failed": True}})
    with pytest.raises(subprocess.CalledProcessError) as refused:
        patch(kubectl, "dfj/wash", {"resubmit": {"id": "two", "failed": True}})
    assert "the resubmit before this one is not taken over yet" in refused.value.stderr


@pytest.mark.usefixtures("operator")
def test_all_that_failed_is_tried_again_after_the_spec_was_fixed(kubectl: Kubectl, database: Database) -> None:
    broken = job("wash", ["raw"], ["clean"], {"exit-code": "3"}, retry={"limit": 0})
    apply(kubectl, dataset("raw", 3), dataset("clean"), broken)
    wait_until(lambda: database.states("wash")["FAILED"] == 3, "all have failed")
    kubectl("wait", "dfj/wash", "--for=jsonpath={.status.counts.failed}=3", "--timeout=240s")
    failures = kubectl.json("get", "dfj/wash")
    assert "exit code 3" in failures["status"]["lastFailures"][0]["message"]
    apply(kubectl, job("wash", ["raw"], ["clean"], resubmit={"id": "fixed", "failed": True}))
    kubectl("wait", "dfj/wash", "--for=condition=Succeeded", "--timeout=240s")


@pytest.mark.usefixtures("operator")
def test_the_steps_and_expectations_of_a_pod_s_report_are_kept_and_shown(kubectl: Kubectl, database: Database) -> None:
    report = {
        "failure": "write out has failed: keys",
        "steps": [["read raw", "DONE", 4, 0.5], 2, ["write out", "FAILED", None, 1.25, "what is expected is not so"]],
        "expectations": {"keys": {"held": False, "found": "2 values more than once"}},
    }
    pods = {"exit-code": "1", "message": json.dumps(report)}
    apply(kubectl, dataset("raw", 1), dataset("clean"), job("wash", ["raw"], ["clean"], pods=pods, retry={"limit": 0}))
    reason = "jsonpath={.status.conditions[?(@.type=='Succeeded')].reason}=ExpectationFailed"
    kubectl("wait", "dfj/wash", f"--for={reason}", "--timeout=240s")
    steps = database.rows("SELECT ordinal, name, status, rows, seconds, error FROM opendataflow.step ORDER BY ordinal")
    assert [tuple(step.values()) for step in steps] == [
        (1, "read raw", "DONE", 4, 0.5, None),
        (4, "write out", "FAILED", None, 1.25, "what is expected is not so"),
    ]
    (failure,) = kubectl.json("get", "dfj/wash")["status"]["lastFailures"]
    assert (failure["reason"], failure["message"]) == ("ExpectationFailed", f"exit code 1: {report['failure']}")
    wait_until(
        lambda: kubectl.json("get", "events", "--field-selector=reason=ExpectationFailed")["items"], "an event says so"
    )


@pytest.mark.usefixtures("operator")
def test_a_run_keeps_the_spec_that_it_was_started_with(kubectl: Kubectl) -> None:
    before = job("wash", ["raw"], ["clean"], {"run-seconds": "forever"}, parallelism=1, env={"WHICH": "old"})
    apply(kubectl, dataset("raw", 2), dataset("clean"), before)
    wait_until(lambda: len(kubectl.json("get", "pods")["items"]) == 1, "one runs")
    apply(kubectl, job("wash", ["raw"], ["clean"], parallelism=1, env={"WHICH": "new"}))
    kubectl("wait", "dfj/wash", "--for=jsonpath={.status.observedGeneration}=2", "--timeout=240s")
    finish_pods(kubectl, 1)
    kubectl("wait", "dfj/wash", "--for=condition=Succeeded", "--timeout=240s")
    values = {
        pod["metadata"]["annotations"]["opendataflow.io/data-id"]: next(
            variable["value"] for variable in pod["spec"]["containers"][0]["env"] if variable["name"] == "WHICH"
        )
        for pod in kubectl.json("get", "pods")["items"]
    }
    assert values == {"0-0": "old", "1-1": "new"}


@pytest.mark.parametrize(("policy", "state"), [("Drain", "DONE"), ("Cancel", "FAILED")])
@pytest.mark.usefixtures("operator")
def test_a_deleted_job_stops_by_its_policy_keeps_its_chunks_and_goes_on_when_it_is_applied_again(
    kubectl: Kubectl, database: Database, cluster: Api, namespace: str, policy: str, state: str
) -> None:
    resource = job("wash", ["raw"], ["clean"], {"run-seconds": "forever"}, parallelism=1, onDelete=policy)
    apply(kubectl, dataset("raw", 2), dataset("clean"), resource)
    wait_until(lambda: len(kubectl.json("get", "pods")["items"]) == 1, "one runs")
    kubectl("delete", "dfj/wash", "--timeout=240s")  # nothing keeps it
    wait_until(lambda: database.rows("SELECT deleted FROM opendataflow.job")[0]["deleted"], "it is stopped")
    if policy == "Drain":
        assert database.running("wash") == 1
        finish_pods(kubectl, 1)
    wait_until(lambda: database.states("wash")[state] == 1, "the run has ended")
    wait_until(lambda: not with_finalizer(cluster, namespace), "the pod is released")
    assert database.problems() == []
    apply(kubectl, resource | {"spec": resource["spec"] | {"podTemplate": {}}})
    wait_until(lambda: database.done("wash") == (2 if policy == "Drain" else 1), "the rest is done")


@pytest.mark.usefixtures("operator")
def test_actions_are_done_once_and_say_what_became_of_them(kubectl: Kubectl, database: Database) -> None:
    apply(
        kubectl,
        dataset("raw", 3),
        dataset("clean"),
        job("wash", ["raw"], ["clean"], suspend=True),
        action("keep", job="wash", action="hold", chunks=["1-1"], reason="wait for the fix"),
        action("nonsense", job="wash", action="skip", chunks=["77"]),
    )
    kubectl("wait", "dfa/keep", "--for=jsonpath={.status.phase}=Done", "--timeout=240s")
    kubectl("wait", "dfa/nonsense", "--for=jsonpath={.status.phase}=Refused", "--timeout=240s")
    assert "77" in kubectl.json("get", "dfa/nonsense")["status"]["message"]
    assert database.states("wash")["HELD"] == 1
    (event,) = database.rows("SELECT actor, reason FROM opendataflow.history WHERE event = 'hold'")
    assert event["reason"] == "wait for the fix"
    assert "keep" in event["actor"]


@pytest.mark.usefixtures("operator")
def test_what_can_t_be_honoured_says_why_and_starts_nothing(kubectl: Kubectl, database: Database) -> None:
    apply(
        kubectl,
        dataset("raw", 3),
        job("orphan", ["raw"], ["nowhere"]),
        job("twice", ["raw"], ["clean"], env={"raw_hostname": "x"}),
        dataset("clean"),
    )
    kubectl("wait", "dfj/orphan", "--for=condition=Ready=False", "--timeout=240s")

    def missing() -> str:
        ready = condition(kubectl, "dfj/orphan", "Ready")
        return str(ready["message"]) if ready["reason"] == "DataSetMissing" else ""

    wait_until(lambda: "there is no data set nowhere" in missing(), "it says what is missing")
    assert "both set the variable raw_hostname" in stalled(kubectl, "dfj/twice")["message"]

    def warnings() -> int:
        return kubectl("get", "events", "--no-headers", "--field-selector=type=Warning").count("dataflowjob/twice")

    wait_until(lambda: warnings() == 1, "one event reports it")
    assert database.rows("SELECT FROM opendataflow.run") == []
    apply(kubectl, dataset("nowhere"))
    kubectl("wait", "dfj/orphan", "--for=condition=Succeeded", "--timeout=240s")
    assert condition(kubectl, "dfj/orphan", "Stalled")["status"] == "False"


def test_a_data_set_of_another_namespace_has_to_be_shared(
    operators: Operators, kubectl: Kubectl, cluster: Api, namespace: str, other_namespace: str
) -> None:
    operators.start(DATAFLOW_NAMESPACES=f"{namespace},{other_namespace}")
    theirs = Kubectl(cluster, other_namespace)
    apply(kubectl, dataset("raw", 3), dataset("clean"))
    kubectl("wait", "dset/raw", "dset/clean", "--for=condition=Ready", "--timeout=240s")
    apply(theirs, dataset("raw", 5), dataset("raw-again", id="raw"))
    taken = stalled(theirs, "dset/raw-again")
    assert taken["reason"] == "IdTaken"
    assert "the id raw is taken: the data set of this name belongs to the DataSet raw;" in taken["message"]
    apply(theirs, dataset("result"), job("theirs", [f"{namespace}/clean"], ["result"]))
    assert stalled(theirs, "dfj/theirs")["reason"] == "NotShared"
    apply(kubectl, dataset("clean", shareWith=[other_namespace]))
    theirs("wait", "dfj/theirs", "--for=condition=Ready", "--timeout=240s")


def test_a_sharing_that_ends_stops_new_runs_until_it_is_back(
    operators: Operators, kubectl: Kubectl, cluster: Api, namespace: str, other_namespace: str, database: Database
) -> None:
    operators.start(DATAFLOW_NAMESPACES=f"{namespace},{other_namespace}")
    theirs = Kubectl(cluster, other_namespace)
    apply(kubectl, dataset("raw", 2, shareWith=[other_namespace]))
    apply(
        theirs,
        dataset("result"),
        job("theirs", [f"{namespace}/raw"], ["result"], {"run-seconds": "forever"}, parallelism=1),
    )
    wait_until(lambda: database.running("theirs") == 1, "one runs")
    apply(kubectl, dataset("raw", 2))
    assert stalled(theirs, "dfj/theirs")["reason"] == "NotShared"
    finish_pods(theirs, 1)
    wait_until(lambda: (database.done("theirs"), database.running("theirs")) == (1, 0), "no other follows")
    assert stalled(theirs, "dfj/theirs")["reason"] == "NotShared"
    apply(kubectl, dataset("raw", 2, shareWith=[other_namespace]))
    wait_until(lambda: database.running("theirs") == 1, "the next one runs")


def test_an_operator_that_stops_leaves_its_runs_to_the_next_one(
    operators: Operators, operator: Operator, kubectl: Kubectl, cluster: Api, namespace: str, database: Database
) -> None:
    with Recorder(cluster, namespace) as recorder:
        apply(kubectl, dataset("raw", 4), dataset("clean"), job("wash", ["raw"], ["clean"], {"run-seconds": "forever"}))
        wait_until(lambda: len(kubectl.json("get", "pods")["items"]) == 3, "3 run")
        assert operator.stop() == 0
        finish_pods(kubectl, 3)
        operators.start()
        wait_until(lambda: database.done("wash") >= 3, "their ends are committed")
        kubectl("wait", "dfj/wash", "--for=jsonpath={.status.counts.running}=1", "--timeout=240s")
    assert recorder.together == recorder.of_one_name() == []


def test_a_second_operator_waits_and_leads_when_the_first_is_gone(
    operators: Operators, kubectl: Kubectl, database: Database
) -> None:
    first = operators.start()
    wait_until(lambda: "leads, in epoch 1" in first.output(), "the first leads")
    second = operators.start()
    apply(kubectl, dataset("raw", 2), dataset("clean"), job("wash", ["raw"], ["clean"]))
    kubectl("wait", "dfj/wash", "--for=condition=Succeeded", "--timeout=240s")
    assert "this operator leads" not in second.output()
    third = operators.start()
    wait_until(lambda: "this one waits" in third.output(), "the third waits")
    assert third.stop() == 0  # also where it only waits
    assert first.stop() == 0
    wait_until(lambda: "leads, in epoch 2" in second.output(), "the second leads")
    apply(kubectl, dataset("raw", 4))
    wait_until(lambda: database.done("wash") == 4, "it works")
