"""SparkApplications and drivers with the labels and annotations of a run that is not theirs."""

import copy

from opendataflow import names
from tests.kube.cluster.pods import pod
from tests.kube.launching import SECONDS, end
from tests.kube.spark_operator.controller import DRIVER, applications
from tests.kube.test_application_launcher import Place, place, short_pauses  # noqa: F401 # fixtures
from tests.waiting import until


async def test_a_copy_of_an_application_and_a_driver_that_spark_did_not_create_end_no_run(
    place: Place,  # noqa: F811
    other_namespace: str,
) -> None:
    kinds: list[str] = []
    order = place.order(run_seconds="forever")
    foreign = copy.deepcopy(dict(order.manifest))
    foreign["metadata"]["namespace"] = other_namespace
    driver = pod(f"{order.name}-innocent", spec={"containers": [{"name": DRIVER, "image": "none/none:1"}]})
    driver["metadata"]["labels"] = {
        names.LABEL_RUN: "1",
        names.LABEL_ENGINE: place.namespace,
        names.LABEL_APPLICATION: place.namespace,
    }
    async with place.launcher(foreign=kinds.append) as launcher:
        await launcher.start(order)
        await place.until(lambda found: found.get("status", {}).get("driverInfo", {}).get("podName"))
        place.admin.create(applications(other_namespace), foreign)
        completed = {"status": {"applicationState": {"state": "COMPLETED"}, "driverInfo": {}}}
        place.admin.patch(f"{applications(other_namespace)}/{order.name}/status", completed)
        place.admin.create(f"/api/v1/namespaces/{place.namespace}/pods", driver)
        await until(lambda: sorted(kinds) == ["pods", "sparkapplications"], "both are counted", SECONDS)
        await launcher.kill(1, cancelled=True)
        assert (await end(launcher)).cancelled  # and not a success
    kept = place.admin.get(f"{applications(other_namespace)}/{order.name}")["metadata"]
    assert kept["finalizers"] == [names.FINALIZER]
    place.admin.patch(f"{applications(other_namespace)}/{order.name}", {"metadata": {"finalizers": None}})
