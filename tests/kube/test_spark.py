"""Spark drivers and their executors on a real API server: admitted where the strictest standard is enforced, refused
with the sentences of the models, and executors that go when the run of their driver is committed."""

import asyncio
import json
from dataclasses import replace
from subprocess import CalledProcessError
from typing import Any

import pytest

from opendataflow import names
from opendataflow.control.resources.orders import PodOrders
from opendataflow.core.kubernetes.pods import Operator
from opendataflow.core.kubernetes.policy.pod_security import PodPolicy
from opendataflow.launch.cluster.launcher import ClusterLauncher
from opendataflow.model.records.claim import DeclaredJob
from opendataflow.model.records.pod import PodOrder
from tests import sparks
from tests.kube.cluster.api import Api
from tests.kube.cluster.pods import pod_annotations, state
from tests.kube.cluster.proxy import Fault, Proxy, refusal
from tests.kube.conftest import Kubectl
from tests.kube.jobs import Database, dataset, documents, job
from tests.kube.launching import end
from tests.kube.operators import Operators
from tests.kube.test_launcher import Place, place, short_pauses  # noqa: F401 # fixtures

ACCOUNT = "opendataflow-spark"
EXECUTORS = f"{names.LABEL_EXECUTOR_OF}"


@pytest.fixture
def accounts(cluster: Api, namespace: str) -> None:
    for name in (ACCOUNT, "loader"):
        cluster.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})


@pytest.mark.usefixtures("accounts")
@pytest.mark.parametrize("name", sparks.cases())
def test_drivers_and_executors_are_accepted_where_the_strictest_standard_is_enforced(
    name: str, cluster: Api, namespace: str
) -> None:
    strict = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    cluster.patch(f"/api/v1/namespaces/{namespace}", strict)
    pod, order = sparks.expected(name)
    driver = sparks.with_order(pod, order)
    driver["metadata"]["namespace"] = namespace
    pods = f"/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldValidation=Strict"
    made = cluster.create(pods, driver)
    assert json.loads(made["metadata"]["annotations"][names.ANNOTATION_SPARK]) == order
    if order["executor"] is not None:
        executor = order["executor"]
        executor["metadata"]["name"] = "load-r9-c0ffee-exec-1"
        assert cluster.create(pods, executor)["spec"]["containers"][0]["name"] == "main"


REFUSED = [
    ({"main": "a.jar"}, "the program is a Python file"),
    ({"main": "a.py", "driver": {"memory": "470m"}}, "Spark needs at least 471m"),
    ({"main": "a.py", "sparkConf": {"spark.master": "yarn"}}, "the framework sets some of these itself"),
    ({"main": "a.py", "sparkConf": {"spark.hadoop.fs.s3a.secret.key": "x"}}, "a password is never written"),
    ({"main": "a.py", "executor": {"instances": 1}, "dynamicAllocation": {"max": 2}}, "contradict each other"),
    ({"main": "a.py", "dynamicAllocation": {"min": 3, "max": 2}}, "min is more than max"),
]


@pytest.mark.parametrize(("spark", "sentence"), REFUSED, ids=str)
def test_what_can_not_run_is_refused_by_the_api_server(spark: dict[str, Any], sentence: str, kubectl: Kubectl) -> None:
    with pytest.raises(CalledProcessError, match="exit status") as refused:
        kubectl("apply", "--filename=-", stdin=documents(job("x", ["a"], [], runtime={"spark": spark})))
    assert sentence in refused.value.stderr


# Executors ---------------------------------------------------------------------------------------------------


def order(here: Place, number: int, **annotations: Any) -> PodOrder:
    """The order of a driver with executors, in the namespace of a test."""
    case = sparks.case("dynamic")
    case["job"]["metadata"]["namespace"] = here.namespace
    case["job"]["spec"]["podTemplate"] = {"metadata": {"annotations": pod_annotations(**annotations)}}
    columns = dict.fromkeys(("kind", "hostname", "database", "schemaname", "tablename", "username", "encryptedpass"))
    row: dict[str, Any] = {
        "id": "a",
        "itemtype": "IN",
        **columns,
        "url": None,
        "format": None,
        "options": {},
        "secret_ref": None,
    }
    policy = PodPolicy(accounts=(ACCOUNT, "loader"))
    operator = Operator(here.namespace, "none/operator:1", "none/spark:1", ACCOUNT, policy)
    return PodOrders(sparks.job_of(case["job"]), "", operator)(here.run(number), DeclaredJob({"tests": None}, (row,)))


def add_executor(here: Place, driver: PodOrder, number: int = 1) -> str:
    """Create an executor as Spark does it, out of the template that the driver gets."""
    written = json.loads(driver.manifest["metadata"]["annotations"][names.ANNOTATION_SPARK])
    pod = written["executor"]
    pod["metadata"] |= {"name": f"{driver.name}-exec-{number}"}
    pod["metadata"]["annotations"] |= pod_annotations(run_seconds="forever")
    here.admin.create(f"/api/v1/namespaces/{here.namespace}/pods", pod)
    return f"/api/v1/namespaces/{here.namespace}/pods/{pod['metadata']['name']}"


