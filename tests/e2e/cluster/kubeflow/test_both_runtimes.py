"""The same program, once as a Spark driver of ours and once as a SparkApplication: it sees the same, and ends the same.

Seen at others: variables and Secrets that reach a driver only with a webhook; a Spark operator that starts a failed
driver again, beside the scheduler that tries the task again.
"""

import hashlib
import json
from typing import Any

import pyspark
import pytest

from opendataflow import names
from opendataflow.keys import bare
from tests.e2e.cluster.kubeflow.spark_operator import SparkOperator
from tests.e2e.cluster.real_cluster import RealCluster
from tests.e2e.cluster.test_spark import CONF, mounted, program, runs
from tests.kube.cluster.pods import state
from tests.kube.conftest import Kubectl
from tests.kube.jobs import Database, action, dataset, documents, job
from tests.waiting import wait_until

RUNTIMES = ("spark", "sparkApplication")
SECONDS = 400
PASSWORD = "s3cret-of-nobody"
ONCE = {"limit": 0, "infrastructureLimit": 0}
MEMORY = {"memory": "512m"}
RIGHTS = {
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
}
"""The service account of drivers may do nothing but with pods."""

SEES = """
import hashlib
import json
import os
from pathlib import Path

from pyspark.sql import SparkSession

NAMES = ("dataid", "DATAFLOW_DATA_ID", "DATAFLOW_RUN_ID", "DATAFLOW_FENCE", "MODE", "raw_password")


def digest(content):
    return hashlib.sha256(content).hexdigest()


def seen(_):
    found = {name: os.environ.get(name) for name in NAMES}
    found["raw_password"] = digest(found["raw_password"].encode())
    return {**found, "context": digest(Path(os.environ["DATAFLOW_CONTEXT"]).read_bytes())}


with SparkSession.builder.getOrCreate() as spark:
    (worker,) = spark.sparkContext.parallelize([1], 1).map(seen).collect()
context = json.loads(Path(os.environ["DATAFLOW_CONTEXT"]).read_text())
report = {"rows": 1, "driver": seen(0), "worker": worker, "context": sorted(context)}
Path("/dev/termination-log").write_text(json.dumps(report))
"""


def role(container: str, name: str, **more: Any) -> dict[str, Any]:
    """A role of a SparkApplication whose pods have the program, and what the strictest standard wants."""
    template = mounted(name)
    (main,) = template["spec"]["containers"]
    main["name"] = container
    del main["securityContext"]
    return {"template": template, "coreRequest": "100m", **MEMORY, **more}


def application(name: str, image: str) -> dict[str, Any]:
    """The runtime of a job whose runs are SparkApplications."""
    account = {"serviceAccount": "opendataflow-spark"}
    spec = {
        "type": "Python",
        "sparkVersion": pyspark.__version__,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "mainApplicationFile": "local:///programs/main.py",
        "sparkConf": {**CONF, **RIGHTS},
        "driver": role("spark-kubernetes-driver", name, **account),
        "executor": role("spark-kubernetes-executor", name, instances=1),
    }
    return {"runtime": {"sparkApplication": {"template": {"spec": spec}}}}


def driver(name: str, image: str) -> dict[str, Any]:
    """The runtime of a job whose runs are drivers that our operator starts."""
    spark = {
        "image": image,
        "mainApplicationFile": "/programs/main.py",
        "driver": MEMORY,
        "executor": {"instances": 1, **MEMORY},
        "sparkConf": CONF,
    }
    return {"runtime": {"spark": spark}, "podTemplate": mounted(name)}


def resources(runtime: str, name: str, source: str, image: str, *, chunks: int = 1, **spec: Any) -> str:
    """A ConfigMap with a program, its input and its output, and the job, whose runtime is of a kind."""
    how = driver(name, image) if runtime == "spark" else application(name, image)
    raw = dataset(f"{name}-in", chunks, credentials={"secretRef": {"name": "db", "key": "password"}})
    made = job(name, [f"{name}-in"], [f"{name}-out"], env={"MODE": "full"}, **{**how, **spec})
    if runtime == "sparkApplication":
        del made["spec"]["podTemplate"]
    return documents(
        program(name, source.replace("raw_password", f"{name}_in_password")), raw, dataset(f"{name}-out"), made
    )


