"""Where it is measured: a cluster and a Postgres of its own, with a namespace for each contender; gone at the end."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.bench.operator.processes import cpu_seconds, family_seconds, parent_of
from tests.bench.server import database, server
from tests.kube.cluster.annotations import PREFIX
from tests.kube.cluster.api import Api
from tests.kube.cluster.control_plane import ControlPlane
from tests.kube.cluster.nodes import add_nodes
from tests.kube.cluster.providers import programs
from tests.waiting import wait_until

CRDS = Path(__file__).parents[3] / "crds"
ROOT = Path(__file__).parents[3]
NODES = 10
TUNED_QPS = 500
LONGEST = 3600.0
"""Seconds; nothing that is measured takes longer."""


@dataclass
class Place:
    """`meters`: the CPU seconds of everything that takes part, by name."""

    plane: ControlPlane
    api: Api
    dsn: str
    folder: Path
    meters: dict[str, Callable[[], float]]

    def namespace(self, name: str) -> str:
        """Make a namespace in which pods can be created."""
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        self.api.wait(f"/api/v1/namespaces/{name}/serviceaccounts/default", lambda _: True, "its service account")
        return name

    def empty(self, namespace: str) -> None:
        """Delete all pods of a namespace; return when they are gone, so that the next contender finds the same."""
        pods = f"/api/v1/namespaces/{namespace}/pods"
        for pod in self.api.items(pods):
            if pod["metadata"].get("finalizers"):
                self.api.patch(f"{pods}/{pod['metadata']['name']}", {"metadata": {"finalizers": None}})
        self.api.delete(pods, gracePeriodSeconds=0)
        wait_until(lambda: not self.api.items(f"{pods}?limit=1"), f"the pods of {namespace} are gone", seconds=300)

    def tune(self, qps: int | None) -> None:
        """Let the controller and the scheduler send so many requests a second; None: as many as they do untuned."""
        self.plane.restart_controllers(qps)
        time.sleep(5)  # until they have seen what there is

    def python(self, module: str, *arguments: str) -> Any:
        """Run a module of ours in a process of its own; return the JSON that it prints."""
        command = [sys.executable, "-m", module, *arguments]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=LONGEST)
        return json.loads(done.stdout)


@contextmanager
def place(say: Callable[[str], None]) -> Iterator[Place]:
    """Start everything but the operator."""
    found = programs(say)
    folder = Path(tempfile.mkdtemp(prefix="dataflow-bench-operator-"))
    folder.chmod(0o711)
    try:
        with (
            server(track_commit_timestamp="on") as address,
            database(address, "bench_operator") as dsn,
            ControlPlane(folder / "plane", found) as plane,
            Api(found["kubectl"], plane.kubeconfig) as api,
        ):
            add_nodes(api, [f"node-{number}" for number in range(NODES)])
            api.kubectl("apply", "--server-side", f"--filename={CRDS}")
            api.kubectl("wait", "--for=condition=Established", "--timeout=60s", f"--filename={CRDS}")
            yield Place(plane, api, dsn, folder, _meters(plane, dsn))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _meters(plane: ControlPlane, dsn: str) -> dict[str, Callable[[], float]]:
    def of(name: str) -> Callable[[], float]:
        return lambda: cpu_seconds(plane.programs[name].pid)

    with psycopg.connect(dsn) as connection:
        postmaster = parent_of(connection.info.backend_pid)
    beside = {"postgres": lambda: family_seconds(postmaster), "bench": time.process_time}
    return {**{name: of(name) for name in plane.programs}, **beside}


def behaviour(seconds: str) -> Mapping[str, str]:
    """The annotations of pods that run so long: a number, or "forever"."""
    return {f"{PREFIX}run-seconds": seconds}


def container() -> Mapping[str, Any]:
    """What every contender's pods run; nobody runs it."""
    return {"image": "none/none:1", "command": ["true"]}
