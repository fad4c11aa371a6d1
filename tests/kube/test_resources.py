"""The custom resources on a real API server: what users see of them, and what they read when something is wrong."""

import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from opendataflow.model.resources.statuses import DataFlowJobStatus, Resubmitted, TaskCounts
from opendataflow.names import API_VERSION
from tests.kube.cluster.api import Api
from tests.kube.conftest import Kubectl
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "crds"


def resource(kind: str, spec: str) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "flights"}, "spec": yaml.safe_load(spec)}


def job(spec: str = "{}", runtime: str = "{script: {image: busybox}}") -> dict[str, Any]:
    written = {"inputs": ["flights"], "runtime": yaml.safe_load(runtime), **yaml.safe_load(spec)}
    return {**resource("DataFlowJob", "{}"), "spec": written}


def refusal(kubectl: Kubectl, *arguments: str, stdin: str | None = None) -> str:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        kubectl(*arguments, stdin=stdin)
    return str(caught.value.stderr)


def apply(kubectl: Kubectl, body: dict[str, Any]) -> None:
    kubectl("apply", "--filename=-", stdin=yaml.safe_dump(body))


def write_status(kubectl: Kubectl, name: str, status: DataFlowJobStatus) -> None:
    """Write a status, as the operator does."""
    patch = yaml.safe_dump({"status": status.body()})
    kubectl("patch", "dfj", name, "--subresource=status", "--type=merge", f"--patch={patch}")


# What users see ------------------------------------------------------------------------------------------


def test_a_client_side_apply_takes_the_definitions(cluster: Api) -> None:
    cluster.kubectl("apply", f"--filename={CRDS}")
    done = cluster.kubectl("apply", f"--filename={CRDS}")
    assert done.count("unchanged") == len(list(CRDS.glob("*.yaml")))


def test_all_kinds_have_a_short_name_and_a_category(kubectl: Kubectl) -> None:
    apply(kubectl, job())
    apply(kubectl, resource("DataSet", "{}"))
    apply(kubectl, resource("DataFlowAction", "{job: flights, action: hold, status: FAILED}"))
    wanted = {
        "dataflowaction.opendataflow.io/flights",
        "dataflowjob.opendataflow.io/flights",
        "dataset.opendataflow.io/flights",
    }
    assert set(kubectl("get", "dataflow", "--output=name").split()) == wanted
    assert set(kubectl("get", "dfj,dset,dfa", "--output=name").split()) == wanted


def test_get_shows_how_far_a_job_is(kubectl: Kubectl) -> None:
    apply(kubectl, job("{parallelism: 10}"))
    counts = TaskCounts(total=12, done=7, running=3, failed=1)
    write_status(kubectl, "flights", DataFlowJobStatus(state="Running", progress="7/12", counts=counts, eta="2h10m"))
    header, row = kubectl("get", "dfj").splitlines()
    assert header.split() == ["NAME", "STATE", "DONE", "RUNNING", "FAILED", "PARALLELISM", "ETA", "AGE"]
    assert row.split()[:-1] == ["flights", "Running", "7/12", "3", "1", "10", "2h10m"]


def _is_explained(kubectl: Kubectl, field: str) -> bool:
    try:
        return bool(kubectl("explain", field))
    except subprocess.CalledProcessError:  # the API server publishes the schema of a new definition a moment later
        return False


def test_explain_says_what_every_field_is(kubectl: Kubectl) -> None:
    for short in ("dfj", "dset", "dfa"):
        wait_until(partial(_is_explained, kubectl, f"{short}.spec"), f"{short} can be explained")
    shown = kubectl("explain", "dfj.spec.retry")
    assert "The automatic retries of a task." in shown
    assert " ".join(shown.split()).count("The number of retries after failures of the infrastructure") == 1
    for short in ("dfj", "dset", "dfa"):
        assert "<no description>" not in kubectl("explain", f"{short}.spec", "--recursive=false")


