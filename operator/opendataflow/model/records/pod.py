"""The observed facts of a run's pod, and the order to create one. Values only.

Times are seconds since the epoch. They come from the clocks of the cluster, in whole seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opendataflow.model.records.run import Outcome
from opendataflow.names import MAIN_CONTAINER


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What identifies the pod or SparkApplication of a run. `nonce`: nobody knows it before the object is created."""

    run: int
    namespace: str
    name: str
    fence: int
    nonce: str


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as Postgres stores it. `ended`: its outcome is committed. `pod_uid`: of its pod, if the outcome has one."""

    identity: RunIdentity
    ended: bool
    pod_uid: str | None = None


@dataclass(frozen=True, slots=True)
class Orphan:
    """The pod or SparkApplication of a run that Postgres does not know. `job`: its key. `uid`: of the object."""

    identity: RunIdentity
    job: str
    data_id: str
    uid: str


@dataclass(frozen=True, slots=True)
class Termination:
    """The end of a container. `message`: its termination message, or a message of the kubelet."""

    exit_code: int
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    finished_at: float | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The reason why a container has not started yet. `image`: of the container."""

    reason: str
    message: str | None = None
    image: str | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that reports a problem: PodScheduled is False, or DisruptionTarget is True."""

    reason: str | None = None
    message: str | None = None
    since: float | None = None


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """A pod as last observed. `phase`: of Kubernetes; empty if it has none.

    `run`, `fence`, `nonce`, `job`, `data_id`: from its label and annotations; None if they are missing or invalid.
    `job` has no namespace. `done`: the minute in which its finalizer was removed. `owner`: the uid of the
    SparkApplication that owns it. `submission`: of the Spark operator, from its label.
    `ended`, `waiting`, `started`: of the container `main`. `failed_init`: an init container that failed, and its end.
    `waiting_init`: an init container that can't start, and the reason. `deleted_at`: the time of the request to delete
    it, without the grace period. `grace`: the grace period in seconds. `finalizer`: whether it has the finalizer of the
    framework. `start_deadline`, `retry_after`: seconds, from its annotations, see `names`. `keep_log`: whether its log
    may be read. `memory_limit`: of `main`, as written. `executors`: whether it starts executors, which end with it.
    `gone`: the object does not exist any more. `unheard`: Kubernetes reports that its node does not answer, and the pod
    was running before. `main`: the name of the run's container; the driver of a SparkApplication has another one.
    `by_itself`: an earlier state of the same pod proves that `main` ended before anything else began to end the pod.
    """

    namespace: str
    name: str
    uid: str
    run: int | None = None
    fence: int | None = None
    nonce: str | None = None
    job: str | None = None
    data_id: str | None = None
    engine: str | None = None
    owner: str | None = None
    submission: str | None = None
    done: int | None = None
    phase: str = ""
    reason: str | None = None
    message: str | None = None
    node: str | None = None
    created_at: float | None = None
    begun_at: float | None = None
    deadline: float | None = None
    started: bool = False
    ended: Termination | None = None
    waiting: Waiting | None = None
    failed_init: tuple[str, Termination] | None = None
    waiting_init: tuple[str, Waiting] | None = None
    unscheduled: Condition | None = None
    disrupted: Condition | None = None
    deleted_at: float | None = None
    grace: float = 0.0
    finalizer: bool = False
    start_deadline: float = 600.0
    retry_after: float | None = None
    keep_log: bool = True
    memory_limit: str | None = None
    executors: bool = False
    unheard: bool = False
    gone: bool = False
    main: str = MAIN_CONTAINER
    by_itself: bool = False

    @property
    def terminal(self) -> bool:
        """Whether Kubernetes reports that no container runs, and none will start."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Stop:
    """The decision to delete a pod. `outcome`: of the run when the pod has ended, unless the run succeeds before."""

    outcome: Outcome


@dataclass(frozen=True)
class PodOrder:
    """A claimed run, ready to be created. `manifest`: of a pod or a SparkApplication."""

    identity: RunIdentity
    manifest: Mapping[str, Any] = field(repr=False)

    @property
    def run(self) -> int:
        """The id of the run."""
        return self.identity.run

    @property
    def namespace(self) -> str:
        """The namespace of the object."""
        return self.identity.namespace

    @property
    def name(self) -> str:
        """The name of the object."""
        return self.identity.name
