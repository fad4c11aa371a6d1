"""The operator, measured: works off loads, and holds many pods that live at the same time.

A run's end is when this program sees the pod's status written, and its commit is when Postgres says it was. What is
seen late here makes the difference smaller, so nothing else may run meanwhile that keeps this program from looking.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, LiteralString, Self

import psycopg
from psycopg.rows import dict_row

from opendataflow.control.resources.bodies import parse_entry
from opendataflow.control.resources.orders import PodOrders
from opendataflow.core.kubernetes.pods import Operator
from opendataflow.keys import key_of
from opendataflow.model.resources.jobs import DataFlowJob
from opendataflow.names import API_VERSION, pod_name
from opendataflow.settings import OperatorSettings
from opendataflow.store.leader import identity
from opendataflow.store.store import Store
from tests.bench.operator.loads import Load, Measured
from tests.bench.operator.place import LONGEST, Place, behaviour, container
from tests.bench.operator.processes import costs, cpu_seconds, memory_mib
from tests.bench.operator.watching import Watching
from tests.kube.cluster.processes import Program
from tests.waiting import wait_until

SETTLE_SECONDS = 10.0
"""How long pods live before memory is measured."""
CHANGES = 5
CHANGE_SECONDS = 3.0
"""Between two changes of `parallelism`."""


class OwnOperator:
    """The operator, in a process of its own. Enter it to start it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.namespace = place.namespace("bench-operator")
        environ = {
            "DATAFLOW_DSN": place.dsn,
            "KUBECONFIG": str(place.plane.kubeconfig),
            "DATAFLOW_NAMESPACES": self.namespace,
            "DATAFLOW_PARALLELISM": "1000000",
            "DATAFLOW_PORT": "0",
        }
        command = [str(Path(sys.executable).parent / "opendataflow"), "operator"]
        self._program = Program("operator", command, place.folder / "operator.log", environ)
        self._db = psycopg.connect(place.dsn, autocommit=True, row_factory=dict_row)

    def __enter__(self) -> Self:
        self._program.start()
        place = self._place
        place.meters["operator"] = lambda: cpu_seconds(self._program.pid)
        wait_until(lambda: "leads" in self._program.output(), "the operator leads")
        return self

    def __exit__(self, *_: object) -> None:
        self._program.stop()
        self._db.close()

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._program.pid

    @property
    def memory(self) -> tuple[float, float]:
        """MiB that it holds now, and the most so far."""
        return memory_mib(self.pid), memory_mib(self.pid, "VmHWM")

    def work(self, name: str, load: Load) -> Measured:
        """Work off a load by a job of its own."""
        self.declare(name, load.pods)
        with Watching(self._place.plane.kubeconfig, self.namespace) as seen:
            before, begun = costs(self._place.meters), time.time()
            self.create(name, load.parallelism, str(load.seconds))
            self._until(lambda: self.count(name, "DONE") == load.pods, f"all runs of {name} are done")
            cpu = costs(self._place.meters).since(before)
            commits = self._commits(name)
            late = [at - seen.ended[pod] for pod, at in commits.items() if pod in seen.ended]
        self._place.empty(self.namespace)
        return Measured(load, max(commits.values()) - begun, cpu, late)

    def declare(self, name: str, chunks: int) -> None:
        """Declare the data sets of a job; return when its chunks are in Postgres."""
        source = {"range": {"from": 0, "to": chunks, "step": 1}}
        self._create("DataSet", f"{name}-in", {"chunkSource": source})
        self._create("DataSet", f"{name}-out", {})
        query = "SELECT count(*) AS n FROM opendataflow.chunk WHERE dataset = %s"
        key = key_of(self.namespace, f"{name}-in")
        self._until(lambda: self._one(query, key)["n"] == chunks, "the chunks are declared")

    def create(self, name: str, parallelism: int, seconds: str) -> None:
        """Create a job whose pods run so long."""
        self._create("DataFlowJob", name, self.spec(name, parallelism, seconds))

    def spec(self, name: str, parallelism: int, seconds: str) -> dict[str, Any]:
        """What a job says."""
        return {
            "inputs": [f"{name}-in"],
            "outputs": [f"{name}-out"],
            "parallelism": parallelism,
            "runtime": {"script": container()},
            "podTemplate": {"metadata": {"annotations": behaviour(seconds)}},
        }

    def live(self, name: str, chunks: int, pods: int) -> tuple[float, float]:
        """Let so many pods of a job with so many chunks live at the same time, each without an end. Return what the
        operator holds then, in MiB, and the longest time from a change of `parallelism` to the first new pod."""
        self.declare(name, chunks)
        with Watching(self._place.plane.kubeconfig, self.namespace) as seen:
            self.create(name, pods, "forever")
            self._until(lambda: seen.alive == pods, f"{pods} pods live")
            time.sleep(SETTLE_SECONDS)
            held = self.memory[0]
            waited = [self._until_first(seen, name, pods + more) for more in range(1, CHANGES + 1)]
        return held, max(waited)

    def _until_first(self, seen: Watching, name: str, parallelism: int) -> float:
        time.sleep(CHANGE_SECONDS)
        before, begun = set(seen.created), time.time()
        self.scale(name, parallelism)
        self._until(lambda: bool(seen.created.keys() - before), "one more pod is there")
        return min(seen.created[pod] for pod in seen.created.keys() - before) - begun

    def scale(self, name: str, parallelism: int) -> None:
        """Change how many pods of a job there may be."""
        self._place.api.patch(f"{self._path('DataFlowJob')}/{name}", {"spec": {"parallelism": parallelism}})

    def count(self, name: str, state: str) -> int:
        """How many tasks of a job are in a state."""
        query = "SELECT count(*) AS n FROM opendataflow.task WHERE job = %s AND state = %s"
        return int(self._one(query, key_of(self.namespace, name), state)["n"])

    def manifests(self, name: str, namespace: str) -> list[Any]:
        """The pods of a job's runs as the operator has created them, for another namespace."""
        key = key_of(self.namespace, name)
        runs = [row["id"] for row in self._db.execute("SELECT id FROM opendataflow.run WHERE job = %s", [key])]
        body = self._place.api.get(f"{self._path('DataFlowJob')}/{name}")
        body["metadata"]["namespace"] = namespace
        job = parse_entry("DataFlowJob", body).model
        assert isinstance(job, DataFlowJob)
        return asyncio.run(_manifests(self._place.dsn, key, job, runs))

    def _create(self, kind: str, name: str, spec: Mapping[str, Any]) -> None:
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self._place.api.create(self._path(kind), body)

    def _path(self, kind: str) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/{kind.lower()}s"

    def _one(self, query: LiteralString, *values: object) -> dict[str, Any]:
        row = self._db.execute(query, values).fetchone()
        assert row is not None
        return row

    def _commits(self, name: str) -> dict[str, float]:
        """When the outcome of each run was committed, by the name of its pod."""
        rows = self._db.execute(
            """SELECT id, nonce, extract(epoch FROM pg_xact_commit_timestamp(xmin))::float8 AS at
               FROM opendataflow.run WHERE job = %s AND state <> 'RUNNING'""",
            [key_of(self.namespace, name)],
        ).fetchall()
        return {pod_name(name, row["id"], str(row["nonce"])): row["at"] for row in rows}

    def _until(self, true: Callable[[], bool], what: str) -> None:
        wait_until(true, f"{what}; see {self._program.log}:\n{self._program.output()}", seconds=LONGEST)


async def _manifests(dsn: str, key: str, job: DataFlowJob, runs: Sequence[int]) -> list[Any]:
    store = await Store.open(lambda: dsn)
    try:
        declared = (await store.declared_jobs([key]))[key]
        maker = PodOrders(job, declared.job["declared_as"], Operator(await identity(store), OperatorSettings().image))
        claimed = [await store.run(run) for run in runs]
        return [maker(run, declared).manifest for run in claimed if run is not None]
    finally:
        await store.close()
