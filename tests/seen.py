"""An observer of engines that remembers all reports."""

from dataclasses import dataclass, field

from opendataflow.engine.ports import Step
from opendataflow.errors import NotStarted
from opendataflow.model.records.claim import ClaimedRun, Completed, Completion


@dataclass
class Seen:
    """Everything that an engine has reported, in order. `held`: (job, what kind of reason, or None)."""

    claims: list[ClaimedRun] = field(default_factory=list)
    ends: list[Completed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    held: list[tuple[str, type[NotStarted] | None]] = field(default_factory=list)

    def claimed(self, run: ClaimedRun) -> None:
        self.claims.append(run)

    def completed(self, completion: Completion, run: ClaimedRun, result: Completed) -> None:  # noqa: ARG002 # a protocol
        self.ends.append(result)

    def starts_blocked(self, job: str, reason: NotStarted | None) -> None:
        self.held.append((job, None if reason is None else type(reason)))

    def observe_duration(self, step: Step, seconds: float) -> None:
        pass

    def heartbeat(self, loop: str) -> None:
        pass

    def outdated(self, job: str) -> None:
        self.notes.append(f"{job} was applied")

    def note(self, text: str) -> None:
        self.notes.append(text)
