"""The operator's figures, for Prometheus. Who does something calls a method; nothing here asks for anything.

No label ever holds a data id or a run: the number of series grows with the jobs only.
"""

from collections.abc import Mapping
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from opendataflow.names import OutcomeClass, TaskState

CONTENT_TYPE: Final[str] = CONTENT_TYPE_LATEST

_QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SLOW = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class Figures:
    """All figures of one process, in a registry of its own. `version`: of the program."""

    def __init__(self, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # a second series for each, that nobody asks for
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        Info("opendataflow_build", "The version of the operator.", registry=registry).info({"version": version})
        self._tasks = Gauge("opendataflow_tasks", "Tasks of a job by state.", ["job", "state"], registry=registry)
        self._runs = Counter(
            "opendataflow_runs_total", "Runs whose outcome is committed.", ["job", "outcome"], registry=registry
        )
        self._breaker = Gauge(
            "opendataflow_breaker_open", "1 while the breaker of a job is open.", ["job"], registry=registry
        )
        self._live = Gauge("opendataflow_live_runs", "Runs of this process that have not ended.", registry=registry)
        self._queues = Gauge("opendataflow_queue_depth", "What waits in a queue.", ["queue"], registry=registry)
        self._leader = Gauge("opendataflow_leader", "1 while this process leads.", registry=registry)
        self._epoch = Gauge("opendataflow_leader_epoch", "The epoch in which this process led last.", registry=registry)
        self._database = Gauge("opendataflow_database_reachable", "1 while Postgres answers.", registry=registry)
        self._rights = Gauge(
            "opendataflow_rights_missing",
            "1 where the operator lacks rights in a namespace; empty: in all.",
            ["namespace"],
            registry=registry,
        )
        self._requests = Counter(
            "opendataflow_api_requests_total",
            "Requests to the Kubernetes API; code 0: no answer.",
            ["verb", "code"],
            registry=registry,
        )
        self._claim = Histogram(
            "opendataflow_claim_seconds", "One claim, of any number of tasks.", buckets=_QUICK, registry=registry
        )
        self._create = Histogram(
            "opendataflow_create_seconds", "One try to create a pod.", buckets=_QUICK, registry=registry
        )
        self._commit = Histogram(
            "opendataflow_commit_seconds", "One commit, of any number of outcomes.", buckets=_QUICK, registry=registry
        )
        self._exit = Histogram(
            "opendataflow_exit_to_commit_seconds",
            "From the end of a run's container to the commit of its outcome; containers tell whole seconds.",
            buckets=_SLOW,
            registry=registry,
        )

    def exposition(self) -> bytes:
        """Everything, as Prometheus reads it (CONTENT_TYPE)."""
        return generate_latest(self._registry)

    # -- jobs ------------------------------------------------------------------------------------------------

    def job(self, job: str, counts: Mapping[str, int], *, breaker_open: bool) -> None:
        """How a job is. `counts`: tasks by state; a state that is missing has none."""
        for state in TaskState:
            self._tasks.labels(job, state.value).set(counts.get(state.value, 0))
        self._breaker.labels(job).set(breaker_open)

    def forget(self, job: str) -> None:
        """A job is gone: its figures, too."""
        for state in TaskState:
            self._tasks.remove(job, state.value)
        self._breaker.remove(job)
        for outcome in OutcomeClass:
            self._runs.remove(job, outcome.value)

    # -- runs ------------------------------------------------------------------------------------------------

    def claimed(self, seconds: float) -> None:
        """A claim was answered."""
        self._claim.observe(seconds)

    def created(self, seconds: float) -> None:
        """The API server answered whether a pod is created."""
        self._create.observe(seconds)

    def committed(self, seconds: float) -> None:
        """Outcomes were committed."""
        self._commit.observe(seconds)

    def run_ended(self, job: str, outcome: OutcomeClass, exit_to_commit: float | None = None) -> None:
        """The outcome of a run is committed. `exit_to_commit`: seconds since its container ended, if known."""
        self._runs.labels(job, outcome.value).inc()
        if exit_to_commit is not None:
            self._exit.observe(max(0.0, exit_to_commit))

    # -- the process -----------------------------------------------------------------------------------------

    def live_runs(self, number: int) -> None:
        """How many runs have not ended."""
        self._live.set(number)

    def queue(self, name: str, depth: int) -> None:
        """How much waits in a queue."""
        self._queues.labels(name).set(depth)

    def leading(self, epoch: int) -> None:
        """This process leads now."""
        self._leader.set(1)
        self._epoch.set(epoch)

    def database(self, *, reachable: bool) -> None:
        """Whether Postgres answers."""
        self._database.set(reachable)

    def rights(self, namespace: str, *, missing: bool) -> None:
        """Whether rights are missing in a namespace; empty: in all."""
        self._rights.labels(namespace).set(missing)

    def request(self, verb: str, code: int) -> None:
        """A request to the Kubernetes API has ended. `verb`: the method, like GET; `code`: 0 for no answer."""
        self._requests.labels(verb, str(code)).inc()