@pytest.fixture
def secret(kubectl: Kubectl) -> None:
    """The Secret of the input."""
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"}, "stringData": {"password": PASSWORD}}
    kubectl("apply", "--filename=-", stdin=json.dumps(made))


@pytest.mark.usefixtures("operator", "submitting", "secret")
def test_driver_and_workers_see_the_chunk_and_its_secrets_in_both_runtimes(
    kubectl: Kubectl, database: Database, spark_image: str
) -> None:
    for runtime in RUNTIMES:
        name = runtime.lower()
        kubectl("apply", "--filename=-", stdin=resources(runtime, name, SEES, spark_image, retry=ONCE))
    wait_until(lambda: all(database.states(each.lower())["DONE"] == 1 for each in RUNTIMES), "both are done", SECONDS)
    contexts = []
    for run in runs(database):
        report, name = run["metrics"], bare(run["job"])
        expected = {
            "dataid": "0-0",
            "DATAFLOW_DATA_ID": "0-0",
            "DATAFLOW_RUN_ID": str(run["id"]),
            "DATAFLOW_FENCE": str(run["fence"]),
            "MODE": "full",
            f"{name}_in_password": hashlib.sha256(PASSWORD.encode()).hexdigest(),
        }
        assert report["driver"] == report["worker"] == {**expected, "context": report["driver"]["context"]}
        contexts.append(report["context"])
    assert contexts[0] == contexts[1]
    written = kubectl("get", "sparkapplications,pods,configmaps", "--output=json")
    assert PASSWORD not in written


def working(kubectl: Kubectl) -> list[str]:
    """The drivers whose container runs."""
    found = kubectl.json("get", "pods", f"--selector={names.LABEL_RUN}")["items"]
    alive = [pod for pod in found if "running" in state(pod) and "deletionTimestamp" not in pod["metadata"]]
    return [pod["metadata"]["name"] for pod in alive]


ENDS = """
import os
import sys
import time

if int(os.environ["DATAFLOW_RUN_ID"]) > 6:  # it was asked for again
    sys.exit(0)
held = []
match os.environ["dataid"]:
    case "0-0":
        sys.exit(3)
    case "1-1":
        while True:
            held.append(b"x" * 10_000_000)
time.sleep(3600)
"""


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("operator", "submitting", "secret")
def test_failures_are_classified_alike_and_tried_by_nobody_else_and_a_resubmit_makes_them_good(
    kubectl: Kubectl, database: Database, spark_image: str
) -> None:
    jobs = [runtime.lower() for runtime in RUNTIMES]
    for runtime in RUNTIMES:
        made = resources(runtime, runtime.lower(), ENDS, spark_image, chunks=3, retry=ONCE)
        kubectl("apply", "--filename=-", stdin=made)
    wait_until(lambda: all(database.states(each)["FAILED"] == 2 for each in jobs), "two chunks of each fail", SECONDS)
    wait_until(lambda: len(working(kubectl)) == 2, "the third ones run", SECONDS)
    for pod in working(kubectl):
        kubectl("delete", "pod", pod, "--wait=false")
    wait_until(lambda: all(database.states(each)["FAILED"] == 3 for each in jobs), "the third ones, too", SECONDS)
    ended = {(bare(run["job"]), run["data_id"]): (run["failure_class"], run["exit_code"]) for run in runs(database)}
    assert ended == {
        (each, data_id): end
        for each in jobs
        for data_id, end in {
            "0-0": ("Application", 3),
            "1-1": ("OOMKilled", 137),
            "2-2": ("Infrastructure", 143),
        }.items()
    }
    for each in jobs:
        again = action(f"again-{each}", action="resubmit", job=each, chunks=["0-0", "1-1", "2-2"], reason="repaired")
        kubectl("apply", "--filename=-", stdin=documents(again))
    wait_until(lambda: all(database.states(each)["DONE"] == 3 for each in jobs), "all are done", SECONDS)
    assert len(runs(database)) == 12


