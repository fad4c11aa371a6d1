"""A Spark driver that is deleted by force takes its executors along, and its chunk is done again."""

import pytest

from opendataflow.names import LABEL_EXECUTOR_OF
from tests.e2e.cluster.faults.flows import AT_ONCE, is_right
from tests.e2e.cluster.faults.installation import SECONDS
from tests.e2e.cluster.test_spark import spark_job
from tests.kube.cluster.api import Object
from tests.kube.cluster.pods import state
from tests.kube.conftest import Kubectl
from tests.kube.jobs import dataset
from tests.kube.scene import Flows
from tests.waiting import wait_until

FIRST_STAYS = """
import os
import time

from pyspark.sql import SparkSession

with SparkSession.builder.getOrCreate() as spark:
    print(spark.range(100).count())
    if os.environ["DATAFLOW_ATTEMPT"] == "1":
        time.sleep(3600)
"""


def executors(flows: Flows, driver: str) -> list[Object]:
    return flows.api.items(f"/api/v1/namespaces/{flows.namespace}/pods?labelSelector={LABEL_EXECUTOR_OF}={driver}")


@pytest.mark.timeout(1200)
def test_a_driver_that_is_deleted_by_force_takes_its_executors_along_and_its_chunk_is_done_again(
    here: Flows, spark_image: str
) -> None:
    spark = {"image": spark_image, "executor": {"instances": 1, "memory": "512m"}}
    config, driven = spark_job("driven", ["driven-in"], FIRST_STAYS, spark=spark, **AT_ONCE)
    here.apply(config, dataset("driven-in", 1), driven)
    (driver,) = here.running("driven", 1, SECONDS)

    def runs() -> bool:
        return any("running" in state(pod) for pod in executors(here, driver))

    wait_until(runs, "it has an executor", SECONDS)
    kubectl = Kubectl(here.api, here.namespace)
    kubectl("delete", "pod", driver, "--grace-period=0", "--force", "--wait=false")
    wait_until(lambda: executors(here, driver) == [], "its executor is gone", SECONDS)
    here.until_done("driven", 1, 2 * SECONDS)
    assert here.classes("driven") == ["Infrastructure", None]
    is_right(here)