async def started(here: Place, launcher: ClusterLauncher, number: int, **annotations: Any) -> str:
    """Start a driver; return the path of its executor, which runs too."""
    made = order(here, number, run_seconds="forever", **annotations)
    await launcher.start(made)
    await here.runs(number)
    path = add_executor(here, made)
    await asyncio.to_thread(here.admin.wait, path, lambda pod: "running" in state(pod), "it runs")
    return path


def ends(here: Place, number: int) -> None:
    here.admin.patch(here.path(number), {"metadata": {"annotations": pod_annotations(run_seconds=0)}})


@pytest.mark.usefixtures("accounts")
async def test_executors_go_with_the_outcome_of_their_driver_and_those_of_others_stay(place: Place) -> None:  # noqa: F811
    async with place.launcher() as launcher:
        executor = await started(place, launcher, 1)
        other = await started(place, launcher, 2)
        ends(place, 1)
        await end(launcher)
        assert place.admin.find(executor) is not None
        await launcher.release(place.run(1))
        await asyncio.to_thread(place.admin.wait_gone, executor)
        await place.until(lambda pod: names.LABEL_DONE in pod["metadata"]["labels"])
        left = place.admin.find(other)
        assert left is not None
        assert "deletionTimestamp" not in left["metadata"]


@pytest.mark.usefixtures("accounts")
async def test_drivers_that_are_committed_together_cost_one_request_and_scripts_none(
    place: Place,  # noqa: F811
    proxy: Proxy,
) -> None:
    async with place.launcher(proxy) as launcher:
        drivers = [order(place, number) for number in range(1, 5)]
        scripts = [replace(place.order(number)) for number in range(5, 8)]
        for each in [*drivers, *scripts]:
            await launcher.start(each)
        for _ in range(7):
            await end(launcher)
        for each in [*drivers, *scripts]:
            await launcher.release(place.run(each.run))
        for number in range(1, 8):
            await place.until(lambda pod: names.LABEL_DONE in pod["metadata"]["labels"], number)
    deletions = [path for method, path in proxy.seen if method == "DELETE"]
    assert len(deletions) == 1
    assert all(each.name in deletions[0] for each in drivers)


@pytest.mark.usefixtures("accounts")
async def test_executors_that_could_not_be_deleted_are_deleted_before_the_driver_is_released(
    place: Place,  # noqa: F811
    proxy: Proxy,
) -> None:
    fault = proxy.fail(Fault("DELETE", EXECUTORS, times=2, answer=refusal(500, "InternalError")))
    async with place.launcher(proxy) as launcher:
        executor = await started(place, launcher, 1)
        ends(place, 1)
        await end(launcher)
        await launcher.release(place.run(1))
        await place.until(lambda pod: names.LABEL_DONE in pod["metadata"]["labels"])
        await asyncio.to_thread(place.admin.wait_gone, executor)
    assert fault.met == 2
    methods = [method for method, path in proxy.seen if method == "PATCH" or EXECUTORS in path]
    assert methods == ["DELETE", "DELETE", "DELETE", "PATCH"]


@pytest.mark.usefixtures("accounts")
async def test_an_operator_that_may_not_delete_executors_says_so_and_releases_the_driver(
    place: Place,  # noqa: F811
    proxy: Proxy,
) -> None:
    proxy.fail(Fault("DELETE", EXECUTORS, times=9, answer=refusal(403, "Forbidden", "no rights")))
    async with place.launcher(proxy) as launcher:
        for number in (1, 2):
            await launcher.start(order(place, number))
            await end(launcher)
            await launcher.release(place.run(number))
            await place.until(lambda pod: names.LABEL_DONE in pod["metadata"]["labels"], number)
    (note,) = place.notes
    assert note.startswith("executors of runs that have ended can't be deleted")


@pytest.mark.usefixtures("accounts")
def test_the_operator_runs_a_spark_job(operators: Operators, kubectl: Kubectl, database: Database) -> None:
    operators.start(DATAFLOW_SPARK_IMAGE="none/ours:1")
    spark = {"main": "/app/etl.py", "executor": {"instances": 2}}
    kubectl(
        "apply",
        "--filename=-",
        stdin=documents(dataset("raw", 3), dataset("clean"), job("wash", ["raw"], ["clean"], runtime={"spark": spark})),
    )
    kubectl("wait", "dfj/wash", "--for=condition=Succeeded", "--timeout=240s")
    assert database.done("wash") == 3
    pods = kubectl.json("get", "pods", f"--selector={names.LABEL_RUN}")["items"]
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {"none/ours:1"}
    assert {pod["spec"]["serviceAccountName"] for pod in pods} == {ACCOUNT}
