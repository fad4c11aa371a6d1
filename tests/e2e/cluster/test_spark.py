"""Spark on real nodes: drivers in client mode, executors that they start with rights on pods only, and their ends.

The operator is a process beside the cluster. What it may not do in pods is not tested here but by who may start them:
the namespace enforces the strictest standard, and drivers have the service account and the role of the chart.
"""

import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from opendataflow import names
from tests.e2e.cluster.real_cluster import RealCluster
from tests.e2e.cluster.times import Times
from tests.kube.conftest import Kubectl
from tests.kube.jobs import Database, dataset, documents, job
from tests.pods import pod_of
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
SPARK_PAGE = ROOT / "docs" / "how-to" / "spark.md"
SOON = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""What lets a JVM begin with less work; it would take more for a long program."""
CONF = {
    "spark.kubernetes.executor.request.cores": "100m",
    "spark.driver.extraJavaOptions": SOON,
    "spark.executor.extraJavaOptions": SOON,
}
SMALL = {"driver": {"memory": "512m"}, "executor": {"instances": 2, "memory": "512m"}, "sparkConf": CONF}
"""A driver and two executors that fit onto any machine."""


def program(name: str, source: str) -> dict[str, Any]:
    """A ConfigMap with a program."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"main.py": source}}


def mounted(name: str, **main: Any) -> dict[str, Any]:
    """A pod template that mounts the program of a ConfigMap at /programs, with a root file system that is read-only."""
    container = {
        "name": "main",
        "resources": {"requests": {"cpu": "100m"}},
        "securityContext": {"readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "program", "mountPath": "/programs"}],
        **main,
    }
    return {"spec": {"containers": [container], "volumes": [{"name": "program", "configMap": {"name": name}}]}}


def spark_job(name: str, inputs: list[str], source: str, **spec: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A ConfigMap with a program, and the job that runs it."""
    spark = {"mainApplicationFile": "/programs/main.py", **SMALL, **spec.pop("spark", {})}
    made = job(name, inputs, [], runtime={"spark": spark}, **{"podTemplate": mounted(name), **spec})
    return program(name, source), made


def runs(database: Database) -> list[dict[str, Any]]:
    return database.rows("SELECT * FROM opendataflow.run ORDER BY id")


def executors(kubectl: Kubectl) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = kubectl.json("get", "pods", f"--selector={names.LABEL_EXECUTOR_OF}")["items"]
    return found


# Programs that go well ---------------------------------------------------------------------------------------


@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("operator")
def test_the_example_runs_with_two_executors_for_each_chunk(kubectl: Kubectl, database: Database, times: Times) -> None:
    example = ROOT / "examples" / "spark-pi"
    kubectl("apply", f"--filename={example / 'program.yaml'}")
    two_shards = (example / "job.yaml").read_text("utf-8").replace("buckets: 4", "buckets: 2")
    kubectl("apply", "--filename=-", stdin=two_shards)
    wait_until(lambda: len(executors(kubectl)) == 2, "a driver has two executors", 300)
    for each in executors(kubectl):
        (owner,) = each["metadata"]["ownerReferences"]
        assert owner["name"] == each["metadata"]["labels"][names.LABEL_EXECUTOR_OF]
        assert not [mount for mount in each["spec"]["containers"][0]["volumeMounts"] if "token" in mount["name"]]
    kubectl("wait", "dfj/spark-pi", "--for=condition=Succeeded", "--timeout=1200s")
    assert [abs(run["metrics"]["pi"] - 3.1416) < 0.02 for run in runs(database)] == [True] * 2
    for pod in kubectl.json("get", "pods", f"--selector={names.LABEL_RUN}")["items"]:
        line = kubectl("logs", "--timestamps", pod["metadata"]["name"], "--container=main").splitlines()[-1]
        assert "pi is about 3.1" in line
        created = pod["metadata"]["creationTimestamp"]
        times.between("driver pod created -> first Spark job done: spark-pi", created, line.split()[0])
    wait_until(lambda: executors(kubectl) == [], "its executors are gone")


BUSY_THEN_IDLE = """
import time
from pathlib import Path

from pyspark.sql import SparkSession


def worked(number):
    time.sleep(1)
    return number % 4, 1


with SparkSession.builder.getOrCreate() as spark:
    while not Path("/tmp/enough").exists():
        spark.sparkContext.parallelize(range(9), 9).map(worked).groupByKey(4).count()
    while not Path("/tmp/end").exists():
        time.sleep(0.2)
"""


def served(port: int, question: str) -> Any:
    """What the page of a driver, or of the History Server, answers to programs; None where it does not answer yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/applications{question}", timeout=10) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refused:
        refused.close()
        return None
    except (OSError, ValueError):  # a driver that starts has a page for people only
        return None


@pytest.mark.usefixtures("operator")
def test_executors_come_and_go_with_the_work_as_the_driver_s_page_and_its_log_of_events_show(
    cluster: RealCluster, kubectl: Kubectl, database: Database, spark_image: str
) -> None:
    soon = {f"spark.dynamicAllocation.{name}": "15s" for name in ("executorIdleTimeout", "shuffleTracking.timeout")}
    events = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": "file:///events"}
    config, grows = spark_job(
        "grows",
        ["raw"],
        BUSY_THEN_IDLE,
        spark={
            "executor": {"memory": "512m"},
            "dynamicAllocation": {"min": 1, "max": 3},
            "sparkConf": {**CONF, **soon, **events},
        },
    )
    template = grows["spec"]["podTemplate"]["spec"]
    template["securityContext"] = {"fsGroup": 185}
    template["containers"][0]["volumeMounts"].append({"name": "events", "mountPath": "/events"})
    template["volumes"].append({"name": "events", "persistentVolumeClaim": {"claimName": "spark-events"}})
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Mi"}}}
    made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "spark-events"}, "spec": claim}
    kubectl("apply", "--filename=-", stdin=documents(made, config, dataset("raw", 1), grows))
    wait_until(lambda: database.states("grows")["RUNNING"] == 1, "it runs", 300)
    driver = pod_of(runs(database)[0])
    wait_until(lambda: executors(kubectl) != [], "it has an executor, and so its page", 300)

    def active(port: int) -> int:
        return len([found for found in served(port, f"/{driver}/executors") or () if found["id"] != "driver"])

    def inside(file: str) -> None:
        kubectl("exec", driver, "--container=main", "--", "touch", file)

    with cluster.forwarded(kubectl.namespace, driver, 4040) as page:
        wait_until(lambda: active(page) == 3, "there are as many as there may be", 300)
        inside("/tmp/enough")
        wait_until(lambda: active(page) == 1, "there is the one that always is", 300)
    wait_until(lambda: len(executors(kubectl)) == 1, "the others' pods are gone", 300)
    inside("/tmp/end")
    wait_until(lambda: database.states("grows")["DONE"] == 1, "it is done", 300)
    wait_until(lambda: executors(kubectl) == [], "its last executor is gone")

    history = re.search(r"```yaml\n(apiVersion: v1\nkind: Pod\n.*?)```", SPARK_PAGE.read_text("utf-8"), re.DOTALL)
    assert history
    kubectl("apply", "--filename=-", stdin=history[1].replace("opendataflow/spark:0.1.0", spark_image))
    kubectl("wait", "pod/spark-history", "--for=condition=Ready", "--timeout=300s")
    with cluster.forwarded(kubectl.namespace, "spark-history", 18080) as page:
        wait_until(lambda: bool(served(page, f"/{driver}")), "the History Server shows the run", 300)
        assert {"driver", "1", "2", "3"} <= {found["id"] for found in served(page, f"/{driver}/allexecutors")}


