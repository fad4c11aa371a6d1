"""One attempt, as the engine, the launchers and the store speak of it.

Values only: who starts a run, who watches it and who records it are elsewhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opendataflow.names import OutcomeClass, StepStatus


@dataclass(frozen=True)
class Command:
    """What a run executes.

    `argv`: the program and its arguments, never through a shell. `env`: the whole of what the run sees beside
    the launcher's own surroundings. `cwd`: where it starts. `files`: name -> text, written into the run's
    folder before it starts (the context, Spark's properties); `env` names them with `{run_folder}`.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunOrder:
    """A claimed run, ready to be started. `deadline`: seconds it may take, None for no limit."""

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
    """The verdict on an ended run. `message`: one line for people."""

    kind: OutcomeClass
    message: str
    exit_code: int | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the run's outputs are good."""
        return self.kind is OutcomeClass.SUCCESS


@dataclass(frozen=True)
class StepTold:
    """One step of a run, as its report tells it. `ordinal`: from 1 on; some may have been left out of the report.
    `error`: a sentence, and below it the traceback. `stdout`: the end of what it has printed."""

    ordinal: int
    name: str
    status: StepStatus
    rows: int | None = None
    seconds: float | None = None
    error: str | None = None
    stdout: str | None = None


@dataclass(frozen=True)
class Report:
    """What a run says of its work. `metrics`: by name; `rows`, `bytes` and `checksum` are of what it wrote,
    `expectations` a list of {name, held, severity, found}. `unfinished`: it was told while the run was under way."""

    metrics: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[StepTold, ...] = ()
    unfinished: bool = False

    @property
    def failure(self) -> str | None:
        """The sentence of a run that says itself that it has failed."""
        return self.metrics.get("failure")

    @property
    def untested(self) -> str | None:
        """The sentence of a run that has done nothing, because the unit tests of its project fail."""
        tests = self.metrics.get("tests")
        return None if tests is None or tests["passed"] else self.failure or "the unit tests of its project fail"

    @property
    def unmet(self) -> list[Mapping[str, Any]]:
        """The expectations that do not hold, and have to."""
        told: list[Mapping[str, Any]] = self.metrics.get("expectations", [])
        return [it for it in told if not it["held"] and it["severity"] == "fail"]

    @property
    def says_done(self) -> bool:
        """Whether the run had done its work when it wrote this."""
        return self.failure is None and not self.unfinished and not self.unmet


@dataclass(frozen=True)
class Ended:
    """What a launcher saw at the end of a run. core/runs/outcome.py judges it, unless the launcher has set `outcome`.

    `exit_code`: None where the process did not end by itself. `signal`: the signal that ended it.
    `deadline_exceeded`: the launcher stopped it for its deadline. `lost`: why nobody can tell how it ended.
    `cancelled`: the launcher stopped it because a person asked. `log_tail`: at most 64 KiB, the end of its output.
    `at`: when it ended, in seconds since the epoch, where that is known.
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
    """Where a process runs, for proving it dead: two processes with the same `boot` see the same process ids.

    `name`: the host's name. `boot`: the kernel's boot id and the process id namespace.
    """

    name: str
    boot: str


@dataclass(frozen=True)
class Proof:
    """Whether an earlier run or engine has certainly ended, and how that is known. `alive`: it certainly has not."""

    dead: bool
    reason: str
    alive: bool = False
