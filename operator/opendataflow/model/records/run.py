"""The values that engine, launchers and store exchange about one run. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opendataflow.names import OutcomeClass, Preflight, StepStatus


@dataclass(frozen=True)
class HolderOrder:
    """A JVM that runs of one job share, one after another (a holder). Runs with equal orders may share one.

    `command`: starts the JVM; `{run_folder}` is the folder of the holder. `most_runs`: the number of runs after which
    it ends. `longest_idle`, `longest_age`: in seconds. `is_heard`: what the JVM prints belongs to the log of the run.
    """

    command: "Command"
    most_runs: int
    longest_idle: float
    longest_age: float
    is_heard: bool = False


@dataclass(frozen=True)
class Command:
    """The command of a run.

    `argv`: the program and its arguments; no shell is used. `env`: all variables that the launcher adds to its own
    environment. `cwd`: the working directory. `files`: file name -> text. The launcher writes these files (the context,
    Spark's properties) to the folder of the run before it starts; `env` refers to them with `{run_folder}`.
    `holder`: the JVM that the run may share; None for a JVM of its own.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    files: Mapping[str, str] = field(default_factory=dict)
    holder: HolderOrder | None = None


@dataclass(frozen=True)
class RunOrder:
    """A claimed run, ready to be started. `deadline`: its longest duration in seconds; None for no limit."""

    run: int
    name: str
    job: str
    data_id: str
    attempt: int
    fence: int
    command: Command
    deadline: float | None = None


@dataclass(frozen=True)
class Outcome:
    """The classified end of a run. `message`: one line for people."""

    kind: OutcomeClass
    message: str
    exit_code: int | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the outputs of the run may be published."""
        return self.kind is OutcomeClass.SUCCESS


@dataclass(frozen=True)
class StepReport:
    """One step in the report of a run.

    `ordinal`: from 1; the report may omit steps. `error`: a sentence, followed by the traceback. `stdout`: the end of
    its output.
    """

    ordinal: int
    name: str
    status: StepStatus
    rows: int | None = None
    seconds: float | None = None
    error: str | None = None
    stdout: str | None = None


@dataclass(frozen=True)
class Report:
    """The report that a run writes about itself.

    `metrics`: by name. `rows`, `bytes` and `checksum` describe the written data; `expectations` is a list of {name,
    held, severity, found}; `looks` is a list of model/records/look.py. `unfinished`: the report was written before the
    end of the run.
    """

    metrics: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[StepReport, ...] = ()
    unfinished: bool = False

    @property
    def failure(self) -> str | None:
        """The cause, in a sentence, if the run reports that it has failed."""
        return self.metrics.get("failure")

    @property
    def not_started(self) -> str | None:
        """The cause, in a sentence, if the run did nothing: a location is missing, or the project's unit tests fail."""
        if self.metrics.get("preflight", Preflight.PASSED) != Preflight.PASSED:
            return self.failure or "a location of its data is missing"
        tests = self.metrics.get("tests")
        return None if tests is None or tests["passed"] else self.failure or "the unit tests of its project fail"

    @property
    def failed_expectations(self) -> list[Mapping[str, Any]]:
        """Failed expectations of severity `fail`."""
        expectations: list[Mapping[str, Any]] = self.metrics.get("expectations", [])
        return [one for one in expectations if not one["held"] and one["severity"] == "fail"]

    @property
    def is_complete(self) -> bool:
        """Whether the run had completed its work when it wrote the report."""
        return self.failure is None and not self.unfinished and not self.failed_expectations


@dataclass(frozen=True)
class Ended:
    """The end of a run as its launcher observed it.

    core/runs/outcome.py classifies it, unless the launcher has set `outcome`. `exit_code`: None if the process did not
    exit by itself. `signal`: the signal that ended it. `deadline_exceeded`: the launcher stopped it at its deadline.
    `lost`: why its end is unknown. `cancelled`: the launcher stopped it at the request of a person. `log_tail`: the end
    of its output, at most 64 KiB. `at`: the time of the end in seconds since the epoch; None if unknown.
    """

    run: int
    exit_code: int | None = None
    signal: int | None = None
    deadline_exceeded: bool = False
    cancelled: bool = False
    lost: str | None = None
    log_tail: str = ""
    log_path: str | None = None
    outcome: Outcome | None = None
    report: Report = field(default_factory=Report)
    pod_uid: str | None = None
    node: str | None = None
    at: float | None = None


@dataclass(frozen=True)
class Host:
    """The host of a process, to prove its end. Two processes with the same `boot` share their process ids.

    `name`: the host name. `boot`: the kernel's boot id and the process id namespace.
    """

    name: str
    boot: str


@dataclass(frozen=True)
class Proof:
    """Whether an earlier run or engine has certainly ended. `reason`: how it is known. `alive`: it certainly runs."""

    dead: bool
    reason: str
    alive: bool = False
