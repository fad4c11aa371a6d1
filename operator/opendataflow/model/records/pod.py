"""A run's pod: what is wanted of it, and the few facts that are remembered of one. Values only.

Times are seconds since the epoch, of the cluster's clocks, which tell whole seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opendataflow.model.records.run import Outcome
from opendataflow.names import MAIN_CONTAINER


@dataclass(frozen=True, slots=True)
class Ending:
    """How a container ended. `message`: its termination message, or what the kubelet says."""

    exit_code: int
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    finished_at: float | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run yet."""

    reason: str
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that says something is wrong: PodScheduled that is False, DisruptionTarget that is True."""

    reason: str | None = None
    message: str | None = None
    since: float | None = None


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod as it was seen last. `phase`: of Kubernetes, empty where there is none.

    `run`: from its label, None where that is no number. `done`: the minute in which it was released. `ended`,
    `waiting`, `started`: of the container `main`. `failed_init`: the init container that failed, and how.
    `waiting_init`: an init container that can't start, and why. `deleted_at`: when somebody asked for its deletion,
    the grace period not counted. `grace`: seconds. `finalizer`: whether ours is there. `start_deadline`, `retry_after`:
    seconds, of its annotations, see `names`. `keep_log`: whether what it prints may be read. `memory_limit`: of `main`,
    as written. `executors`: whether it starts pods of its own, which end with it. `gone`: the object is deleted.
    `unheard`: Kubernetes says that nothing is heard from its node, and it ran when it was heard from last.
    `main`: the container that counts, which in the driver of a SparkApplication has another name.
    `by_itself`: an earlier state of the same pod proves that `main` ended before anything else began to end the pod.
    """

    namespace: str
    name: str
    uid: str
    run: int | None = None
    engine: str | None = None
    done: int | None = None
    phase: str = ""
    reason: str | None = None
    message: str | None = None
    node: str | None = None
    created_at: float | None = None
    begun_at: float | None = None
    deadline: float | None = None
    started: bool = False
    ended: Ending | None = None
    waiting: Waiting | None = None
    failed_init: tuple[str, Ending] | None = None
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
        """Whether Kubernetes says that no container of it runs and none will."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Stop:
    """The pod has to be deleted; once it is proven dead this is the outcome, unless it succeeds meanwhile."""

    outcome: Outcome


@dataclass(frozen=True)
class PodOrder:
    """A claimed run, ready to be created as a pod or, where its manifest is one, as a SparkApplication."""

    run: int
    name: str
    namespace: str
    manifest: Mapping[str, Any] = field(repr=False)