# Programs that don't -----------------------------------------------------------------------------------------

WAITS = """
from pyspark.sql import SparkSession
with SparkSession.builder.getOrCreate() as spark:
    print(spark.range(100).count())
"""


@pytest.mark.usefixtures("operator")
def test_a_driver_without_executors_ends_with_the_reason(kubectl: Kubectl, database: Database) -> None:
    huge = {
        **SMALL,
        "executor": {"instances": 1, "cores": 1},
        "sparkConf": {"spark.kubernetes.executor.request.cores": "900"},
    }
    config, waits = spark_job(
        "waits", ["raw"], WAITS, spark=huge, startDeadline="30s", retry={"limit": 0, "infrastructureLimit": 0}
    )
    kubectl("apply", "--filename=-", stdin=documents(config, dataset("raw", 1), waits))
    wait_until(lambda: database.states("waits")["FAILED"] == 1, "it has failed", 300)
    (run,) = runs(database)
    assert run["failure_class"] == "Infrastructure"
    assert re.match(
        r"no executor .* 30 s: waits-r\d+-[0-9a-f]{6}-exec-1 is unschedulable: .*Insufficient cpu", run["message"]
    )


@pytest.mark.usefixtures("operator")
def test_the_exit_code_of_a_program_and_its_last_words_reach_the_status(kubectl: Kubectl, database: Database) -> None:
    exits = "import sys\nprint('row 7 is wrong', file=sys.stderr)\nsys.exit(3)"
    alone = {"spark": {"executor": {"instances": 0}}, "retry": {"limit": 0}}
    config, fails = spark_job("fails", ["raw"], exits, **alone)
    kubectl("apply", "--filename=-", stdin=documents(config, dataset("raw", 1), fails))
    wait_until(lambda: database.states("fails")["FAILED"] == 1, "it has failed", 300)
    (run,) = runs(database)
    assert (run["failure_class"], run["exit_code"]) == ("Application", 3)
    assert "row 7 is wrong" in run["log_tail"]


def test_the_program_of_the_example_is_the_one_that_pods_mount() -> None:
    example = ROOT / "examples" / "spark-pi"
    mounted = yaml.safe_load((example / "program.yaml").read_text("utf-8"))
    assert mounted["data"]["pi.py"] == (example / "pi.py").read_text("utf-8")
    assert json.dumps(mounted)
