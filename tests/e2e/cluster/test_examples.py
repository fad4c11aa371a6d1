"""The examples on real nodes: each step of their READMEs, by one operator that the chart has installed."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyarrow import parquet

import prepare
from opendataflow import names
from tests.e2e.cluster.conftest import left_out_when_unavailable
from tests.e2e.cluster.installing import RELEASE, STRICT, image_values, install, uninstall
from tests.e2e.cluster.readme import Reader
from tests.e2e.cluster.real_cluster import RealCluster
from tests.e2e.cluster.times import Times
from tests.kube.conftest import Kubectl, fresh_namespace
from tests.kube.jobs import documents
from tests.pods import pod_of
from tests.share import in_share, soaked
from tests.waiting import wait_until

EXAMPLES = Path(__file__).parents[3] / "examples"
MONTHS = prepare.MONTHS[soaked(6, 0) :]
"""Of three pods each: half of the year is enough in every run. September, with its bad row, is among them."""


@dataclass(frozen=True)
class Installed:
    """An operator in a namespace in which only restricted pods may run, and questions to its database."""

    cluster: RealCluster
    namespace: str
    kubectl: Kubectl

    def rows(self, query: str) -> list[dict[str, Any]]:
        """The rows of a query."""
        pod = f"{RELEASE}-postgres-0"
        rows = f"SELECT coalesce(json_agg(found), '[]') FROM ({query}) found"
        asked = ("exec", pod, "--container=postgres", "--", "psql", "-U", "dataflow", "-d", "dataflow", "-Atqc", rows)
        found: list[dict[str, Any]] = json.loads(self.kubectl(*asked))
        return found

    def runs(self, job: str) -> list[dict[str, Any]]:
        """The runs of a job."""
        return self.rows(f"SELECT * FROM opendataflow.run WHERE opendataflow.bare_id(job) = '{job}' ORDER BY id")

    def now(self) -> str:
        """The time of the database."""
        return str(self.rows("SELECT clock_timestamp() AS now")[0]["now"])


@pytest.fixture(scope="module")
def installed(cluster: RealCluster) -> Iterator[Installed]:
    """One installation for all examples."""
    with left_out_when_unavailable():
        spark = image_values(cluster, spark_image="spark")
    for namespace in fresh_namespace(cluster.api):
        cluster.namespaces = [namespace]
        cluster.api.patch(f"/api/v1/namespaces/{namespace}", STRICT)
        install(cluster, namespace, "--set=rbac.aggregate=false", *spark)
        yield Installed(cluster, namespace, Kubectl(cluster.api, namespace))
        uninstall(cluster, namespace)


Example = Callable[[str, str], tuple[Path, Reader]]


@pytest.fixture
def example(installed: Installed, tmp_path: Path) -> Example:
    """Makes a copy of an example, whose pods have the images of this cluster, and somebody who follows its README."""

    def made(name: str, heading: str) -> tuple[Path, Reader]:
        skipped = shutil.ignore_patterns("data", "__pycache__")
        folder = Path(shutil.copytree(EXAMPLES / name, tmp_path / name, ignore=skipped))
        for file in folder.rglob("*.yaml"):
            text = file.read_text("utf-8")
            for theirs, ours in (("opendataflow/spark:0.1.0", "spark"), ("postgres:17", "postgres")):
                if theirs in text:
                    text = text.replace(theirs, installed.cluster.image(ours))
            file.write_text(text, "utf-8")
        if name == "flights":
            change(folder / "job.yaml", f'from: "{prepare.MONTHS[0]}-01"', f'from: "{MONTHS[0]}-01"')
            done = "'{.status.counts.done}'="
            change(folder / "README.md", f"{done}{len(prepare.MONTHS) - 1}", f"{done}{len(MONTHS) - 1}")
        return folder, Reader(folder, heading, installed.cluster, installed.namespace, tmp_path)

    return made


# Flights -----------------------------------------------------------------------------------------------------

WATCHED = """
              spark.eventLog.enabled: "true"
              spark.eventLog.dir: file:///opt/opendataflow/work/data/events
              spark.eventLog.rolling.enabled: "false"
              spark.eventLog.compress: "false"
              spark.scheduler.maxRegisteredResourcesWaitingTime: 10m
"""
"""So that Spark notes who did what, and does not begin before both executors are there, however busy the node is."""

LOCALLY = """
import sys
from pathlib import Path
import delays, report
from context import Chunk

data, results = map(Path, sys.argv[1:3])
folders = {"flights": data / "flights", **{name: results / name for name in ("carrier_delays", "delay_report")}}
for month in sys.argv[3:]:
    chunk = Chunk(month, 1, folders)
    delays.process(chunk)
    report.process(chunk, data / "airlines.csv")