WAITS = """
import time
from pathlib import Path

while not Path("/tmp/end").exists():
    time.sleep(0.2)
"""


@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("operator", "submitting", "secret")
@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_job_is_scaled_from_one_to_three_and_back(
    kubectl: Kubectl, database: Database, spark_image: str, runtime: str
) -> None:
    name = runtime.lower()
    made = resources(runtime, name, WAITS, spark_image, chunks=5, parallelism=1)
    kubectl("apply", "--filename=-", stdin=made)

    def scale(number: int) -> None:
        kubectl("patch", f"dfj/{name}", "--type=merge", f'--patch={{"spec": {{"parallelism": {number}}}}}')

    def is_taken_over() -> bool:
        found = kubectl.json("get", f"dfj/{name}")
        return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

    wait_until(lambda: len(working(kubectl)) == 1, "one runs", SECONDS)
    scale(3)
    wait_until(lambda: len(working(kubectl)) == 3, "three run", SECONDS)
    assert database.states(name)["RUNNING"] == 3
    scale(1)
    wait_until(is_taken_over, "the change is taken over", SECONDS)
    container = "spark-kubernetes-driver" if runtime == "sparkApplication" else "main"
    for pod in working(kubectl):
        kubectl("exec", pod, f"--container={container}", "--", "touch", "/tmp/end")
    wait_until(lambda: database.states(name)["DONE"] == 3, "the three are done", SECONDS)
    wait_until(lambda: len(working(kubectl)) == 1, "one runs", SECONDS)
    assert database.states(name)["RUNNING"] == 1


@pytest.mark.usefixtures("operator", "submitting", "secret")
def test_an_image_that_can_not_be_pulled_is_named_in_both_runtimes(kubectl: Kubectl, database: Database) -> None:
    for runtime in RUNTIMES:
        made = resources(runtime, runtime.lower(), WAITS, "local/nowhere:1", retry=ONCE, startDeadline="20s")
        kubectl("apply", "--filename=-", stdin=made)
    wait_until(lambda: all(database.states(each.lower())["FAILED"] == 1 for each in RUNTIMES), "both fail", SECONDS)
    ended = {bare(run["job"]): run for run in runs(database)}
    assert {run["failure_class"] for run in ended.values()} == {"Infrastructure"}
    assert all("local/nowhere:1" in run["message"] for run in ended.values()), ended


@pytest.mark.usefixtures("operator", "secret")
def test_a_spark_operator_that_is_restarted_loses_no_run(
    spark_operator: SparkOperator, cluster: RealCluster, kubectl: Kubectl, database: Database, spark_image: str
) -> None:
    spark_operator.install(cluster.api)
    made = resources("sparkApplication", "both", WAITS, spark_image, chunks=2, parallelism=1, retry=ONCE)

    def end_one() -> None:
        wait_until(lambda: len(working(kubectl)) == 1, "a driver runs", SECONDS)
        kubectl("exec", working(kubectl)[0], "--container=spark-kubernetes-driver", "--", "touch", "/tmp/end")

    with spark_operator.operating(cluster.api, kubectl.namespace):
        kubectl("apply", "--filename=-", stdin=made)
        wait_until(lambda: len(working(kubectl)) == 1, "a driver runs", SECONDS)
    end_one()
    wait_until(lambda: database.states("both")["DONE"] == 1, "its end is seen without the Spark operator", SECONDS)
    wait_until(lambda: database.states("both")["RUNNING"] == 1, "the next run waits for it", SECONDS)
    with spark_operator.operating(cluster.api, kubectl.namespace):
        end_one()
        wait_until(lambda: database.states("both")["DONE"] == 2, "both are done", SECONDS)
    assert [run["attempt"] for run in runs(database)] == [1, 1]