def test_scale_sets_the_parallelism(kubectl: Kubectl) -> None:
    apply(kubectl, job())
    write_status(kubectl, "flights", DataFlowJobStatus(replicas=1, selector="opendataflow.io/job=flights"))
    kubectl("scale", "dfj/flights", "--current-replicas=1", "--replicas=10")
    assert kubectl.json("get", "dfj/flights")["spec"]["parallelism"] == 10


def test_what_an_api_server_does_not_know_of_pods_stays_in_the_template(kubectl: Kubectl) -> None:
    apply(kubectl, job("{podTemplate: {spec: {containers: [{name: main, fromTheFuture: {a: [1]}}]}}}"))
    template = kubectl.json("get", "dfj/flights")["spec"]["podTemplate"]
    assert template == {"spec": {"containers": [{"name": "main", "fromTheFuture": {"a": [1]}}]}}


# What was there before -----------------------------------------------------------------------------------

RESUBMIT = '{"spec":{"resubmit":{"id":"%s","chunks":["2013-02-03"]}}}'


def patch(text: str) -> tuple[str, ...]:
    return ("patch", "dfj", "flights", "--type=merge", f"--patch={text}")


def test_a_second_resubmit_waits_until_the_first_is_taken_over(kubectl: Kubectl) -> None:
    apply(kubectl, job())
    kubectl(*patch(RESUBMIT % "fix-42"))
    kubectl(*patch(RESUBMIT % "fix-42"))
    assert "wait until status.resubmit.id is its id" in refusal(kubectl, *patch(RESUBMIT % "fix-43"))
    write_status(kubectl, "flights", DataFlowJobStatus(resubmit=Resubmitted(id="fix-42", chunks=1)))
    kubectl(*patch(RESUBMIT % "fix-43"))
    assert "wait until status.resubmit.id is its id" in refusal(kubectl, *patch(RESUBMIT % "fix-44"))


def test_a_resubmit_that_is_not_taken_over_may_be_withdrawn(kubectl: Kubectl) -> None:
    apply(kubectl, job())
    kubectl(*patch(RESUBMIT % "fix-42"))
    kubectl(*patch('{"spec":{"resubmit":null}}'))
    kubectl(*patch(RESUBMIT % "fix-43"))


def test_the_id_of_a_resubmit_stands_for_one_request(kubectl: Kubectl) -> None:
    apply(kubectl, job())
    kubectl(*patch(RESUBMIT % "fix-42"))
    other = '{"spec":{"resubmit":{"id":"fix-42","chunks":["2013-02-04"]}}}'
    assert "an id can be used once; write another id for another request" in refusal(kubectl, *patch(other))


@pytest.mark.parametrize("kind", ["DataSet", "DataFlowJob"])
@pytest.mark.parametrize(("before", "after"), [("{id: a}", "{id: b}"), ("{id: a}", "{}"), ("{}", "{id: a}")])
def test_an_id_is_never_changed(kubectl: Kubectl, kind: str, before: str, after: str) -> None:
    def body(spec: str) -> dict[str, Any]:
        return job(spec) if kind == "DataFlowJob" else resource(kind, spec)

    apply(kubectl, body(before))
    kubectl("label", kind, "flights", "a=b")
    message = refusal(kubectl, "apply", "--filename=-", stdin=yaml.safe_dump(body(after)))
    assert f"can't be changed; make another {kind}" in message


def test_an_action_is_never_changed(kubectl: Kubectl) -> None:
    apply(kubectl, resource("DataFlowAction", "{job: j, action: hold, chunks: [a, b]}"))
    kubectl("label", "dfa", "flights", "a=b")
    changed = ("patch", "dfa", "flights", "--type=merge", '--patch={"spec":{"chunks":["a"]}}')
    assert "an action can't be changed; make another DataFlowAction" in refusal(kubectl, *changed)


