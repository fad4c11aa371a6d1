"""The same ids in two namespaces: each team has its own data sets and jobs, and sees nothing of the other team's."""

import json
from typing import Any

import pytest

from opendataflow.names import ANNOTATION_CONTEXT, LABEL_JOB
from tests.kube.cluster.api import Api, Object, Refused
from tests.kube.jobs import action, dataset, documents, job, path_of
from tests.kube.scene import Flows, Running, Scene
from tests.waiting import wait_until

OURS, THEIRS = "s3://ours/raw", "s3://theirs/raw"


def raw(url: str, chunks: int = 1, **spec: Any) -> Object:
    return dataset("raw", chunks, location={"url": url}, **spec)


def contexts(flows: Flows, name: str) -> list[dict[str, Any]]:
    """What the pods of a job read, the oldest first."""
    return [json.loads(pod["metadata"]["annotations"][ANNOTATION_CONTEXT]) for pod in flows.pods(name)]


def is_ready(flows: Flows, resource: Object) -> bool:
    """Whether the present spec of a resource is taken over."""
    found = flows.api.get(path_of(flows.namespace, resource))
    conditions = {one["type"]: one for one in (found.get("status") or {}).get("conditions", [])}
    ready = conditions.get("Ready", {})
    return bool(ready.get("status") == "True" and ready.get("observedGeneration") == found["metadata"]["generation"])


def until_ready(flows: Flows, resource: Object) -> None:
    wait_until(lambda: is_ready(flows, resource), f"{resource['metadata']['name']} is taken over")


@pytest.mark.usefixtures("operator")
def test_a_data_set_that_is_replaced_by_force_keeps_its_id_while_another_namespace_has_one_of_the_same_id(
    ours: Scene, theirs: Flows
) -> None:
    theirs.apply(raw(THEIRS))
    until_ready(theirs, raw(THEIRS))
    ours.apply(raw(OURS), dataset("out"), job("load", ["raw"], ["out"]))
    ours.until_done(ours.key("load"), 1)
    ours.api.kubectl(f"--namespace={ours.namespace}", "replace", "--force", "-f-", stdin=documents(raw(OURS, 2)))
    ours.until_done(ours.key("load"), 2)
    assert [run["datasets"]["raw"]["url"] for run in contexts(ours, "load")] == [OURS, OURS]
    until_ready(theirs, raw(THEIRS))
    urls = ours.database.rows("SELECT id, url FROM opendataflow.dataset WHERE url IS NOT NULL")
    found = {row["id"]: row["url"] for row in urls}
    assert found == {f"{ours.namespace}/raw": OURS, f"{theirs.namespace}/raw": THEIRS}
    ours.is_right()


@pytest.mark.usefixtures("operator")
def test_whoever_reuses_the_id_of_a_deleted_job_in_another_namespace_sees_nothing_of_it(
    ours: Scene, theirs: Flows
) -> None:
    once = {"limit": 0, "backoff": {"initial": "0s"}}
    ours.flow("load", 2, {"exit-code": "3"}, retry=once, resubmit={"id": "first", "failed": True})
    ours.until_failed(ours.key("load"), 2)
    wait_until(lambda: bool(ours.status("load").get("lastFailures")), "its failures are reported")
    ours.api.delete(path_of(ours.namespace, job("load", [], [])))
    deleted = "SELECT FROM opendataflow.job WHERE deleted"
    wait_until(lambda: len(ours.database.rows(deleted)) == 1, "the job is deleted")

    theirs.flow("load", 1)
    theirs.until_done(theirs.key("load"), 1)
    wait_until(lambda: theirs.status("load").get("state") == "Done", "it is reported")
    status = theirs.status("load")
    assert (status["counts"]["total"], status["counts"]["done"]) == (1, 1)
    assert not status.get("lastFailures")
    assert not status.get("resubmit")
    (described,) = ours.database.rows("SELECT opendataflow.job_status(%s) AS found", theirs.key("load"))
    assert ours.namespace not in json.dumps(described["found"])
    rows = "SELECT FROM opendataflow.history WHERE owner = %s AND to_state = 'FAILED'"
    assert ours.database.rows(rows, theirs.key("load")) == []
    assert len(ours.database.rows(rows, ours.key("load"))) >= 2
    assert theirs.consumed(theirs.key("load")) == [(0, 0)]


