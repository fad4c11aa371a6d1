"""The metrics of the operator, for Prometheus. Other modules call a method for each event; this one never polls.

No label ever holds a data id or a run, so that the number of series depends on the number of jobs only.
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

from opendataflow.keys import bare, namespace_of
from opendataflow.names import COUNTED_TASKS, OutcomeClass

CONTENT_TYPE: Final[str] = CONTENT_TYPE_LATEST

_QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SLOW = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_JOB = ("job_namespace", "job")
"""The labels of a job: its namespace and its id. `namespace` would be the label of the operator's pod."""


def _labels(job: str) -> tuple[str, str]:
    return namespace_of(job), bare(job)


class Metrics:
    """All metrics of one process, in a registry of its own. `version`: the version of the program."""

    def __init__(self, version: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # they double the number of series
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        Info("opendataflow_build", "The version of the operator.", registry=registry).info({"version": version})
        self._tasks = Gauge("opendataflow_tasks", "Tasks of a job by state.", [*_JOB, "state"], registry=registry)
        self._stale = Gauge(
            "opendataflow_stale_tasks",
            "DONE tasks of a job that were made from an older version of an input or of the job.",
            _JOB,
            registry=registry,
        )
        self._runs = Counter(
            "opendataflow_runs_total", "Runs whose outcome is committed.", [*_JOB, "outcome"], registry=registry
        )
        self._breaker = Gauge(
            "opendataflow_breaker_open", "1 while the breaker of a job is open.", _JOB, registry=registry
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
        self._failures = Counter(
            "opendataflow_resource_failures_total",
            "Failures while the operator handled one resource.",
            ["kind"],
            registry=registry,
        )
        self._requests = Counter(
            "opendataflow_api_requests_total",
            "Requests to the Kubernetes API; code 0: no answer.",
            ["verb", "code"],
            registry=registry,
        )
        self._foreign = Counter(
            "opendataflow_foreign_objects_total",
            "Objects with labels of a run that are not the object of that run; they are ignored.",
            ["kind"],
            registry=registry,
        )
        self._orphans = Gauge(
            "opendataflow_orphaned_pods",
            "Pods of runs that Postgres does not know any more; they are being deleted.",
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
            "From the end of a run's container to the commit of its outcome; containers report whole seconds.",
            buckets=_SLOW,
            registry=registry,
        )

    def exposition(self) -> bytes:
        """Return all metrics in the text format of Prometheus (CONTENT_TYPE)."""
        return generate_latest(self._registry)

    # -- jobs ------------------------------------------------------------------------------------------------

    def job(self, job: str, counts: Mapping[str, int], *, stale: int, breaker_open: bool) -> None:
        """Set the metrics of a job. `job`: its key, as in the other methods.

        `counts`: number of tasks by state; a missing state counts as 0. `stale`: the number of stale DONE tasks.
        """
        for state in COUNTED_TASKS:
            self._tasks.labels(*_labels(job), state.value).set(counts.get(state.value, 0))
        self._stale.labels(*_labels(job)).set(stale)
        self._breaker.labels(*_labels(job)).set(breaker_open)

    def forget(self, job: str) -> None:
        """Remove the metrics of a deleted job."""
        for state in COUNTED_TASKS:
            self._tasks.remove(*_labels(job), state.value)
        self._stale.remove(*_labels(job))
        self._breaker.remove(*_labels(job))
        for outcome in OutcomeClass:
            self._runs.remove(*_labels(job), outcome.value)

    # -- runs ------------------------------------------------------------------------------------------------

    def claimed(self, seconds: float) -> None:
        """Record the duration of a claim."""
        self._claim.observe(seconds)

    def created(self, seconds: float) -> None:
        """Record the duration of a create request for a pod."""
        self._create.observe(seconds)

    def committed(self, seconds: float) -> None:
        """Record the duration of a commit of outcomes."""
        self._commit.observe(seconds)

    def run_ended(self, job: str, outcome: OutcomeClass, exit_to_commit: float | None = None) -> None:
        """Count a committed outcome. `exit_to_commit`: seconds since the container of the run ended, if known."""
        self._runs.labels(*_labels(job), outcome.value).inc()
        if exit_to_commit is not None:
            self._exit.observe(max(0.0, exit_to_commit))

    # -- the process -----------------------------------------------------------------------------------------

    def live_runs(self, number: int) -> None:
        """Set the number of active runs."""
        self._live.set(number)

    def queue(self, name: str, depth: int) -> None:
        """Set the length of a queue."""
        self._queues.labels(name).set(depth)

    def leading(self, epoch: int) -> None:
        """Record that this process leads. `epoch`: grows with each leader."""
        self._leader.set(1)
        self._epoch.set(epoch)

    def database(self, *, reachable: bool) -> None:
        """Set whether Postgres answers."""
        self._database.set(reachable)

    def rights(self, namespace: str, *, missing: bool) -> None:
        """Set whether rights are missing in a namespace (empty: in all)."""
        self._rights.labels(namespace).set(missing)

    def foreign(self, kind: str) -> None:
        """Count an object with labels of a run that does not belong to it. `kind`: pods or sparkapplications."""
        self._foreign.labels(kind).inc()

    def orphans(self, number: int) -> None:
        """Set the number of pods and SparkApplications whose runs Postgres does not know."""
        self._orphans.set(number)

    def resource_failed(self, kind: str) -> None:
        """Count a failure while one resource of a kind was handled."""
        self._failures.labels(kind).inc()

    def request(self, verb: str, code: int) -> None:
        """Count a request to the Kubernetes API. `verb`: the HTTP method. `code`: the HTTP status; 0 for no answer."""
        self._requests.labels(verb, str(code)).inc()
