"""The values that store and engine exchange about tasks, claims and completions. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from opendataflow.keys import bare
from opendataflow.model.records.run import Command, Host, RunOrder, StepReport
from opendataflow.names import OutcomeClass, RunState, TaskState, pod_name, run_name

if TYPE_CHECKING:  # on one machine no run has a pod
    from opendataflow.model.records.pod import RunIdentity


@dataclass(frozen=True)
class Position:
    """The position after which the search for QUEUED tasks of a job continues. `key`: in hex."""

    rank: int = -1
    key: str = ""


@dataclass(frozen=True)
class ClaimedRun:
    """A run that is claimed and committed. `attempts`: earlier failures of the program. `bounds`: by data set.

    `runs_home`: the folder of its files, or the namespace of its pod. `nonce`: a random UUID. `before_restore`: whether
    Postgres was restored after the claim. A lost run may have used a newer fencing token.
    """

    run: int
    job: str
    data_id: str
    fence: int
    attempt: int
    attempts: int
    infrastructure_attempts: int
    bounds: Mapping[str, Mapping[str, Any]]
    lease: str
    host: Host
    runs_home: str
    nonce: str
    before_restore: bool = False

    @property
    def name(self) -> str:
        """The name of the run and of its folder."""
        return run_name(bare(self.job), self.run)

    def with_names(self, names: Mapping[str, str]) -> "ClaimedRun":
        """Return the run as its program sees it. `names`: of data sets in runs, by key."""
        bounds = {names.get(key, bare(key)): value for key, value in self.bounds.items()}
        return replace(self, job=bare(self.job), bounds=bounds)

    def identity(self, namespace: str) -> "RunIdentity":
        """Return what identifies the pod or SparkApplication of this run in a namespace."""
        from opendataflow.model.records.pod import RunIdentity

        return RunIdentity(self.run, namespace, pod_name(bare(self.job), self.run, self.nonce), self.fence, self.nonce)

    def order(self, command: Command, deadline: float | None) -> RunOrder:
        """Return the order to execute `command` for this run. `deadline`: in seconds; None for no limit."""
        return RunOrder(self.run, self.name, self.job, self.data_id, self.attempt, self.fence, command, deadline)


@dataclass(frozen=True)
class Claimed:
    """The result of a claim.

    `dropped`: the number of tasks that seemed QUEUED but could not be claimed. `declared`: the job at the time of the
    claim, if runs were claimed. A run must not use an older or newer version of its job.
    """

    runs: tuple[ClaimedRun, ...]
    dropped: int
    position: Position
    declared: "DeclaredJob | None"


@dataclass(frozen=True)
class Completion:
    """The outcome of a run to commit.

    `verdict`: the new state of the task. `delay`: seconds until the retry, if the verdict is RETRYING. `ended_at`: from
    the launcher; it is not stored.
    """

    run: int
    fence: int
    verdict: TaskState
    state: RunState
    kind: OutcomeClass
    message: str
    reason: str | None = None
    delay: float = 0.0
    exit_code: int | None = None
    log_tail: str = ""
    log_path: str | None = None
    pod_uid: str | None = None
    node: str | None = None
    metrics: Mapping[str, Any] | None = None
    steps: tuple[StepReport, ...] = ()
    ended_at: float | None = None

    @property
    def shown(self) -> RunState:
        """The state that people see, the same as shown_state() in SQL."""
        lost = self.state is RunState.LOST
        return RunState.GIVEN_BACK if lost and self.kind is OutcomeClass.NOT_STARTED else self.state


@dataclass(frozen=True)
class Completed:
    """The states of a run and its task after a commit.

    `already`: they were committed before. `spared`: the failure cost no attempt. `breaker`: the change to report if
    this run has opened or closed the breaker of its job.
    """

    run: int
    run_state: RunState
    task_state: TaskState
    already: bool
    spared: bool = False
    breaker: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Selection:
    """A selection of a job's tasks, or of a data set's chunks.

    `first`, `last`: both inclusive, in natural order; None for no limit. `states`: empty for all states. They may
    contain `INCOMPLETE`, which selects DONE tasks with an output that was never made. `stale`: only what was made from
    an older version and can be made again.
    """

    first: str | None = None
    last: str | None = None
    states: tuple[str, ...] = ()
    of_chunks: bool = False
    stale: bool = False


@dataclass(frozen=True)
class PipelineRuns:
    """A selection of runs of pipelines: by pipeline, written data set, data id, failure, or run. None selects all.

    `failed`: only runs that have not succeeded.
    """

    pipeline: str | None = None
    dataset: str | None = None
    data_id: str | None = None
    failed: bool = False
    run: int | None = None


@dataclass(frozen=True)
class Answer:
    """The answer to a request for one chunk or task. `result`: done, unchanged, remembered, refused or unknown.

    `job`: the job of the task if it is not the job of the request: a cascade includes tasks of other jobs.
    """

    data_id: str
    result: str
    state: str | None
    message: str | None
    job: str | None = None


@dataclass(frozen=True)
class DeclaredJob:
    """A job as Postgres stores it: its row of `job`, and the rows of its data sets."""

    job: Mapping[str, Any]
    datasets: tuple[Mapping[str, Any], ...]

    def with_names(self, names: Mapping[str, str]) -> "DeclaredJob":
        """Return the job with its data sets as its runs see them. `names`: of data sets in runs, by key."""
        named = ({**row, "id": names.get(row["id"], bare(row["id"]))} for row in self.datasets)
        return DeclaredJob(self.job, tuple(named))


@dataclass(frozen=True)
class Progress:
    """The number of tasks of a job by state, and how many of the DONE tasks are stale.

    `probed_in_vain`: whether the job can't make progress: its breaker is open, and more probes have failed than a task
    has retries; or a gate is closed, such as failing unit tests; or only looks at missing locations are left.
    `incomplete`: an output of a DONE task was never made. `declaring`: whether more tasks follow.
    """

    job: str
    counts: Mapping[TaskState, int]
    probed_in_vain: bool = False
    stale: int = 0
    incomplete: bool = False
    declaring: bool = False

    def of(self, *states: TaskState) -> int:
        """Return the number of tasks in these states."""
        return sum(self.counts.get(state, 0) for state in states)

    @property
    def total(self) -> int:
        """The number of tasks."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class BeforeClaim:
    """The facts of a job that RunJob needs before it claims.

    `running`: whether runs of the job are active. `due`: whether retries are due.
    """

    declared: DeclaredJob
    running: bool
    due: bool