def test_the_same_ids_in_two_namespaces_run_side_by_side(ours: Scene, theirs: Flows, operator: Running) -> None:
    for flows, chunks in ((ours, 2), (theirs, 3)):
        flows.flow("load", chunks)
    for flows, chunks in ((ours, 2), (theirs, 3)):
        flows.until_done(flows.key("load"), chunks)
        assert {pod["metadata"]["labels"][LABEL_JOB] for pod in flows.pods("load")} == {"load"}
        assert {run["job"] for run in contexts(flows, "load")} == {"load"}
        assert {run["namespace"] for run in contexts(flows, "load")} == {flows.namespace}
        assert {run["runs_home"] for run in flows.runs(flows.key("load"))} == {flows.namespace}
        flows.sees("load", "Succeeded", "True", "Done", saying=f"{chunks} chunks done")
    for flows, chunks in ((ours, 2), (theirs, 3)):
        line = f'opendataflow_tasks{{job="load",job_namespace="{flows.namespace}",state="DONE"}} {chunks}.0'
        wait_until(lambda line=line: line in operator.probe("/metrics")[1], line)  # type: ignore[misc]
    ours.is_right()


@pytest.mark.usefixtures("operator")
def test_whoever_is_the_first_with_an_id_takes_it_from_nobody(ours: Scene, theirs: Flows) -> None:
    theirs.apply(raw(THEIRS), dataset("out"), job("load", ["raw"], ["out"], suspend=True))
    until_ready(theirs, job("load", [], []))
    ours.apply(raw(OURS), dataset("out"), job("load", ["raw"], ["out"]))
    ours.until_done(ours.key("load"), 1)
    ours.sees("load", "Stalled", "False", "NotStalled")
    assert [run["datasets"]["raw"]["url"] for run in contexts(ours, "load")] == [OURS]
    assert theirs.runs(theirs.key("load")) == []


@pytest.mark.usefixtures("operator")
def test_a_shared_data_set_is_read_beside_an_own_one_of_the_same_id_under_an_alias(ours: Scene, theirs: Flows) -> None:
    ours.apply(raw(OURS, shareWith=[theirs.namespace]))
    until_ready(ours, raw(OURS))
    shared = f"{ours.namespace}/raw"
    theirs.apply(raw(THEIRS), dataset("out"), job("load", ["raw", shared], ["out"], aliases={"raw_a": shared}))
    theirs.until_done(theirs.key("load"), 1)
    (run,) = contexts(theirs, "load")
    assert {name: found["url"] for name, found in run["datasets"].items()} == {
        "raw": THEIRS,
        "raw_a": OURS,
        "out": None,
    }
    (pod,) = theirs.pods("load")
    names = {variable["name"] for variable in pod["spec"]["containers"][0]["env"]}
    assert {"raw_datasetid", "raw_a_datasetid", "out_datasetid"} <= names
    theirs.apply(job("again", ["raw", shared], []))
    theirs.sees("again", "Stalled", "True", "InvalidSpec", saying="have the same name in runs")


@pytest.mark.usefixtures("operator")
def test_a_job_learns_no_ids_of_another_namespace(ours: Scene, theirs: Flows) -> None:
    ours.apply(raw(OURS), dataset("deleted"))
    until_ready(ours, raw(OURS))
    until_ready(ours, dataset("deleted"))
    ours.api.delete(path_of(ours.namespace, dataset("deleted")))
    disowned = "SELECT FROM opendataflow.dataset WHERE id LIKE '%%/deleted' AND owner IS NULL"
    wait_until(lambda: len(ours.database.rows(disowned)) == 1, "the data set is deleted")
    messages = set()
    for name in ("raw", "deleted", "missing"):
        theirs.apply(dataset(f"{name}-out"), job(f"reads-{name}", [f"{ours.namespace}/{name}"], [f"{name}-out"]))
        theirs.sees(f"reads-{name}", "Stalled", "True", "NotShared", saying="does not share it with")
        conditions = theirs.status(f"reads-{name}")["conditions"]
        (message,) = (one["message"] for one in conditions if one["type"] == "Stalled")
        messages.add(message.replace(f"/{name}", "/ID").replace(f"reads-{name}", "JOB"))
    assert len(messages) == 1, messages


@pytest.mark.parametrize(
    "wrong",
    [dataset("raw", id="a/raw"), job("load", ["raw"], ["a/out"]), job("load", ["raw"], ["out"], id="a/load")]
    + [action("hold", action="hold", chunks=["1"], **{field: "a/raw"}) for field in ("job", "dataset")],
)
def test_the_api_server_refuses_ids_of_other_namespaces(cluster: Api, namespace: str, wrong: Object) -> None:
    with pytest.raises(Refused, match="an id has no /"):
        cluster.create(path_of(namespace, wrong).rpartition("/")[0], wrong)