"""
"""The programs without a cluster: in one process, so that there is one JVM for all months."""


@in_share(1)
@pytest.mark.timeout(2400, func_only=True)
def test_flights_run_as_drivers_with_two_executors_and_give_what_they_give_locally(
    installed: Installed, example: Example, times: Times
) -> None:
    folder, reader = example("flights", "On Kubernetes")
    note_events(folder / "kustomization.yaml")
    reader.does("python prepare.py")
    installed.kubectl("exec", "flights-data", "--", "mkdir", "/data/events")
    with watched_pods(installed) as seen:
        reader.does("kubectl apply -k .")
        down, up = scale_down_and_up(installed, reader)
        assert "2013-09.csv, line" in (output := reader.does("kubectl wait")), output
        assert "1 chunk (2013-09): input carrier_delays is" in output
        reader.does("python prepare.py repair")
    reader.does("kubectl cp flights-data:/data/results")
    installed.kubectl("cp", "flights-data:/data/events", str(folder / "events"))

    runs = installed.runs("delays")
    failed = [(run["data_id"], run["failure_class"]) for run in runs if run["state"] != "SUCCEEDED"]
    assert failed == [("2013-09", "Application")] * 2
    assert sorted(run["data_id"] for run in runs if run["state"] == "SUCCEEDED") == list(MONTHS)
    at_a_time = [(run["claimed_at"], sum(overlaps(other, run["claimed_at"]) for other in runs)) for run in runs]
    assert max(number for _, number in at_a_time) == 3
    assert {number for when, number in at_a_time if down < when < up} == {1}, "more than one run was started"
    assert max(number for when, number in at_a_time if when > up) == 3, "not more were started again"

    for run in runs:
        driver = pod_of(run)
        assert len(seen.executors[driver]) == 2, f"{driver}: {seen.executors[driver]}"
        events = [json.loads(line) for line in (folder / "events" / driver).read_text("utf-8").splitlines()]
        assert {event["Task Info"]["Executor ID"] for event in events if "Task Info" in event} == {"1", "2"}
        ended = [event["Completion Time"] for event in events if event["Event"] == "SparkListenerJobEnd"]
        first = datetime.fromtimestamp(min(ended) / 1000, UTC).isoformat()
        times.between("driver pod created -> first Spark job done: flights", seen.drivers[driver], first)
    wait_until(lambda: executors(installed) == [], "the executors are gone", 300)

    assert results(folder / "data" / "from-kubernetes") == results(run_locally(folder))
    reader.does("kubectl delete -k .")


def note_events(kustomization: Path) -> None:
    """Add settings to the job `delays`."""
    anchor = "\n              spark.kubernetes.executor.request.cores: 50m\n"
    change(kustomization, anchor, WATCHED + anchor.lstrip("\n"))


def change(file: Path, old: str, new: str) -> None:
    """Replace something in a file of an example, where it stands once."""
    text = file.read_text("utf-8")
    assert text.count(old) == 1
    file.write_text(text.replace(old, new), "utf-8")


def scale_down_and_up(installed: Installed, reader: Reader) -> tuple[str, str]:
    """From 3 to 1 while three run, to 3 again when another one runs; return from when on, and until when, it was 1."""
    installed.kubectl("wait", "dfj/delays", "--for=jsonpath={.status.counts.running}=3", "--timeout=300s")
    wait_until(lambda: len(executors(installed)) == 6, "three drivers have two executors each", 300, every=1)
    reader.does("kubectl get dfj")
    reader.does("kubectl scale")
    generation = installed.kubectl("get", "dfj/delays", "--output=jsonpath={.metadata.generation}")
    observed = f"--for=jsonpath={{.status.observedGeneration}}={generation}"
    installed.kubectl("wait", "dfj/delays", observed, "--timeout=300s")
    down = installed.now()
    wait_until(lambda: installed.runs("delays")[-1]["claimed_at"] > down, "another one runs", 900, every=2)
    up = installed.now()
    reader.does("kubectl scale")
    return down, up


CHATTY = """
import os

from pyspark.sql import functions as F


@F.udf("string")
def looked_at(number, note):
    if number == 7:
        print("looked at", number, "on", os.uname().nodename)
    return note


def run(df):
    return df.withColumn("note", looked_at("id", "note"))