# What is wrong -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("{retry: {limt: 3}}", 'unknown field "spec.retry.limt"'),
        ("{parallelism: -1}", "spec.parallelism in body should be greater than or equal to 0"),
        ("{order: up}", 'spec.order: Unsupported value: "up": supported values: "ascending", "descending"'),
        ("{outputs: [a, a]}", 'spec.outputs[1]: Duplicate value: "a"'),
        ("{outputs: [flights]}", "a data set is in inputs and in outputs"),
        ("{inputs: []}", "a job needs at least one"),
        ("{id: ' x'}", "an id can't begin or end"),
        ("{runDeadline: 1d}", "a duration is hours, minutes"),
        ("{runDeadline: 0s}", "the deadline must be longer"),
        ("{retry: {backoff: {initial: 20m}}}", "initial is longer than max; write a longer max"),
        ("{env: {a-b: x}}", "the name of a variable has"),
        ("{env: {Password: hunter2}}", "a password is never written"),
        ("{resubmit: {id: a}}", "exactly one of chunks, failed"),
        ("{runtime: {}}", "exactly one of script, spark"),
        ("{runtime: {script: {command: [a]}}}", "spec.runtime.script.image: "),
        ("{runtime: {script: {command: [a]}}}", "a cluster runs containers"),
        ("{runtime: {script: {image: a, command: ['']}}}", "the program is empty"),
        ("{runtime: {script: {image: a, workingDirectory: b}}}", "the working directory is"),
        ("{runtime: {script: {image: a, resources: {limits: {cpu: lots}}}}}", "a quantity is a number"),
    ],
)
def test_a_fault_of_a_job_is_reported(kubectl: Kubectl, spec: str, sentence: str) -> None:
    assert sentence in refusal(kubectl, "create", "--filename=-", "--dry-run=server", stdin=yaml.safe_dump(job(spec)))


@pytest.mark.parametrize(
    ("kind", "spec", "sentence"),
    [
        ("DataSet", "{chunkSource: {}}", "exactly one of list, dateRange"),
        ("DataSet", "{chunkSource: {dateRange: {from: '2013-02-30', to: '2014-01-01', step: day}}}", "type date"),
        (
            "DataSet",
            "{chunkSource: {dateRange: {from: '2013-02-03', to: '2014-01-01', step: month}}}",
            "with step month it is",
        ),
        (
            "DataSet",
            "{chunkSource: {range: {from: 0, to: 1000001, step: 1}}}",
            "this makes more than 1000000 chunks; use a larger step",
        ),
        ("DataSet", "{location: {url: 'postgresql://u:hunter2@h'}}", "a password in a URL"),
        ("DataSet", "{credentials: {encryptedPassword: x}}", "the passkey comes from a Secret"),
        ("DataSet", "{shareWith: [Team]}", "the name of a namespace has"),
        ("DataFlowAction", "{job: a, action: hold}", "exactly one of chunks, range"),
        ("DataFlowAction", "{job: a, action: hold, stale: true}", "only resubmit makes stale chunks"),
        ("DataFlowAction", "{action: hold, chunks: [a]}", "exactly one of job, dataset"),
        ("DataFlowAction", "{job: a, action: publish, chunks: [a]}", "publish, accept and reject are"),
        ("DataFlowAction", "{job: a, action: hold, status: PENDING}", "are never in this state"),
        ("DataFlowAction", "{job: a, action: hold, status: READY}", "write QUEUED"),
        ("DataFlowAction", "{job: a, action: drop, chunks: [a]}", 'spec.action: Unsupported value: "drop"'),
    ],
)
def test_a_fault_of_other_kinds_is_reported(kubectl: Kubectl, kind: str, spec: str, sentence: str) -> None:
    body = yaml.safe_dump(resource(kind, spec))
    message = refusal(kubectl, "create", "--filename=-", "--dry-run=server", stdin=body)
    assert sentence in message
    assert "hunter2" not in message
