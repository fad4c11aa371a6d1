"""Operators at work in a namespace, and everything that a test of faults asks: what a user sees, what Postgres
remembers, what the cluster has had, and whether anything is left that should not be.
"""

import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opendataflow.keys import key_of
from opendataflow.names import API_VERSION, LABEL_JOB, LABEL_RUN
from tests.kube.cluster.api import Api, Object
from tests.kube.cluster.control_plane import free_port
from tests.kube.cluster.pods import pod_annotations, state
from tests.kube.jobs import Database, dataset, documents, job
from tests.kube.operators import Operator, Operators, new_operators
from tests.kube.recorder import Recorder, with_finalizer
from tests.waiting import wait_until

SECONDS = 240
"""How long anything may take on a machine that is busy with something else."""
AT_ONCE = {"backoff": {"initial": "0s", "max": "0s"}}
"""Retries without a pause."""


@dataclass
class Flows:
    """Jobs of one namespace, whoever works on them."""

    api: Api
    namespace: str
    database: Database
    recorder: Recorder

    # -- what a test does ------------------------------------------------------------------------------------

    def apply(self, *resources: dict[str, Any]) -> None:
        """As a user does it."""
        self.api.kubectl(f"--namespace={self.namespace}", "apply", "-f-", stdin=documents(*resources))

    def flow(self, name: str, chunks: int, pods: dict[str, str] | None = None, **spec: Any) -> None:
        """Apply a job with an input of so many chunks and an output; see tests/kube/jobs.py."""
        made = job(name, [f"{name}-in"], [f"{name}-out"], pods, **spec)
        self.apply(dataset(f"{name}-in", chunks), dataset(f"{name}-out"), made)

    def patch(self, job: str, **spec: Any) -> None:
        """Change a DataFlowJob."""
        self.api.patch(self._path(job), {"spec": spec})

    # -- what a user sees ------------------------------------------------------------------------------------

    def status(self, job: str) -> Mapping[str, Any]:
        """The status of a DataFlowJob."""
        found: Mapping[str, Any] = self.api.get(self._path(job)).get("status") or {}
        return found

    def condition(self, job: str, kind: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition; empty where it is not reported."""
        for one in self.status(job).get("conditions", []):
            if one["type"] == kind:
                return one["status"], one["reason"], one["message"]
        return "", "", ""

    def sees(self, job: str, kind: str, status: str, reason: str, seconds: float = SECONDS, *, saying: str = "") -> str:
        """Wait until a condition says so, in a message with these words; return its message."""
        seen = ["", "", ""]

        def there() -> bool:
            seen[:] = self.condition(job, kind)
            return seen[:2] == [status, reason] and saying in seen[2]

        wait_until(there, f"{kind} of {job} is {status}, {reason}: {saying}", seconds)
        return seen[2]

    def until_event(self, name: str, reason: str, seconds: float = SECONDS) -> None:
        """Wait until an event about a resource is there: that comes a moment after the condition."""
        wait_until(lambda: reason in self._events(name), f"the event {reason} of {name} is there", seconds)

    def _events(self, name: str) -> list[str]:
        found = self.api.items(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [event["reason"] for event in found if event["regarding"]["name"] == name]

    # -- what is: of a job by its id, or by its key where several namespaces have the id ----------------------------

    def key(self, job: str) -> str:
        """The key of a job of this namespace in Postgres."""
        return key_of(self.namespace, job)

    def tasks(self, job: str) -> list[dict[str, Any]]:
        """The tasks of a job, in the order of their data ids."""
        query = "SELECT * FROM opendataflow.task WHERE %s IN (job, opendataflow.bare_id(job)) ORDER BY data_id"
        return self.database.rows(query, job)

    def runs(self, job: str) -> list[dict[str, Any]]:
        """The runs of a job, the oldest first."""
        query = "SELECT * FROM opendataflow.run WHERE %s IN (job, opendataflow.bare_id(job)) ORDER BY id"
        return self.database.rows(query, job)

    def classes(self, job: str) -> list[str]:
        """How the runs of a job have failed, the oldest first; None for one that has not."""
        return [run["failure_class"] for run in self.runs(job)]

    def consumed(self, job: str) -> list[tuple[int, int]]:
        """For each task: the attempts that its program has consumed, and those that the infrastructure has."""
        return [(task["attempts"], task["infrastructure_attempts"]) for task in self.tasks(job)]

    def pods(self, job: str) -> list[Object]:
        """Pods of a job that are there, the oldest first."""
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods?labelSelector={LABEL_JOB}={job}")
        return sorted(found, key=lambda pod: int(pod["metadata"]["labels"][LABEL_RUN]))

    def pod_path(self, name: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{name}"

    def running(self, job: str, number: int = 1, seconds: float = SECONDS) -> list[str]:
        """Wait until so many pods of a job run; return their names."""
        seen: list[str] = []

        def enough() -> bool:
            seen[:] = self._running(job)
            return len(seen) >= number

        wait_until(enough, f"{number} pods of {job} run", seconds)
        return seen

    def _running(self, job: str) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods(job) if "running" in state(pod)]

    def begun(self, job: str, number: int = 1) -> None:
        """Wait until so many pods of a job run or have run: one that runs for seconds only may have ended when somebody
        looks."""

        def enough() -> bool:
            return sum(bool({"running", "terminated"} & state(pod).keys()) for pod in self.pods(job)) >= number

        wait_until(enough, f"{number} pods of {job} have begun", SECONDS)

    def another(self, job: str, first: str) -> str:
        """Wait until another pod of a job runs than its first; return its name."""
        seen: list[str] = []

        def found() -> bool:
            seen[:] = [name for name in self._running(job) if name != first]
            return bool(seen)

        wait_until(found, f"another pod of {job} runs", SECONDS)
        return seen[0]

    def until_done(self, job: str, number: int, seconds: float = SECONDS, *, at_least: bool = False) -> None:
        """Wait until so many tasks of a job are done."""

        def done() -> bool:
            done = self.database.done(job)
            return done == number or (at_least and done > number)

        wait_until(done, f"{number} tasks of {job} are done", seconds)

    def done_at_once(self, job: str, number: int) -> None:
        """Wait until so many tasks of a job are done, and see that each took one run and consumed nothing."""
        self.until_done(job, number)
        assert len(self.runs(job)) == number
        assert self.consumed(job) == [(0, 0)] * number

    def until_failed(self, job: str, number: int = 1, seconds: float = SECONDS) -> None:
        """Wait until so many tasks of a job have failed for good."""
        wait_until(lambda: self.database.states(job)["FAILED"] == number, f"{number} tasks of {job} failed", seconds)

    def until_ended(self, job: str, number: int = 1, seconds: float = SECONDS) -> None:
        """Wait until so many runs of a job have ended."""

        def ended() -> bool:
            return len([run for run in self.runs(job) if run["state"] != "RUNNING"]) >= number

        wait_until(ended, f"{number} runs of {job} have ended", seconds)

    def is_released(self, seconds: float = SECONDS) -> None:
        """Wait until no pod is kept any more. One that was deleted keeps its name for a while."""
        wait_until(lambda: not with_finalizer(self.api, self.namespace), "all pods are released", seconds)

    def is_right(self, seconds: float = SECONDS) -> None:
        """Nothing of the namespace was lost or done twice, and no slot or lock is left, once nothing runs there."""
        own = f"{self.namespace}/"
        running = "SELECT FROM opendataflow.run WHERE state = 'RUNNING' AND starts_with(job, %s)"
        wait_until(
            lambda: not self.database.rows(running, own),
            "nothing runs",
            seconds,
        )
        assert self.recorder.together == []
        assert self.recorder.of_one_name() == []
        assert self.database.problems(own) == []
        assert self.database.published_more_than_once(own) == []
        assert self.not_published(own) == []

    def not_published(self, of: str) -> list[str]:
        """A task that is done although a chunk that it makes is not there."""
        rows = self.database.rows(
            """SELECT w.job || ' ' || w.data_id AS task
               FROM opendataflow.task w JOIN opendataflow.job_output o USING (job)
               JOIN opendataflow.chunk c ON c.dataset = o.dataset AND c.data_id = w.data_id
               WHERE w.state = 'DONE' AND c.status <> 'READY' AND starts_with(w.job, %s)""",
            of,
        )
        return [row["task"] for row in rows]

    def _path(self, job: str) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/dataflowjobs/{job}"


@dataclass
class Scene(Flows):
    """What a test of faults works with, on fake nodes. `operators` start over `dsn`, and speak to the cluster by
    `kubeconfig`."""

    operators: Operators

    def start(self, **environ: str) -> "Running":
        """Start an operator whose probes can be asked."""
        port = free_port("")  # an operator listens on all addresses
        return Running(self.operators.start(die=None, DATAFLOW_PORT=str(port), **environ), port)

    def move(self, dsn: str) -> None:
        """Look at another database from now on, and start operators over it."""
        self.database.close()
        self.database = Database(dsn)
        self.operators.dsn = dsn

    def annotate(self, pod: str, **annotations: object) -> None:
        """Annotate a pod, so that it goes on: see tests/kube/cluster/stages.py."""
        self.api.patch(self.pod_path(pod), {"metadata": {"annotations": pod_annotations(**annotations)}})


@dataclass
class Running:
    """An operator's process and the port of its probes."""

    operator: Operator
    port: int

    def probe(self, path: str) -> tuple[int, str]:
        """Status and text of a probe; 0 where nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()
        except OSError:
            return 0, ""

    @property
    def ready(self) -> bool:
        return self.probe("/readyz")[0] == 200

    @property
    def healthy(self) -> bool:
        """Whether the process is there and says that it is alive."""
        return self.operator.alive and self.probe("/healthz")[0] == 200

    def until_ready(self) -> None:
        wait_until(lambda: self.ready, f"the operator is ready: {self.operator.output()[-2000:]}", SECONDS)

    def until_ended(self, seconds: float = SECONDS) -> int:
        """Wait until the process has ended by itself; return its exit code."""
        self.operator.process.join(seconds)
        code = self.operator.exit_code
        assert code is not None, f"it has not ended: {self.operator.output()[-3000:]}"
        return code

    def stays_ready(self, seconds: float) -> None:
        """Watch its probes for some time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert self.probe("/healthz") == (200, "ok\n")
            assert self.probe("/readyz") == (200, "ok\n")
            time.sleep(1)


@contextmanager
def new_scene(
    dsn: str, api: Api, namespace: str, folder: Path, *, kubeconfig: Path | None = None, through: str | None = None
) -> Iterator[Scene]:
    """Everything for one test, or for those of a module. `kubeconfig`, `through`: other ways to the cluster and to
    Postgres for the operators; the test itself goes straight there."""
    with (
        new_operators(dsn, kubeconfig or api.kubeconfig, namespace, folder) as operators,
        Recorder(api, namespace) as recorder,
    ):
        operators.through = through
        scene = Scene(api, namespace, Database(dsn), recorder, operators)
        try:
            yield scene
        finally:
            scene.database.close()