"""


def copied_by_executors(installed: Installed, folder: Path) -> None:
    """The same pipeline with an executor, into a table of its own: the rows are there, and what a step prints on the
    executor is reported with the step."""
    old, new, job = yaml.safe_load_all((folder / "cluster.yaml").read_text("utf-8"))
    for resource, named in ((old, "first_orders"), (new, "copied_orders")):
        resource["metadata"]["name"], resource["spec"]["id"] = named.replace("_", "-"), named
    old["spec"]["chunkSource"]["range"]["to"] = 50001
    job["metadata"]["name"] = "by-executors"
    job["spec"] |= {"inputs": ["first_orders"], "outputs": ["copied_orders"]}
    job["spec"]["runtime"]["pipeline"] |= {
        "project": {"configMap": "by-executors"},
        "executor": {"instances": 1, "cores": 1, "memory": "512m"},
    }
    project = (folder / "project.yml").read_text("utf-8")
    for theirs, ours in (("old_orders", "first_orders"), ("new_orders", "copied_orders")):
        project = project.replace(theirs, ours)
    project = "copied".join(project.rsplit("orders", 1))  # the table of the destination
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "by-executors"},
        "data": {"project.yml": project, "empty_notes.py": CHATTY},
    }
    installed.kubectl("apply", "--filename=-", stdin=documents(config, old, new, job))
    installed.kubectl("wait", "--for=condition=Succeeded", "--timeout=15m", "dfj/by-executors")
    run = installed.runs("by-executors")[-1]  # one that lost a pod is tried again
    assert (run["state"], run["metrics"]["rows"]) == ("SUCCEEDED", 50000)
    (printed,) = installed.rows(
        f"SELECT stdout FROM opendataflow.step WHERE run = {run['id']} AND name = 'empty_notes'"
    )
    assert re.fullmatch(r"looked at 7 on by-executors-\S+-exec-1\n", printed["stdout"])
    assert (
        installed.kubectl("exec", "new-db", "--", "psql", "-U", "shop", "-Atc", "SELECT count(*) FROM copied")
        == "50000\n"
    )
    installed.kubectl("delete", "--filename=-", stdin=documents(job, new, old, config))


def overlaps(run: dict[str, Any], moment: str) -> bool:
    """Whether a run was alive at a moment."""
    return bool(run["claimed_at"] <= moment and (run["finished_at"] is None or moment < run["finished_at"]))


@dataclass(frozen=True)
class SeenPods:
    """Pods that were there at some time: drivers with the time of their creation, executors by the name of theirs."""

    drivers: dict[str, str]
    executors: dict[str, set[str]]


@contextmanager
def watched_pods(installed: Installed) -> Iterator[SeenPods]:
    """Watch the pods of a namespace; what was seen is known at the end."""
    label = names.LABEL_EXECUTOR_OF.replace(".", r"\.")
    columns = f"--output=custom-columns=:.metadata.name,:.metadata.creationTimestamp,:.metadata.labels.{label}"
    command = [str(installed.cluster.kubectl_program), f"--kubeconfig={installed.cluster.api.kubeconfig}"]
    command += [f"--namespace={installed.namespace}", "get", "pods", "--watch", "--no-headers", columns]
    seen = SeenPods({}, defaultdict(set))
    with tempfile.TemporaryFile("w+") as output:  # a pipe that nobody reads would be full in the end
        with subprocess.Popen(command, stdout=output) as watching:
            try:
                yield seen
            finally:
                watching.terminate()
        output.seek(0)
        for name, created, driver in map(str.split, output):
            seen.drivers[name] = created
            seen.executors[driver].add(name)


def executors(installed: Installed) -> list[str]:
    """The names of the executor pods that are there."""
    return installed.kubectl("get", "pods", f"--selector={names.LABEL_EXECUTOR_OF}", "--output=name").split()


def run_locally(folder: Path) -> Path:
    """Do all months without a cluster; return the folder with the results."""
    done = subprocess.run(
        [sys.executable, "-c", LOCALLY, "data", "data/local", *MONTHS],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder / "data" / "local"


def results(folder: Path) -> dict[str, list[Any]]:
    """What is in both data sets, by the names of their partitions: rows in an order of their own, lines of texts."""
    found: dict[str, list[Any]] = defaultdict(list)
    for month in MONTHS:
        delays, report = (folder / name / f"month={month}" for name in ("carrier_delays", "delay_report"))
        for file in delays.glob("*.parquet"):
            found[f"delays {month}"] += parquet.ParquetFile(file).read().to_pylist()
        found[f"delays {month}"].sort(key=lambda row: (row["day"], row["carrier"]))
        found[f"report {month}"] = [
            line for file in sorted(report.glob("*.*")) for line in file.read_text().splitlines()
        ]
        assert len(found[f"delays {month}"]) > 300
        assert found[f"report {month}"]
    return found


# A migration -------------------------------------------------------------------------------------------------


@in_share(2)
@pytest.mark.timeout(2400, func_only=True)
def test_a_table_moves_to_another_postgres_by_chunks_which_can_be_done_again(
    installed: Installed, example: Example
) -> None:
    _, reader = example("migration", "On Kubernetes")
    reader.does("kubectl apply -f databases.yaml")
    reader.does("kubectl create secret")
    reader.does("kubectl apply -k .")
    old, new = reader.does("kubectl exec old-db").splitlines()
    assert old == new
    assert new.startswith("300000|")
    assert reader.does("kubectl exec old-db -- psql -q").splitlines()[-1] == "300000|paid"
    runs = installed.runs("migrate-orders")
    assert [run["state"] for run in runs] == ["SUCCEEDED"] * 7
    assert [run["metrics"]["rows"] for run in runs] == [50000] * 7
    assert max(sum(overlaps(other, run["claimed_at"]) for other in runs) for run in runs) == 3
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
    found = installed.kubectl("exec", "new-db", "--", "psql", "-U", "shop", "-Atc", tables).split()
    assert found == ["opendataflow_chunk", "orders"], "a staging table is left"
    copied_by_executors(installed, EXAMPLES / "migration")
    reader.does("kubectl delete -k .")
