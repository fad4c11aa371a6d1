"""What the store and the engine tell each other about runs and their ends. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opendataflow.model.records.run import Command, Host, RunOrder, StepTold
from opendataflow.names import OutcomeClass, RunState, TaskState, run_name


@dataclass(frozen=True)
class Position:
    """Where the search for QUEUED tasks of a job goes on (the watermark): after this rank and key, in hex."""

    rank: int = -1
    key: str = ""


@dataclass(frozen=True)
class ClaimedRun:
    """A run whose intent is committed. `attempts`: application failures before it; `bounds`: by data set."""

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

    @property
    def name(self) -> str:
        """The run's name: of its folder, and of whatever else a launcher makes for it."""
        return run_name(self.job, self.run)

    def order(self, command: Command, deadline: float | None) -> RunOrder:
        """The order to execute `command` for this run; `deadline`: seconds, None for no limit."""
        return RunOrder(self.run, self.name, self.job, self.data_id, self.attempt, self.fence, command, deadline)


@dataclass(frozen=True)
class Claimed:
    """The answer to a claim. `dropped`: tasks that looked QUEUED but could not be taken just now. `declared`: what the
    job was at that moment, where there are runs: a run must not see an older or a newer one."""

    runs: tuple[ClaimedRun, ...]
    dropped: int
    position: Position
    declared: "DeclaredJob | None"


@dataclass(frozen=True)
class Completion:
    """The outcome of a run, for committing. `delay`: seconds until the retry, where `verdict` is RETRYING. `ended_at`:
    as the launcher tells it, not remembered."""

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
    steps: tuple[StepTold, ...] = ()
    ended_at: float | None = None

    @property
    def shown(self) -> RunState:
        """The state as people are shown it, as shown_state() in SQL."""
        lost = self.state is RunState.LOST
        return RunState.GIVEN_BACK if lost and self.kind is OutcomeClass.NOT_STARTED else self.state


@dataclass(frozen=True)
class Completed:
    """What a run and its task are after a commit. `already`: they were so before it. `spared`: its failure cost no
    attempt. `breaker`: where this run has opened or closed the breaker of its job, what is to be told of it."""

    run: int
    run_state: RunState
    task_state: TaskState
    already: bool
    spared: bool = False
    breaker: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Selection:
    """Tasks of a job, or chunks of a data set: all from `first` to `last` (both included, in natural order) that are in
    one of these states; None and no states: no limit."""

    first: str | None = None
    last: str | None = None
    states: tuple[str, ...] = ()
    of_chunks: bool = False


@dataclass(frozen=True)
class PipelineRuns:
    """Runs of pipelines: all, or those of one pipeline, that write one data set, of one data id, that have not
    succeeded, or one run."""

    pipeline: str | None = None
    dataset: str | None = None
    data_id: str | None = None
    failed: bool = False
    run: int | None = None


@dataclass(frozen=True)
class Answer:
    """What became of a request for one chunk or task; `result` is done, unchanged, remembered, refused or unknown.

    `job`: whose task it is, where that is not the one that was asked: a cascade reaches those of other jobs.
    """

    data_id: str
    result: str
    state: str | None
    message: str | None
    job: str | None = None


@dataclass(frozen=True)
class DeclaredJob:
    """What the engine has to know of a job that Postgres remembers: rows of `job` and of its data sets."""

    job: Mapping[str, Any]
    datasets: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Progress:
    """How many tasks of a job are in which state; `probed_in_vain`: its breaker is open, and more probes have failed
    than a chunk has retries; or the tests of its project fail."""

    job: str
    counts: Mapping[TaskState, int]
    probed_in_vain: bool = False

    def of(self, *states: TaskState) -> int:
        """The number of tasks in these states."""
        return sum(self.counts.get(state, 0) for state in states)

    @property
    def total(self) -> int:
        """The number of tasks."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class BeforeClaim:
    """What one RunJob has to know of its job. `running`: it has runs that are not ended. `due`: retries are."""

    declared: DeclaredJob
    running: bool
    due: bool
