"""Spark on real nodes: drivers in client mode, executors that they start with rights on pods only, and their ends.

The operator is a process beside the cluster. What it may not do in pods is not tested here but by who may start them:
the namespace enforces the strictest standard, and drivers have the service account and the role of the chart.
"""

import asyncio
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from opendataflow import names
from opendataflow.crypto.sealed import seal
from tests.e2e.cluster.times import Times
from tests.kube.cluster.processes import wait_until
from tests.kube.conftest import Kubectl
from tests.kube.jobs import Database, dataset, documents, job

ROOT = Path(__file__).parents[3]
PASSKEY = "correct horse battery staple"
SMALL = {
    "driver": {"memory": "512m"},
    "executor": {"instances": 2, "memory": "512m"},
    "sparkConf": {"spark.kubernetes.executor.request.cores": "100m"},
}
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
    wait_until(lambda: executors(kubectl) == [], "its executors are gone", 60)


JDBC = """
import os

from pyspark.sql import SparkSession

SECRETS = ("in_password", "out_password")


def told(_):
    return [[os.environ[name] for name in (*SECRETS, "dataid", "DATAFLOW_RUN_ID", "CRASH")]]


with SparkSession.builder.getOrCreate() as spark:
    here = told(None)[0]
    there = spark.sparkContext.parallelize(range(4), 4).mapPartitions(told).collect()
    assert all(found == here for found in there), "an executor sees something else"
    url = f"jdbc:postgresql://{os.environ['in_hostname']}/{os.environ['in_database']}"
    reading = {"user": os.environ["in_username"], "password": os.environ["in_password"]}
    part = {"column": "id", "lowerBound": 0, "upperBound": 1000, "numPartitions": 4}
    rows = spark.read.jdbc(url, os.environ["in_tablename"], **part, properties=reading)
    writing = {"user": os.environ["out_username"], "password": os.environ["out_password"]}
    rows.selectExpr("id * 2 AS id").write.jdbc(url, os.environ["out_tablename"], "append", writing)
"""


@contextmanager
def forwarded(to: tuple[str, int], host: str) -> Iterator[int]:
    """Take connections at a port of this address and hand them on; yields the port."""

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                target.write(data)
                await target.drain()
        target.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*to)
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async def serve() -> None:
        stop = asyncio.Event()
        async with await asyncio.start_server(accept, host, 0) as server:
            ready.set_result((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), stop))
            await stop.wait()

    ready: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    port, loop, stop = ready.result()
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()


def own_address() -> str:
    """An address of this machine that pods can reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as anywhere:
        anywhere.connect(("192.0.2.1", 9))  # nothing is sent
        return str(anywhere.getsockname()[0])


@pytest.fixture
def source(dsn: str) -> Iterator[dict[str, Any]]:
    """Tables in a Postgres, with a reader and a writer who have passwords of their own, as data sets tell of them."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA shop")
        connection.execute("CREATE TABLE shop.raw AS SELECT id FROM generate_series(1, 1000) id")
        connection.execute("CREATE TABLE shop.clean (id bigint)")
        for role, password, right in (
            ("reader", "read it $(X)'", "SELECT ON shop.raw"),
            ("writer", "w$$rite", "ALL ON shop.clean"),
        ):
            connection.execute(f"DROP ROLE IF EXISTS {role}")
            quoted = password.replace("'", "''")
            connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{quoted}'")
            connection.execute(f"GRANT {right} TO {role}")
            connection.execute(f"GRANT USAGE ON SCHEMA shop TO {role}")
        parts = conninfo_to_dict(dsn)
        host = own_address()
        with forwarded(("127.0.0.1", int(str(parts["port"]))), host) as port:
            yield {"kind": "postgres", "hostname": f"{host}:{port}", "database": parts["dbname"]}
        for role in ("reader", "writer"):
            connection.execute(f"DROP OWNED BY {role}")
            connection.execute(f"DROP ROLE {role}")


@pytest.mark.usefixtures("operator")
def test_executors_read_and_write_with_both_kinds_of_passwords(
    kubectl: Kubectl, database: Database, source: dict[str, Any]
) -> None:
    kubectl("create", "secret", "generic", "reader", "--from-literal=password=read it $(X)'")
    kubectl("create", "secret", "generic", "keys", f"--from-literal=passkey={PASSKEY}")
    config, load = spark_job("load", ["in"], JDBC, env={"CRASH": "$(dataid) $$ 'x'"})
    load["spec"]["outputs"] = ["out"]
    reads = {"credentials": {"secretRef": {"name": "reader", "key": "password"}}}
    sealed = {
        "encryptedPassword": seal("w$$rite", PASSKEY, salt=os.urandom(16), nonce=os.urandom(12)),
        "passkeySecretRef": {"name": "keys", "key": "passkey"},
    }
    kubectl(
        "apply",
        "--filename=-",
        stdin=documents(
            config,
            dataset("in", 1, location={**source, "tablename": "shop.raw", "username": "reader"}, **reads),
            dataset("out", location={**source, "tablename": "shop.clean", "username": "writer"}, credentials=sealed),
            load,
        ),
    )
    seen: list[str] = []

    def done() -> bool:
        seen.append(kubectl("get", "pods", "--output=yaml"))
        return database.states("load")["DONE"] == 1 or bool(database.states("load")["FAILED"])

    wait_until(done, "the chunk is loaded", 600)
    assert database.states("load") == {"DONE": 1}, runs(database)[-1]
    (found,) = database.rows("SELECT count(*) AS rows, sum(id) AS sum FROM shop.clean")
    assert found == {"rows": 1000, "sum": 1001000}
    assert any(names.LABEL_EXECUTOR_OF in text for text in seen)
    assert not any(secret in text for text in seen for secret in ("read it", "w$$rite", "w$$$$rite", PASSKEY))


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
        r"no executor has come up within 30 s: waits-r\d+-exec-1 is unschedulable: .*Insufficient cpu", run["message"]
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
